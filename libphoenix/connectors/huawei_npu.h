/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the Huawei connector share. */
#ifndef HUAWEI_NPU_H
#define HUAWEI_NPU_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "devconnector.h"
#include "huawei_runtime.h"

struct huawei_npu {
	int ordinal;
	char bdf[16];
	/* The making of what follows, which then stays: */
	pthread_mutex_t lock;
	_Atomic(acl_context) context; /* NULL: not needed yet */
	_Atomic(acl_stream) queues[DEVCONN_SLOTS];
};

/* What huawei_enter() changed and huawei_leave() puts back. */
struct huawei_visit {
	struct huawei_npu *npu;
	acl_context before; /* NULL: the thread had none */
	int capture_mode;
	bool gone; /* the runtime has been torn down, at exit, and all memory with it */
};

/* Make the device's context current; 0 or -errno. */
int huawei_enter(int device, struct huawei_visit *visit);
void huawei_leave(struct huawei_visit *visit);

/* The slots of the table, in huawei_copy.c. */
int huawei_copy_dtod(int device, void *dst, const void *src, size_t n);
int huawei_copy_htod(int device, void *dst, const void *src, size_t n);
int huawei_copy_dtoh(int device, void *dst, const void *src, size_t n);
int huawei_copy_dtod_async(int device, int slot, void *dst, const void *src, size_t n);
int huawei_copy_htod_async(int device, int slot, void *dst, const void *src, size_t n);
int huawei_copy_dtoh_async(int device, int slot, void *dst, const void *src, size_t n);
int huawei_queue_sync(int device, int slot);
int huawei_event_record(int device, int slot, void **event);
int huawei_event_done(int device, void *event);
int huawei_event_wait(int device, void *event);
void huawei_event_free(int device, void *event);
int huawei_launch_host_func(void *stream, void (*fn)(void *arg), void *arg);

#endif
