// SPDX-License-Identifier: Apache-2.0
/*
 * Loading AscendCL, its results as errnos, and the PCI addresses of its devices: newer
 * runtimes tell them, else the driver's management library does.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devconnector.h"
#include "huawei_runtime.h"

#define LIBRARY "libascendcl.so"
#define MANAGEMENT "libdrvdsmi_host.so"

struct huawei_runtime acl;

static const struct {
	const char *name;
	void **slot;
	int optional;
} symbols[] = {
	{ "aclInit", (void **)&acl.init, 0 },
	{ "aclGetRecentErrMsg", (void **)&acl.recent_message, 0 },
	{ "aclrtGetSocName", (void **)&acl.soc_name, 0 },
	{ "aclrtGetDeviceCount", (void **)&acl.device_count, 0 },
	{ "aclrtCreateContext", (void **)&acl.context_create, 0 },
	{ "aclrtGetCurrentContext", (void **)&acl.context_get, 0 },
	{ "aclrtSetCurrentContext", (void **)&acl.context_set, 0 },
	{ "aclrtMalloc", (void **)&acl.mem_alloc, 0 },
	{ "aclrtFree", (void **)&acl.mem_free, 0 },
	{ "aclrtMallocHost", (void **)&acl.host_alloc, 0 },
	{ "aclrtFreeHost", (void **)&acl.host_free, 0 },
	{ "aclrtMemcpy", (void **)&acl.copy, 0 },
	{ "aclrtMemcpyAsync", (void **)&acl.copy_async, 0 },
	{ "aclrtCreateStream", (void **)&acl.stream_create, 0 },
	{ "aclrtSynchronizeStream", (void **)&acl.stream_sync, 0 },
	{ "aclrtCreateEvent", (void **)&acl.event_create, 0 },
	{ "aclrtRecordEvent", (void **)&acl.event_record, 0 },
	{ "aclrtQueryEventStatus", (void **)&acl.event_status, 0 },
	{ "aclrtDestroyEvent", (void **)&acl.event_destroy, 0 },
	{ "aclrtPointerGetAttributes", (void **)&acl.pointer, 0 },
	{ "aclrtLaunchHostFunc", (void **)&acl.launch_host_func, 1 },
	{ "aclrtLaunchCallback", (void **)&acl.launch_callback, 1 },
	{ "aclrtSubscribeReport", (void **)&acl.subscribe, 1 },
	{ "aclrtProcessReport", (void **)&acl.process_report, 1 },
	{ "aclmdlRICaptureGetInfo", (void **)&acl.capture_info, 1 },
	{ "aclmdlRICaptureThreadExchangeMode", (void **)&acl.capture_mode, 1 },
	{ "aclrtDeviceGetPCIBusId", (void **)&acl.device_bdf, 1 },
	{ "aclrtGetLogicDevIdByUserDevId", (void **)&acl.logic_device, 1 },
};

/* What the management library says of a device on the bus. */
struct pcie_info {
	unsigned int vendor, subvendor, device, subdevice;
	int domain;
	unsigned int bus, slot, function;
	unsigned char reserved[32];
};

static int (*management_pcie)(int device, struct pcie_info *info);

/* ------------------------------------------------------------------ errors */

int huawei_errno(int result)
{
	switch (result) {
	case 0:
		return 0;
	case 100000: /* invalid parameter */
	case 107000:
	case 107003: /* stream of another context */
	case 107004: /* event of another context */
		return -EINVAL;
	case 200000: /* out of memory, the host's */
	case 207001: /* the device's */
		return -ENOMEM;
	case ACL_UNINITIALIZED:
	case 107001: /* invalid device */
	case 107002: /* no context */
	case 507899: /* the driver */
		return -ENODEV;
	case 200001: /* not supported, of several kinds */
	case 207000:
		return -EOPNOTSUPP;
	case 107019: /* timeout */
	case 107020:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

int huawei_fail(int result, const char *call)
{
	const char *words = acl.recent_message();

	return devconn_fail(huawei_errno(result), "%s: %d%s%.120s", call, result,
			    words && *words ? ": " : "", words ? words : "");
}

/* -------------------------------------------------------------------- load */

static void *open_library(void)
{
	const char *home = secure_getenv("ASCEND_HOME_PATH");
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	char path[512];

	if (!library && home) {
		snprintf(path, sizeof(path), "%s/lib64/" LIBRARY, home);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return library;
}

static int resolve(void *library, char *text, size_t size)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].slot = dlsym(library, symbols[i].name);
		if (!*symbols[i].slot && !symbols[i].optional) {
			snprintf(text, size, LIBRARY " lacks %s: install a newer CANN",
				 symbols[i].name);
			return -ENOSYS;
		}
	}
	return 0;
}

static void find_management(void)
{
	void *library = dlopen(MANAGEMENT, RTLD_NOW | RTLD_LOCAL);

	if (library)
		*(void **)&management_pcie = dlsym(library, "dsmi_get_pcie_info_v2");
}

int huawei_runtime_load(char *text, size_t size)
{
	void *library = open_library();
	int err, result;

	if (!library) {
		snprintf(text, size, LIBRARY " not found: install CANN, and source its "
					     "set_env.sh");
		return -ENOENT;
	}
	err = resolve(library, text, size);
	if (err) {
		dlclose(library);
		return err;
	}
	/* the program may have done it, or do it later: both are told that it was done */
	result = acl.init(NULL);
	if (result && result != ACL_REPEATED_INIT) {
		snprintf(text, size, LIBRARY ": aclInit: %d: npu-smi info may tell more", result);
		return huawei_errno(result);
	}
	if (!acl.device_bdf)
		find_management();
	snprintf(text, size, LIBRARY);
	return 0;
}

/* --------------------------------------------------------------- addresses */

int huawei_bdf(int device, char *bdf, size_t size)
{
	struct pcie_info info = { 0 };
	int32_t logic = device;
	int result;

	if (acl.device_bdf) {
		result = acl.device_bdf(device, bdf, (int32_t)size);
		return result ? huawei_fail(result, "aclrtDeviceGetPCIBusId") : 0;
	}
	if (!management_pcie)
		return devconn_fail(-ENODEV, MANAGEMENT " not found: it tells where NPUs are");
	/* the program may see some devices only, under numbers of its own */
	if (acl.logic_device && acl.logic_device(device, &logic))
		logic = device;
	result = management_pcie(logic, &info);
	if (result)
		return devconn_fail(-ENODEV, "dsmi_get_pcie_info_v2: %d", result);
	snprintf(bdf, size, "%04x:%02x:%02x.%x", info.domain & 0xffff, info.bus & 0xff,
		 info.slot & 0x1f, info.function & 7);
	return 0;
}
