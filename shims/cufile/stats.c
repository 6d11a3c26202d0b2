// SPDX-License-Identifier: Apache-2.0
/*
 * Statistics: counted here while they run, those of each device by libphoenix.
 * The calls that give them out know neither a size nor a version: what they
 * write is the layout of the version that cuFileGetVersion() reports.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cufile.h"

#define DEVICES 64
#define BUCKETS 32
#define VERSION_OF_VECTORS 1190

static struct {
	_Atomic uint64_t ok[CF_COUNTERS], err[CF_COUNTERS];
	_Atomic uint64_t bytes[2], ns[2], sizes[2][BUCKETS]; /* by "is a write" */
	_Atomic uint64_t batch_bytes[2], last_batch_bytes[2];
	_Atomic uint64_t start_ns;
} counted;

static atomic_bool running;
static atomic_int level;
/* What libphoenix had counted when statistics began. */
static _Atomic uint64_t before[DEVICES][2][PHXFS_PATHS][3];

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool counts(void)
{
	return atomic_load_explicit(&running, memory_order_relaxed);
}

static void add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

CUfileError_t cf_count(enum cf_counter counter, int number)
{
	if (counts())
		add(number ? &counted.err[counter] : &counted.ok[counter], 1);
	return cf_result(number);
}

uint64_t cf_stats_start(void)
{
	return counts() ? now_ns() : 0;
}

/* 0-4 KiB, 4-8, ... */
static unsigned int bucket(size_t size)
{
	unsigned int i = 0;

	for (size_t kib = size >> 12; kib && i < BUCKETS - 1; kib >>= 1)
		i++;
	return i;
}

void cf_count_io(enum cf_counter counter, ssize_t result, size_t asked, uint64_t start)
{
	bool write = counter == CF_WRITE || counter == CF_WRITEV;

	if (!start)
		return;
	add(result < 0 ? &counted.err[counter] : &counted.ok[counter], 1);
	add(&counted.ns[write], now_ns() - start);
	add(&counted.sizes[write][bucket(asked)], 1);
	if (result > 0)
		add(&counted.bytes[write], (uint64_t)result);
}

void cf_count_batch_io(bool write, ssize_t result)
{
	if (!counts() || result < 0)
		return;
	add(&counted.batch_bytes[write], (uint64_t)result);
	atomic_store_explicit(&counted.last_batch_bytes[write], (uint64_t)result,
			      memory_order_relaxed);
}

/* ------------------------------------------------------------- on and off */

static void fetch(int device, uint64_t out[2][PHXFS_PATHS][3])
{
	struct phxfs_stats s = { .size = sizeof(s) };

	memset(out, 0, sizeof(uint64_t[2][PHXFS_PATHS][3]));
	if (phxfs_stats(device, &s))
		return;
	for (int write = 0; write < 2; write++) {
		for (int path = 0; path < PHXFS_PATHS; path++) {
			const struct phxfs_path_stats *p = write ? &s.write[path] : &s.read[path];

			out[write][path][0] = p->ops;
			out[write][path][1] = p->bytes;
			out[write][path][2] = p->errors;
		}
	}
}

static void reset(void)
{
	_Atomic uint64_t *all = (_Atomic uint64_t *)&counted;
	uint64_t figures[2][PHXFS_PATHS][3];

	for (size_t i = 0; i < sizeof(counted) / sizeof(*all); i++)
		atomic_store_explicit(&all[i], 0, memory_order_relaxed);
	for (int d = 0; d < DEVICES; d++) {
		fetch(d, figures);
		for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0][0][0]); i++)
			atomic_store_explicit(&(&before[d][0][0][0])[i], (&figures[0][0][0])[i],
					      memory_order_relaxed);
	}
	atomic_store(&counted.start_ns, now_ns());
}

void cf_stats_open(size_t wanted)
{
	if (!wanted)
		return;
	level = (int)wanted;
	reset();
	running = true;
}

