// SPDX-License-Identifier: Apache-2.0
/*
 * Copies, on streams of our context, and functions in the program's streams.
 *
 * A failed copy does not stop its stream, and an event behind it comes all the same: only
 * waiting for the stream reports it. So whoever finds an event come also waits for its
 * stream, which by then has little left to do.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "huawei_npu.h"

#define REPORT_MS 1000
#define PAUSE_US 1000

struct event {
	acl_event event;
	acl_stream stream;
};

/* Bad addresses are -EFAULT here: -EINVAL would speak of the request. */
static int copied(int result)
{
	int err = result ? huawei_fail(result, "copying") : 0;

	return err == -EINVAL ? -EFAULT : err;
}

/* ------------------------------------------------------------------ copies */

static int copy(int device, int kind, void *dst, const void *src, size_t n)
{
	struct huawei_visit visit;
	int err = huawei_enter(device, &visit);

	if (err)
		return err;
	err = copied(acl.copy(dst, n, src, n, kind));
	huawei_leave(&visit);
	return err;
}

int huawei_copy_dtod(int device, void *dst, const void *src, size_t n)
{
	return copy(device, ACL_DEVICE_TO_DEVICE, dst, src, n);
}

int huawei_copy_htod(int device, void *dst, const void *src, size_t n)
{
	return copy(device, ACL_HOST_TO_DEVICE, dst, src, n);
}

int huawei_copy_dtoh(int device, void *dst, const void *src, size_t n)
{
	return copy(device, ACL_DEVICE_TO_HOST, dst, src, n);
}

/* The stream of @slot, made when it is first used; within a visit. */
static int find_queue(struct huawei_npu *npu, int slot, acl_stream *out)
{
	int result = 0;

	if (slot < 0 || slot >= DEVCONN_SLOTS)
		return devconn_fail(-EINVAL, "queue %d", slot);
	*out = atomic_load_explicit(&npu->queues[slot], memory_order_acquire);
	if (*out)
		return 0;
	pthread_mutex_lock(&npu->lock);
	*out = atomic_load_explicit(&npu->queues[slot], memory_order_relaxed);
	if (!*out)
		result = acl.stream_create(out);
	if (!result)
		atomic_store_explicit(&npu->queues[slot], *out, memory_order_release);
	pthread_mutex_unlock(&npu->lock);
	return result ? huawei_fail(result, "aclrtCreateStream") : 0;
}

static int copy_async(int device, int slot, int kind, void *dst, const void *src, size_t n)
{
	struct huawei_visit visit;
	acl_stream queue;
	int err = huawei_enter(device, &visit);

	if (err)
		return err;
	err = find_queue(visit.npu, slot, &queue);
	if (!err)
		err = copied(acl.copy_async(dst, n, src, n, kind, queue));
	huawei_leave(&visit);
	return err;
}

int huawei_copy_dtod_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return copy_async(device, slot, ACL_DEVICE_TO_DEVICE, dst, src, n);
}

int huawei_copy_htod_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return copy_async(device, slot, ACL_HOST_TO_DEVICE, dst, src, n);
}

int huawei_copy_dtoh_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return copy_async(device, slot, ACL_DEVICE_TO_HOST, dst, src, n);
}

int huawei_queue_sync(int device, int slot)
{
	struct huawei_visit visit;
	acl_stream queue;
	int err = huawei_enter(device, &visit);

	if (err)
		return err;
	err = find_queue(visit.npu, slot, &queue);
	if (!err)
		err = copied(acl.stream_sync(queue));
	huawei_leave(&visit);
	return err;
}

/* ------------------------------------------------------------------ events */

static int record(struct event *e)
{
	int result = 0;

	if (!e->event)
		result = acl.event_create(&e->event);
	if (result)
		return huawei_fail(result, "aclrtCreateEvent");
	result = acl.event_record(e->event, e->stream);
	return result ? huawei_fail(result, "aclrtRecordEvent") : 0;
}

int huawei_event_record(int device, int slot, void **event)
{
	struct event *e = *event ? *event : calloc(1, sizeof(*e));
	struct huawei_visit visit;
	int err;

	if (!e)
		return -ENOMEM;
	*event = e;
	err = huawei_enter(device, &visit);
	if (err)
		return err;
	err = find_queue(visit.npu, slot, &e->stream);
	if (!err)
		err = record(e);
	huawei_leave(&visit);
	return err;
}

int huawei_event_done(int device, void *event)
{
	struct event *e = event;
	struct huawei_visit visit;
	int err = huawei_enter(device, &visit), status = 0;

	if (err)
		return err;
	err = copied(acl.event_status(e->event, &status));
	if (!err)
		err = status == ACL_EVENT_COMPLETE ? copied(acl.stream_sync(e->stream)) : -EBUSY;
	huawei_leave(&visit);
	return err;
}

int huawei_event_wait(int device, void *event)
{
	struct event *e = event;
	struct huawei_visit visit;
	int err = huawei_enter(device, &visit);

	if (err)
		return err;
	err = copied(acl.stream_sync(e->stream));
	huawei_leave(&visit);
	return err;
}

void huawei_event_free(int device, void *event)
{
	struct event *e = event;
	struct huawei_visit visit;

	if (e && e->event && !huawei_enter(device, &visit)) {
		acl.event_destroy(e->event);
		huawei_leave(&visit);
	}
	free(e);
}

/* --------------------------------------------------- the program's streams */

/* Older runtimes want a thread of ours to run the functions of streams in. */
static pthread_once_t reporter_once = PTHREAD_ONCE_INIT;
static pthread_t reporter;
static int reporter_error;

static void *report(void *arg)
{
	for (;;) {
		int result = acl.process_report(REPORT_MS);

		/* no stream has subscribed to this thread yet */
		if (result && result != ACL_REPORT_TIMEOUT)
			usleep(PAUSE_US);
	}
	return NULL;
}

static void start_reporter(void)
{
	reporter_error = -pthread_create(&reporter, NULL, report, NULL);
	if (!reporter_error)
		pthread_detach(reporter);
}

static int launch_by_reporter(void *stream, void (*fn)(void *arg), void *arg)
{
	int result;

	if (!acl.launch_callback || !acl.subscribe || !acl.process_report)
		return devconn_fail(-EOPNOTSUPP, "this CANN runs no functions in streams");
	pthread_once(&reporter_once, start_reporter);
	if (reporter_error)
		return reporter_error;
	/* refused where the stream has a thread already, of the program's or ours */
	(void)acl.subscribe((uint64_t)reporter, stream);
	result = acl.launch_callback(fn, arg, ACL_CALLBACK_BLOCK, stream);
	return result ? huawei_fail(result, "aclrtLaunchCallback") : 0;
}

/* A graph would run the call again and again; it is to happen once. */
static int refuse_capture(void *stream)
{
	void *graph = NULL;
	int status = 0;

	if (!acl.capture_info || acl.capture_info(stream, &status, &graph))
		return 0;
	return status == ACL_CAPTURE_ACTIVE ?
		       devconn_fail(-EOPNOTSUPP, "the stream is being captured into a graph") : 0;
}

/* In the caller's context: the stream is of it. */
int huawei_launch_host_func(void *stream, void (*fn)(void *arg), void *arg)
{
	int err = refuse_capture(stream), result;

	if (err)
		return err;
	if (!acl.launch_host_func)
		return launch_by_reporter(stream, fn, arg);
	result = acl.launch_host_func(stream, fn, arg);
	return result ? huawei_fail(result, "aclrtLaunchHostFunc") : 0;
}
