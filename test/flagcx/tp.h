/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tp.h - the harness of the P2P engine's process tests
 *
 * A test program is a table of cases and a table of roles. Each case runs in a
 * process of its own (the program executes itself), since settings are read
 * once. A role is a peer: another process of the same program, spoken to in
 * lines over pipes. A case passes when its function returns; TP_CHECK and its
 * kin end the process with 1, tp_skip() with 77.
 */
#ifndef TP_H
#define TP_H

#include "flagcx_p2p.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

struct tp_case {
	const char *name; /* the claim */
	void (*run)(void);
	const char *env;  /* "A=B C=D" */
	int timeout;      /* seconds; 0: 60 */
};

struct tp_role {
	const char *name;
	void (*run)(int argc, char **argv);
};

#define TP_CASE(fn, ...) { .name = #fn, .run = fn, ##__VA_ARGS__ }

int tp_main(int argc, char **argv, const struct tp_case *cases, size_t n,
	    const struct tp_role *roles, size_t n_roles);

#define TP_MAIN(cases, roles) \
	int main(int argc, char **argv) \
	{ \
		return tp_main(argc, argv, cases, sizeof(cases) / sizeof((cases)[0]), roles, \
			       sizeof(roles) / sizeof((roles)[0])); \
	}

void tp_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void tp_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define TP_FAIL(...) tp_fail(__FILE__, __LINE__, __VA_ARGS__)
#define TP_CHECK(cond) \
	do { \
		if (!(cond)) \
			tp_fail(__FILE__, __LINE__, "%s", #cond); \
	} while (0)
#define TP_EQ(got, want) \
	tp_eq(__FILE__, __LINE__, #got, #want, (long long)(got), (long long)(want))
#define TP_OK(rc) TP_EQ(rc, 0)
void tp_eq(const char *file, int line, const char *got_text, const char *want_text,
	   long long got, long long want);

/* n scaled by PHX_TEST_SCALE; a quarter of it under a sanitizer; at least 1. */
long tp_scale(long n);
/* How many times longer things may take here: PHX_TEST_SLOW, of an emulated machine. */
double tp_slow(void);
/* A wait's limit, of so many milliseconds elsewhere. */
int tp_ms(int ms);
/* Is this build slowed by a sanitizer? */
bool tp_sanitized(void);
double tp_now(void);
void tp_sleep(double seconds);
/* Resident memory of this process, bytes; CPU seconds used; open descriptors; threads. */
size_t tp_rss(void);
double tp_cpu(void);
/* CPU seconds of the calling thread: what a call costs, whoever else wants the processor. */
double tp_thread_cpu(void);
int tp_fds(void);
int tp_threads(void);
/* Wait up to so many seconds for the condition, looking every millisecond. */
#define TP_WITHIN(seconds, cond) \
	do { \
		double until_ = tp_now() + (seconds); \
		bool met_; \
		while (!(met_ = (cond)) && tp_now() < until_) \
			tp_sleep(0.001); \
		if (!met_) \
			tp_fail(__FILE__, __LINE__, "not within %g s: %s", (double)(seconds), \
				#cond); \
	} while (0)

/* ------------------------------------------------------------------- content */

/* The bytes at [off, off + len) of the endless sequence of a seed. */
void tp_fill(void *buf, uint64_t seed, uint64_t off, size_t len);
/* Index of the first byte that differs, -1: none. */
int64_t tp_differs(const void *buf, uint64_t seed, uint64_t off, size_t len);
/* Memory that ends at an unmapped page. */
void *tp_alloc(size_t len);
void tp_free(void *buf, size_t len);

/* --------------------------------------------------------------------- peers */

struct tp_peer {
	pid_t pid;
	int in, out; /* its stdin, its stdout */
	char buf[65536];
	size_t len;
};

/* Start a role; args end with NULL. env: "A=B C=D" more than ours, or NULL. */
struct tp_peer *tp_spawn(const char *env, const char *role, ...) __attribute__((sentinel));
/* The same in a network namespace. */
struct tp_peer *tp_spawn_in(const char *netns, const char *env, const char *role, ...)
	__attribute__((sentinel));
/* This process moves into a network namespace. */
void tp_enter(const char *netns);
void tp_say(struct tp_peer *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Its next line; fails the test after so many seconds, or when it has ended. */
char *tp_hear(struct tp_peer *p, double seconds);
/* Send a signal and take its status; free it. */
void tp_kill(struct tp_peer *p, int signal);
/* Say "quit", expect exit status 0 within so many seconds; free it. */
void tp_quit(struct tp_peer *p, double seconds);
/* In a role: the next line from the test, NULL at the end. */
char *tp_line(void);
/* In a role: say a line. */
void tp_answer(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* -------------------------------------------------- the server every test uses */

struct tp_server {
	struct tp_peer *peer;
	int port;
	uint64_t addr, size;
	FlagcxP2pRdmaDesc desc; /* of all of it */
	char session[80];
};

/*
 * A process with an engine and size bytes, filled from seed 1, registered. It
 * understands: fill SEED, check SEED OFF LEN, notifs, reg, dereg, stats, cpu,
 * quit.
 */
void tp_role_server(int argc, char **argv);
/* port 0: any. ip: how to reach it, NULL: loopback. */
void tp_serve(struct tp_server *s, size_t size, int port, const char *env);
void tp_serve_in(struct tp_server *s, const char *netns, const char *ip, size_t size, int port,
		 const char *env);
/* The server's memory at [off, off+len) is that of seed. */
void tp_server_check(struct tp_server *s, uint64_t seed, uint64_t off, uint64_t len);
void tp_server_fill(struct tp_server *s, uint64_t seed);
FlagcxP2pRdmaDesc tp_desc(const struct tp_server *s, uint64_t off, uint64_t len);

#define TP_SERVER { "server", tp_role_server }

/* An engine, or fail. */
FlagcxP2pEngine *tp_engine(void);
FlagcxP2pConn *tp_connect(FlagcxP2pEngine *e, const struct tp_server *s);
FlagcxP2pMr tp_reg(FlagcxP2pEngine *e, const void *p, size_t len);
FlagcxP2pStats tp_stats(FlagcxP2pEngine *e);
/* Nothing is left in flight: every gauge of the engine is 0. */
void tp_gauges_zero(FlagcxP2pEngine *e);

/*
 * A healthy pair under load beside a sick one, and a control: another engine
 * with the same load that has nothing to do with the sick peer. What the
 * machine does to both does not count.
 */
struct tp_pair {
	FlagcxP2pEngine *engine[2]; /* [0] is the caller's */
	FlagcxP2pConn *conn[2];
	FlagcxP2pMr mr[2];
	uint8_t *mem[2];
	FlagcxP2pRdmaDesc desc;
	_Atomic bool stop;
	_Atomic long n[2];
	unsigned long thread[2];
};

void tp_pair_start(struct tp_pair *p, FlagcxP2pEngine *e, const struct tp_server *well);
/* Both go on: a hundred more writes of each, whatever else happens. */
void tp_pair_moves(struct tp_pair *p);
/* Writes of ours for each of the control's, the median of three windows of a second. */
double tp_pair_share(struct tp_pair *p);
void tp_pair_stop(struct tp_pair *p);

#endif /* TP_H */
