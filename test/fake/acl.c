// SPDX-License-Identifier: Apache-2.0
/*
 * AscendCL over the fake driver, whose contexts and streams are its contexts and streams.
 * Its own rules on top: a thread without a context gets an error; a context, once set,
 * cannot be taken away; a failed copy does not stop its stream, and only waiting for the
 * stream tells of it. Results have AscendCL's numbers, also in fakecuda_fail().
 *
 * ACL_OLD: functions in streams run in a thread that has subscribed to the stream and
 * processes reports, and PCI addresses are not told.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_fake.h"

/* The fake driver's. */
int cuInit(unsigned int flags);
int cuDeviceGetCount(int *count);
int cuDeviceGetPCIBusId(char *bdf, int len, int device);
int cuCtxCreate_v2(struct context **context, unsigned int flags, int device);
int cuCtxSetCurrent(struct context *context);
int cuCtxPopCurrent_v2(struct context **context);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuMemAlloc_v2(uintptr_t *addr, size_t len);
int cuMemFree_v2(uintptr_t addr);
int cuMemHostAlloc(void **addr, size_t len, unsigned int flags);
int cuMemFreeHost(void *addr);
int cuPointerGetAttributes(unsigned int n, int *attributes, void **out, uintptr_t addr);
int cuStreamCreate(struct stream **stream, unsigned int flags);
int cuStreamSynchronize(struct stream *stream);
int cuStreamIsCapturing(struct stream *stream, int *status);
int cuLaunchHostFunc(struct stream *stream, void (*fn)(void *arg), void *arg);
int cuEventCreate(struct event **event, unsigned int flags);
int cuEventRecord(struct event *event, struct stream *stream);
int cuEventQuery(struct event *event);
int cuEventDestroy_v2(struct event *event);

enum {
	ACL_INVALID_PARAM = 100000,
	ACL_UNINITIALIZED = 100001,
	ACL_REPEATED_INIT = 100002,
	ACL_PARAM = 107000,
	ACL_NO_CONTEXT = 107002,
	ACL_OTHER_CONTEXT = 107003,
	ACL_REPORT_TIMEOUT = 107012,
	ACL_NO_SUBSCRIPTION = 107015,
	ACL_SUBSCRIBED = 107016,
	ACL_MEMORY = 207001,
	ACL_CAPTURED = 107024,
	ACL_DEVICE_FAULT = 507035,
};

static _Thread_local const char *message;

/* A result of the fake driver's, or one that a test asked for. */
static int acl_result(int result)
{
	message = NULL;
	switch (result) {
	case INVALID_VALUE:
		return ACL_PARAM;
	case OUT_OF_MEMORY:
		message = "EL0004: out of memory";
		return ACL_MEMORY;
	case NOT_INITIALIZED:
	case DEINITIALIZED:
		return ACL_UNINITIALIZED;
	case INVALID_CONTEXT:
		return ACL_NO_CONTEXT;
	case INVALID_HANDLE:
		return ACL_OTHER_CONTEXT;
	case ILLEGAL_ADDRESS:
		message = "EZ9999: the address is not mapped";
		return ACL_DEVICE_FAULT;
	case CAPTURE_UNSUPPORTED:
		return ACL_CAPTURED;
	default:
		return result;
	}
}

/* Counts the call; every call needs a context, but for a few. */
static int enter(const char *name)
{
	int result = fake_call(name);

	if (!result && !fake_current())
		result = INVALID_CONTEXT;
	return result;
}

/* ------------------------------------------------------- start and devices */

API int aclInit(const char *config)
{
	static bool started;
	int result = cuInit(0);

	if (!result)
		result = fake_call("aclInit");
	if (!result && started)
		result = ACL_REPEATED_INIT;
	started = true;
	return acl_result(result == NO_DEVICE ? 0 : result);
}

API const char *aclGetRecentErrMsg(void)
{
	return message;
}

API const char *aclrtGetSocName(void)
{
	return "Ascend910B3";
}

API int aclrtGetDeviceCount(uint32_t *count)
{
	int n = 0, result = cuDeviceGetCount(&n);

	*count = (uint32_t)n;
	return acl_result(result);
}

API int aclrtGetLogicDevIdByUserDevId(int32_t device, int32_t *logic)
{
	*logic = device + 4;
	return 0;
}

#ifdef ACL_NEW
API int aclrtDeviceGetPCIBusId(int32_t device, char *bdf, int32_t len)
{
	int result = fake_call("aclrtDeviceGetPCIBusId");

	return acl_result(result ? result : cuDeviceGetPCIBusId(bdf, len, device));
}
#endif

/* ---------------------------------------------------------------- contexts */

static void drop_current(void)
{
	struct context *old;

	if (fake_current())
		cuCtxPopCurrent_v2(&old);
}

API int aclrtCreateContext(struct context **context, int32_t device)
{
	int result = fake_call("aclrtCreateContext");

	if (result)
		return acl_result(result);
	drop_current();
	return acl_result(cuCtxCreate_v2(context, 0, device));
}

