// SPDX-License-Identifier: Apache-2.0
/*
 * phx stat: counters and latencies of a running process, looked at from
 * outside. Watching switches the measuring of latencies on; nothing is left
 * behind.
 */
#include "tool.h"

#include <errno.h>
#include <math.h>
#include <phoenix.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char help[] =
	"usage: phx stat PID [OPTION...]\n"
	"\n"
	"Shows what a running process moves: rates of each interval, totals, and\n"
	"latency percentiles since the first look. Ends with the process.\n"
	"\n"
	"  --interval S     seconds between two looks (default 1)\n"
	"  --count N        end after N looks (default: until the process ends;\n"
	"                   with --prometheus 1)\n"
	"  --device N       one device only (-1: plain host memory)\n"
	"  --json           one JSON object for each look\n"
	"  --prometheus     the text format that Prometheus scrapes\n"
	"\n"
	"exit status: 0 done, 1 the process cannot be looked at, 2 wrong command line\n";

#define NO_DEVICE INT32_MIN
#define DEVICES_MAX 64
#define HEADER_EVERY 20

struct look {
	int device;
	struct phxfs_stats stats;
	struct phxfs_stats before;
};

struct watch {
	/* from the command line */
	pid_t pid;
	double interval;
	uint64_t count;
	int only;
	bool json;
	bool prometheus;

	phxfs_stats_view_t *view;
	int pidfd;              /* -1: the kernel has none */
	struct look looks[DEVICES_MAX];
	int n;
	uint64_t last_ns;
	double elapsed;         /* seconds between the two looks */
	bool ended;
	struct phxfs_latency latency[2]; /* by enum phxfs_op */
};

static atomic_bool interrupted;

static void on_signal(int number)
{
	(void)number;
	atomic_store_explicit(&interrupted, true, memory_order_relaxed);
}

static const char *const op_names[2] = {
	[PHXFS_OP_READ] = "read",
	[PHXFS_OP_WRITE] = "write",
};

static const struct phxfs_path_stats *paths_of(const struct phxfs_stats *s, int op)
{
	return op == PHXFS_OP_WRITE ? s->write : s->read;
}

/* -------------------------------------------------------------- collecting */

static int read_device(struct watch *w, struct look *look)
{
	look->before = look->stats;
	look->stats = (struct phxfs_stats){ .size = sizeof(look->stats) };
	return phxfs_stats_view_read(w->view, look->device, &look->stats);
}

/* Finds the devices once. Plain host memory comes last. */
static int find_devices(struct watch *w)
{
	struct look *look;
	int device, rc = 0;

	for (device = 0; device < DEVICES_MAX; device++) {
		look = &w->looks[w->n];
		look->device = device == DEVICES_MAX - 1 ? -1 : device;
		if (w->only != NO_DEVICE && look->device != w->only)
			continue;
		rc = read_device(w, look);
		if (rc == 0)
			w->n++;
		else if (rc != -ENODEV)
			return failed_call(&cmd_stat, rc, "process %d", (int)w->pid);
	}
	if (!w->n)
		return failed(&cmd_stat, "process %d has no such device", (int)w->pid);
	return EXIT_OK;
}

static int take_look(struct watch *w)
{
	uint64_t now = now_ns();
	int i, rc, op;

	for (i = 0; i < w->n; i++) {
		rc = read_device(w, &w->looks[i]);
		if (rc)
			return failed_call(&cmd_stat, rc, "process %d", (int)w->pid);
	}
	for (op = 0; op < 2; op++) {
		w->latency[op] = (struct phxfs_latency){ .size = sizeof(w->latency[op]) };
		rc = phxfs_stats_view_latency(w->view, op, &w->latency[op]);
		if (rc)
			return failed_call(&cmd_stat, rc, "process %d", (int)w->pid);
	}
	w->elapsed = (double)(now - w->last_ns) / 1e9;
	w->last_ns = now;
	return EXIT_OK;
}

/* Waits for the next look, less when the process ends or a signal comes. */
static void wait_interval(struct watch *w)
{
	struct timespec left = {
		.tv_sec = (time_t)w->interval,
		.tv_nsec = (long)((w->interval - floor(w->interval)) * 1e9),
	};
	struct pollfd process = { .fd = w->pidfd, .events = POLLIN };

	if (w->pidfd >= 0) {
		w->ended = ppoll(&process, 1, &left, NULL) > 0;
		return;
	}
	nanosleep(&left, NULL);
	w->ended = kill(w->pid, 0) && errno == ESRCH;
}

