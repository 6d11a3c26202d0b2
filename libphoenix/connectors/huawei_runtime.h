/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AscendCL, as far as it is used: own prototypes of the functions in libascendcl.so,
 * which is loaded at run time. Names and values are the API's.
 */
#ifndef HUAWEI_RUNTIME_H
#define HUAWEI_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define ACL_MALLOC_HUGE_FIRST 0
#define ACL_LOCATION_DEVICE 1U
#define ACL_CALLBACK_BLOCK 1
#define ACL_EVENT_COMPLETE 1     /* of aclrtQueryEventStatus() */
#define ACL_CAPTURE_ACTIVE 1
#define ACL_CAPTURE_RELAXED 2
#define ACL_UNINITIALIZED 100001
#define ACL_REPEATED_INIT 100002
#define ACL_REPORT_TIMEOUT 107012

enum { ACL_HOST_TO_DEVICE = 1, ACL_DEVICE_TO_HOST, ACL_DEVICE_TO_DEVICE };

typedef void *acl_context;
typedef void *acl_stream;
typedef void *acl_event;

/* Where a pointer's memory is. */
struct acl_pointer {
	uint32_t device;
	uint32_t type; /* 0: host, 1: device, 2: not known */
	uint32_t page_size;
	uint32_t reserved[16];
};

struct huawei_runtime {
	int (*init)(const char *config);
	const char *(*recent_message)(void);
	const char *(*soc_name)(void);
	int (*device_count)(uint32_t *count);
	int (*context_create)(acl_context *context, int32_t device);
	int (*context_get)(acl_context *context);
	int (*context_set)(acl_context context);
	int (*mem_alloc)(void **p, size_t len, int policy);
	int (*mem_free)(void *p);
	int (*host_alloc)(void **p, size_t len);
	int (*host_free)(void *p);
	int (*copy)(void *dst, size_t room, const void *src, size_t n, int kind);
	int (*copy_async)(void *dst, size_t room, const void *src, size_t n, int kind,
			  acl_stream stream);
	int (*stream_create)(acl_stream *stream);
	int (*stream_sync)(acl_stream stream);
	int (*event_create)(acl_event *event);
	int (*event_record)(acl_event event, acl_stream stream);
	int (*event_status)(acl_event event, int *status);
	int (*event_destroy)(acl_event event);
	int (*pointer)(const void *p, struct acl_pointer *out);
	/* NULL in older ones: */
	int (*launch_host_func)(acl_stream stream, void (*fn)(void *arg), void *arg);
	int (*launch_callback)(void (*fn)(void *arg), void *arg, int block, acl_stream stream);
	int (*subscribe)(uint64_t thread, acl_stream stream);
	int (*process_report)(int32_t ms);
	int (*capture_info)(acl_stream stream, int *status, void **graph);
	int (*capture_mode)(int *mode);
	int (*device_bdf)(int32_t device, char *bdf, int32_t len);
	int (*logic_device)(int32_t device, int32_t *logic);
};

/* Filled by huawei_runtime_load(), constant from then on. */
extern struct huawei_runtime acl;

/* 0, or -errno with the reason and the cure in @text. */
int huawei_runtime_load(char *text, size_t size);
/* The PCI address of a device; -errno where it cannot be told. */
int huawei_bdf(int device, char *bdf, size_t size);
/* The errno for one of AscendCL's results. */
int huawei_errno(int result);
/* A call failed: keep and log its name and the runtime's words; the errno. */
int huawei_fail(int result, const char *call);

#endif