API int aclrtSetCurrentContext(struct context *context)
{
	int result = fake_call("aclrtSetCurrentContext");

	if (!result && !context)
		result = ACL_INVALID_PARAM;
	return acl_result(result ? result : cuCtxSetCurrent(context));
}

API int aclrtGetCurrentContext(struct context **context)
{
	int result = enter("aclrtGetCurrentContext");

	if (!result)
		*context = fake_current();
	return acl_result(result);
}

API int aclmdlRICaptureThreadExchangeMode(int *mode)
{
	return acl_result(cuThreadExchangeStreamCaptureMode(mode));
}

API int aclmdlRICaptureGetInfo(struct stream *stream, int *status, void **graph)
{
	*graph = NULL;
	return acl_result(cuStreamIsCapturing(stream, status));
}

/* ------------------------------------------------------------------ memory */

API int aclrtMalloc(void **p, size_t len, int policy)
{
	int result = enter("aclrtMalloc");
	uintptr_t at = 0;

	if (!result && policy < 0)
		result = INVALID_VALUE;
	if (!result)
		result = cuMemAlloc_v2(&at, len);
	*p = (void *)at;
	return acl_result(result);
}

API int aclrtFree(void *p)
{
	int result = enter("aclrtFree");

	return acl_result(result ? result : cuMemFree_v2((uintptr_t)p));
}

API int aclrtMallocHost(void **p, size_t len)
{
	int result = enter("aclrtMallocHost");

	return acl_result(result ? result : cuMemHostAlloc(p, len, 0));
}

API int aclrtFreeHost(void *p)
{
	int result = enter("aclrtFreeHost");

	return acl_result(result ? result : cuMemFreeHost(p));
}

struct pointer {
	uint32_t device, type, page_size, reserved[4];
};

/* 0: host memory of the runtime's, 1: a device's, 2: neither. */
API int aclrtPointerGetAttributes(const void *p, struct pointer *out)
{
	int device = -1, wanted[] = { 2, 9 }, result = fake_call("aclrtPointerGetAttributes");
	unsigned int type = 0;
	void *answers[] = { &type, &device };

	if (!result)
		result = cuPointerGetAttributes(2, wanted, answers, (uintptr_t)p);
	*out = (struct pointer){ .device = (uint32_t)device, .page_size = 2 << 20 };
	out->type = type == 1 ? 0 : type == 2 ? 1 : 2;
	return acl_result(result);
}

/* ------------------------------------------------------ copies and streams */

static int check_copy(uintptr_t dst, size_t room, uintptr_t src, size_t n, int kind)
{
	if (n > room || kind < 1 || kind > 3 || fake_is_device(dst) != (kind != 2) ||
	    fake_is_device(src) != (kind != 1))
		return INVALID_VALUE;
	return 0;
}

API int aclrtMemcpy(void *dst, size_t room, const void *src, size_t n, int kind)
{
	uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
	int result = enter("aclrtMemcpy");

	if (!result)
		result = fake_call("copies");
	if (!result)
		result = check_copy(to, room, from, n, kind);
	if (!result)
		result = fake_chance("copy");
	return acl_result(result ? result : fake_copy(to, from, n));
}

struct copy {
	struct stream *stream;
	uintptr_t dst, src;
	size_t n;
};

static void run_copy(void *arg)
{
	int result = fake_chance("copy");
	struct copy *c = arg;

	if (!result)
		result = fake_copy(c->dst, c->src, c->n);
	if (result)
		c->stream->failure = result;
	free(c);
}

/* The driver's check of a stream is behind calls that wait: it is made here. */
static int check_stream(struct stream *stream)
{
	return stream && stream->context == fake_current() ? 0 : INVALID_HANDLE;
}

API int aclrtMemcpyAsync(void *dst, size_t room, const void *src, size_t n, int kind,
			 struct stream *stream)
{
	uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
	int result = enter("aclrtMemcpyAsync");
	struct copy *c;

	if (!result)
		result = fake_call("copies");
	if (!result)
		result = check_stream(stream);
	if (!result)
		result = check_copy(to, room, from, n, kind);
	/* what is on the host must be the runtime's: it is reached later */
	if (!result && ((kind == 1 && !fake_is_pinned(from, n)) ||
			(kind == 2 && !fake_is_pinned(to, n))))
		result = INVALID_VALUE;
	if (result)
		return acl_result(result);
	c = malloc(sizeof(*c));
	if (!c)
		return ACL_MEMORY;
	*c = (struct copy){ stream, to, from, n };
	result = cuLaunchHostFunc(stream, run_copy, c);
	if (result)
		free(c);
	return acl_result(result);
}

API int aclrtCreateStream(struct stream **stream)
{
	int result = enter("aclrtCreateStream");

	return acl_result(result ? result : cuStreamCreate(stream, 1));
}

