/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Harness of the stress tests: a program is a table of cases, each run in a
 * process of its own, in its own environment and with a time limit, so that a
 * hang or a crash is the failure of one case.
 */
#ifndef STRESS_H
#define STRESS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "phoenix.h"

struct stress_case {
	const char *name;
	void (*run)(void);
	const char *env; /* "A=B C=D" */
	int seconds;     /* limit; 0: 60 */
};

int stress_main(int argc, char **argv, const struct stress_case *cases, size_t n);

#define STRESS_MAIN(cases)                                                              \
	int main(int argc, char **argv)                                                 \
	{                                                                               \
		return stress_main(argc, argv, cases, sizeof(cases) / sizeof((cases)[0])); \
	}

void stress_fail(const char *file, int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void stress_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define CHECK(cond)                                                      \
	do {                                                             \
		if (!(cond))                                             \
			stress_fail(__FILE__, __LINE__, "%s", #cond);    \
	} while (0)

/* Integers. Shows both, and what the library says. */
#define EQ(got, want)                                                                       \
	do {                                                                                \
		long long g_ = (long long)(got), w_ = (long long)(want);                    \
		if (g_ != w_)                                                               \
			stress_fail(__FILE__, __LINE__, "%s is %lld, not %s = %lld (%s)",   \
				    #got, g_, #want, w_, phxfs_last_error());               \
	} while (0)

/* A nameless file of @size bytes of pattern in the current directory; @flags for open(). */
int stress_file(size_t size, int flags);
/* What byte @at of such a file is. */
unsigned char stress_byte(uint64_t at);
/* Device memory of device 0 (opened), registered. */
void *stress_memory(size_t len);
/* Built with AddressSanitizer or ThreadSanitizer. */
bool stress_sanitized(void);
uint64_t stress_now_ms(void);
void stress_sleep_ms(long ms);
/* Seconds of a random test: @n, or PHX_TEST_SECONDS. */
long stress_seconds(long n);

#endif
