// SPDX-License-Identifier: Apache-2.0
/*
 * What phx bench prints: text, JSON, or a line in the manner of gdsio for
 * scripts that read those.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#define GIB (1024.0 * 1024.0 * 1024.0)

struct figures {
	double seconds;
	double gib_s;
	double iops;
	double cpu_us;  /* per I/O */
	double user_us;
	double sys_us;
};

static struct figures compute(const struct bench_result *r)
{
	double ios = r->ios ? (double)r->ios : 1;
	struct figures f = { .seconds = (double)r->elapsed_ns / 1e9 };

	if (r->elapsed_ns) {
		f.gib_s = (double)r->bytes / GIB / f.seconds;
		f.iops = (double)r->ios / f.seconds;
	}
	f.user_us = (double)r->user_us / ios;
	f.sys_us = (double)r->sys_us / ios;
	f.cpu_us = f.user_us + f.sys_us;
	return f;
}

static uint64_t path_bytes(const struct bench *b, const struct bench_result *r, int path)
{
	if (b->op == PHXFS_OP_WRITE)
		return r->after.write[path].bytes - r->before.write[path].bytes;
	return r->after.read[path].bytes - r->before.read[path].bytes;
}

static void print_setup(const struct bench *b, const struct bench_result *r)
{
	char bs[WORD_MAX], size[WORD_MAX];

	printf("%s %s: blocks of %s in %s, ", b->op_name, b->file, size_word(bs, b->bs),
	       size_word(size, b->size));
	if (b->batch)
		printf("%ju thread%s, batches of %ju", (uintmax_t)b->threads,
		       b->threads == 1 ? "" : "s", (uintmax_t)b->batch);
	else
		printf("%ju thread%s, depth %ju", (uintmax_t)b->threads,
		       b->threads == 1 ? "" : "s", (uintmax_t)b->depth);
	printf(", engine %s, %s%s%s%s\n", phxfs_io_engine_name(),
	       b->direct_used ? "O_DIRECT" : "page cache", *b->direct_why ? " (" : "",
	       b->direct_why, *b->direct_why ? ")" : "");
	if (r->path_rc == 0)
		printf("  path        %s%s: %s\n", path_name(r->path.path),
		       r->path.dma ? " by DMA" : "", r->path.text);
}

static void print_moved(const struct bench *b, const struct bench_result *r)
{
	char word[WORD_MAX];
	bool any = false;
	int path;

	for (path = 0; path < PHXFS_PATHS; path++) {
		if (!path_bytes(b, r, path))
			continue;
		printf("%s%s %s", any ? ", " : "  moved       ", path_name(path),
		       size_word(word, path_bytes(b, r, path)));
		any = true;
	}
	if (any)
		putchar('\n');
}

static bool report_text(const struct bench *b, const struct bench_result *r)
{
	char p50[WORD_MAX], p99[WORD_MAX], p999[WORD_MAX], mean[WORD_MAX], max[WORD_MAX];
	struct figures f = compute(r);

	print_setup(b, r);
	printf("  throughput  %.3f GiB/s, %.0f IOPS, %ju I/Os in %.2f s\n", f.gib_s, f.iops,
	       (uintmax_t)r->ios, f.seconds);
	printf("  latency     p50 %s, p99 %s, p99.9 %s, mean %s, max %s%s\n",
	       time_word(p50, (double)hist_quantile(&r->hist, 0.5)),
	       time_word(p99, (double)hist_quantile(&r->hist, 0.99)),
	       time_word(p999, (double)hist_quantile(&r->hist, 0.999)),
	       time_word(mean, hist_mean(&r->hist)), time_word(max, (double)r->hist.max),
	       b->batch ? " (of a batch)" : "");
	printf("  processor   %.2f us per I/O (user %.2f, system %.2f)\n", f.cpu_us, f.user_us,
	       f.sys_us);
	print_moved(b, r);
	if (b->verify && !r->error)
		printf("  verified    %ju blocks, seed %ju\n", (uintmax_t)r->verified,
		       (uintmax_t)b->seed);
	return !ferror(stdout);
}