/* ---------------------------------------------------------------- printing */

struct rate {
	double ops;
	double gib;
	uint64_t errors;
	uint64_t bytes[PHXFS_PATHS];
};

static struct rate rate_of(const struct watch *w, const struct look *look, int op)
{
	const struct phxfs_path_stats *now = paths_of(&look->stats, op);
	const struct phxfs_path_stats *before = paths_of(&look->before, op);
	double seconds = w->elapsed > 0 ? w->elapsed : 1;
	struct rate r = { 0 };
	int path;

	for (path = 0; path < PHXFS_PATHS; path++) {
		r.bytes[path] = now[path].bytes - before[path].bytes;
		r.gib += (double)r.bytes[path] / (1u << 30) / seconds;
		r.errors += now[path].errors - before[path].errors;
		/* an edge is a part of a transfer that is counted elsewhere */
		if (path != PHXFS_PATH_EDGE)
			r.ops += (double)(now[path].ops - before[path].ops) / seconds;
	}
	return r;
}

static void print_header(void)
{
	printf("%6s %-5s %10s %9s %9s %9s %9s %9s %7s %9s %9s %9s\n", "device", "op", "IOPS",
	       "GiB/s", "direct", "staging", "bounce", "edge", "errors", "p50", "p99", "p99.9");
}

static void print_row(const struct watch *w, const struct look *look, int op)
{
	const struct phxfs_latency *l = &w->latency[op];
	char device[16], word[PHXFS_PATHS][WORD_MAX], p50[WORD_MAX], p99[WORD_MAX],
		p999[WORD_MAX];
	struct rate r = rate_of(w, look, op);
	int path;

	if (look->device < 0)
		snprintf(device, sizeof(device), "host");
	else
		snprintf(device, sizeof(device), "%d", look->device);
	for (path = 0; path < PHXFS_PATHS; path++)
		size_word(word[path], r.bytes[path]);
	printf("%6s %-5s %10.0f %9.3f %9s %9s %9s %9s %7ju %9s %9s %9s\n", device, op_names[op],
	       r.ops, r.gib, word[PHXFS_PATH_DIRECT], word[PHXFS_PATH_STAGING],
	       word[PHXFS_PATH_BOUNCE], word[PHXFS_PATH_EDGE], (uintmax_t)r.errors,
	       time_word(p50, (double)l->p50_ns), time_word(p99, (double)l->p99_ns),
	       time_word(p999, (double)l->p999_ns));
}

static bool idle(const struct look *look)
{
	int op, path;

	for (op = 0; op < 2; op++)
		for (path = 0; path < PHXFS_PATHS; path++)
			if (paths_of(&look->stats, op)[path].ops)
				return false;
	return look->stats.registrations == 0;
}

static bool print_text(const struct watch *w, uint64_t turn)
{
	int i, op;

	if (turn % HEADER_EVERY == 0)
		print_header();
	for (i = 0; i < w->n; i++)
		for (op = 0; op < 2; op++)
			/* host memory that nobody uses would only fill the screen */
			if (w->looks[i].device >= 0 || !idle(&w->looks[i]))
				print_row(w, &w->looks[i], op);
	return fflush(stdout) == 0;
}

static void json_op(cJSON *to, const struct watch *w, const struct look *look, int op)
{
	const struct phxfs_path_stats *p = paths_of(&look->stats, op);
	cJSON *item = cJSON_AddObjectToObject(to, op_names[op]);
	struct rate r = rate_of(w, look, op);
	cJSON *paths, *one;
	int path;

	cJSON_AddNumberToObject(item, "iops", r.ops);
	cJSON_AddNumberToObject(item, "gib_per_s", r.gib);
	paths = cJSON_AddObjectToObject(item, "paths");
	for (path = 0; path < PHXFS_PATHS; path++) {
		one = cJSON_AddObjectToObject(paths, path_name(path));
		json_uint(one, "ops", p[path].ops);
		json_uint(one, "bytes", p[path].bytes);
		json_uint(one, "errors", p[path].errors);
	}
}

static void json_latency(cJSON *to, const struct watch *w, int op)
{
	const struct phxfs_latency *l = &w->latency[op];
	cJSON *item = cJSON_AddObjectToObject(to, op_names[op]);

	json_uint(item, "count", l->count);
	json_uint(item, "sum", l->sum_ns);
	json_uint(item, "max", l->max_ns);
	json_uint(item, "p50", l->p50_ns);
	json_uint(item, "p90", l->p90_ns);
	json_uint(item, "p99", l->p99_ns);
	json_uint(item, "p99.9", l->p999_ns);
}

