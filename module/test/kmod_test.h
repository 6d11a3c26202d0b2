/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For the programs that test phxfs.ko in the guest: checks, the public ABI in short calls,
 * device memory of the software accelerator, sysfs. A failed check ends the program.
 */
#ifndef KMOD_TEST_H
#define KMOD_TEST_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "../../include/uapi/phxfs.h"

#define KIB		1024ull
#define MIB		(1024 * KIB)
#define T_SKIP		77

void t_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));

#define CHECK(expr)                                                        \
	do {                                                               \
		if (!(expr))                                               \
			t_fail(__FILE__, __LINE__, "not so: %s", #expr);   \
	} while (0)

/* Both are long long; the message has their values. */
#define CHECK_EQ(got, want)                                                             \
	do {                                                                            \
		long long got_ = (long long)(got), want_ = (long long)(want);           \
		if (got_ != want_)                                                      \
			t_fail(__FILE__, __LINE__, "%s is %lld, not %s = %lld", #got,   \
			       got_, #want, want_);                                     \
	} while (0)

struct t_case {
	const char *name;
	void (*run)(void);
};

/* Runs the cases, or those named by argv; prints "ok NAME" after each. */
int t_main(int argc, char **argv, const struct t_case *cases);

/* --- the module's ABI: each call gives 0 or a positive value, or -errno ----------------- */

struct t_region {
	int fd;
	int dev;
	void *p;	/* host mapping */
	uint64_t addr;	/* device address */
	uint64_t length;
};

int t_open(int dev);
int t_ioctl(int fd, unsigned long cmd, void *arg);
void *t_mmap(int fd, uint64_t length);	/* NULL: failed, errno says why */
struct phxfs_ioctl_map t_args(const struct t_region *r);
int t_map(const struct t_region *r);
int t_unmap(const struct t_region *r);
int t_state(const struct t_region *r);
int t_pieces(const struct t_region *r);
uint64_t t_features(const struct t_region *r);
bool t_is_staging(void);
/* The least that can be registered in the module's mode: 64 KiB or 2 MiB. */
uint64_t t_granule(void);

/* mmap + MAP of device memory, and back. They must succeed. */
struct t_region t_register(int fd, int dev, uint64_t addr, uint64_t length);
void t_unregister(struct t_region *r);

/* --- sysfs ------------------------------------------------------------------------------ */

long long t_counter(int dev, const char *name);
/* Waits up to 5 s, longer on a slow machine; fails the test if the value does not come. */
void t_expect_counter(int dev, const char *name, long long value);
/* Nothing registered, pinned or draining. */
void t_expect_idle(int dev);
/* /sys/module/MODULE/parameters/NAME */
void t_write_sysfs(const char *path, const char *text);
void t_set_parameter(const char *module, const char *name, const char *value);
long long t_parameter(const char *module, const char *name);

/* --- device memory ---------------------------------------------------------------------- */

enum { T_LAYOUT_DEFAULT, T_LAYOUT_HUGE, T_LAYOUT_FRAGMENTED, T_LAYOUT_SUBSPANS,
       T_LAYOUT_REVERSED, T_LAYOUT_MISALIGNED };

enum { T_FAULT_ALLOC, T_FAULT_PIN, T_FAULT_PIN_SILENT, T_FAULT_PIN_OUTSIDE,
       T_FAULT_PIN_UNALIGNED, T_FAULT_PIN_NULL, T_FAULT_PIN_SHORT, T_FAULT_PIN_VERSION,
       T_FAULT_PIN_PAGE_SIZE, T_FAULT_PIN_DELAY, T_FAULT_PIN_RECLAIM, T_FAULT_PUT,
       T_FAULT_PERSISTENT, T_FAULT_COPY, T_FAULT_COPY_DELAY, T_FAULT_RECLAIM_ATOMIC,
       T_FAULT_RECLAIM_DELAY };

uint64_t t_alloc(int dev, uint64_t length, unsigned int layout);
int t_try_alloc(int dev, uint64_t length, unsigned int layout, uint64_t *addr);
void t_free(uint64_t addr);
int t_try_free(uint64_t addr);
/* Waits like t_expect_counter() until all memory of accelerator phxsimN is free. */
void t_expect_unused(int dev);
void t_fault(int dev, unsigned int kind, uint32_t skip, uint32_t count, uint64_t arg);
int t_try_fault(int dev, unsigned int kind, uint32_t skip, uint32_t count, uint64_t arg);
/* Takes back the pins of the allocation at @addr, or of all; how many. */
uint32_t t_reclaim(int dev, uint64_t addr);
int t_try_reclaim(int dev, uint64_t addr);
/* BAR offset of the 64 KiB page that holds @addr. */
uint64_t t_bar_offset(uint64_t addr);
uint64_t t_available(int dev);

/* Pattern @seed: fill, or check, device memory and host memory. */
void t_fill_device(uint64_t addr, uint64_t length, uint64_t seed);
void t_fill_host(void *p, uint64_t length, uint64_t seed);
bool t_device_has(uint64_t addr, uint64_t length, uint64_t seed);
bool t_host_has(const void *p, uint64_t length, uint64_t seed);

/* --- time, chance -------------------------------------------------------------------------- */

long long t_now_ms(void);
/* How many times slower this machine is than one that the time limits were made for. */
int t_slow(void);
/* The environment's number, or the default. */
long t_setting(const char *name, long otherwise);
/* 0 <= the next of the sequence that *state is in < below */
uint64_t t_random(uint64_t *state, uint64_t below);

/* --- processes, transfers ---------------------------------------------------------------- */

void *t_aligned(uint64_t length);	/* host memory for O_DIRECT */
/* Runs @fn in a child; its exit status, or -signal. */
int t_in_child(int (*fn)(void *arg), void *arg);
/* True if reading a byte at @p is SIGBUS or SIGSEGV. */
bool t_faults(const volatile void *p);

/*
 * A transfer under way that ends when we say: the pages of [p, p + length) held in a pipe.
 * length is at most 64 KiB.
 */
struct t_held {
	int pipe[2];
};
struct t_held t_hold(void *p, uint64_t length);
void t_let_go(struct t_held *h);

#endif /* KMOD_TEST_H */