CUfileError_t cuFileSetStatsLevel(int wanted)
{
	if (wanted < 0 || wanted > 3)
		return cf_result(CU_FILE_INVALID_VALUE);
	level = wanted;
	if (!wanted)
		running = false;
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileGetStatsLevel(int *out)
{
	if (!out)
		return cf_result(CU_FILE_INVALID_VALUE);
	*out = level;
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileStatsStart(void)
{
	if (!level)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (!running) {
		reset();
		running = true;
	}
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileStatsStop(void)
{
	running = false;
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileStatsReset(void)
{
	reset();
	return cf_result(CU_FILE_SUCCESS);
}

/* ----------------------------------------------------------------- looking */

static CUfileOpCounter_t counter(enum cf_counter which)
{
	return (CUfileOpCounter_t){ counted.ok[which], counted.err[which] };
}

static uint64_t ratio(uint64_t a, uint64_t b)
{
	return b ? a / b : 0;
}

/* @n in the time since statistics began, for each second. */
static uint64_t rate(uint64_t n)
{
	uint64_t ns = now_ns() - counted.start_ns;

	return counted.start_ns && ns ? (uint64_t)((double)n * 1e9 / (double)ns) : 0;
}

static uint64_t ops(bool write)
{
	return write ? counted.ok[CF_WRITE] + counted.ok[CF_WRITEV] :
		       counted.ok[CF_READ] + counted.ok[CF_READV];
}

static void fill_level1(CUfileStatsLevel1_t *s)
{
	*s = (CUfileStatsLevel1_t){
		.read_ops = counter(CF_READ),
		.write_ops = counter(CF_WRITE),
		.hdl_register_ops = counter(CF_HDL_REGISTER),
		.hdl_deregister_ops = counter(CF_HDL_DEREGISTER),
		.buf_register_ops = counter(CF_BUF_REGISTER),
		.buf_deregister_ops = counter(CF_BUF_DEREGISTER),
		.read_bytes = counted.bytes[0],
		.write_bytes = counted.bytes[1],
		.read_bw_bytes_per_sec = rate(counted.bytes[0]),
		.write_bw_bytes_per_sec = rate(counted.bytes[1]),
		.read_lat_avg_us = ratio(counted.ns[0] / 1000, ops(false)),
		.write_lat_avg_us = ratio(counted.ns[1] / 1000, ops(true)),
		.read_ops_per_sec = rate(ops(false)),
		.write_ops_per_sec = rate(ops(true)),
		.read_lat_sum_us = counted.ns[0] / 1000,
		.write_lat_sum_us = counted.ns[1] / 1000,
		.batch_submit_ops = counter(CF_BATCH_SUBMIT),
		.batch_complete_ops = counter(CF_BATCH_COMPLETE),
		.batch_setup_ops = counter(CF_BATCH_SETUP),
		.batch_cancel_ops = counter(CF_BATCH_CANCEL),
		.batch_destroy_ops = counter(CF_BATCH_DESTROY),
		.batch_processed_ops = counter(CF_BATCH_ENTRY),
		.batch_total_submit_ops = counter(CF_BATCH_SUBMIT),
		.batch_read_bytes = counted.batch_bytes[0],
		.batch_write_bytes = counted.batch_bytes[1],
		.batch_read_bw_bytes = rate(counted.batch_bytes[0]),
		.batch_write_bw_bytes = rate(counted.batch_bytes[1]),
		.batch_submit_ops_per_sec = rate(counted.ok[CF_BATCH_SUBMIT]),
		.batch_complete_ops_per_sec = rate(counted.ok[CF_BATCH_COMPLETE]),
		.last_batch_read_bytes = counted.last_batch_bytes[0],
		.last_batch_write_bytes = counted.last_batch_bytes[1],
	};
}

static bool fill_gpu(int device, CUfilePerGpuStats_t *gpu)
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	uint64_t now[2][PHXFS_PATHS][3], sum[2][3] = { 0 };
	struct phxfs_stats s = { .size = sizeof(s) };

	if (phxfs_device_info(device, &info) || phxfs_stats(device, &s))
		return false;
	fetch(device, now);
	for (int w = 0; w < 2; w++)
		for (int path = 0; path < PHXFS_PATHS; path++)
			for (int i = 0; i < 3; i++) {
				now[w][path][i] -= before[device][w][path][i];
				sum[w][i] += path == PHXFS_PATH_EDGE && i != 1 ? 0 :
										 now[w][path][i];
			}
	*gpu = (CUfilePerGpuStats_t){
		.read_bytes = sum[0][1],
		.read_bw_bytes_per_sec = rate(sum[0][1]),
		.n_total_reads = sum[0][0],
		.n_p2p_reads = now[0][PHXFS_PATH_DIRECT][0] + now[0][PHXFS_PATH_STAGING][0],
		.n_posix_reads = now[0][PHXFS_PATH_BOUNCE][0],
		.n_unaligned_reads = now[0][PHXFS_PATH_EDGE][0],
		.n_reads_err = sum[0][2],
		.writes_bytes = sum[1][1],
		.write_bw_bytes_per_sec = rate(sum[1][1]),
		.n_total_writes = sum[1][0],
		.n_p2p_writes = now[1][PHXFS_PATH_DIRECT][0] + now[1][PHXFS_PATH_STAGING][0],
		.n_posix_writes = now[1][PHXFS_PATH_BOUNCE][0],
		.n_unaligned_writes = now[1][PHXFS_PATH_EDGE][0],
		.n_writes_err = sum[1][2],
		.n_mmap_ok = s.registrations,
		.reg_bytes = s.registered_bytes,
	};
	memcpy(gpu->uuid, info.bdf, sizeof(gpu->uuid));
	return true;
}

/* One layout after another: each part goes to the end of what is there. */
struct writer {
	char *at;
};

static void put(struct writer *w, const void *from, size_t n)
{
	memcpy(w->at, from, n);
	w->at += n;
}

static void put_level1(struct writer *w)
{
	CUfileStatsVectors_t vectors = { counter(CF_READV), counter(CF_WRITEV), { 0 } };
	CUfileStatsLevel1_t basic;

	fill_level1(&basic);
	put(w, &basic, sizeof(basic));
	if (cf_version() >= VERSION_OF_VECTORS)
		put(w, &vectors, sizeof(vectors));
}

static void put_level2(struct writer *w)
{
	uint64_t sizes[BUCKETS];

	put_level1(w);
	for (int write = 0; write < 2; write++) {
		for (int i = 0; i < BUCKETS; i++)
			sizes[i] = counted.sizes[write][i];
		put(w, sizes, sizeof(sizes));
	}
}

static void put_level3(struct writer *w)
{
	CUfilePerGpuStats_t gpus[CUFILE_STATS_GPUS];
	uint32_t n[2] = { 0 }; /* and padding */

	memset(gpus, 0, sizeof(gpus));
	put_level2(w);
	for (int i = 0; i < DEVICES && n[0] < CUFILE_STATS_GPUS; i++) {
		if (fill_gpu(i, &gpus[n[0]]))
			n[0]++;
	}
	put(w, n, sizeof(n));
	put(w, gpus, sizeof(gpus));
}

static CUfileError_t look(int wanted, void *stats, void (*put_level)(struct writer *w))
{
	struct writer w = { stats };

	if (!stats || level < wanted)
		return cf_result(CU_FILE_INVALID_VALUE);
	put_level(&w);
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats)
{
	return look(1, stats, put_level1);
}

CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats)
{
	return look(2, stats, put_level2);
}

CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats)
{
	return look(3, stats, put_level3);
}
