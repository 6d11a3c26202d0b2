// SPDX-License-Identifier: Apache-2.0
/*
 * The driver, of which there is none: a count and the settings; and what cuFile
 * tells of the machine.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cufile.h"
#include "pages.h"

#define DEVICES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic long uses;          /* written under: lock */
static unsigned int p2p_flags[CU_FILE_MAX_TARGET_TYPES]; /* protected by: lock */

int cf_number(int err)
{
	switch (err) {
	case 0: return CU_FILE_SUCCESS;
	case -ENOMEM: return CU_FILE_NOMEM_ERROR;
	case -EACCES:
	case -EPERM: return CU_FILE_PERMISSION_DENIED;
	case -ENODEV: return CU_FILE_DEVICE_NOT_FOUND;
	case -EFAULT: return CU_FILE_CUDA_POINTER_INVALID;
	case -EINVAL: return CU_FILE_INVALID_VALUE;
	case -EOPNOTSUPP: return CU_FILE_IO_NOT_SUPPORTED;
	default: return CU_FILE_INTERNAL_ERROR;
	}
}

/* With the lock held. */
static void open_driver(void)
{
	if (!uses)
		cf_config_open();
	uses++;
}

int cf_driver_use(void)
{
	if (atomic_load_explicit(&uses, memory_order_acquire))
		return CU_FILE_SUCCESS;
	pthread_mutex_lock(&lock);
	if (!uses)
		open_driver();
	pthread_mutex_unlock(&lock);
	return CU_FILE_SUCCESS;
}

bool cf_driver_is_open(void)
{
	return uses > 0;
}

CUfileError_t cuFileDriverOpen(void)
{
	pthread_mutex_lock(&lock);
	open_driver();
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

/* With the lock held: nothing can be registered until it is done. */
static void close_driver(void)
{
	cf_files_close();
	cf_buffers_close();
	pages_close();
	cf_config_close();
}

CUfileError_t cuFileDriverClose_v2(void)
{
	int number = CU_FILE_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!uses)
		number = CU_FILE_DRIVER_NOT_INITIALIZED;
	else if (--uses == 0)
		close_driver();
	pthread_mutex_unlock(&lock);
	return cf_result(number);
}

CUfileError_t cuFileDriverClose(void)
{
	return cuFileDriverClose_v2();
}

long cuFileUseCount(void)
{
	return uses;
}

int cf_version(void)
{
	const char *text = getenv("PHX_CUFILE_VERSION");
	long version = text ? strtol(text, NULL, 10) : 0;

	return version >= 1000 && version < 10000 ? (int)version : 1150;
}

CUfileError_t cuFileGetVersion(int *version)
{
	if (!version)
		return cf_result(CU_FILE_INVALID_VALUE);
	*version = cf_version();
	return cf_result(CU_FILE_SUCCESS);
}

/* A device that storage reaches. */
static bool any_direct(void)
{
	for (int i = 0; i < DEVICES; i++) {
		int mode = phxfs_device_mode(i);

		if (mode == PHXFS_MODE_FULL || mode == PHXFS_MODE_STAGING)
			return true;
	}
	return false;
}

CUfileError_t cuFileDriverGetProperties(CUfileDrvProps_t *props)
{
	bool direct = any_direct();

	if (!props)
		return cf_result(CU_FILE_INVALID_VALUE);
	memset(props, 0, sizeof(*props));
	props->nvfs.poll_thresh_size = cf_config_size(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB);
	props->nvfs.max_direct_io_size =
		cf_config_size(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB);
	if (direct) /* whatever the kernel does direct I/O on */
		props->nvfs.dstatusflags = 1U << CU_FILE_NVME_SUPPORTED |
					   1U << CU_FILE_NVMEOF_SUPPORTED |
					   1U << CU_FILE_SCSI_SUPPORTED |
					   1U << CU_FILE_NFS_SUPPORTED;
	if (cf_config_bool(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE))
		props->nvfs.dcontrolflags |= 1U << CU_FILE_USE_POLL_MODE;
	if (cf_config_bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE))
		props->nvfs.dcontrolflags |= 1U << CU_FILE_ALLOW_COMPAT_MODE;
	props->fflags = 1U << CU_FILE_DYN_ROUTING_SUPPORTED | 1U << CU_FILE_BATCH_IO_SUPPORTED |
			1U << CU_FILE_STREAMS_SUPPORTED | 1U << CU_FILE_PARALLEL_IO_SUPPORTED |
			(direct ? 1U << CU_FILE_P2P_SUPPORTED : 0);
	props->max_device_cache_size =
		(unsigned int)cf_config_size(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB);
	props->per_buffer_cache_size =
		(unsigned int)cf_config_size(CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB);
	props->max_device_pinned_mem_size = (unsigned int)cf_config_size(
		CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB);
	props->max_batch_io_size =
		(unsigned int)cf_config_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE);
	props->max_batch_io_timeout_msecs =
		(unsigned int)cf_config_size(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS);
	return cf_result(CU_FILE_SUCCESS);
}

