/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda.h - a libcuda.so.1 for machines without a GPU, and its controls
 *
 * It keeps the driver's rules and answers a breach with the driver's error:
 * device memory cannot be touched by the CPU and begins at odd places; streams
 * run beside their caller, late; a call without a current context, or on a
 * stream of another one, fails; after a failed copy the context stays broken;
 * what is forbidden while another thread records a graph spoils the graph; a
 * forked child and a process that is exiting get nothing.
 *
 * Environment: FAKE_CUDA_DEVICES (2), FAKE_CUDA_MEMORY (bytes of each, 1 GiB),
 * FAKE_CUDA_DELAY_US (before each thing that a stream does, 0), FAKE_CUDA_NAME,
 * FAKE_CUDA_WORDS (0: streams cannot wait for and write words),
 * FAKE_CUDA_FAIL="cuMemAlloc_v2=2@3,..." (the third call fails with 2; "@3+" and all
 * after it). "copies" stands for every call that starts a copy, "copy" for a
 * copy while it runs, "new_attributes" for asking about what CUDA 12 brought.
 * CUDA_VISIBLE_DEVICES is a list of numbers.
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For the tests, by dlsym(). */
struct fakecuda_state {
	unsigned long calls;    /* of the function asked about */
	int depth;              /* contexts on this thread's stack */
	int retained;           /* of the device asked about */
	long streams;           /* made */
	long events;            /* made and not destroyed */
	long host_allocations;  /* live */
	long allocations;       /* live, of device memory */
	bool capture_mode_kept; /* this thread's mode is the default one */
};

/* @call: a function's name or NULL. */
void fakecuda_state(const char *call, int device, struct fakecuda_state *out);
/* The @nth call of @call from now on, and with @all every later one, fails. */
void fakecuda_fail(const char *call, int result, unsigned int nth, bool all);
/* Streams stand still, or go on. */
void fakecuda_hold(bool hold);
/* As at exit: every call says that the driver is gone, or works again. */
void fakecuda_tear_down(bool gone);

#endif
