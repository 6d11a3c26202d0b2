/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's driver API, as far as it is used: own prototypes of the functions in
 * libcuda.so.1, which is loaded at run time. Names and values are the API's.
 */
#ifndef NVIDIA_DRIVER_H
#define NVIDIA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* Results. */
#define CU_OUT_OF_MEMORY 2
#define CU_DEINITIALIZED 4
#define CU_NO_DEVICE 100
#define CU_INVALID_CONTEXT 201
#define CU_NOT_READY 600
#define CU_NOT_SUPPORTED 801
#define CU_CONTEXT_IS_DESTROYED 709

/* What a pointer is. */
#define CU_MEMORY_HOST 1U
#define CU_ATTRIBUTE_MEMORY_TYPE 2
#define CU_ATTRIBUTE_BUFFER_ID 7
#define CU_ATTRIBUTE_IS_MANAGED 8
#define CU_ATTRIBUTE_DEVICE_ORDINAL 9
#define CU_ATTRIBUTE_RANGE_START 11
#define CU_ATTRIBUTE_RANGE_SIZE 12
#define CU_ATTRIBUTE_MAPPING_SIZE 18 /* from CUDA 12 on, as the next */
#define CU_ATTRIBUTE_MAPPING_BASE 19

#define CU_DEVICE_STREAM_WORDS_V1 93 /* 64-bit operations of streams on memory */
#define CU_DEVICE_STREAM_WORDS 122
#define CU_STREAM_NON_BLOCKING 1U
#define CU_EVENT_BLOCKING_SYNC 1U
#define CU_EVENT_DISABLE_TIMING 2U
#define CU_HOST_PORTABLE 1U
#define CU_WAIT_VALUE_GEQ 0U
#define CU_WRITE_VALUE_DEFAULT 0U
#define CU_CAPTURE_MODE_RELAXED 2
#define CU_RANGE_DMA_BUF_FD 1

struct cu_context;
struct cu_stream;
struct cu_event;

struct nvidia_driver {
	int (*init)(unsigned int flags);
	int (*version)(int *version);
	int (*error_name)(int result, const char **name);
	int (*error_string)(int result, const char **text);

	int (*device_count)(int *count);
	int (*device_get)(int *device, int ordinal);
	int (*device_name)(char *name, int len, int device);
	int (*device_memory)(size_t *bytes, int device);
	int (*device_bdf)(char *bdf, int len, int device);
	int (*device_attribute)(int *value, int attribute, int device);

	int (*context_retain)(struct cu_context **context, int device);
	int (*context_create)(struct cu_context **context, unsigned int flags, int device);
	int (*context_push)(struct cu_context *context);
	int (*context_pop)(struct cu_context **context);
	int (*capture_mode)(int *mode);

	int (*mem_alloc)(uintptr_t *addr, size_t len);
	int (*mem_free)(uintptr_t addr);
	int (*mem_range)(uintptr_t *base, size_t *len, uintptr_t addr);
	/* From CUDA 11.7 on; NULL: older, or another vendor's. */
	int (*mem_export)(void *handle, uintptr_t addr, size_t len, int kind,
			  unsigned long long flags);
	int (*pointer_attributes)(unsigned int n, int *attributes, void **out, uintptr_t addr);
	int (*host_register)(void *addr, size_t len, unsigned int flags);
	int (*host_unregister)(void *addr);

	/* With the direction said: an address that is not the device's is refused. */
	int (*copy_dtod)(uintptr_t dst, uintptr_t src, size_t n, struct cu_stream *stream);
	int (*copy_htod)(uintptr_t dst, uintptr_t src, size_t n, struct cu_stream *stream);
	int (*copy_dtoh)(uintptr_t dst, uintptr_t src, size_t n, struct cu_stream *stream);
	int (*stream_create)(struct cu_stream **stream, unsigned int flags);
	int (*stream_sync)(struct cu_stream *stream);
	int (*stream_query)(struct cu_stream *stream);
	int (*event_create)(struct cu_event **event, unsigned int flags);
	int (*event_record)(struct cu_event *event, struct cu_stream *stream);
	int (*event_query)(struct cu_event *event);
	int (*event_sync)(struct cu_event *event);
	int (*event_destroy)(struct cu_event *event);

	int (*is_capturing)(struct cu_stream *stream, int *status);
	int (*launch_host_func)(struct cu_stream *stream, void (*fn)(void *arg), void *arg);
	int (*wait_value)(struct cu_stream *stream, uintptr_t word, uint64_t value,
			  unsigned int flags);
	int (*write_value)(struct cu_stream *stream, uintptr_t word, uint64_t value,
			   unsigned int flags);
};

/* Filled by nvidia_driver_load(), constant from then on. */
extern struct nvidia_driver nvidia_driver;

/* 0, or -errno with the reason and the cure in @text. */
int nvidia_driver_load(char *text, size_t size);

/* The errno for a result of the driver or of a CUDA runtime; they number alike. */
int nvidia_errno(int result);

/*
 * A driver call failed: keep and log its name and the driver's words for
 * @result; the errno.
 */
int nvidia_fail(int result, const char *call);

#endif