/* The sizes below are accepted, checked and shown; the library needs none of them. */

static CUfileError_t set_limit(CUFileSizeTConfigParameter_t param, size_t value)
{
	return cf_result(cf_config_set_size(param, value) ? CU_FILE_DRIVER_UNSUPPORTED_LIMIT :
							    CU_FILE_SUCCESS);
}

CUfileError_t cuFileDriverSetPollMode(bool poll, size_t poll_threshold_size)
{
	CUfileError_t e = set_limit(CUFILE_PARAM_POLLTHRESHOLD_SIZE_KB, poll_threshold_size);

	if (e.err == CU_FILE_SUCCESS)
		cf_config_set_poll(poll);
	return e;
}

CUfileError_t cuFileDriverSetMaxDirectIOSize(size_t max_direct_io_size)
{
	return set_limit(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, max_direct_io_size);
}

CUfileError_t cuFileDriverSetMaxCacheSize(size_t max_cache_size)
{
	return set_limit(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB, max_cache_size);
}

CUfileError_t cuFileDriverSetMaxPinnedMemSize(size_t max_pinned_size)
{
	return set_limit(CUFILE_PARAM_PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB, max_pinned_size);
}

/* The vendor's number of a device; -1: no such device. */
static int find_gpu(int gpu)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	for (int i = 0; i < DEVICES; i++) {
		if (!phxfs_device_info(i, &info) && info.ordinal == gpu)
			return i;
	}
	return -1;
}

CUfileError_t cuFileGetBARSizeInKB(int gpuIndex, size_t *barSize)
{
	if (!barSize)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (find_gpu(gpuIndex) < 0)
		return cf_result(CU_FILE_DEVICE_NOT_FOUND);
	*barSize = 0; /* as cuFile says where it does no DMA */
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileDriverGetP2PFlags(CUfileDriverStatusFlags_t status_flag,
				      CUfileP2PFlags_t *flags)
{
	if (!flags || (unsigned int)status_flag >= CU_FILE_MAX_TARGET_TYPES)
		return cf_result(CU_FILE_INVALID_VALUE);
	pthread_mutex_lock(&lock);
	*flags = (CUfileP2PFlags_t)p2p_flags[status_flag];
	pthread_mutex_unlock(&lock);
	return cf_result(CU_FILE_SUCCESS);
}

CUfileError_t cuFileDriverSetP2PFlags(CUfileDriverStatusFlags_t status_flag,
				      CUfileP2PFlags_t flags)
{
	int number = CU_FILE_SUCCESS;

	if ((unsigned int)status_flag >= CU_FILE_MAX_TARGET_TYPES ||
	    (unsigned int)flags >> (CUFILE_NVIDIA_PEERMEM + 1))
		return cf_result(CU_FILE_INVALID_VALUE);
	pthread_mutex_lock(&lock);
	if (uses)
		number = CU_FILE_DRIVER_ALREADY_OPEN;
	else
		p2p_flags[status_flag] = (unsigned int)flags;
	pthread_mutex_unlock(&lock);
	return cf_result(number);
}

CUfileError_t cuFileExportPCIeTopology(const char *filename)
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	FILE *file = filename ? fopen(filename, "we") : NULL;
	const char *separator = "";
	bool failed;

	if (!filename)
		return cf_result(CU_FILE_INVALID_VALUE);
	if (!file)
		return cf_result(cf_number(-errno));
	fputs("{ \"gpus\": [", file);
	for (int i = 0; i < DEVICES; i++) {
		if (phxfs_device_info(i, &info))
			continue;
		fprintf(file, "%s\n  { \"index\": %d, \"pci\": \"%s\", \"vendor\": \"%s\" }",
			separator, info.ordinal, info.bdf, info.vendor);
		separator = ",";
	}
	fputs("\n] }\n", file);
	failed = ferror(file) != 0;
	failed |= fclose(file) != 0;
	return cf_result(failed ? CU_FILE_IO_ERROR : CU_FILE_SUCCESS);
}
