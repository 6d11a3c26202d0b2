// SPDX-License-Identifier: Apache-2.0
/*
 * What callers of the collective library look up and do not find here: it
 * answers not supported. Beside it, the table of device calls, with what can
 * be told of devices without a vendor's runtime.
 */
#include "common.h"
#include "flagcx.h"
#include "flagcx_p2p.h"
#include "phoenix.h"

#include <stdio.h>
#include <string.h>

/* The arguments do not matter: each answers before it would look at them. */
#define NOT_SUPPORTED(name) \
	flagcxResult_t name(void); \
	flagcxResult_t name(void) \
	{ \
		p2p_fail(-EOPNOTSUPP, #name ": this library has one-sided transfers only"); \
		return flagcxNotSupported; \
	}

NOT_SUPPORTED(flagcxAllReduce)
NOT_SUPPORTED(flagcxReduce)
NOT_SUPPORTED(flagcxAllGather)
NOT_SUPPORTED(flagcxReduceScatter)
NOT_SUPPORTED(flagcxSend)
NOT_SUPPORTED(flagcxRecv)
NOT_SUPPORTED(flagcxBroadcast)
NOT_SUPPORTED(flagcxGroupStart)
NOT_SUPPORTED(flagcxGroupEnd)
NOT_SUPPORTED(flagcxCommRegister)
NOT_SUPPORTED(flagcxOneSideSignalRegister)
NOT_SUPPORTED(flagcxOneSideStagingRegister)
NOT_SUPPORTED(flagcxOneSideStagingDeregister)
NOT_SUPPORTED(flagcxPutSignal)
NOT_SUPPORTED(flagcxSignal)
NOT_SUPPORTED(flagcxWaitSignal)
NOT_SUPPORTED(flagcxReadCounter)
NOT_SUPPORTED(flagcxWaitCounter)
NOT_SUPPORTED(flagcxMemAlloc)
NOT_SUPPORTED(flagcxMemFree)
NOT_SUPPORTED(flagcxCommWindowRegister)
NOT_SUPPORTED(flagcxCommWindowDeregister)
NOT_SUPPORTED(flagcxDevCommCreate)
NOT_SUPPORTED(flagcxDevCommDestroy)
NOT_SUPPORTED(flagcxDevMemCreate)
NOT_SUPPORTED(flagcxDevMemDestroy)
NOT_SUPPORTED(flagcxDevCommGetDevicePtr)
NOT_SUPPORTED(flagcxDevCommFreeDevicePtr)
NOT_SUPPORTED(flagcxDevMemGetDevicePtr)
NOT_SUPPORTED(flagcxDevMemFreeDevicePtr)

const char *flagcxGetErrorString(flagcxResult_t result)
{
	static const char *const names[] = {
		"no error",        "unhandled device error", "system error",  "internal error",
		"invalid argument", "invalid usage",         "remote error",  "in progress",
		"unhandled error of a collective library",   "not supported",
	};
	static _Thread_local char text[600];
	const char *why = flagcxP2pLastError();

	if ((unsigned int)result >= P2P_ARRAY_SIZE(names))
		return "unknown result";
	if (result == flagcxSuccess || !*why)
		return names[result];
	snprintf(text, sizeof(text), "%s: %s", names[result], why);
	return text;
}

flagcxResult_t flagcxGetVersion(int *version)
{
	if (!version)
		return flagcxInvalidArgument;
	*version = 10101; /* callers read it as 1.1.1 */
	return flagcxSuccess;
}

/* ----------------------------------------------------------------- device table */

static flagcxResult_t not_supported(void)
{
	p2p_fail(-EOPNOTSUPP, "device call: use the vendor's runtime");
	return flagcxNotSupported;
}

static flagcxResult_t device_synchronize(void)
{
	return flagcxSuccess; /* transfers are complete when their calls say so */
}

static flagcxResult_t get_device_count(int *count)
{
	*count = phxfs_device_count();
	return flagcxSuccess;
}

static flagcxResult_t get_vendor(char *vendor)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	if (phxfs_device_info(0, &info))
		return flagcxUnhandledDeviceError;
	strcpy(vendor, info.vendor); /* the caller's room is a vendor's name */
	return flagcxSuccess;
}

/* 28 pointers, in the order that callers know. */
struct flagcxDeviceHandle {
	flagcxResult_t (*deviceSynchronize)(void);
	flagcxResult_t (*copies_and_devices[6])(void);
	flagcxResult_t (*getDeviceCount)(int *count);
	flagcxResult_t (*getVendor)(char *vendor);
	flagcxResult_t (*streams_events_ipc[19])(void);
};

_Static_assert(sizeof(struct flagcxDeviceHandle) == 28 * sizeof(void *), "28 pointers");

static const struct flagcxDeviceHandle device_table = {
	.deviceSynchronize = device_synchronize,
	.copies_and_devices = { [0 ... 5] = not_supported },
	.getDeviceCount = get_device_count,
	.getVendor = get_vendor,
	.streams_events_ipc = { [0 ... 18] = not_supported },
};

flagcxResult_t flagcxDeviceHandleInit(flagcxDeviceHandle_t *handle)
{
	if (!handle)
		return flagcxInvalidArgument;
	*handle = (flagcxDeviceHandle_t)&device_table; /* callers only read it */
	return flagcxSuccess;
}

flagcxResult_t flagcxDeviceHandleFree(flagcxDeviceHandle_t handle)
{
	return flagcxSuccess; /* the table belongs to the library */
}
