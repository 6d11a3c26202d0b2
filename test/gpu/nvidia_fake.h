/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver, as a program beside the library uses it; and buffers. */
#ifndef NVIDIA_FAKE_H
#define NVIDIA_FAKE_H

#include <phoenix.h>

#include "connectors/devconnector.h"
#include "fake/fakecuda.h"
#include "gpu.h"

#define PAGE PHXFS_DEVICE_PAGE
#define MIB (1UL << 20)

struct fake_driver {
	void (*state)(const char *call, int device, struct fakecuda_state *out);
	void (*fail)(const char *call, int result, unsigned int nth, bool all);
	void (*tear_down)(bool gone);
	void (*hold)(bool hold);
	void *(*backing)(const void *addr);
	int (*context_create)(void **context, unsigned int flags, int device);
	int (*context_current)(void **context);
	int (*mem_alloc)(uintptr_t *addr, size_t len);
	int (*alloc_async)(uintptr_t *addr, size_t len, void *stream);
	int (*create)(uint64_t *handle, size_t len, const void *properties, uint64_t flags);
	int (*reserve)(uintptr_t *addr, size_t len, size_t align, uintptr_t hint, uint64_t flags);
	int (*map)(uintptr_t addr, size_t len, size_t offset, uint64_t handle, uint64_t flags);
	int (*unmap)(uintptr_t addr, size_t len);
	int (*host_alloc)(void **addr, size_t len, unsigned int flags);
	int (*stream_create)(void **stream, unsigned int flags);
	int (*stream_sync)(void *stream);
	int (*begin_capture)(void *stream, int mode);
	int (*end_capture)(void *stream, void **graph);
};

extern struct fake_driver cu;

/* Loads the fake driver into cu. */
void load(void);
struct fakecuda_state state(const char *call, int device);
/* The library's device for the driver's device @ordinal, opened. */
int device(int ordinal);
void *alloc(int id, size_t len);
void *registered(int id, size_t len);

#define CASE(fn, ...) { .name = #fn, .run = fn, ##__VA_ARGS__ }

#endif
