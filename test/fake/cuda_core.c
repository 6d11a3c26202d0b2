// SPDX-License-Identifier: Apache-2.0
/* The fake driver: start, devices, contexts, errors, and the tests' controls. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_fake.h"

#define MAX_CALLS 128
#define MAX_DEPTH 16

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

static struct call {
	char name[40];
	unsigned long count;
	unsigned long fail_at; /* 0: never */
	bool fail_after;
	int result;
} calls[MAX_CALLS]; /* protected by: fake_lock */

static pid_t started_by;
static _Atomic bool gone;
static int devices[MAX_DEVICES]; /* the physical device of each visible one */
static int device_total;
static struct context primary[MAX_DEVICES];

static _Thread_local struct context *stack[MAX_DEPTH];
static _Thread_local int depth;
static _Thread_local int capture_mode;

static _Atomic int capturing;     /* graphs being recorded in the global mode */
static _Atomic bool spoilt;

/* --------------------------------------------------------------- controls */

static struct call *find_call(const char *name)
{
	int i = 0;

	while (i < MAX_CALLS - 1 && calls[i].name[0] && strcmp(calls[i].name, name))
		i++;
	snprintf(calls[i].name, sizeof(calls[i].name), "%s", name);
	return &calls[i];
}

int fake_chance(const char *name)
{
	struct call *c;
	int result = 0;

	pthread_mutex_lock(&fake_lock);
	c = find_call(name);
	c->count++;
	if (c->fail_at && (c->count == c->fail_at || (c->fail_after && c->count > c->fail_at)))
		result = c->result;
	pthread_mutex_unlock(&fake_lock);
	return result;
}

int fake_call(const char *name)
{
	int result = fake_chance(name);

	if (gone)
		return DEINITIALIZED;
	if (started_by != getpid())
		return NOT_INITIALIZED;
	return result;
}

int fake_unsafe_call(const char *name)
{
	int result = fake_call(name);

	if (!result && capturing && capture_mode == 0) {
		spoilt = true;
		return CAPTURE_UNSUPPORTED;
	}
	return result;
}

API void fakecuda_state(const char *call, int device, struct fakecuda_state *out)
{
	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&fake_lock);
	if (call)
		out->calls = find_call(call)->count;
	if (device >= 0 && device < MAX_DEVICES)
		out->retained = primary[device].retained;
	pthread_mutex_unlock(&fake_lock);
	out->depth = depth;
	out->capture_mode_kept = capture_mode == 0;
	fake_count_memory(out);
	fake_count_streams(out);
}

API void fakecuda_fail(const char *call, int result, unsigned int nth, bool all)
{
	struct call *c;

	pthread_mutex_lock(&fake_lock);
	c = find_call(call);
	c->result = result;
	c->fail_at = nth ? c->count + nth : 0;
	c->fail_after = all;
	pthread_mutex_unlock(&fake_lock);
}

API void fakecuda_tear_down(bool is_gone)
{
	gone = is_gone;
}

static void at_exit(void)
{
	gone = true;
}

/* "name=result@nth,name=result@nth+" */
static void read_failures(void)
{
	const char *text = getenv("FAKE_CUDA_FAIL");
	char name[40], plus;
	unsigned int nth;
	int result, n;

	while (text && *text) {
		plus = 0;
		n = sscanf(text, "%39[^=]=%d@%u%c", name, &result, &nth, &plus);
		if (n < 3)
			return;
		fakecuda_fail(name, result, nth, plus == '+');
		text = strchr(text, ',');
		text = text ? text + 1 : NULL;
	}
}

/* ------------------------------------------------------- start and errors */

static long number(const char *name, long fallback)
{
	const char *text = getenv(name);

	return text && *text ? strtol(text, NULL, 0) : fallback;
}

static void find_devices(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int all = (int)number("FAKE_CUDA_DEVICES", 2);

	for (int i = 0; i < MAX_DEVICES; i++)
		primary[i].device = i;
	device_total = 0;
	if (!visible || !strncmp(visible, "MIG-", 4)) {
		for (; device_total < all && device_total < MAX_DEVICES; device_total++)
			devices[device_total] = device_total;
		return;
	}
	while (*visible && device_total < MAX_DEVICES) {
		char *end;
		long i = strtol(visible, &end, 10);

		if (end == visible || i < 0 || i >= all)
			break; /* as the driver does: what follows is not visible */
		devices[device_total++] = (int)i;
		visible = *end == ',' ? end + 1 : end;
	}
}

API int cuInit(unsigned int flags)
{
	int result;

	if (!started_by) {
		started_by = getpid();
		read_failures();
		find_devices();
		atexit(at_exit);
	}
	result = fake_call("cuInit");
	if (!result && !device_total)
		result = NO_DEVICE;
	return result;
}

API int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return fake_chance("cuDriverGetVersion");
}

