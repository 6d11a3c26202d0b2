// SPDX-License-Identifier: Apache-2.0
/* Loading libcuda.so.1, and what its results mean. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

#include "devconnector.h"
#include "nvidia_driver.h"

#define LIBRARY "libcuda.so.1"

struct nvidia_driver nvidia_driver;

/* Two names: the newer first, where an older driver has only the other. */
static const struct {
	const char *name;
	const char *older;
	void **slot;
} symbols[] = {
	{ "cuInit", NULL, (void **)&nvidia_driver.init },
	{ "cuDriverGetVersion", NULL, (void **)&nvidia_driver.version },
	{ "cuGetErrorName", NULL, (void **)&nvidia_driver.error_name },
	{ "cuGetErrorString", NULL, (void **)&nvidia_driver.error_string },
	{ "cuDeviceGetCount", NULL, (void **)&nvidia_driver.device_count },
	{ "cuDeviceGet", NULL, (void **)&nvidia_driver.device_get },
	{ "cuDeviceGetName", NULL, (void **)&nvidia_driver.device_name },
	{ "cuDeviceTotalMem_v2", NULL, (void **)&nvidia_driver.device_memory },
	{ "cuDeviceGetPCIBusId", NULL, (void **)&nvidia_driver.device_bdf },
	{ "cuDeviceGetAttribute", NULL, (void **)&nvidia_driver.device_attribute },
	{ "cuDevicePrimaryCtxRetain", NULL, (void **)&nvidia_driver.context_retain },
	{ "cuCtxCreate_v2", NULL, (void **)&nvidia_driver.context_create },
	{ "cuCtxPushCurrent_v2", NULL, (void **)&nvidia_driver.context_push },
	{ "cuCtxPopCurrent_v2", NULL, (void **)&nvidia_driver.context_pop },
	{ "cuThreadExchangeStreamCaptureMode", NULL, (void **)&nvidia_driver.capture_mode },
	{ "cuMemAlloc_v2", NULL, (void **)&nvidia_driver.mem_alloc },
	{ "cuMemFree_v2", NULL, (void **)&nvidia_driver.mem_free },
	{ "cuMemGetAddressRange_v2", NULL, (void **)&nvidia_driver.mem_range },
	{ "cuPointerGetAttributes", NULL, (void **)&nvidia_driver.pointer_attributes },
	{ "cuMemHostRegister_v2", NULL, (void **)&nvidia_driver.host_register },
	{ "cuMemHostUnregister", NULL, (void **)&nvidia_driver.host_unregister },
	{ "cuMemcpyDtoDAsync_v2", NULL, (void **)&nvidia_driver.copy_dtod },
	{ "cuMemcpyHtoDAsync_v2", NULL, (void **)&nvidia_driver.copy_htod },
	{ "cuMemcpyDtoHAsync_v2", NULL, (void **)&nvidia_driver.copy_dtoh },
	{ "cuStreamCreate", NULL, (void **)&nvidia_driver.stream_create },
	{ "cuStreamSynchronize", NULL, (void **)&nvidia_driver.stream_sync },
	{ "cuStreamQuery", NULL, (void **)&nvidia_driver.stream_query },
	{ "cuEventCreate", NULL, (void **)&nvidia_driver.event_create },
	{ "cuEventRecord", NULL, (void **)&nvidia_driver.event_record },
	{ "cuEventQuery", NULL, (void **)&nvidia_driver.event_query },
	{ "cuEventSynchronize", NULL, (void **)&nvidia_driver.event_sync },
	{ "cuEventDestroy_v2", NULL, (void **)&nvidia_driver.event_destroy },
	{ "cuStreamIsCapturing", NULL, (void **)&nvidia_driver.is_capturing },
	{ "cuLaunchHostFunc", NULL, (void **)&nvidia_driver.launch_host_func },
	{ "cuStreamWaitValue64_v2", "cuStreamWaitValue64", (void **)&nvidia_driver.wait_value },
	{ "cuStreamWriteValue64_v2", "cuStreamWriteValue64", (void **)&nvidia_driver.write_value },
};