static bool print_json(const struct watch *w)
{
	cJSON *root = cJSON_CreateObject();
	cJSON *devices, *item, *latency;
	int i, op;

	json_uint(root, "pid", (uint64_t)w->pid);
	cJSON_AddNumberToObject(root, "interval_seconds", w->elapsed);
	cJSON_AddBoolToObject(root, "ended", w->ended);
	devices = cJSON_AddArrayToObject(root, "devices");
	for (i = 0; i < w->n; i++) {
		item = cJSON_CreateObject();
		cJSON_AddNumberToObject(item, "device", w->looks[i].device);
		json_uint(item, "registrations", w->looks[i].stats.registrations);
		json_uint(item, "registered_bytes", w->looks[i].stats.registered_bytes);
		json_uint(item, "copies", w->looks[i].stats.copies);
		json_uint(item, "copy_bytes", w->looks[i].stats.copy_bytes);
		json_uint(item, "retries", w->looks[i].stats.retries);
		for (op = 0; op < 2; op++)
			json_op(item, w, &w->looks[i], op);
		cJSON_AddItemToArray(devices, item);
	}
	latency = cJSON_AddObjectToObject(root, "latency_ns");
	for (op = 0; op < 2; op++)
		json_latency(latency, w, op);
	return json_print(root);
}

enum path_field { FIELD_OPS, FIELD_BYTES, FIELD_ERRORS };

static uint64_t field_of(const struct phxfs_path_stats *p, enum path_field field)
{
	return field == FIELD_OPS ? p->ops : field == FIELD_BYTES ? p->bytes : p->errors;
}

static void prometheus_paths(const struct watch *w, enum path_field field, const char *name,
			     const char *text)
{
	int i, op, path;

	printf("# HELP %s %s\n# TYPE %s counter\n", name, text, name);
	for (i = 0; i < w->n; i++)
		for (op = 0; op < 2; op++)
			for (path = 0; path < PHXFS_PATHS; path++)
				printf("%s{pid=\"%d\",device=\"%d\",op=\"%s\",path=\"%s\"} %ju\n",
				       name, (int)w->pid, w->looks[i].device, op_names[op],
				       path_name(path),
				       (uintmax_t)field_of(
					       &paths_of(&w->looks[i].stats, op)[path], field));
}

static void prometheus_device(const struct watch *w, const char *name, const char *type,
			      const char *text, uint64_t (*value)(const struct phxfs_stats *))
{
	int i;

	printf("# HELP %s %s\n# TYPE %s %s\n", name, text, name, type);
	for (i = 0; i < w->n; i++)
		printf("%s{pid=\"%d\",device=\"%d\"} %ju\n", name, (int)w->pid,
		       w->looks[i].device, (uintmax_t)value(&w->looks[i].stats));
}

static uint64_t get_registrations(const struct phxfs_stats *s)
{
	return s->registrations;
}

static uint64_t get_registered_bytes(const struct phxfs_stats *s)
{
	return s->registered_bytes;
}

static uint64_t get_copies(const struct phxfs_stats *s)
{
	return s->copies;
}

static uint64_t get_copy_bytes(const struct phxfs_stats *s)
{
	return s->copy_bytes;
}

static uint64_t get_retries(const struct phxfs_stats *s)
{
	return s->retries;
}

static void prometheus_latency(const struct watch *w)
{
	const char *name = "phoenix_latency_seconds";
	const struct phxfs_latency *l;
	int op;

	printf("# HELP %s Latency of transfers since the first look.\n# TYPE %s summary\n", name,
	       name);
	for (op = 0; op < 2; op++) {
		const struct {
			const char *quantile;
			uint64_t ns;
		} rows[] = {
			{ "0.5", w->latency[op].p50_ns },
			{ "0.9", w->latency[op].p90_ns },
			{ "0.99", w->latency[op].p99_ns },
			{ "0.999", w->latency[op].p999_ns },
		};
		size_t i;

		l = &w->latency[op];
		for (i = 0; i < sizeof(rows) / sizeof(*rows); i++)
			printf("%s{pid=\"%d\",op=\"%s\",quantile=\"%s\"} %.9f\n", name,
			       (int)w->pid, op_names[op], rows[i].quantile,
			       (double)rows[i].ns / 1e9);
		printf("%s_sum{pid=\"%d\",op=\"%s\"} %.9f\n", name, (int)w->pid, op_names[op],
		       (double)l->sum_ns / 1e9);
		printf("%s_count{pid=\"%d\",op=\"%s\"} %ju\n", name, (int)w->pid, op_names[op],
		       (uintmax_t)l->count);
	}
}

