/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libphxsim: the user runtime of the software accelerator, what libcuda is to a
 * GPU. Meant to be opened with dlopen.
 *
 * Every call returns 0 or a negative errno, is safe from any thread, and starts
 * the runtime if phxsim_init() was not called. Devices are numbered in the order
 * of their PCI addresses. Device pointers are no CPU addresses; they are unique
 * over all devices of the process. A forked child starts anew: it owns no device
 * memory, and its parent's pointers are unknown to it.
 */
#ifndef PHXSIM_H
#define PHXSIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -ENODEV: no accelerator. -EPROTO: the driver speaks another version. */
int phxsim_init(void);

int phxsim_device_count(int *count);
/* "0000:01:00.0" */
int phxsim_device_bdf(int dev, char *bdf, size_t len);
/* Bytes in all, and bytes free. Either pointer may be NULL. */
int phxsim_device_memory(int dev, uint64_t *total, uint64_t *available);
/* Frees all of the process's memory on the device, pinned or not. */
int phxsim_device_reset(int dev);

/* --- memory ---------------------------------------------------------------- */

/* The values of enum phxsim_layout in sim/phxsim-uapi.h. */
#define PHXSIM_MEM_DEFAULT	0u
#define PHXSIM_MEM_HUGE		1u
#define PHXSIM_MEM_FRAGMENTED	2u
#define PHXSIM_MEM_SUBSPANS	3u
#define PHXSIM_MEM_REVERSED	4u
#define PHXSIM_MEM_MISALIGNED	5u

int phxsim_mem_alloc(int dev, size_t size, unsigned int layout, void **ptr);
int phxsim_mem_free(void *ptr);

/* Host memory the device can reach: here any is, so this is page-aligned memory. */
int phxsim_host_alloc(size_t size, void **ptr);
int phxsim_host_free(void *ptr, size_t size);

struct phxsim_pointer {
	void *base;
	size_t size;
	uint64_t id;	/* of the allocation; a reused address has another */
	int dev;
};

/* -EINVAL: not device memory of this process. */
int phxsim_pointer_query(const void *ptr, struct phxsim_pointer *out);

/* BAR offsets of `count` 64 KiB pages from the one that holds ptr on. */
int phxsim_pointer_pages(const void *ptr, uint64_t *offsets, uint32_t count);

/* --- work that is done when the call returns -------------------------------- */

int phxsim_memcpy_htod(void *dst, const void *src, size_t n);
int phxsim_memcpy_dtoh(void *dst, const void *src, size_t n);
int phxsim_memcpy_dtod(void *dst, const void *src, size_t n);
int phxsim_memset(void *ptr, int byte, size_t n);
/* 64-bit word i becomes phxsim_pattern(seed, i); ptr and n are multiples of 8. */
int phxsim_fill(void *ptr, uint64_t seed, size_t n);
uint64_t phxsim_pattern(uint64_t seed, uint64_t i);
/* Over device memory at a multiple of 8; sum is start value and result. */
int phxsim_checksum(const void *ptr, size_t n, uint64_t *sum);
/* The same sum over host memory. */
uint64_t phxsim_checksum_host(const void *data, size_t n, uint64_t sum);

/* --- queues ------------------------------------------------------------------
 * Work on one queue runs in order, on a thread of the queue's own; queues run
 * beside each other. A failure is reported by the next phxsim_queue_sync() of the
 * queue; work behind it still runs.
 */
struct phxsim_queue;

int phxsim_queue_create(int dev, struct phxsim_queue **q);
/* Finishes the work first; returns what sync would. */
int phxsim_queue_destroy(struct phxsim_queue *q);
int phxsim_queue_sync(struct phxsim_queue *q);
/* -EBUSY: work is left; otherwise 0, and errors stay for sync. */
int phxsim_queue_query(struct phxsim_queue *q);

int phxsim_memcpy_htod_async(struct phxsim_queue *q, void *dst, const void *src, size_t n);
int phxsim_memcpy_dtoh_async(struct phxsim_queue *q, void *dst, const void *src, size_t n);
int phxsim_memcpy_dtod_async(struct phxsim_queue *q, void *dst, const void *src, size_t n);

/* fn(arg) after the work before it and before the work behind it. fn must not
 * call this library. */
int phxsim_queue_call(struct phxsim_queue *q, void (*fn)(void *arg), void *arg);
/* Waits until *word, in host memory, is at least value (as signed difference). */
int phxsim_queue_wait(struct phxsim_queue *q, const uint32_t *word, uint32_t value);
/* Stores value into *word, in host memory, after the work before it. */
int phxsim_queue_signal(struct phxsim_queue *q, uint32_t *word, uint32_t value);

/* --- faults ---------------------------------------------------------------- */

/* kind: enum phxsim_fault_kind in sim/phxsim-uapi.h, which says what arg is.
 * Lets `skip` chances pass, then strikes `count` times (UINT32_MAX: always). */
int phxsim_fault(int dev, unsigned int kind, uint32_t skip, uint32_t count, uint64_t arg);

/* Takes back what is pinned of the allocation at ptr (NULL: all of the device's)
 * of process pid (0: this one); *callbacks, if not NULL, says how many pins. */
int phxsim_reclaim(int dev, int pid, const void *ptr, uint32_t *callbacks);

#ifdef __cplusplus
}
#endif
#endif
