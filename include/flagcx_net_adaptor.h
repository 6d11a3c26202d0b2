/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: flagcx_net_adaptor.h
 *
 * The RDMA transport as one object: for callers that hold a table of network
 * adaptors and choose among them, and for programs that cut their transfers
 * into slices themselves.
 *
 * The object, also for those who look it up by name:
 *
 *   flagcxNetIbP2p
 *
 * Everything stands on the P2P engine (flagcx_p2p.h): a device has an engine of
 * its own with FLAGCX_P2P_TRANSPORT=ibrc, a comm is one of its connections. So
 * credits, the repair of queue pairs and the end of every transfer when a peer
 * dies hold here, too.
 *
 * Slices. iputBatch and igetBatch take slices (struct FlagcxSlice of
 * flagcx_p2p.h): srcVa is local and lies in a registration with the slice's
 * lkey, dstVa is the peer's, with the rkey that the peer's regMr gave. Both
 * batches are posted in chains. Each slice ends exactly once, by markSuccess or
 * markFailed on its task: then its memory is quiet and the slice is its owner's
 * again. A slice that cannot be posted is marked failed, and the others go on.
 * qpDepth is set to the comm's count of slices that have not ended.
 *
 * Two-sided calls (isend, irecv, iflush) and iputSignal are flagcxNotSupported.
 *
 * Threads. Any call from any thread; a comm is closed when no other call uses it.
 */
#ifndef FLAGCX_NET_ADAPTOR_H_
#define FLAGCX_NET_ADAPTOR_H_

#include "flagcx.h"

#include <stddef.h>
#include <stdint.h>

#define FLAGCX_NET_HANDLE_MAXSIZE 128

#ifdef __cplusplus
extern "C" {
#endif

struct FlagcxSlice;

/* What regMr gives, as a pointer; a peer needs a copy of it for iput and iget. */
struct flagcxP2pMrHandle {
	uint64_t baseVa;
	uint64_t size;
	uint64_t id;   /* FlagcxP2pMr, in the process that registered */
	uint32_t lkey; /* of slices whose srcVa is here */
	uint32_t rkey; /* of a peer's slices whose dstVa is here */
};

typedef struct {
	const char *name; /* of the device; valid for good */
	uint64_t speed;   /* Mbit/s */
	int port;
	int maxMsg;       /* bytes of the longest work request; a slice may be longer */
} flagcxNetProperties_t;

struct flagcxNetAdaptor {
	const char *name;
	/* Find the devices; again: nothing more. flagcxSystemError: there is none. */
	flagcxResult_t (*init)(void);
	flagcxResult_t (*devices)(int *ndev);
	flagcxResult_t (*getProperties)(int dev, flagcxNetProperties_t *props);

	/* handle: FLAGCX_NET_HANDLE_MAXSIZE bytes for the peer's connect; one listener a device */
	flagcxResult_t (*listen)(int dev, void *handle, void **listenComm);
	flagcxResult_t (*connect)(int dev, void *handle, void **sendComm);
	/* Waits. Both ends' comms can read and write. */
	flagcxResult_t (*accept)(void *listenComm, void **recvComm);
	/* What is under way fails first. */
	flagcxResult_t (*closeSend)(void *sendComm);
	flagcxResult_t (*closeRecv)(void *recvComm);
	/* An accept that waits returns flagcxSystemError. */
	flagcxResult_t (*closeListen)(void *listenComm);

	/* For all comms of the comm's device. type, flags: what the memory is is found out. */
	flagcxResult_t (*regMr)(void *comm, void *data, size_t size, int type, int mrFlags,
				void **mhandle);
	/* The same: the engine asks for the dma-buf by itself. */
	flagcxResult_t (*regMrDmaBuf)(void *comm, void *data, size_t size, int type,
				      uint64_t offset, int fd, int mrFlags, void **mhandle);
	flagcxResult_t (*deregMr)(void *comm, void *mhandle);

	flagcxResult_t (*isend)(void *sendComm, void *data, size_t size, int tag, void *mhandle,
				void *phandle, void **request);
	flagcxResult_t (*irecv)(void *recvComm, int n, void **data, size_t *sizes, int *tags,
				void **mhandles, void **phandles, void **request);
	flagcxResult_t (*iflush)(void *recvComm, int n, void **data, int *sizes, void **mhandles,
				 void **request);
	/* done: it has ended, and the request is gone; flagcxRemoteError: not well. */
	flagcxResult_t (*test)(void *request, int *done, int *sizes);

	/* The handles are two struct flagcxP2pMrHandle, the remote one a copy; ranks: ignored */
	flagcxResult_t (*iput)(void *sendComm, uint64_t srcOff, uint64_t dstOff, size_t size,
			       int srcRank, int dstRank, void **srcHandles, void **dstHandles,
			       void **request);
	flagcxResult_t (*iget)(void *sendComm, uint64_t srcOff, uint64_t dstOff, size_t size,
			       int srcRank, int dstRank, void **srcHandles, void **dstHandles,
			       void **request);
	flagcxResult_t (*iputSignal)(void *sendComm, uint64_t srcOff, uint64_t dstOff, size_t size,
				     int srcRank, int dstRank, void **srcHandles,
				     void **dstHandles, uint64_t signalOff, void **signalHandles,
				     uint64_t signalValue, void **request);
	flagcxResult_t (*getDevFromName)(char *name, int *dev);

	flagcxResult_t (*iputBatch)(void *sendComm, int count, struct FlagcxSlice **slices);
	/* Each request that has ended is set to NULL; NULL counts as done. */
	flagcxResult_t (*testBatch)(void **requests, int count, int *doneFlags, int *doneCount);
	flagcxResult_t (*igetBatch)(void *sendComm, int count, struct FlagcxSlice **slices);
};

extern struct flagcxNetAdaptor flagcxNetIbP2p;

/**
 * flagcxP2pIputBatch - post slices that write
 * @sendComm: from connect or accept
 * @count: how many; 0 does nothing
 * @slices: each FLAGCX_SLICE_OP_WRITE; others are marked failed
 *
 * Return: flagcxSuccess: every slice ends by itself; flagcxInvalidArgument:
 * none was touched.
 */
flagcxResult_t flagcxP2pIputBatch(void *sendComm, int count, struct FlagcxSlice **slices);

/**
 * flagcxP2pIgetBatch - post slices that read
 * @sendComm: from connect or accept
 * @count: how many; 0 does nothing
 * @slices: each FLAGCX_SLICE_OP_READ; others are marked failed
 *
 * Return: as flagcxP2pIputBatch().
 */
flagcxResult_t flagcxP2pIgetBatch(void *sendComm, int count, struct FlagcxSlice **slices);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* FLAGCX_NET_ADAPTOR_H_ */