static bool print_prometheus(const struct watch *w)
{
	prometheus_paths(w, FIELD_OPS, "phoenix_transfers_total", "Transfers by path.");
	prometheus_paths(w, FIELD_BYTES, "phoenix_bytes_total", "Bytes moved by path.");
	prometheus_paths(w, FIELD_ERRORS, "phoenix_errors_total", "Transfers that failed.");
	prometheus_device(w, "phoenix_registrations", "gauge", "Live registrations.",
			  get_registrations);
	prometheus_device(w, "phoenix_registered_bytes", "gauge", "Bytes registered.",
			  get_registered_bytes);
	prometheus_device(w, "phoenix_copies_total", "counter",
			  "Copies between chunk and buffer.", get_copies);
	prometheus_device(w, "phoenix_copy_bytes_total", "counter", "Bytes of those copies.",
			  get_copy_bytes);
	prometheus_device(w, "phoenix_retries_total", "counter", "Results resubmitted.",
			  get_retries);
	prometheus_latency(w);
	return fflush(stdout) == 0;
}

static bool print_look(const struct watch *w, uint64_t turn)
{
	if (w->json)
		return print_json(w);
	if (w->prometheus)
		return print_prometheus(w);
	return print_text(w, turn);
}

/* -------------------------------------------------------------------- main */

static int take_line(struct watch *w, int argc, char **argv)
{
	const struct opt opts[] = {
		{ "interval", OPT_SECONDS, &w->interval, 0, 0, NULL },
		{ "count", OPT_UINT, &w->count, 1, 0, NULL },
		{ "device", OPT_INT, &w->only, 0, 0, NULL },
		{ "json", OPT_FLAG, &w->json, 0, 0, NULL },
		{ "prometheus", OPT_FLAG, &w->prometheus, 0, 0, NULL },
		{ NULL, OPT_FLAG, NULL, 0, 0, NULL },
	};
	uint64_t pid;
	int first = 0;
	int rc = parse_options(&cmd_stat, opts, argc, argv, &first);

	if (rc)
		return rc;
	if (argc - first != 1)
		return usage_error(&cmd_stat, "one process id is needed");
	if (parse_uint(argv[first], &pid) || !pid || pid > INT32_MAX)
		return usage_error(&cmd_stat, "'%s' is not a process id", argv[first]);
	if (w->json && w->prometheus)
		return usage_error(&cmd_stat, "--json and --prometheus exclude each other");
	w->pid = (pid_t)pid;
	if (w->prometheus && !w->count)
		w->count = 1;
	return EXIT_OK;
}

static int watch_process(struct watch *w)
{
	uint64_t turn;
	int rc;

	rc = find_devices(w);
	if (rc)
		return rc;
	/* the first look switches the measuring on; what follows is compared with it */
	rc = take_look(w);
	for (turn = 0; !rc && (!w->count || turn < w->count); turn++) {
		wait_interval(w);
		if (atomic_load_explicit(&interrupted, memory_order_relaxed))
			break;
		rc = take_look(w);
		if (!rc && !print_look(w, turn))
			rc = failed(&cmd_stat, "cannot write standard output");
		if (w->ended)
			break;
	}
	if (!rc && w->ended && !w->json && !w->prometheus)
		printf("process %d has ended\n", (int)w->pid);
	return rc;
}

static int run(int argc, char **argv)
{
	static struct watch w = { .interval = 1, .only = NO_DEVICE, .pidfd = -1 };
	struct sigaction action = { .sa_handler = on_signal };
	int rc = take_line(&w, argc, argv);

	if (rc)
		return rc == PARSED_HELP ? EXIT_OK : rc;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);

	/* before the view, so that a process id that is used again is not taken for it */
	w.pidfd = (int)syscall(SYS_pidfd_open, w.pid, 0);
	if (w.pidfd < 0 && errno == ESRCH)
		return failed(&cmd_stat, "there is no process %d", (int)w.pid);
	rc = phxfs_stats_view_open(w.pid, &w.view);
	if (rc) {
		rc = failed_call(&cmd_stat, rc, "process %d", (int)w.pid);
		goto out;
	}
	rc = watch_process(&w);
	phxfs_stats_view_close(w.view);
out:
	if (w.pidfd >= 0)
		close(w.pidfd);
	return rc;
}

const struct subcommand cmd_stat = {
	.name = "stat",
	.summary = "watch the transfers of a running process",
	.help = help,
	.run = run,
};