static int resolve(void *library, char *text, size_t size)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *found = dlsym(library, symbols[i].name);

		if (!found && symbols[i].older)
			found = dlsym(library, symbols[i].older);
		if (!found) {
			snprintf(text, size, LIBRARY " lacks %s: install a newer NVIDIA driver",
				 symbols[i].name);
			return -ENOSYS;
		}
		*symbols[i].slot = found;
	}
	nvidia_driver.mem_export = (int (*)(void *, uintptr_t, size_t, int, unsigned long long))
		dlsym(library, "cuMemGetHandleForAddressRange");
	return 0;
}

/* Why cuInit() refuses, and what helps. */
static const char *cure(int result)
{
	static const struct {
		int result;
		const char *cure;
	} cures[] = {
		{ 34, "the SDK's stub comes first in the library path: remove it from there" },
		{ CU_NO_DEVICE, "no GPU, or CUDA_VISIBLE_DEVICES hides all" },
		{ 802, "the fabric manager is not running, or the GPUs are still starting" },
		{ 803, "the driver was updated: reboot, or reload its kernel module" },
		{ 804, "this CUDA compatibility library does not support the GPU: remove it" },
		{ 999, "the kernel module may not be loaded: nvidia-smi tells" },
	};

	for (size_t i = 0; i < sizeof(cures) / sizeof(cures[0]); i++) {
		if (cures[i].result == result)
			return cures[i].cure;
	}
	return "nvidia-smi may tell more";
}

int nvidia_driver_load(char *text, size_t size)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	const char *name = NULL;
	int err, result, version = 0;

	if (!library) {
		snprintf(text, size, LIBRARY " not found: install the NVIDIA driver");
		return -ENOENT;
	}
	err = resolve(library, text, size);
	if (err) {
		dlclose(library);
		return err;
	}
	result = nvidia_driver.init(0);
	if (result) {
		nvidia_driver.error_name(result, &name);
		snprintf(text, size, LIBRARY ": cuInit: %s: %s",
			 name ? name : "unknown error", cure(result));
		/* The driver may have started threads: it stays loaded. */
		return nvidia_errno(result);
	}
	nvidia_driver.version(&version);
	snprintf(text, size, LIBRARY ", CUDA %d.%d", version / 1000, version % 1000 / 10);
	return 0;
}

int nvidia_errno(int result)
{
	switch (result) {
	case 0:
		return 0;
	case 1: /* invalid value */
	case 400: /* invalid handle */
		return -EINVAL;
	case CU_OUT_OF_MEMORY:
	case 304: /* the operating system refused: no memory to pin */
		return -ENOMEM;
	case 3: /* not initialized: also what a forked child gets */
	case CU_DEINITIALIZED:
	case 46: /* device unavailable */
	case CU_NO_DEVICE:
	case 101: /* invalid device */
	case CU_INVALID_CONTEXT:
	case CU_CONTEXT_IS_DESTROYED:
	case 802: /* system not ready */
		return -ENODEV;
	case 34: /* stub library */
	case 36: /* call requires newer driver */
	case 803: /* driver mismatch */
	case 804: /* compatibility library not supported on this device */
		return -ENOSYS;
	case CU_NOT_READY:
		return -EBUSY;
	case 702: /* launch timeout */
	case 909: /* timeout */
		return -ETIMEDOUT;
	case 712: /* host memory already registered */
		return -EEXIST;
	case 800:
		return -EPERM;
	case CU_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		/* 900 to 908: not while the stream is being captured */
		return result >= 900 && result <= 908 ? -EOPNOTSUPP : -EIO;
	}
}

int nvidia_fail(int result, const char *call)
{
	const char *name = NULL, *words = NULL;

	nvidia_driver.error_name(result, &name);
	nvidia_driver.error_string(result, &words);
	return devconn_fail(nvidia_errno(result), "%s: %s (%s)", call, name ? name : "unknown",
			    words ? words : "?");
}
