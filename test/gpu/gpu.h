/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu.h - what the tests of the NVIDIA connector stand on
 *
 * A program is a table of cases; each runs in a process of its own, so that
 * each has its own environment and a fresh driver. Without an argument all are
 * run; names as arguments choose.
 */
#ifndef GPU_H
#define GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <phoenix.h>

struct gpu_case {
	const char *name;
	void (*run)(void);
	const char *env; /* "A=B C=D" */
};

int gpu_main(int argc, char **argv, const struct gpu_case *cases, size_t n);

void gpu_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
/* Leaves the case as skipped, with the reason. */
void gpu_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* Shown when a check fails. */
void gpu_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define CHECK(cond) \
	do { \
		if (!(cond)) \
			gpu_fail(__FILE__, __LINE__, "%s", #cond); \
	} while (0)

#define EQ(got, want) \
	gpu_eq(__FILE__, __LINE__, #got, #want, (long long)(got), (long long)(want))
void gpu_eq(const char *file, int line, const char *got_text, const char *want_text,
	    long long got, long long want);

/* @text holds @part. */
#define HAS(text, part) gpu_has(__FILE__, __LINE__, text, part)
void gpu_has(const char *file, int line, const char *text, const char *part);

/* What the library says of the connector of that name. */
struct phxfs_connector_info gpu_connector(const char *name);

/* Runs @fn in a forked child; its exit status, or 128 + signal. */
int gpu_in_child(void (*fn)(void));
/* Runs @fn(@arg) in a thread and waits for it. */
void gpu_in_thread(void (*fn)(void *arg), void *arg);

/* splitmix64: the same seed gives the same numbers. */
uint64_t gpu_random(uint64_t *state);
uint64_t gpu_below(uint64_t *state, uint64_t n);

/* A file without a name in the folder of TMPDIR, with @size bytes of a pattern. */
int gpu_file(size_t size, uint64_t seed, int flags);
void gpu_pattern(void *buf, size_t len, uint64_t seed, uint64_t offset);

#endif
