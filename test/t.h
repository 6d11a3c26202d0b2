/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t.h - the harness of the process tests
 *
 * A test program is a table of cases. Each case runs in a process of its own
 * (the program executes itself), because the library reads its environment
 * once: a case states its environment, and T_PATHS and T_ENGINES repeat it
 * over every PHX_PATH and PHX_IO_ENGINE. A case passes when its function
 * returns; T_CHECK and its kin end the process with 1, t_skip() with 77.
 *
 * The devices are HOST ones, or those of the connector PHX_TEST_CONNECTOR.
 * PHX_TEST_VARIANTS="auto bounce sync" narrows the repetitions to those named.
 */
#ifndef T_H
#define T_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum {
	T_PATHS = 1,   /* once for each PHX_PATH, with small pools */
	T_ENGINES = 2, /* once for each PHX_IO_ENGINE */
};

struct t_case {
	const char *name; /* the claim */
	void (*run)(void);
	const char *env;  /* "A=B C=D", over the harness's own settings */
	unsigned int flags;
	int timeout;      /* seconds; 0: 60 */
	const char *host; /* why it is only for HOST devices; NULL: it is for all */
};

/* A case is named like its function: T_CASE(fn, .env = ...). */
#define T_CASE(fn, ...) { .name = #fn, .run = fn, ##__VA_ARGS__ }

/* Runs all cases, or those whose names begin with an argument. */
int t_main(int argc, char **argv, const struct t_case *cases, size_t n);

/* Runs one function as a case is run, in the environment as it is. */
int t_alone(void (*fn)(void), int timeout);

#define T_MAIN(cases) \
	int main(int argc, char **argv) \
	{ \
		return t_main(argc, argv, cases, sizeof(cases) / sizeof((cases)[0])); \
	}

void t_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void t_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define T_FAIL(...) t_fail(__FILE__, __LINE__, __VA_ARGS__)

#define T_CHECK(cond) \
	do { \
		if (!(cond)) \
			t_fail(__FILE__, __LINE__, "%s", #cond); \
	} while (0)

/* Integers; shows both values. */
#define T_EQ(got, want) \
	t_eq(__FILE__, __LINE__, #got, #want, (long long)(got), (long long)(want))
void t_eq(const char *file, int line, const char *got_text, const char *want_text,
	  long long got, long long want);

/* A negative errno value from the list, ended by 0. */
#define T_ONE_OF(got, ...) \
	t_one_of(__FILE__, __LINE__, #got, (long long)(got), (const int[]){ __VA_ARGS__, 0 })
void t_one_of(const char *file, int line, const char *text, long long got, const int *list);

/* Shown when a later check of this thread fails; for loops and random cases. */
void t_context(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* PHX_TEST_SCALE times n, at least 1; a quarter of it under a sanitizer. */
long t_scale(long n);
bool t_sanitized(void);

/* The PHX_PATH in force; "auto" when none. */
const char *t_path(void);
bool t_path_is(const char *name);
/* The devices are HOST ones. */
bool t_on_host(void);

int t_fd_count(void);
long t_rss_kib(void);
long t_available_kib(void);
uint64_t t_now_ns(void);
void t_sleep_ms(long ms);

/* Waits until cond holds; fails after 20 s. */
#define T_WAIT(cond) \
	do { \
		uint64_t t_end = t_now_ns() + 20000000000ULL; \
		while (!(cond)) { \
			if (t_now_ns() > t_end) \
				t_fail(__FILE__, __LINE__, "waited 20 s for %s", #cond); \
			t_sleep_ms(1); \
		} \
	} while (0)

/* A small reproducible generator (splitmix64); not shared between threads. */
struct t_rand {
	uint64_t state;
};

uint64_t t_rand(struct t_rand *r);
/* 0 .. n-1 */
uint64_t t_below(struct t_rand *r, uint64_t n);

/* A call in a thread of its own. */
struct t_call {
	long (*fn)(void *arg);
	void *arg;
	long result;
	_Atomic bool begun, done;
	pthread_t thread;
};

void t_call(struct t_call *c, long (*fn)(void *arg), void *arg);
long t_join(struct t_call *c);
/* The call has begun, and is still running after a while. */
#define T_STILL_RUNNING(c) \
	do { \
		T_WAIT((c)->begun); \
		t_sleep_ms(50); \
		T_CHECK(!(c)->done); \
	} while (0)

/* Runs fn(arg) in a forked child and returns its exit status (or 128 + signal). */
int t_in_child(void (*fn)(void *arg), void *arg);

#endif
