/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator calls that libflagcx.so answers over the P2P engine: a
 * group of ranks, windows of memory that every rank registers in the same
 * order, and one-sided transfers between windows. Collective operations are
 * exported for callers that look them up, and answer flagcxNotSupported.
 *
 * Every call may be made from any thread; the calls of one communicator that
 * are collective (CommInitRank, OneSideRegister, CommDestroy) in the same
 * order on every rank.
 */
#ifndef FLAGCX_H_
#define FLAGCX_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
	flagcxSuccess = 0,
	flagcxUnhandledDeviceError = 1,
	flagcxSystemError = 2,
	flagcxInternalError = 3,
	flagcxInvalidArgument = 4,
	flagcxInvalidUsage = 5,
	flagcxRemoteError = 6,
	flagcxInProgress = 7,
	flagcxUnhandledCCLError = 8,
	flagcxNotSupported = 9,
} flagcxResult_t;

typedef struct {
	char internal[256];
} flagcxUniqueId;

typedef struct flagcxComm *flagcxComm_t;
typedef struct flagcxDeviceHandle *flagcxDeviceHandle_t;

/* Text of a result, with the reason of this thread's last failure. */
const char *flagcxGetErrorString(flagcxResult_t result);
flagcxResult_t flagcxGetVersion(int *version);

/* One rank makes the id and gives it to the others by any means. */
flagcxResult_t flagcxGetUniqueId(flagcxUniqueId *id);
/* Collective: returns when all nranks have called it. */
flagcxResult_t flagcxCommInitRank(flagcxComm_t *comm, int nranks, flagcxUniqueId *id, int rank);
flagcxResult_t flagcxCommDestroy(flagcxComm_t comm);

/* Collective: the n-th call registers window n on every rank. Sizes may differ. */
flagcxResult_t flagcxOneSideRegister(flagcxComm_t comm, void *buf, size_t size);

/* From a window here to one of the peer's; complete when it returns. */
flagcxResult_t flagcxPut(flagcxComm_t comm, int peer, size_t srcOffset, size_t dstOffset,
			 size_t size, int srcMrIdx, int dstMrIdx);
/* From a window of the peer's to one here; complete when it returns. */
flagcxResult_t flagcxGet(flagcxComm_t comm, int peer, size_t srcOffset, size_t dstOffset,
			 size_t size, int srcMrIdx, int dstMrIdx);
flagcxResult_t flagcxBatchPut(flagcxComm_t comm, int peer, const size_t *srcOffsets,
			      const size_t *dstOffsets, const size_t *sizes, const int *srcMrIdxs,
			      const int *dstMrIdxs, size_t count);

/* A table of device calls, most of which answer flagcxNotSupported. */
flagcxResult_t flagcxDeviceHandleInit(flagcxDeviceHandle_t *handle);
flagcxResult_t flagcxDeviceHandleFree(flagcxDeviceHandle_t handle);

#ifdef __cplusplus
}
#endif

#endif /* FLAGCX_H_ */
