// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "driver.h"

struct driver cu;

static const struct {
	const char *name;
	void **slot;
	bool optional;
} symbols[] = {
	{ "cuInit", (void **)&cu.init, false },
	{ "cuDeviceGet", (void **)&cu.device_get, false },
	{ "cuDeviceGetCount", (void **)&cu.device_count, false },
	{ "cuDevicePrimaryCtxRetain", (void **)&cu.primary_retain, false },
	{ "cuDevicePrimaryCtxRelease_v2", (void **)&cu.primary_release, false },
	{ "cuCtxPushCurrent_v2", (void **)&cu.context_push, false },
	{ "cuCtxPopCurrent_v2", (void **)&cu.context_pop, false },
	{ "cuCtxSetCurrent", (void **)&cu.context_set, false },
	{ "cuCtxGetCurrent", (void **)&cu.context_current, false },
	{ "cuCtxSynchronize", (void **)&cu.context_sync, false },
	{ "cuMemGetInfo_v2", (void **)&cu.mem_info, false },
	{ "cuMemAlloc_v2", (void **)&cu.mem_alloc, false },
	{ "cuMemFree_v2", (void **)&cu.mem_free, false },
	{ "cuMemAllocAsync", (void **)&cu.alloc_async, false },
	{ "cuMemFreeAsync", (void **)&cu.free_async, false },
	{ "cuMemHostAlloc", (void **)&cu.host_alloc, false },
	{ "cuMemFreeHost", (void **)&cu.host_free, false },
	{ "cuMemGetAllocationGranularity", (void **)&cu.granularity, false },
	{ "cuMemCreate", (void **)&cu.create, false },
	{ "cuMemRelease", (void **)&cu.release, false },
	{ "cuMemAddressReserve", (void **)&cu.reserve, false },
	{ "cuMemMap", (void **)&cu.map, false },
	{ "cuMemUnmap", (void **)&cu.unmap, false },
	{ "cuMemSetAccess", (void **)&cu.set_access, false },
	{ "cuStreamCreate", (void **)&cu.stream_create, false },
	{ "cuStreamSynchronize", (void **)&cu.stream_sync, false },
	{ "cuMemcpyAsync", (void **)&cu.copy_async, false },
	{ "cuMemsetD8Async", (void **)&cu.fill_async, false },
	{ "cuEventCreate", (void **)&cu.event_create, false },
	{ "cuEventRecord", (void **)&cu.event_record, false },
	{ "cuEventSynchronize", (void **)&cu.event_sync, false },
	{ "cuStreamWaitValue64_v2", (void **)&cu.wait_value, false },
	{ "cuStreamWriteValue64_v2", (void **)&cu.write_value, false },
	{ "cuStreamBeginCapture_v2", (void **)&cu.begin_capture, false },
	{ "cuStreamEndCapture", (void **)&cu.end_capture, false },
	{ "cuCtxCreate_v2", (void **)&cu.context_create, true },
	{ "cuCtxDestroy_v2", (void **)&cu.context_destroy, true },
	{ "cuModuleLoadData", (void **)&cu.module_load, true },
	{ "cuModuleGetFunction", (void **)&cu.module_function, true },
	{ "cuLaunchKernel", (void **)&cu.launch, true },
};

const char *driver_load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return "libcuda.so.1 is not here";
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].slot = dlsym(library, symbols[i].name);
		if (!*symbols[i].slot && !symbols[i].optional)
			return symbols[i].name;
	}
	return cu.init(0) ? "cuInit() refuses" : NULL;
}

int driver_map_pieces(int device, int pieces, int hole, size_t *size, uintptr_t *base)
{
	struct driver_physical p = { .type = 1, .location_type = 1, .device = device };
	struct driver_access access = { .location_type = 1, .device = device, .flags = 3 };
	int result = cu.granularity(size, &p, 0);

	if (!result)
		result = cu.reserve(base, *size * (size_t)pieces, 0, 0, 0);
	for (int i = 0; i < pieces && !result; i++) {
		uintptr_t at = *base + (size_t)i * *size;
		uint64_t handle;

		if (i == hole)
			continue;
		result = cu.create(&handle, *size, &p, 0);
		if (result)
			break;
		result = cu.map(at, *size, 0, handle, 0);
		if (!result)
			result = cu.set_access(at, *size, &access, 1);
		cu.release(handle); /* the mapping keeps the memory */
	}
	return result;
}