static void json_paths(cJSON *root, const struct bench *b, const struct bench_result *r)
{
	cJSON *moved = cJSON_AddObjectToObject(root, "path_bytes");
	int path;

	for (path = 0; path < PHXFS_PATHS; path++)
		json_uint(moved, path_name(path), path_bytes(b, r, path));
	if (r->path_rc)
		return;
	cJSON_AddStringToObject(root, "path", path_name(r->path.path));
	cJSON_AddBoolToObject(root, "dma", r->path.dma);
	cJSON_AddStringToObject(root, "reason", reason_name(r->path.reason));
	cJSON_AddStringToObject(root, "path_text", r->path.text);
}

static void json_latency(cJSON *root, const struct hist *h)
{
	cJSON *latency = cJSON_AddObjectToObject(root, "latency_ns");

	json_uint(latency, "p50", hist_quantile(h, 0.5));
	json_uint(latency, "p90", hist_quantile(h, 0.9));
	json_uint(latency, "p99", hist_quantile(h, 0.99));
	json_uint(latency, "p99.9", hist_quantile(h, 0.999));
	json_uint(latency, "max", h->max);
	cJSON_AddNumberToObject(latency, "mean", hist_mean(h));
}

static bool report_json(const struct bench *b, const struct bench_result *r)
{
	cJSON *root = cJSON_CreateObject();
	struct figures f = compute(r);

	cJSON_AddStringToObject(root, "version", phxfs_version());
	cJSON_AddStringToObject(root, "op", b->op_name);
	cJSON_AddStringToObject(root, "file", b->file);
	cJSON_AddStringToObject(root, "engine", phxfs_io_engine_name());
	cJSON_AddBoolToObject(root, "direct", b->direct_used);
	cJSON_AddNumberToObject(root, "device", b->device);
	json_uint(root, "bs", b->bs);
	json_uint(root, "size", b->size);
	json_uint(root, "threads", b->threads);
	json_uint(root, "depth", b->depth);
	json_uint(root, "batch", b->batch);
	json_uint(root, "seed", b->seed);
	json_uint(root, "ios", r->ios);
	json_uint(root, "bytes", r->bytes);
	cJSON_AddNumberToObject(root, "seconds", f.seconds);
	cJSON_AddNumberToObject(root, "gib_per_s", f.gib_s);
	cJSON_AddNumberToObject(root, "iops", f.iops);
	cJSON_AddNumberToObject(root, "cpu_us_per_io", f.cpu_us);
	json_uint(root, "user_us", r->user_us);
	json_uint(root, "system_us", r->sys_us);
	json_latency(root, &r->hist);
	json_paths(root, b, r);
	cJSON_AddBoolToObject(root, "verify", b->verify);
	json_uint(root, "verified_blocks", r->verified);
	cJSON_AddNumberToObject(root, "error", r->error);
	cJSON_AddStringToObject(root, "error_text", r->what);
	return json_print(root);
}

/* The name gdsio gives to the way the data takes. */
static const char *transfer_type(const struct bench *b, const struct bench_result *r)
{
	if (b->batch)
		return "GPU_BATCH";
	if (b->device < 0)
		return "CPUONLY";
	return r->path.path == PHXFS_PATH_DIRECT ? "GPUD" : "CPU_GPU";
}

static bool report_gdsio(const struct bench *b, const struct bench_result *r)
{
	struct figures f = compute(r);
	const char *type = !strcmp(b->op_name, "read")	? "READ" :
			   !strcmp(b->op_name, "write") ? "WRITE" :
			   !strcmp(b->op_name, "randread") ? "RANDREAD" :
							     "RANDWRITE";

	printf("IoType: %s XferType: %s Threads: %ju DataSetSize: %ju/%ju(KiB) IOSize: %ju(KiB) "
	       "Throughput: %f GiB/sec, Avg_Latency: %f usecs ops: %ju total_time %f secs\n",
	       type, transfer_type(b, r), (uintmax_t)b->threads, (uintmax_t)(r->bytes / 1024),
	       (uintmax_t)(b->size / 1024), (uintmax_t)(b->bs / 1024), f.gib_s,
	       hist_mean(&r->hist) / 1e3, (uintmax_t)r->ios, f.seconds);
	return !ferror(stdout);
}

bool bench_report(const struct bench *b, const struct bench_result *r)
{
	if (b->json)
		return report_json(b, r);
	if (b->gdsio)
		return report_gdsio(b, r);
	return report_text(b, r);
}
