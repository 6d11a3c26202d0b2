// SPDX-License-Identifier: Apache-2.0
/*
 * A runtime with CUDA's functions under MetaX's names, over the fake driver, and so
 * with its rules. As a real one does it has a current device in each thread, 0 at
 * first, and makes a device's context when it is first used.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cuda_fake.h"

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

API const char *mcGetErrorName(int result)
{
	const char *name = NULL;

	return cuGetErrorName(result, &name) ? "mcErrorUnknown" : name;
}

API const char *mcGetErrorString(int result)
{
	const char *text = NULL;

	return cuGetErrorString(result, &text) ? "unknown error" : text;
}

API int mcGetDeviceCount(int *count)
{
	int result = start();

	return result ? result : cuDeviceGetCount(count);
}

API int mcDeviceGetPCIBusId(char *bdf, int len, int device)
{
	int result = start();

	return result ? result : cuDeviceGetPCIBusId(bdf, len, device);
}

API int mcGetDevice(int *device)
{
	struct context *now;
	int result = start();

	*device = current;
	return result ? result : cuCtxGetCurrent(&now);
}

API int mcSetDevice(int device)
{
	int count = 0, result = mcGetDeviceCount(&count);

	if (result)
		return result;
	if (device < 0 || device >= count)
		return INVALID_DEVICE;
	current = device;
	return enter();
}

API int mcMalloc(void **p, size_t len)
{
	uintptr_t at = 0;
	int result = enter();

	if (!result)
		result = cuMemAlloc_v2(&at, len);
	*p = (void *)at;
	return result;
}

API int mcFree(void *p)
{
	int result = enter();

	return result ? result : cuMemFree_v2((uintptr_t)p);
}

struct attributes {
	int type, device;
	void *device_address, *host_address;
};

API int mcPointerGetAttributes(struct attributes *out, const void *p)
{
	unsigned int type = 0, managed = 0;
	int device = -1, wanted[] = { 2, 8, 9 }, result = start();
	void *answers[] = { &type, &managed, &device };

	if (!result)
		result = cuPointerGetAttributes(3, wanted, answers, (uintptr_t)p);
	*out = (struct attributes){ .type = managed ? 3 : (int)type, .device = device };
	return result;
}

API int mcHostRegister(void *p, size_t len, unsigned int flags)
{
	int result = enter();

	return result ? result : cuMemHostRegister_v2(p, len, flags);
}

API int mcHostUnregister(void *p)
{
	int result = enter();

	return result ? result : cuMemHostUnregister(p);
}

API int mcMemcpyAsync(void *dst, const void *src, size_t n, int kind, struct stream *stream)
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

API int mcStreamCreateWithFlags(struct stream **stream, unsigned int flags)
{
	int result = enter();

	return result ? result : cuStreamCreate(stream, flags);
}

API int mcStreamSynchronize(struct stream *stream)
{
	int result = enter();

	return result ? result : cuStreamSynchronize(stream);
}

API int mcStreamQuery(struct stream *stream)
{
	int result = enter();

	return result ? result : cuStreamQuery(stream);
}

API int mcStreamIsCapturing(struct stream *stream, int *status)
{
	return cuStreamIsCapturing(stream, status);
}

API int mcThreadExchangeStreamCaptureMode(int *mode)
{
	return cuThreadExchangeStreamCaptureMode(mode);
}

API int mcLaunchHostFunc(struct stream *stream, void (*fn)(void *arg), void *arg)
{
	return cuLaunchHostFunc(stream, fn, arg);
}

API int mcEventCreateWithFlags(struct event **event, unsigned int flags)
{
	int result = enter();

	return result ? result : cuEventCreate(event, flags);
}

API int mcEventRecord(struct event *event, struct stream *stream)
{
	int result = enter();

	return result ? result : cuEventRecord(event, stream);
}

API int mcEventQuery(struct event *event)
{
	int result = enter();

	return result ? result : cuEventQuery(event);
}

API int mcEventSynchronize(struct event *event)
{
	int result = enter();

	return result ? result : cuEventSynchronize(event);
}

API int mcEventDestroy(struct event *event)
{
	int result = enter();

	return result ? result : cuEventDestroy_v2(event);
}
