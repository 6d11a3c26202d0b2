// SPDX-License-Identifier: Apache-2.0
/*
 * A runtime with CUDA's functions under a vendor's names (PREFIX: mc, hip), over the
 * fake driver, and so with its rules. As a real one does it has a current device in each
 * thread, 0 at first, and makes a device's context when it is first used.
 *
 * FAKE_RUNTIME_VERSION=5: an older HIP, which knows kinds of memory by other numbers and
 * nothing of memory that is not its own.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cuda_fake.h"

#define JOIN(a, b) a##b
#define PREFIXED(prefix, name) JOIN(prefix, name)
#define RT(name) PREFIXED(PREFIX, name)

/* The fake driver's. */
int cuInit(unsigned int flags);
int cuGetErrorName(int result, const char **name);
int cuGetErrorString(int result, const char **text);
int cuDeviceGetCount(int *count);
int cuDeviceGetPCIBusId(char *bdf, int len, int device);
int cuDevicePrimaryCtxRetain(struct context **context, int device);
int cuCtxGetCurrent(struct context **context);
int cuCtxSetCurrent(struct context *context);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuMemAlloc_v2(uintptr_t *addr, size_t len);
int cuMemFree_v2(uintptr_t addr);
int cuPointerGetAttributes(unsigned int n, int *attributes, void **out, uintptr_t addr);
int cuMemHostRegister_v2(void *addr, size_t len, unsigned int flags);
int cuMemHostUnregister(void *addr);
int cuMemcpyDtoDAsync_v2(uintptr_t dst, uintptr_t src, size_t n, struct stream *stream);
int cuMemcpyHtoDAsync_v2(uintptr_t dst, uintptr_t src, size_t n, struct stream *stream);
int cuMemcpyDtoHAsync_v2(uintptr_t dst, uintptr_t src, size_t n, struct stream *stream);
int cuStreamCreate(struct stream **stream, unsigned int flags);
int cuStreamSynchronize(struct stream *stream);
int cuStreamQuery(struct stream *stream);
int cuStreamIsCapturing(struct stream *stream, int *status);
int cuLaunchHostFunc(struct stream *stream, void (*fn)(void *arg), void *arg);
int cuEventCreate(struct event **event, unsigned int flags);
int cuEventRecord(struct event *event, struct stream *stream);
int cuEventQuery(struct event *event);
int cuEventSynchronize(struct event *event);
int cuEventDestroy_v2(struct event *event);

static _Thread_local int current;
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;

static int start(void)
{
	static _Thread_local bool started;

	if (!started && cuInit(0))
		return NOT_INITIALIZED;
	started = true;
	return 0;
}

/* The current device's context, and nobody else's, current in the driver too. */
static int enter(void)
{
	static struct context *contexts[MAX_DEVICES];
	struct context *mine, *now;
	int result = start();

	if (result)
		return result;
	pthread_mutex_lock(&contexts_lock);
	mine = contexts[current];
	pthread_mutex_unlock(&contexts_lock);
	if (!mine) {
		result = cuDevicePrimaryCtxRetain(&mine, current);
		if (result)
			return result;
		pthread_mutex_lock(&contexts_lock);
		contexts[current] = mine;
		pthread_mutex_unlock(&contexts_lock);
	}
	result = cuCtxGetCurrent(&now);
	return result || now == mine ? result : cuCtxSetCurrent(mine);
}

API const char *RT(GetErrorName)(int result)
{
	const char *name = NULL;

	return cuGetErrorName(result, &name) ? "ErrorUnknown" : name;
}

API const char *RT(GetErrorString)(int result)
{
	const char *text = NULL;

	return cuGetErrorString(result, &text) ? "unknown error" : text;
}

API int RT(GetDeviceCount)(int *count)
{
	int result = start();

	return result ? result : cuDeviceGetCount(count);
}

API int RT(DeviceGetPCIBusId)(char *bdf, int len, int device)
{
	int result = start();

	return result ? result : cuDeviceGetPCIBusId(bdf, len, device);
}

API int RT(GetDevice)(int *device)
{
	struct context *now;
	int result = start();

	*device = current;
	return result ? result : cuCtxGetCurrent(&now);
}

API int RT(SetDevice)(int device)
{
	int count = 0, result = RT(GetDeviceCount)(&count);

	if (result)
		return result;
	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	current = device;
	return enter();
}

API int RT(Malloc)(void **p, size_t len)
{
	uintptr_t at = 0;
	int result = enter();

	if (!result)
		result = cuMemAlloc_v2(&at, len);
	*p = (void *)at;
	return result;
}

API int RT(Free)(void *p)
{
	int result = enter();

	return result ? result : cuMemFree_v2((uintptr_t)p);
}

struct attributes {
	int type, device;
	void *device_address, *host_address;
	int managed;
	unsigned int flags;
};

static _Thread_local int last_error;

API int RT(PeekAtLastError)(void)
{
	return last_error;
}

API int RT(GetLastError)(void)
{
	int last = last_error;

	last_error = 0;
	return last;
}

static bool is_old(void)
{
	const char *version = getenv("FAKE_RUNTIME_VERSION");

	return version && atoi(version) < 6;
}