static const struct {
	int result;
	const char *name, *text;
} errors[] = {
	{ 0, "CUDA_SUCCESS", "no error" },
	{ 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
	{ 34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library" },
	{ 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ 600, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
	{ 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "unsupported driver combination" },
	{ 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while capturing" },
	{ 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "failed by an error during capture" },
};

API int cuGetErrorName(int result, const char **name)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (errors[i].result == result) {
			*name = errors[i].name;
			return 0;
		}
	}
	*name = NULL;
	return INVALID_VALUE;
}

API int cuGetErrorString(int result, const char **text)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (errors[i].result == result) {
			*text = errors[i].text;
			return 0;
		}
	}
	*text = NULL;
	return INVALID_VALUE;
}

/* ---------------------------------------------------------------- devices */

int fake_device_count(void)
{
	return device_total;
}

size_t fake_device_memory(void)
{
	return (size_t)number("FAKE_CUDA_MEMORY", 1L << 30);
}

API int cuDeviceGetCount(int *count)
{
	*count = device_total;
	return fake_call("cuDeviceGetCount");
}

API int cuDeviceGet(int *device, int ordinal)
{
	if (ordinal < 0 || ordinal >= device_total)
		return INVALID_DEVICE;
	*device = ordinal;
	return fake_call("cuDeviceGet");
}

API int cuDeviceGetName(char *name, int len, int device)
{
	const char *text = getenv("FAKE_CUDA_NAME");

	snprintf(name, (size_t)len, "%s", text ? text : "NVIDIA Fake");
	return fake_call("cuDeviceGetName");
}

API int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	*bytes = fake_device_memory();
	return fake_call("cuDeviceTotalMem_v2");
}

bool fake_has_words(void)
{
	return number("FAKE_CUDA_WORDS", 1);
}

API int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	*value = (attribute == 93 || attribute == 122) && fake_has_words();
	return fake_call("cuDeviceGetAttribute");
}

/* Upper case, as the driver writes it. */
API int cuDeviceGetPCIBusId(char *bdf, int len, int device)
{
	if (device < 0 || device >= device_total)
		return INVALID_DEVICE;
	snprintf(bdf, (size_t)len, "0000:%02X:00.0", FAKE_BUS + devices[device] * 0x10);
	return fake_call("cuDeviceGetPCIBusId");
}

/* --------------------------------------------------------------- contexts */

struct context *fake_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

int fake_context_error(struct context *context)
{
	return context ? context->broken : INVALID_CONTEXT;
}

API int cuDevicePrimaryCtxRetain(struct context **context, int device)
{
	int result = fake_call("cuDevicePrimaryCtxRetain");

	if (result)
		return result;
	if (device < 0 || device >= device_total)
		return INVALID_DEVICE;
	pthread_mutex_lock(&fake_lock);
	primary[device].retained++;
	pthread_mutex_unlock(&fake_lock);
	*context = &primary[device];
	return 0;
}

API int cuDevicePrimaryCtxRelease_v2(int device)
{
	int result = fake_call("cuDevicePrimaryCtxRelease_v2");

	if (result)
		return result;
	pthread_mutex_lock(&fake_lock);
	primary[device].retained--;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

API int cuCtxCreate_v2(struct context **context, unsigned int flags, int device)
{
	int result = fake_call("cuCtxCreate_v2");

	if (result)
		return result;
	if (depth == MAX_DEPTH)
		return OUT_OF_MEMORY;
	*context = calloc(1, sizeof(**context));
	if (!*context)
		return OUT_OF_MEMORY;
	(*context)->device = device;
	stack[depth++] = *context;
	return 0;
}

API int cuCtxPushCurrent_v2(struct context *context)
{
	int result = fake_call("cuCtxPushCurrent_v2");

	if (result)
		return result;
	if (!context || depth == MAX_DEPTH)
		return INVALID_CONTEXT;
	stack[depth++] = context;
	return 0;
}

API int cuCtxPopCurrent_v2(struct context **context)
{
	int result = fake_call("cuCtxPopCurrent_v2");

	if (!depth)
		return INVALID_CONTEXT;
	*context = stack[--depth];
	return result;
}

API int cuCtxGetCurrent(struct context **context)
{
	*context = fake_current();
	return fake_call("cuCtxGetCurrent");
}

API int cuCtxSetCurrent(struct context *context)
{
	int result = fake_call("cuCtxSetCurrent");

	if (result)
		return result;
	if (depth)
		depth--;
	if (context)
		stack[depth++] = context;
	return 0;
}

API int cuCtxSynchronize(void)
{
	return fake_context_error(fake_current());
}

/* ------------------------------------------------------ recording a graph */

API int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int old = capture_mode;

	capture_mode = *mode;
	*mode = old;
	return fake_call("cuThreadExchangeStreamCaptureMode");
}

API int cuStreamBeginCapture_v2(struct stream *stream, int mode)
{
	stream->capturing = true;
	spoilt = false;
	capturing += mode == 0;
	return fake_call("cuStreamBeginCapture_v2");
}

API int cuStreamIsCapturing(struct stream *stream, int *status)
{
	*status = stream && stream->capturing;
	return fake_call("cuStreamIsCapturing");
}

API int cuStreamEndCapture(struct stream *stream, void **graph)
{
	*graph = NULL;
	stream->capturing = false;
	capturing = 0;
	return spoilt ? CAPTURE_INVALIDATED : fake_call("cuStreamEndCapture");
}
