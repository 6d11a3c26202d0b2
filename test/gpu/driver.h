/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver.h - NVIDIA's driver API, as a program beside the library uses it
 *
 * The same table serves the real driver and the fake one. Names and values
 * are the API's; contexts, streams and the like are void * here.
 */
#ifndef DRIVER_H
#define DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DRIVER_STREAM_NON_BLOCKING 1u
#define DRIVER_HOST_PORTABLE 1u
#define DRIVER_CAPTURE_GLOBAL 0
#define DRIVER_CAPTURE_RELAXED 2

struct driver {
	int (*init)(unsigned int flags);
	int (*device_get)(int *device, int ordinal);
	int (*device_count)(int *count);
	int (*primary_retain)(void **context, int device);
	int (*primary_release)(int device);
	int (*context_push)(void *context);
	int (*context_pop)(void **context);
	int (*context_set)(void *context);
	int (*context_current)(void **context);
	int (*context_sync)(void);
	int (*mem_info)(size_t *available, size_t *total);
	int (*mem_alloc)(uintptr_t *addr, size_t len);
	int (*mem_free)(uintptr_t addr);
	int (*alloc_async)(uintptr_t *addr, size_t len, void *stream);
	int (*free_async)(uintptr_t addr, void *stream);
	int (*host_alloc)(void **addr, size_t len, unsigned int flags);
	int (*host_free)(void *addr);
	int (*granularity)(size_t *out, const void *properties, int option);
	int (*create)(uint64_t *handle, size_t len, const void *properties, uint64_t flags);
	int (*release)(uint64_t handle);
	int (*reserve)(uintptr_t *addr, size_t len, size_t align, uintptr_t hint, uint64_t flags);
	int (*map)(uintptr_t addr, size_t len, size_t offset, uint64_t handle, uint64_t flags);
	int (*unmap)(uintptr_t addr, size_t len);
	int (*set_access)(uintptr_t addr, size_t len, const void *access, size_t count);
	int (*stream_create)(void **stream, unsigned int flags);
	int (*stream_sync)(void *stream);
	int (*copy_async)(uintptr_t dst, uintptr_t src, size_t n, void *stream);
	int (*fill_async)(uintptr_t dst, unsigned char byte, size_t n, void *stream);
	int (*event_create)(void **event, unsigned int flags);
	int (*event_record)(void *event, void *stream);
	int (*event_sync)(void *event);
	int (*wait_value)(void *stream, uintptr_t word, uint64_t value, unsigned int flags);
	int (*write_value)(void *stream, uintptr_t word, uint64_t value, unsigned int flags);
	int (*begin_capture)(void *stream, int mode);
	int (*end_capture)(void *stream, void **graph);
	/* May be NULL, in the fake: */
	int (*context_create)(void **context, unsigned int flags, int device);
	int (*context_destroy)(void *context);
	int (*module_load)(void **module, const void *image);
	int (*module_function)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned int gx, unsigned int gy, unsigned int gz,
		      unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
		      void *stream, void **parameters, void **extra);
};

extern struct driver cu;

/* Fills cu and starts the driver; NULL, or what is missing. */
const char *driver_load(void);

/* Physical memory, as cuMemCreate() and cuMemSetAccess() are told of it. */
struct driver_physical {
	int type, handle_types, location_type, device;
	void *win32;
	unsigned char flags[8];
};

struct driver_access {
	int location_type, device, flags;
};

/*
 * Reserves @pieces times *size bytes and maps each piece but the one numbered
 * @hole; *size is what the driver maps at least.
 */
int driver_map_pieces(int device, int pieces, int hole, size_t *size, uintptr_t *base);

#endif
