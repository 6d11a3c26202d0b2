// SPDX-License-Identifier: Apache-2.0
/*
 * Settings: defaults, then cufile.json, then the environment, then what the
 * cuFileSetParameter calls have staged; gathered when the driver is opened.
 *
 * Reading is lenient: a file that is missing or broken, keys that are unknown,
 * and values that are out of range or of another type change nothing. Few
 * settings mean anything here: see phx-cufile(7).
 */
#include <json-c/json.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cufile.h"

struct size_setting {
	const char *key; /* in cufile.json */
	size_t value, min, max;
};

static const struct size_setting sizes[CF_SIZES] = {
	[CUFILE_PARAM_PROFILE_STATS] = { "profile.cufile_stats", 0, 0, 3 },
	[CUFILE_PARAM_EXECUTION_MAX_IO_QUEUE_DEPTH] = { "execution.max_io_queue_depth", 128, 1,
							256 },
	[CUFILE_PARAM_EXECUTION_MAX_IO_THREADS] = { "execution.max_io_threads", 4, 0, 32 },
	[CUFILE_PARAM_EXECUTION_MIN_IO_THRESHOLD_SIZE_KB] = { "execution.min_io_threshold_size_kb",
							      8192, 4, UINT_MAX },
	[CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM] = { "execution.max_request_parallelism",
							     4, 0, 8 },
	[CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB] = { "properties.max_direct_io_size_kb",
							    16384, 64, 16384 },
	[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB] = {
		"properties.max_device_cache_size_kb", 131072, 0, UINT_MAX },
	[CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB] = {
		"properties.per_buffer_cache_size_kb", 1024, 64, 16384 },
	[CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB] = {
		"properties.max_device_pinned_mem_size_kb", 33554432, 0, UINT_MAX },
	[CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE] = { "properties.io_batchsize", 128, 1, 256 },
	[CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB] = { "properties.poll_mode_max_size_kb", 4, 4,
						 UINT_MAX },
	[CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS] = { "properties.max_batch_io_timeout_msecs",
							  5, 1, 1000 },
};

struct bool_setting {
	const char *key;
	const char *variable; /* in the environment, or NULL */
	bool value;
};

