// SPDX-License-Identifier: Apache-2.0
/*
 * The ABI of cuFile by number: sizes, offsets, enumerations, names. The numbers
 * stand here once more, since programs hold them in their machine code.
 */
#include <dlfcn.h>
#include <phx_cufile.h>

#include "t.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define AT(type, member, offset) \
	_Static_assert(offsetof(type, member) == (offset), #type "." #member)
#define IS(name, value) _Static_assert((int)(name) == (value), #name)

SIZE(CUfileError_t, 8);
AT(CUfileError_t, err, 0);
AT(CUfileError_t, cu_err, 4);
SIZE(CUfileDescr_t, 24);
AT(CUfileDescr_t, type, 0);
AT(CUfileDescr_t, handle.fd, 8);
AT(CUfileDescr_t, handle.handle, 8);
AT(CUfileDescr_t, fs_ops, 16);
SIZE(CUfileFSOps_t, 40);
AT(CUfileFSOps_t, fs_type, 0);
AT(CUfileFSOps_t, getRDMADeviceList, 8);
AT(CUfileFSOps_t, getRDMADevicePriority, 16);
AT(CUfileFSOps_t, read, 24);
AT(CUfileFSOps_t, write, 32);
SIZE(cufileRDMAInfo_t, 16);
AT(cufileRDMAInfo_t, version, 0);
AT(cufileRDMAInfo_t, desc_len, 4);
AT(cufileRDMAInfo_t, desc_str, 8);
SIZE(CUfileDrvProps_t, 56);
AT(CUfileDrvProps_t, nvfs.major_version, 0);
AT(CUfileDrvProps_t, nvfs.minor_version, 4);
AT(CUfileDrvProps_t, nvfs.poll_thresh_size, 8);
AT(CUfileDrvProps_t, nvfs.max_direct_io_size, 16);
AT(CUfileDrvProps_t, nvfs.dstatusflags, 24);
AT(CUfileDrvProps_t, nvfs.dcontrolflags, 28);
AT(CUfileDrvProps_t, fflags, 32);
AT(CUfileDrvProps_t, max_device_cache_size, 36);
AT(CUfileDrvProps_t, per_buffer_cache_size, 40);
AT(CUfileDrvProps_t, max_device_pinned_mem_size, 44);
AT(CUfileDrvProps_t, max_batch_io_size, 48);
AT(CUfileDrvProps_t, max_batch_io_timeout_msecs, 52);
SIZE(CUfileIOParams_t, 64);
AT(CUfileIOParams_t, mode, 0);
AT(CUfileIOParams_t, u.batch.devPtr_base, 8);
AT(CUfileIOParams_t, u.batch.file_offset, 16);
AT(CUfileIOParams_t, u.batch.devPtr_offset, 24);
AT(CUfileIOParams_t, u.batch.size, 32);
AT(CUfileIOParams_t, fh, 40);
AT(CUfileIOParams_t, opcode, 48);
AT(CUfileIOParams_t, cookie, 56);
SIZE(CUfileIOEvents_t, 24);
AT(CUfileIOEvents_t, cookie, 0);
AT(CUfileIOEvents_t, status, 8);
AT(CUfileIOEvents_t, ret, 16);
SIZE(CUfileIOVec_t, 16);
AT(CUfileIOVec_t, base, 0);
AT(CUfileIOVec_t, len, 8);
SIZE(CUfileOpCounter_t, 16);
AT(CUfileOpCounter_t, ok, 0);
AT(CUfileOpCounter_t, err, 8);
SIZE(CUfileStatsLevel1_t, 512);
AT(CUfileStatsLevel1_t, read_ops, 0);
AT(CUfileStatsLevel1_t, buf_deregister_ops, 80);
AT(CUfileStatsLevel1_t, read_bytes, 96);
AT(CUfileStatsLevel1_t, write_lat_sum_us, 168);
AT(CUfileStatsLevel1_t, batch_submit_ops, 176);
AT(CUfileStatsLevel1_t, batch_total_submit_ops, 400);
AT(CUfileStatsLevel1_t, batch_read_bytes, 416);
AT(CUfileStatsLevel1_t, last_batch_write_bytes, 504);
SIZE(CUfileStatsVectors_t, 624 - 512);
SIZE(CUfileStatsLevel2_t, 1024);
AT(CUfileStatsLevel2_t, read_size_kb_hist, 512);
AT(CUfileStatsLevel2_t, write_size_kb_hist, 768);
SIZE(CUfilePerGpuStats_t, 248);
AT(CUfilePerGpuStats_t, read_bytes, 16);
AT(CUfilePerGpuStats_t, n_total_reads, 48);
AT(CUfilePerGpuStats_t, writes_bytes, 120);
AT(CUfilePerGpuStats_t, reg_bytes, 240);
SIZE(CUfileStatsLevel3_t, 5000);
AT(CUfileStatsLevel3_t, num_gpus, 1024);
AT(CUfileStatsLevel3_t, per_gpu_stats, 1032);

IS(CU_FILE_SUCCESS, 0);
IS(CU_FILE_DRIVER_NOT_INITIALIZED, 5001);
IS(CU_FILE_DRIVER_INVALID_PROPS, 5002);
IS(CU_FILE_DRIVER_UNSUPPORTED_LIMIT, 5003);
IS(CU_FILE_DRIVER_VERSION_MISMATCH, 5004);
IS(CU_FILE_DRIVER_VERSION_READ_ERROR, 5005);
IS(CU_FILE_DRIVER_CLOSING, 5006);
IS(CU_FILE_PLATFORM_NOT_SUPPORTED, 5007);
IS(CU_FILE_IO_NOT_SUPPORTED, 5008);
IS(CU_FILE_DEVICE_NOT_SUPPORTED, 5009);
IS(CU_FILE_NVFS_DRIVER_ERROR, 5010);
IS(CU_FILE_CUDA_DRIVER_ERROR, 5011);
IS(CU_FILE_CUDA_POINTER_INVALID, 5012);
IS(CU_FILE_CUDA_MEMORY_TYPE_INVALID, 5013);
IS(CU_FILE_CUDA_POINTER_RANGE_ERROR, 5014);
IS(CU_FILE_CUDA_CONTEXT_MISMATCH, 5015);
IS(CU_FILE_INVALID_MAPPING_SIZE, 5016);
IS(CU_FILE_INVALID_MAPPING_RANGE, 5017);
IS(CU_FILE_INVALID_FILE_TYPE, 5018);
IS(CU_FILE_INVALID_FILE_OPEN_FLAG, 5019);
IS(CU_FILE_DIO_NOT_SET, 5020);
IS(CU_FILE_INVALID_VALUE, 5022);
IS(CU_FILE_MEMORY_ALREADY_REGISTERED, 5023);
IS(CU_FILE_MEMORY_NOT_REGISTERED, 5024);
IS(CU_FILE_PERMISSION_DENIED, 5025);
IS(CU_FILE_DRIVER_ALREADY_OPEN, 5026);
IS(CU_FILE_HANDLE_NOT_REGISTERED, 5027);
IS(CU_FILE_HANDLE_ALREADY_REGISTERED, 5028);
IS(CU_FILE_DEVICE_NOT_FOUND, 5029);
IS(CU_FILE_INTERNAL_ERROR, 5030);
IS(CU_FILE_GETNEWFD_FAILED, 5031);
IS(CU_FILE_NVFS_SETUP_ERROR, 5033);
IS(CU_FILE_IO_DISABLED, 5034);
IS(CU_FILE_BATCH_SUBMIT_FAILED, 5035);
IS(CU_FILE_GPU_MEMORY_PINNING_FAILED, 5036);
IS(CU_FILE_BATCH_FULL, 5037);
IS(CU_FILE_ASYNC_NOT_SUPPORTED, 5038);
IS(CU_FILE_INTERNAL_BATCH_SETUP_ERROR, 5039);
IS(CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR, 5040);
IS(CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR, 5041);
IS(CU_FILE_INTERNAL_BATCH_CANCEL_ERROR, 5042);
IS(CU_FILE_NOMEM_ERROR, 5043);
IS(CU_FILE_IO_ERROR, 5044);
IS(CU_FILE_INTERNAL_BUF_REGISTER_ERROR, 5045);
IS(CU_FILE_HASH_OPR_ERROR, 5046);
IS(CU_FILE_INVALID_CONTEXT_ERROR, 5047);
IS(CU_FILE_NVFS_INTERNAL_DRIVER_ERROR, 5048);
IS(CU_FILE_BATCH_NOCOMPAT_ERROR, 5049);
IS(CU_FILE_IO_MAX_ERROR, 5050);
IS(CU_FILE_HANDLE_TYPE_OPAQUE_FD, 1);
IS(CU_FILE_HANDLE_TYPE_OPAQUE_WIN32, 2);
IS(CU_FILE_HANDLE_TYPE_USERSPACE_FS, 3);
IS(CUFILE_READ, 0);
IS(CUFILE_WRITE, 1);
IS(CUFILE_WAITING, 1);
IS(CUFILE_PENDING, 2);
IS(CUFILE_INVALID, 4);
IS(CUFILE_CANCELED, 8);
IS(CUFILE_COMPLETE, 16);
IS(CUFILE_TIMEOUT, 32);
IS(CUFILE_FAILED, 64);
IS(CUFILE_BATCH, 1);
IS(CU_FILE_STREAM_FIXED_BUF_OFFSET, 1);
IS(CU_FILE_STREAM_FIXED_FILE_OFFSET, 2);
IS(CU_FILE_STREAM_FIXED_FILE_SIZE, 4);
IS(CU_FILE_STREAM_PAGE_ALIGNED_INPUTS, 8);
IS(CU_FILE_LUSTRE_SUPPORTED, 0);
IS(CU_FILE_NVME_SUPPORTED, 4);
IS(CU_FILE_BEEGFS_SUPPORTED, 9);
IS(CU_FILE_NVME_P2P_SUPPORTED, 11);
IS(CU_FILE_VIRTIOFS_SUPPORTED, 13);
IS(CU_FILE_ALLOW_COMPAT_MODE, 1);
IS(CU_FILE_P2P_SUPPORTED, 4);
IS(CUFILE_NVIDIA_PEERMEM, 4);
IS(CUFILE_PARAM_PROFILE_STATS, 0);
IS(CUFILE_PARAM_EXECUTION_MAX_REQUEST_PARALLELISM, 4);
IS(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 9);
IS(CUFILE_PARAM_PROPERTIES_BATCH_IO_TIMEOUT_MS, 11);
IS(CUFILE_PARAM_PROPERTIES_USE_POLL_MODE, 0);
IS(CUFILE_PARAM_FORCE_COMPAT_MODE, 2);
IS(CUFILE_PARAM_PROPERTIES_ALLOW_SYSTEM_MEMORY, 6);
IS(CUFILE_PARAM_STREAM_MEMOPS_BYPASS, 11);
IS(CUFILE_PARAM_GDS_FALLBACK_IO, 13);
IS(CUFILE_PARAM_LOG_DIR, 2);
IS(CUFILE_PARAM_POSIX_POOL_SLAB_COUNT, 1);

static const char *const names[] = {
	"cuFileDriverOpen", "cuFileDriverClose", "cuFileDriverClose_v2", "cuFileUseCount",
	"cuFileDriverGetProperties", "cuFileDriverSetPollMode", "cuFileDriverSetMaxDirectIOSize",
	"cuFileDriverSetMaxCacheSize", "cuFileDriverSetMaxPinnedMemSize", "cuFileHandleRegister",
	"cuFileHandleDeregister", "cuFileBufRegister", "cuFileBufDeregister", "cuFileRead",
	"cuFileWrite", "cuFileBatchIOSetUp", "cuFileBatchIOSubmit", "cuFileBatchIOGetStatus",
	"cuFileBatchIOCancel", "cuFileBatchIODestroy", "cuFileReadAsync", "cuFileWriteAsync",
	"cuFileStreamRegister", "cuFileStreamDeregister", "cuFileGetVersion",
	"cuFileGetParameterSizeT", "cuFileSetParameterSizeT", "cuFileGetParameterBool",
	"cuFileSetParameterBool", "cuFileGetParameterString", "cuFileSetParameterString",
	"cuFileGetParameterMinMaxValue", "cuFileSetParameterPosixPoolSlabArray",
	"cuFileGetParameterPosixPoolSlabArray", "cuFileSetParameterGpuBounceBufferSlabArray",
	"cuFileGetParameterGpuBounceBufferSlabArray", "cuFileSetStatsLevel", "cuFileGetStatsLevel",
	"cuFileStatsStart", "cuFileStatsStop", "cuFileStatsReset", "cuFileGetStatsL1",
	"cuFileGetStatsL2", "cuFileGetStatsL3", "cuFileGetBARSizeInKB", "cuFileDriverSetP2PFlags",
	"cuFileDriverGetP2PFlags", "cuFileExportPCIeTopology", "cuFileReadv", "cuFileWritev",
};

/* By both names of the file, as programs open it, in the folder of its own. */
static void every_name_is_there(void)
{
	static const char *const files[] = { "libcufile.so.0", "libcufile.so" };

	for (int f = 0; f < 2; f++) {
		void *library = dlopen(files[f], RTLD_NOW | RTLD_LOCAL);

		t_context("%s", library ? files[f] : dlerror());
		T_CHECK(library);
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			t_context("%s in %s", names[i], files[f]);
			T_CHECK(dlsym(library, names[i]));
		}
		T_CHECK(!dlsym(library, "json_object_put"));
	}
}

/* Small structs come back in a register: programs that declare four bytes of it work too. */
static void results_come_in_a_register(void)
{
	void *library = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
	uint64_t (*close_driver)(void);

	T_CHECK(library);
	*(void **)&close_driver = dlsym(library, "cuFileDriverClose");
	T_EQ(close_driver() & UINT32_MAX, 5001);
}

static const struct t_case cases[] = {
	T_CASE(every_name_is_there),
	T_CASE(results_come_in_a_register),
};

T_MAIN(cases)
