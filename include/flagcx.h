/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: flagcx.h
 *
 * The communicator calls of libflagcx: a group of ranks, windows of memory that
 * every rank registers in the same order, and one-sided transfers between
 * windows.
 *
 * They stand on the P2P engine (flagcx_p2p.h): a communicator has an engine of
 * its own, and a transfer is complete when its call returns.
 *
 * Threads. Every call may be made from any thread; the calls of one
 * communicator that are collective (flagcxCommInitRank(),
 * flagcxOneSideRegister()) in the same order on every rank.
 *
 * Results. flagcxSuccess; flagcxInvalidArgument for what cannot be meant;
 * flagcxRemoteError when a peer is to blame; other values of flagcxResult_t.
 * flagcxGetErrorString() adds the reason.
 *
 * Collectives. The library has one-sided transfers only. These names are
 * exported for callers that look them up, declared nowhere, and return
 * flagcxNotSupported:
 *
 *   flagcxAllReduce
 *   flagcxReduce
 *   flagcxAllGather
 *   flagcxReduceScatter
 *   flagcxSend
 *   flagcxRecv
 *   flagcxBroadcast
 *   flagcxGroupStart
 *   flagcxGroupEnd
 *   flagcxCommRegister
 *   flagcxOneSideSignalRegister
 *   flagcxOneSideStagingRegister
 *   flagcxOneSideStagingDeregister
 *   flagcxPutSignal
 *   flagcxSignal
 *   flagcxWaitSignal
 *   flagcxReadCounter
 *   flagcxWaitCounter
 *   flagcxMemAlloc
 *   flagcxMemFree
 *   flagcxCommWindowRegister
 *   flagcxCommWindowDeregister
 *   flagcxDevCommCreate
 *   flagcxDevCommDestroy
 *   flagcxDevMemCreate
 *   flagcxDevMemDestroy
 *   flagcxDevCommGetDevicePtr
 *   flagcxDevCommFreeDevicePtr
 *   flagcxDevMemGetDevicePtr
 *   flagcxDevMemFreeDevicePtr
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

/* ------------------------------------------------------------ communicators */

/**
 * flagcxGetErrorString - a result in words
 * @result: what a call returned
 *
 * Return: its text, with the reason of this thread's last failure; never NULL,
 * valid until the thread's next call of this function.
 */
const char *flagcxGetErrorString(flagcxResult_t result);

/**
 * flagcxGetVersion - the version of this interface
 * @version: OUT: 10000 * major + 100 * minor + patch
 *
 * Return: flagcxSuccess, or flagcxInvalidArgument for NULL.
 */
flagcxResult_t flagcxGetVersion(int *version);

/**
 * flagcxGetUniqueId - name a meeting point for a group of ranks
 * @id: OUT
 *
 * One rank makes the id, in the process that will stay until all have met, and
 * gives it to the others by any means.
 *
 * Return: flagcxSuccess, or why not.
 */
flagcxResult_t flagcxGetUniqueId(flagcxUniqueId *id);

/**
 * flagcxCommInitRank - join a group of ranks
 * @comm: OUT; untouched on failure
 * @nranks: ranks of the group
 * @id: of flagcxGetUniqueId(), the same on every rank
 * @rank: this one, 0 .. @nranks - 1
 *
 * Collective: returns when all @nranks have called it.
 *
 * Return: flagcxSuccess, or why not.
 */
flagcxResult_t flagcxCommInitRank(flagcxComm_t *comm, int nranks, flagcxUniqueId *id, int rank);

/**
 * flagcxCommDestroy - leave the group
 * @comm: of flagcxCommInitRank()
 *
 * Its windows go with it, once no call of another thread uses them any more.
 *
 * Return: flagcxSuccess, or flagcxInvalidArgument: no such communicator.
 */
flagcxResult_t flagcxCommDestroy(flagcxComm_t comm);

/* ------------------------------------------------------- windows, transfers */

/**
 * flagcxOneSideRegister - register a window
 * @comm: the communicator
 * @buf: host or device memory
 * @size: bytes; may differ between ranks
 *
 * Collective: the n-th call registers window n on every rank, from 0.
 *
 * Return: flagcxSuccess, or why not.
 */
flagcxResult_t flagcxOneSideRegister(flagcxComm_t comm, void *buf, size_t size);

/**
 * flagcxPut - write from a window here to one of the peer's
 * @comm: the communicator
 * @peer: the rank
 * @srcOffset: byte of the window here
 * @dstOffset: byte of the peer's window
 * @size: bytes
 * @srcMrIdx: number of the window here
 * @dstMrIdx: number of the peer's window
 *
 * Return: flagcxSuccess: every byte lies in the peer's memory; else why not.
 */
flagcxResult_t flagcxPut(flagcxComm_t comm, int peer, size_t srcOffset, size_t dstOffset,
			 size_t size, int srcMrIdx, int dstMrIdx);
/**
 * flagcxGet - read from a window of the peer's to one here
 * @comm: the communicator
 * @peer: the rank
 * @srcOffset: byte of the peer's window
 * @dstOffset: byte of the window here
 * @size: bytes
 * @srcMrIdx: number of the peer's window
 * @dstMrIdx: number of the window here
 *
 * Return: flagcxSuccess: every byte lies in memory here; else why not.
 */
flagcxResult_t flagcxGet(flagcxComm_t comm, int peer, size_t srcOffset, size_t dstOffset,
			 size_t size, int srcMrIdx, int dstMrIdx);

/**
 * flagcxBatchPut - many writes to one peer as one transfer
 * @comm: the communicator
 * @peer: the rank
 * @srcOffsets: as @srcOffset of flagcxPut(), one for each
 * @dstOffsets: as @dstOffset of flagcxPut(), one for each
 * @sizes: bytes of each
 * @srcMrIdxs: as @srcMrIdx of flagcxPut(), one for each
 * @dstMrIdxs: as @dstMrIdx of flagcxPut(), one for each
 * @count: how many; 0 is flagcxSuccess
 *
 * Return: as flagcxPut(), for all of them.
 */
flagcxResult_t flagcxBatchPut(flagcxComm_t comm, int peer, const size_t *srcOffsets,
			      const size_t *dstOffsets, const size_t *sizes, const int *srcMrIdxs,
			      const int *dstMrIdxs, size_t count);

/* ------------------------------------------------------------- device table */

/**
 * flagcxDeviceHandleInit - a table of device calls
 * @handle: OUT: 28 function pointers, most of which return flagcxNotSupported;
 *	the table belongs to the library
 *
 * Return: flagcxSuccess, or flagcxInvalidArgument for NULL.
 */
flagcxResult_t flagcxDeviceHandleInit(flagcxDeviceHandle_t *handle);

/**
 * flagcxDeviceHandleFree - give the table back
 * @handle: of flagcxDeviceHandleInit()
 *
 * Return: flagcxSuccess.
 */
flagcxResult_t flagcxDeviceHandleFree(flagcxDeviceHandle_t handle);

#ifdef __cplusplus
}
#endif

#endif /* FLAGCX_H_ */