API int RT(PointerGetAttributes)(struct attributes *out, const void *p)
{
	unsigned int type = 0, managed = 0;
	int device = -1, wanted[] = { 2, 8, 9 }, result = start();
	void *answers[] = { &type, &managed, &device };

	if (!result)
		result = cuPointerGetAttributes(3, wanted, answers, (uintptr_t)p);
	if (!result && is_old() && !type)
		result = INVALID_VALUE;
	if (result)
		last_error = result;
	*out = (struct attributes){ .type = managed ? 3 : (int)type, .device = device };
	if (is_old())
		out->type = (int)type - 1;
	return result;
}

API int RT(HostRegister)(void *p, size_t len, unsigned int flags)
{
	int result = enter();

	return result ? result : cuMemHostRegister_v2(p, len, flags);
}

API int RT(HostUnregister)(void *p)
{
	int result = enter();

	return result ? result : cuMemHostUnregister(p);
}

API int RT(MemcpyAsync)(void *dst, const void *src, size_t n, int kind, struct stream *stream)
{
	uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
	int result = enter();

	if (result)
		return result;
	switch (kind) {
	case 1:
		return cuMemcpyHtoDAsync_v2(to, from, n, stream);
	case 2:
		return cuMemcpyDtoHAsync_v2(to, from, n, stream);
	case 3:
		return cuMemcpyDtoDAsync_v2(to, from, n, stream);
	}
	return INVALID_VALUE;
}

API int RT(StreamCreateWithFlags)(struct stream **stream, unsigned int flags)
{
	int result = enter();

	return result ? result : cuStreamCreate(stream, flags);
}

API int RT(StreamSynchronize)(struct stream *stream)
{
	int result = enter();

	return result ? result : cuStreamSynchronize(stream);
}

API int RT(StreamQuery)(struct stream *stream)
{
	int result = enter();

	return result ? result : cuStreamQuery(stream);
}

API int RT(StreamIsCapturing)(struct stream *stream, int *status)
{
	return cuStreamIsCapturing(stream, status);
}

API int RT(ThreadExchangeStreamCaptureMode)(int *mode)
{
	return cuThreadExchangeStreamCaptureMode(mode);
}

API int RT(LaunchHostFunc)(struct stream *stream, void (*fn)(void *arg), void *arg)
{
	return cuLaunchHostFunc(stream, fn, arg);
}

API int RT(EventCreateWithFlags)(struct event **event, unsigned int flags)
{
	int result = enter();

	return result ? result : cuEventCreate(event, flags);
}

API int RT(EventRecord)(struct event *event, struct stream *stream)
{
	int result = enter();

	return result ? result : cuEventRecord(event, stream);
}

API int RT(EventQuery)(struct event *event)
{
	int result = enter();

	return result ? result : cuEventQuery(event);
}

API int RT(EventSynchronize)(struct event *event)
{
	int result = enter();

	return result ? result : cuEventSynchronize(event);
}

API int RT(EventDestroy)(struct event *event)
{
	int result = enter();

	return result ? result : cuEventDestroy_v2(event);
}

/* ------------------------------------------------------------- HIP's alone */

int cuDeviceGetName(char *name, int len, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuMemGetAddressRange_v2(uintptr_t *base, size_t *len, uintptr_t addr);
int cuStreamWaitValue64_v2(struct stream *stream, uintptr_t word, uint64_t value,
			   unsigned int flags);
int cuStreamWriteValue64_v2(struct stream *stream, uintptr_t word, uint64_t value,
			    unsigned int flags);

API int RT(RuntimeGetVersion)(int *version)
{
	*version = is_old() ? 50700000 : 60200000;
	return start();
}

API int RT(DeviceGetName)(char *name, int len, int device)
{
	return cuDeviceGetName(name, len, device);
}

API int RT(DeviceTotalMem)(size_t *bytes, int device)
{
	return cuDeviceTotalMem_v2(bytes, device);
}

API int RT(MemGetAddressRange)(void **base, size_t *len, void *p)
{
	uintptr_t start_address = 0;
	int result = enter();

	if (!result)
		result = cuMemGetAddressRange_v2(&start_address, len, (uintptr_t)p);
	*base = (void *)start_address;
	return result;
}

API int RT(PointerGetAttribute)(void *out, int attribute, void *p)
{
	int result = start();

	return result ? result : cuPointerGetAttributes(1, &attribute, &out, (uintptr_t)p);
}

API int RT(DeviceGetStreamPriorityRange)(int *least, int *greatest)
{
	*least = 1;
	*greatest = -1;
	return start();
}

/* For the tests: how many streams have the greatest priority. */
static _Atomic long urgent;

API long fakeruntime_urgent_streams(void)
{
	return urgent;
}

API int RT(StreamCreateWithPriority)(struct stream **stream, unsigned int flags, int priority)
{
	int result = RT(StreamCreateWithFlags)(stream, flags);

	urgent += !result && priority == -1;
	return result;
}

/* Without @mask's bits nothing of the word counts. */
API int RT(StreamWaitValue64)(struct stream *stream, void *word, uint64_t value,
			      unsigned int flags, uint64_t mask)
{
	return mask == UINT64_MAX && !flags ?
		       cuStreamWaitValue64_v2(stream, (uintptr_t)word, value, flags) :
		       INVALID_VALUE;
}

API int RT(StreamWriteValue64)(struct stream *stream, void *word, uint64_t value,
			       unsigned int flags)
{
	return cuStreamWriteValue64_v2(stream, (uintptr_t)word, value, flags);
}
