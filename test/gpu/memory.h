/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - device memory of every kind, looked at without the library
 *
 * Each thread that uses these first calls memory_thread().
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <phoenix.h>

#include "driver.h"
#include "gpu.h"

#define KIB 1024UL
#define MIB (1024UL * 1024)
#define GIB (1024UL * 1024 * 1024)
#define PAGE PHXFS_DEVICE_PAGE

enum memory_kind {
	MEMORY_LIBRARY, /* phxfs_mem_alloc() */
	MEMORY_DRIVER,  /* cuMemAlloc() */
	MEMORY_POOL,    /* cuMemAllocAsync() */
	MEMORY_PIECES,  /* mapped piecemeal */
	MEMORY_RUNTIME, /* cudaMalloc(), where there is a runtime */
	MEMORY_KINDS,
};

extern const char *const memory_names[MEMORY_KINDS];

/* "nvidia", or "metax" by PHX_CONNECTOR: its connector works with NVIDIA's runtime too. */
const char *memory_vendor(void);
/* A runtime has no contexts of a program's own, and neither has its connector. */
void memory_need_contexts(void);
/* The driver is loaded and the first device opened: its number. Skips without one. */
int memory_device(void);
/* Makes the first device's primary context current. */
void memory_thread(void);
/* False: there is no such memory here. The address is a multiple of 64 KiB. */
bool memory_alloc(enum memory_kind kind, size_t len, char **out);
void memory_free(enum memory_kind kind, char *p);
/* Copies by the driver, on a stream of the thread. */
void memory_get(void *host, const char *p, size_t len);
void memory_put(char *p, const void *host, size_t len);

/*
 * A kernel that adds up the 64-bit words of @len bytes, and one that sets word
 * i to @seed + i. False: no kernels here.
 */
bool kernel_sum(const char *p, size_t len, void *stream, uint64_t *sum);
bool kernel_count(char *p, size_t len, uint64_t seed, void *stream);

#endif
