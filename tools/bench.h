/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phx bench in parts: phx_bench.c reads the command line, bench_run.c prepares
 * the file and runs the threads, bench_loop.c holds the measured loops,
 * bench_report.c prints.
 */
#ifndef PHX_BENCH_H
#define PHX_BENCH_H

#include "hist.h"
#include "tool.h"

#include <phoenix.h>
#include <stdatomic.h>
#include <sys/resource.h>

/* Set from the command line; constant while threads run. */
struct bench {
	const char *op_name;
	const char *file;
	int op;             /* enum phxfs_op */
	bool random;
	bool verify;
	bool overwrite;
	bool sync;          /* fdatasync before the clock stops */
	bool json;
	bool gdsio;
	const char *direct; /* "auto", "on", "off" */
	const char *path;   /* PHX_PATH, or NULL */
	const char *engine; /* PHX_IO_ENGINE, or NULL */
	uint64_t bs;
	uint64_t size;      /* bytes of the file that take part */
	uint64_t threads;
	uint64_t depth;
	uint64_t batch;     /* 0: no batches */
	uint64_t count;     /* I/Os of each thread; 0: by runtime, or one pass */
	double runtime;     /* seconds; 0: by count, or one pass */
	uint64_t seed;
	int device;

	/* found out by bench_prepare() */
	bool direct_used;
	char direct_why[128]; /* why not, where "auto" could not */
	uint64_t blocks;
	_Atomic uint64_t *written; /* a bit for each block, for verifying after random writes */
};

/* One thread's work. Only its own thread writes it while it runs, except live. */
struct worker {
	const struct bench *b;
	unsigned int index;
	int fd;
	struct buffer buf;
	size_t stride;       /* from one slot of buf to the next */
	struct flight *flight; /* of loop_prepare() */
	void *scratch;       /* a block in host memory, for verifying */
	uint64_t rng;
	uint64_t first;      /* sequential: this thread's blocks are first .. first+share-1 */
	uint64_t share;
	uint64_t next;
	uint64_t left;       /* I/Os still to start; UINT64_MAX: until the deadline */
	uint64_t deadline_ns;
	uint64_t ended_ns;   /* its last I/O was done; 0: it never ran */
	struct hist hist;
	uint64_t ios;
	uint64_t bytes;
	int error;           /* first -errno; 0: none */
	char what[256];      /* its text */
	_Atomic uint64_t live; /* bytes so far, for the progress line */
};

struct bench_result {
	struct hist hist;
	uint64_t ios;
	uint64_t bytes;
	uint64_t elapsed_ns;
	uint64_t user_us;
	uint64_t sys_us;
	uint64_t verified;   /* blocks */
	int error;
	char what[256];
	int path_rc;
	struct phxfs_path_info path;
	struct phxfs_stats before, after;
};

/* bench_run.c */
int bench_prepare(struct bench *b);
int bench_run(struct bench *b, struct bench_result *result);
void bench_stop(void); /* ends the loops early; safe in a signal handler */

/* bench_loop.c: run until the work, the time or the patience is over */
extern atomic_bool bench_stopped;
int loop_prepare(struct worker *w); /* what the loop needs, before the clock starts */
void loop_release(struct worker *w);
void loop_single(struct worker *w);
void loop_queue(struct worker *w);
void loop_batch(struct worker *w);
/* Reads back what was written and compares it. */
void loop_check_written(struct worker *w, uint64_t *verified);

/* bench_report.c */
bool bench_report(const struct bench *b, const struct bench_result *r);

/* ------------------------------------------------------------ the pattern */

/* The file's bytes as a function of seed and file offset, whatever the block
 * size: the 8 bytes at a multiple of 8 are the word below, little-endian. */
static inline uint64_t pattern_word(uint64_t seed, uint64_t offset)
{
	uint64_t x = (seed + offset / 8) * 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	return x ^ (x >> 31);
}

void pattern_fill(void *to, size_t n, uint64_t seed, uint64_t offset);
/* Index of the first byte that differs, or n. */
size_t pattern_check(const void *from, size_t n, uint64_t seed, uint64_t offset);

#endif