API int aclrtSynchronizeStream(struct stream *stream)
{
	int result = enter("aclrtSynchronizeStream");

	if (!result)
		result = check_stream(stream);
	if (!result)
		result = cuStreamSynchronize(stream);
	if (!result)
		result = atomic_exchange(&stream->failure, 0);
	return acl_result(result);
}

/* ------------------------------------------------------------------ events */

API int aclrtCreateEvent(struct event **event)
{
	int result = enter("aclrtCreateEvent");

	return acl_result(result ? result : cuEventCreate(event, 0));
}

API int aclrtRecordEvent(struct event *event, struct stream *stream)
{
	int result = enter("aclrtRecordEvent");

	return acl_result(result ? result : cuEventRecord(event, stream));
}

API int aclrtQueryEventStatus(struct event *event, int *status)
{
	int result = enter("aclrtQueryEventStatus");

	if (!result)
		result = cuEventQuery(event);
	*status = !result;
	return acl_result(result == NOT_READY ? 0 : result);
}

API int aclrtDestroyEvent(struct event *event)
{
	int result = enter("aclrtDestroyEvent");

	return acl_result(result ? result : cuEventDestroy_v2(event));
}

/* --------------------------------------------------- functions in streams */

#ifdef ACL_NEW
API int aclrtLaunchHostFunc(struct stream *stream, void (*fn)(void *arg), void *arg)
{
	int result = fake_call("aclrtLaunchHostFunc");

	return acl_result(result ? result : cuLaunchHostFunc(stream, fn, arg));
}
#else
#define MAX_SUBSCRIPTIONS 64

/* A function that a stream waits for, until the thread has run it. */
struct report {
	void (*fn)(void *arg);
	void *arg;
	uint64_t thread;
	bool running, done;
	struct report *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all here */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct report *reports;
static struct {
	struct stream *stream;
	uint64_t thread;
} subscriptions[MAX_SUBSCRIPTIONS];
static int subscribed;

static uint64_t thread_of(const struct stream *stream)
{
	for (int i = 0; i < subscribed; i++) {
		if (subscriptions[i].stream == stream)
			return subscriptions[i].thread;
	}
	return 0;
}

API int aclrtSubscribeReport(uint64_t thread, struct stream *stream)
{
	int result = fake_call("aclrtSubscribeReport");

	pthread_mutex_lock(&lock);
	if (!result && thread_of(stream))
		result = ACL_SUBSCRIBED;
	if (!result && subscribed == MAX_SUBSCRIPTIONS)
		result = OUT_OF_MEMORY;
	if (!result) {
		subscriptions[subscribed].stream = stream;
		subscriptions[subscribed++].thread = thread;
	}
	pthread_mutex_unlock(&lock);
	return acl_result(result);
}

/* In the stream: until the subscriber has run it. */
static void await_report(void *arg)
{
	struct report *r = arg, **at;

	pthread_mutex_lock(&lock);
	r->next = reports;
	reports = r;
	pthread_cond_broadcast(&changed);
	while (!r->done)
		pthread_cond_wait(&changed, &lock);
	for (at = &reports; *at != r; at = &(*at)->next)
		;
	*at = r->next;
	pthread_mutex_unlock(&lock);
	free(r);
}

API int aclrtLaunchCallback(void (*fn)(void *arg), void *arg, int block, struct stream *stream)
{
	int result = fake_call("aclrtLaunchCallback");
	struct report *r = malloc(sizeof(*r));
	uint64_t thread;

	pthread_mutex_lock(&lock);
	thread = thread_of(stream);
	pthread_mutex_unlock(&lock);
	if (!result && (!r || block != 1))
		result = INVALID_VALUE;
	if (!result && !thread)
		result = ACL_NO_SUBSCRIPTION;
	if (!result) {
		*r = (struct report){ .fn = fn, .arg = arg, .thread = thread };
		result = cuLaunchHostFunc(stream, await_report, r);
	}
	if (result)
		free(r);
	return acl_result(result);
}

/* One for the calling thread; with the lock held. */
static struct report *find_report(bool *is_subscriber)
{
	uint64_t me = (uint64_t)pthread_self();

	*is_subscriber = false;
	for (int i = 0; i < subscribed; i++)
		*is_subscriber |= subscriptions[i].thread == me;
	for (struct report *r = reports; r; r = r->next) {
		if (r->thread == me && !r->running)
			return r;
	}
	return NULL;
}

API int aclrtProcessReport(int32_t ms)
{
	struct timespec end;
	bool is_subscriber;
	struct report *r;
	int err = 0;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += ms / 1000 + 1;
	pthread_mutex_lock(&lock);
	while (!(r = find_report(&is_subscriber)) && is_subscriber && !err)
		err = pthread_cond_timedwait(&changed, &lock, &end);
	if (r)
		r->running = true;
	pthread_mutex_unlock(&lock);
	if (!r)
		return is_subscriber ? ACL_REPORT_TIMEOUT : ACL_NO_SUBSCRIPTION;
	r->fn(r->arg);
	pthread_mutex_lock(&lock);
	r->done = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return 0;
}
#endif
