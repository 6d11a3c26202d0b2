/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - what bench_gpu's coordinator and its contenders share
 *
 * Each contender lives in a process of its own, so that its memory and its
 * processor time are its own, and does one point after the other as it is told.
 */
#ifndef BENCH_GPU_H
#define BENCH_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KIB 1024UL
#define MIB (1024UL * 1024)
#define GIB (1024UL * 1024 * 1024)
#define MAX_THREADS 16
#define DEVICE_BUFFER GIB

enum what { THROUGHPUT, LATENCY, REGISTER, LIMIT };

struct point {
	int what;
	bool write;
	bool direct;   /* O_DIRECT; else through the page cache */
	size_t block;
	int threads;
	size_t bytes;  /* all together; LATENCY, REGISTER: times */
	size_t buffer; /* REGISTER: its size */
	off_t from;    /* where in the file to begin */
};

struct result {
	bool failed;
	char why[120];
	double seconds;
	double cpu;     /* seconds of the process, user and system */
	double median;  /* LATENCY, REGISTER: seconds of one */
	long rss_kib;   /* the most during the point */
	size_t bytes;
};

struct thread {
	const struct contender *contender;
	const struct point *point;
	int index;
	int fd, handle;  /* the descriptor; the contender's number for it */
	char *pinned;    /* of the contenders that copy themselves: two blocks */
	void *stream, *events[2];
	unsigned long count;
	const char *failed;
};

struct contender {
	const char *name;
	const char *(*start)(void); /* NULL, or why it cannot be had */
	const char *(*begin)(struct thread *t);
	/* 0 or -errno: move @len bytes between the file and the device buffer. */
	int (*move)(struct thread *t, size_t at, size_t len, off_t off);
	int (*end)(struct thread *t);
	/* Register, move the first 64 KiB, deregister; NULL: none. */
	int (*registration)(struct thread *t, char *buffer, size_t len, off_t off);
};

/* The two files, each opened with and without O_DIRECT: [direct]. */
extern int bench_fds[2];
/* Of each, a multiple of 1 GiB; requests wrap around. */
extern size_t bench_file_size;
/* The device buffer, of the process's own CUDA context. */
extern char *bench_device;

extern const struct contender phx_contender;
extern const struct contender loop_contender;
extern const struct contender raw_contender;
extern const struct contender cufile_contender;

/* Starts CUDA and makes bench_device; NULL or what failed. */
const char *bench_start_cuda(void);
/* Makes the context current in this thread. */
const char *bench_enter_cuda(void);
/* GB/s of copies from pinned memory to the device, or back. */
double bench_copy_limit(bool write);

/* Does points from @in, writes results to @out, until @in ends. */
int bench_serve(const struct contender *contender, int in, int out);

#endif