static const struct bool_setting bools[CF_BOOLS] = {
	[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = { "properties.use_poll_mode" },
	[CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE] = { "properties.allow_compat_mode",
							"CUFILE_ALLOW_COMPAT_MODE", true },
	[CUFILE_PARAM_FORCE_COMPAT_MODE] = { "properties.force_compat_mode",
					     "CUFILE_FORCE_COMPAT_MODE" },
	[CUFILE_PARAM_FS_MISC_API_CHECK_AGGRESSIVE] = { "miscellaneous.api_check_aggressive" },
	[CUFILE_PARAM_EXECUTION_PARALLEL_IO] = { "execution.parallel_io", NULL, true },
	[CUFILE_PARAM_PROFILE_NVTX] = { "profile.nvtx", "CUFILE_NVTX" },
	[CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY] = { "properties.allow_system_memory", NULL,
							  true },
	[CUFILE_PARAM_USE_PCIP2PDMA] = { "properties.use_pci_p2pdma", "CUFILE_USE_PCIP2PDMA" },
	[CUFILE_PARAM_PREFER_IO_URING] = { "properties.prefer_iouring", NULL, true },
	[CUFILE_PARAM_FORCE_ODIRECT_MODE] = { "properties.force_odirect_mode" },
	[CUFILE_PARAM_SKIP_TOPOLOGY_DETECTION] = { "miscellaneous.skip_topology_detection",
						   "CUFILE_SKIP_TOPOLOGY_DETECTION" },
	[CUFILE_PARAM_STREAM_MEMOPS_BYPASS] = { "miscellaneous.stream_memops_bypass" },
	[CUFILE_PARAM_PROPERTIES_POSIX_IO_MODE] = { "properties.posix_io_mode" },
	[CUFILE_PARAM_GDS_FALLBACK_IO] = { "properties.gds_fallback_io" },
};

struct string_setting {
	const char *key;
	const char *variable;
	const char *value;
};

static const struct string_setting strings[CF_STRINGS] = {
	[CUFILE_PARAM_LOGGING_LEVEL] = { "logging.level", "CUFILE_LOGGING_LEVEL", "ERROR" },
	[CUFILE_PARAM_ENV_LOGFILE_PATH] = { NULL, "CUFILE_LOGFILE_PATH", "" },
	[CUFILE_PARAM_LOG_DIR] = { "logging.dir", NULL, "" },
	[CUFILE_PARAM_RDMA_TRANSPORT] = { "properties.rdma_transport", NULL, "" },
};

struct slab_setting {
	const char *size_key, *count_key;
	struct cf_slab value;
};

static const struct slab_setting slabs[CF_SLABS] = {
	{ "properties.posix_pool_slab_size_kb", "properties.posix_pool_slab_count",
	  { { 4, 1024, 16384 }, { 128, 64, 64 }, 3 } },
	{ "properties.gpu_bounce_buffer_slab_size_kb", "properties.gpu_bounce_buffer_slab_count",
	  { { 1024 }, { 128 }, 1 } },
};

/* What the program asked for before the driver is opened. */
static struct {
	struct cf_settings values;
	bool sizes[CF_SIZES], bools[CF_BOOLS], strings[CF_STRINGS], slabs[CF_SLABS];
} staged;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all of the settings */
static struct cf_settings in_force; /* in force since the driver was opened */
static FILE *log_file;
atomic_bool cf_strict;

/* ------------------------------------------------------------- gathering */

/* The value at "a.b", or NULL. */
static struct json_object *look_up(struct json_object *root, const char *key)
{
	struct json_object *at = root;
	char name[64];

	for (size_t n; at && *key; key += n + (key[n] == '.')) {
		n = strcspn(key, ".");
		if (n >= sizeof(name) || !json_object_is_type(at, json_type_object))
			return NULL;
		memcpy(name, key, n);
		name[n] = 0;
		if (!json_object_object_get_ex(at, name, &at))
			return NULL;
	}
	return at;
}

static bool is_true(const char *text)
{
	return !strcasecmp(text, "true") || !strcasecmp(text, "yes") || !strcasecmp(text, "on") ||
	       !strcmp(text, "1");
}

static bool in_range(int param, size_t value)
{
	return value >= sizes[param].min && value <= sizes[param].max;
}

static void read_slab(struct json_object *root, const struct slab_setting *setting,
		      struct cf_slab *slab)
{
	struct json_object *size = look_up(root, setting->size_key);
	struct json_object *count = look_up(root, setting->count_key);
	size_t n;

	if (!json_object_is_type(size, json_type_array) ||
	    !json_object_is_type(count, json_type_array))
		return;
	n = json_object_array_length(size);
	if (!n || n > CF_SLAB_MAX || n != json_object_array_length(count))
		return;
	for (size_t i = 0; i < n; i++) {
		slab->size_kb[i] = json_object_get_uint64(json_object_array_get_idx(size, i));
		slab->count[i] = json_object_get_uint64(json_object_array_get_idx(count, i));
	}
	slab->len = (int)n;
}

static void read_json(struct json_object *root, struct cf_settings *s)
{
	struct json_object *value;

	for (int i = 0; i < CF_SIZES; i++) {
		value = look_up(root, sizes[i].key);
		if (value && in_range(i, json_object_get_uint64(value)))
			s->sizes[i] = json_object_get_uint64(value);
	}
	for (int i = 0; i < CF_BOOLS; i++) {
		value = look_up(root, bools[i].key);
		if (json_object_is_type(value, json_type_boolean))
			s->bools[i] = json_object_get_boolean(value);
	}
	for (int i = 0; i < CF_STRINGS; i++) {
		value = strings[i].key ? look_up(root, strings[i].key) : NULL;
		if (json_object_is_type(value, json_type_string))
			snprintf(s->strings[i], CF_STRING_MAX, "%s", json_object_get_string(value));
	}
	for (int i = 0; i < CF_SLABS; i++)
		read_slab(root, &slabs[i], &s->slabs[i]);
}

static void read_environment(struct cf_settings *s)
{
	const char *text;

	for (int i = 0; i < CF_BOOLS; i++) {
		text = bools[i].variable ? getenv(bools[i].variable) : NULL;
		if (text && *text)
			s->bools[i] = is_true(text);
	}
	for (int i = 0; i < CF_STRINGS; i++) {
		text = strings[i].variable ? getenv(strings[i].variable) : NULL;
		if (text && *text)
			snprintf(s->strings[i], CF_STRING_MAX, "%s", text);
	}
}

static void gather(struct cf_settings *s)
{
	const char *path = getenv("CUFILE_ENV_PATH_JSON");
	struct json_object *root;

	for (int i = 0; i < CF_SIZES; i++)
		s->sizes[i] = sizes[i].value;
	for (int i = 0; i < CF_BOOLS; i++)
		s->bools[i] = bools[i].value;
	for (int i = 0; i < CF_STRINGS; i++)
		snprintf(s->strings[i], CF_STRING_MAX, "%s", strings[i].value);
	for (int i = 0; i < CF_SLABS; i++)
		s->slabs[i] = slabs[i].value;
	/* Its comments are json-c's ordinary fare. */
	root = json_object_from_file(path && *path ? path : "/etc/cufile.json");
	if (root)
		read_json(root, s);
	json_object_put(root);
	read_environment(s);

	for (int i = 0; i < CF_SIZES; i++)
		s->sizes[i] = staged.sizes[i] ? staged.values.sizes[i] : s->sizes[i];
	for (int i = 0; i < CF_BOOLS; i++)
		s->bools[i] = staged.bools[i] ? staged.values.bools[i] : s->bools[i];
	for (int i = 0; i < CF_STRINGS; i++) {
		if (staged.strings[i])
			memcpy(s->strings[i], staged.values.strings[i], CF_STRING_MAX);
	}
	for (int i = 0; i < CF_SLABS; i++)
		s->slabs[i] = staged.slabs[i] ? staged.values.slabs[i] : s->slabs[i];
}

/* -------------------------------------------------------------------- log */

static void log_line(void *arg, int level, const char *message)
{
	static const char *const words[] = { "", "ERROR", "WARN", "INFO", "DEBUG" };

	fprintf(arg, "%s %s\n", words[level >= 0 && level <= PHXFS_LOG_DEBUG ? level : 0], message);
	fflush(arg);
}

static int log_level(const char *word)
{
	if (!strcasecmp(word, "WARN"))
		return PHXFS_LOG_WARN;
	if (!strcasecmp(word, "NOTICE") || !strcasecmp(word, "INFO"))
		return PHXFS_LOG_INFO;
	if (!strcasecmp(word, "DEBUG") || !strcasecmp(word, "TRACE"))
		return PHXFS_LOG_DEBUG;
	return PHXFS_LOG_ERROR;
}

/* Where it was asked for, and nowhere else: no cufile.log in whatever folder is current. */
static void open_log(const struct cf_settings *s)
{
	const char *file = s->strings[CUFILE_PARAM_ENV_LOGFILE_PATH];
	const char *dir = s->strings[CUFILE_PARAM_LOG_DIR];
	char path[CF_STRING_MAX + 16];

	if (!*file && !*dir)
		return;
	if (*file)
		snprintf(path, sizeof(path), "%s", file);
	else
		snprintf(path, sizeof(path), "%s/cufile.log", dir);
	if (!log_file) /* once and for good: a message may be on its way */
		log_file = fopen(path, "ae");
	if (log_file)
		phxfs_set_log(log_line, log_file,
			      log_level(s->strings[CUFILE_PARAM_LOGGING_LEVEL]));
}

void cf_config_open(void)
{
	pthread_mutex_lock(&lock);
	gather(&in_force);
	memset(&staged, 0, sizeof(staged));
	atomic_store(&cf_strict, !in_force.bools[CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE]);
	open_log(&in_force);
	pthread_mutex_unlock(&lock);
	cf_stats_open(in_force.sizes[CUFILE_PARAM_PROFILE_STATS]);
}

void cf_config_close(void)
{
	if (log_file)
		phxfs_set_log(NULL, NULL, PHXFS_LOG_OFF);
}

/* ----------------------------------------------------------- asking, setting */

/* The settings in force, or those that would be; with the lock held. */
static const struct cf_settings *current(void)
{
	static struct cf_settings expected; /* protected by: lock */

	if (cf_driver_is_open())
		return &in_force;
	gather(&expected);
	return &expected;
}

size_t cf_config_size(CUFileSizeTConfigParameter_t param)
{
	size_t value;

	pthread_mutex_lock(&lock);
	value = current()->sizes[param];
	pthread_mutex_unlock(&lock);
	return value;
}

bool cf_config_bool(CUFileBoolConfigParameter_t param)
{
	bool value;

	pthread_mutex_lock(&lock);
	value = current()->bools[param];
	pthread_mutex_unlock(&lock);
	return value;
}

int cf_config_set_size(CUFileSizeTConfigParameter_t param, size_t value)
{
	if (!in_range(param, value))
		return CU_FILE_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	in_force.sizes[param] = value;
	staged.values.sizes[param] = value;
	staged.sizes[param] = !cf_driver_is_open();
	pthread_mutex_unlock(&lock);
	return CU_FILE_SUCCESS;
}

void cf_config_set_poll(bool poll)
{
	pthread_mutex_lock(&lock);
	in_force.bools[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = poll;
	staged.values.bools[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = poll;
	staged.bools[CUFILE_PARAM_PROPERTIES_USE_POLL_MODE] = !cf_driver_is_open();
	pthread_mutex_unlock(&lock);
}

static bool is_size(CUFileSizeTConfigParameter_t param)
{
	return (unsigned int)param < CF_SIZES;
}

CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value)
{
	if (!is_size(param) || !value)
		return cf_result(CU_FILE_INVALID_VALUE);
	*value = cf_config_size(param);
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value)
{
	if (!is_size(param))
		return cf_result(CU_FILE_INVALID_VALUE);
	if (cf_driver_is_open())
		return cf_result(CU_FILE_DRIVER_ALREADY_OPEN);
	return cf_result(cf_config_set_size(param, value));
}

CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param,
					    size_t *min_value, size_t *max_value)
{
	if (!is_size(param) || param == CUFILE_PARAM_PROFILE_STATS || !min_value || !max_value)
		return cf_result(CU_FILE_INVALID_VALUE);
	*min_value = sizes[param].min;
	*max_value = sizes[param].max;
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value)
{
	if ((unsigned int)param >= CF_BOOLS || !value)
		return cf_result(CU_FILE_INVALID_VALUE);
	*value = cf_config_bool(param);
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value)
{
	if ((unsigned int)param >= CF_BOOLS)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (cf_driver_is_open())
		return cf_result(CU_FILE_DRIVER_ALREADY_OPEN);
	pthread_mutex_lock(&lock);
	staged.values.bools[param] = value;
	staged.bools[param] = true;
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *desc_str,
				       int len)
{
	const char *value;
	int number = CU_FILE_INVALID_VALUE;

	if ((unsigned int)param >= CF_STRINGS || !desc_str || len <= 0)
		return cf_result(number);
	pthread_mutex_lock(&lock);
	value = current()->strings[param];
	if (strlen(value) < (size_t)len) {
		memcpy(desc_str, value, strlen(value) + 1);
		number = CU_FILE_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return cf_result(number);
}

CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *desc_str)
{
	if ((unsigned int)param >= CF_STRINGS || !desc_str || strlen(desc_str) >= CF_STRING_MAX)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (cf_driver_is_open())
		return cf_result(CU_FILE_DRIVER_ALREADY_OPEN);
	pthread_mutex_lock(&lock);
	memcpy(staged.values.strings[param], desc_str, strlen(desc_str) + 1);
	staged.strings[param] = true;
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

static CUfileError_t set_slab(int which, const size_t *size, const size_t *count, int len)
{
	struct cf_slab *slab = &staged.values.slabs[which];

	if (!size || !count || len < 1 || len > CF_SLAB_MAX)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (cf_driver_is_open())
		return cf_result(CU_FILE_DRIVER_ALREADY_OPEN);
	pthread_mutex_lock(&lock);
	memcpy(slab->size_kb, size, (size_t)len * sizeof(*size));
	memcpy(slab->count, count, (size_t)len * sizeof(*count));
	slab->len = len;
	staged.slabs[which] = true;
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

static CUfileError_t get_slab(int which, size_t *size, size_t *count, int len)
{
	const struct cf_slab *slab;
	int number = CU_FILE_INVALID_VALUE;

	if (!size || !count)
		return cf_result(number);
	pthread_mutex_lock(&lock);
	slab = &current()->slabs[which];
	if (len >= slab->len) {
		memcpy(size, slab->size_kb, (size_t)slab->len * sizeof(*size));
		memcpy(count, slab->count, (size_t)slab->len * sizeof(*count));
		number = CU_FILE_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return cf_result(number);
}

CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_values,
						   const size_t *count_values, int len)
{
	return set_slab(0, size_values, count_values, len);
}

CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_values, size_t *count_values,
						   int len)
{
	return get_slab(0, size_values, count_values, len);
}

CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_values,
							 const size_t *count_values, int len)
{
	return set_slab(1, size_values, count_values, len);
}

CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_values,
							 size_t *count_values, int len)
{
	return get_slab(1, size_values, count_values, len);
}
