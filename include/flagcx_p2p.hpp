/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C++ section of flagcx_p2p.h: included by it, never alone.
 *
 * Inline adaptors from references and vectors to the C calls. Where a C++
 * function must keep the name of a C one with the same parameters, the C
 * symbol is imported under another name by an asm label.
 */
#ifndef FLAGCX_P2P_HPP_
#define FLAGCX_P2P_HPP_

#ifndef FLAGCX_P2P_H_
#error "include flagcx_p2p.h"
#endif

#include <type_traits>

static_assert(sizeof(FlagcxP2pRdmaDesc) == FLAGCX_P2P_DESC_SIZE, "descriptor is 64 bytes");
static_assert(std::is_trivially_copyable<FlagcxP2pRdmaDesc>::value, "passed by value to C");

constexpr int kFlagcxP2pMaxQpsPerEngine = 8;

extern "C" int flagcxP2pEngineGetMetadataC_(FlagcxP2pEngine *engine, char **metadataStr)
	__asm__("flagcxP2pEngineGetMetadata");

/* ------------------------------------------------------- slices and tasks */

struct FlagcxSlice;

/* How many slices a transfer has and how many have ended. */
struct FlagcxTransferTask {
	std::atomic<uint64_t> sliceCount{0};
	std::atomic<uint64_t> doneSliceCount{0};
	std::atomic<uint64_t> failedCount{0};
	std::vector<FlagcxSlice *> sliceList;

	bool isAllDone() const
	{
		const uint64_t total = sliceCount.load(std::memory_order_acquire);

		return total > 0 && doneSliceCount.load(std::memory_order_acquire) >= total;
	}

	bool hasErrors() const { return failedCount.load(std::memory_order_acquire) > 0; }
};

enum FlagcxSliceOp : uint8_t {
	FLAGCX_SLICE_OP_WRITE = 0,
	FLAGCX_SLICE_OP_READ = 1,
};

/* srcVa is always the local address, dstVa always the remote one. */
struct FlagcxSlice {
	uint64_t srcVa = 0;
	uint64_t dstVa = 0;
	uint32_t length = 0;
	uint32_t lkey = 0;
	uint32_t rkey = 0;
	uint8_t opcode = FLAGCX_SLICE_OP_WRITE;
	FlagcxTransferTask *task = nullptr;
	volatile int *qpDepth = nullptr;

	void markSuccess()
	{
		if (task)
			task->doneSliceCount.fetch_add(1, std::memory_order_release);
	}

	/* The failure is counted before the end, so that whoever sees the end sees it. */
	void markFailed()
	{
		if (task) {
			task->failedCount.fetch_add(1, std::memory_order_release);
			task->doneSliceCount.fetch_add(1, std::memory_order_release);
		}
	}
};

struct NixlSlicePolicy {
	static constexpr bool kFurtherCut = false;
	static constexpr size_t kBlockSize = SIZE_MAX;
	static constexpr size_t kFragmentSize = 0;
};

struct FlagcxSlicePolicy {
	static constexpr bool kFurtherCut = true;
	static constexpr size_t kBlockSize = 64 * 1024;
	static constexpr size_t kFragmentSize = 4 * 1024;
};

/*
 * Cut a range into slices and hang them on the task. A slice's length has 32
 * bits, so even an uncut range is cut at 2 GiB. The caller deletes the slices.
 */
template <typename Policy>
inline void buildSlices(FlagcxTransferTask *task, uint64_t srcVa, uint64_t dstVa, size_t totalLen,
			uint32_t lkey, uint32_t rkey, uint8_t opcode)
{
	constexpr size_t limit = size_t(1) << 31;
	constexpr size_t block = Policy::kBlockSize < limit ? Policy::kBlockSize : limit;

	for (size_t off = 0; off < totalLen;) {
		const size_t left = totalLen - off;
		const bool last = left <= block || left - block <= Policy::kFragmentSize;
		FlagcxSlice *slice = new FlagcxSlice;

		slice->srcVa = srcVa + off;
		slice->dstVa = dstVa + off;
		slice->length = static_cast<uint32_t>(last ? left : block);
		slice->lkey = lkey;
		slice->rkey = rkey;
		slice->opcode = opcode;
		slice->task = task;
		task->sliceList.push_back(slice);
		task->sliceCount.fetch_add(1, std::memory_order_release);
		off += slice->length;
	}
}

/* The same with the path's name, which a slice does not need to carry. */
template <typename Policy>
inline void buildSlices(FlagcxTransferTask *task, uint64_t srcVa, uint64_t dstVa, size_t totalLen,
			uint32_t lkey, uint32_t rkey, uint8_t opcode, const std::string &)
{
	buildSlices<Policy>(task, srcVa, dstVa, totalLen, lkey, rkey, opcode);
}

/* ---------------------------------------------------------------- overloads */

inline const FlagcxP2pGlobalConfig &flagcxP2pGlobalConfig()
{
	return *flagcxP2pGlobalConfigGet();
}

/* The string is released with delete[]. */
inline int flagcxP2pEngineGetMetadata(FlagcxP2pEngine *engine, char **metadataStr)
{
	char *text = nullptr;

	if (!metadataStr)
		return -22; /* -EINVAL, without pulling <cerrno> into every client */
	const int rc = flagcxP2pEngineGetMetadataC_(engine, &text);
	if (rc)
		return rc;
	const size_t len = std::strlen(text) + 1;
	char *copy = new (std::nothrow) char[len];
	if (copy)
		std::memcpy(copy, text, len);
	std::free(text);
	if (!copy)
		return -12;
	*metadataStr = copy;
	return 0;
}

inline void flagcxP2pSerializeRdmaDesc(const FlagcxP2pRdmaDesc &desc, char *buf)
{
	std::memcpy(buf, &desc, sizeof(desc));
}

inline int flagcxP2pEngineReg(FlagcxP2pEngine *engine, uintptr_t data, size_t size,
			      FlagcxP2pMr &mrId)
{
	return flagcxP2pEngineReg(engine, data, size, &mrId);
}

inline int flagcxP2pEngineUpdateDesc(FlagcxP2pRdmaDesc &desc, uint64_t remoteAddr, uint32_t size)
{
	return flagcxP2pEngineUpdateDesc(&desc, remoteAddr, size);
}

namespace flagcx_p2p_detail {
template <typename... Vectors> inline bool shorter(int n, const Vectors &...vectors)
{
	bool bad = n < 0;
	using expand = int[];

	(void)expand{0, (bad = bad || vectors.size() < static_cast<size_t>(n), 0)...};
	return bad;
}
} // namespace flagcx_p2p_detail

inline int flagcxP2pEngineReadVector(FlagcxP2pConn *conn, std::vector<FlagcxP2pMr> mrIds,
				     std::vector<void *> dstVec, std::vector<size_t> sizeVec,
				     std::vector<FlagcxP2pRdmaDesc> descs, int numIovs,
				     uint64_t *transferId, std::vector<char *> ipcBufs = {})
{
	(void)ipcBufs;
	if (flagcx_p2p_detail::shorter(numIovs, mrIds, dstVec, sizeVec, descs))
		return -22;
	return flagcxP2pEngineReadVector(conn, mrIds.data(), dstVec.data(), sizeVec.data(),
					 descs.data(), numIovs, transferId, nullptr);
}

inline int flagcxP2pEngineWriteVector(FlagcxP2pConn *conn, const std::vector<FlagcxP2pMr> &mrIds,
				      const std::vector<void *> &dstVec,
				      const std::vector<size_t> &sizeVec,
				      const std::vector<FlagcxP2pRdmaDesc> &descs, int numIovs,
				      uint64_t *transferId,
				      const std::vector<char *> &ipcBufs = {})
{
	(void)ipcBufs;
	if (flagcx_p2p_detail::shorter(numIovs, mrIds, dstVec, sizeVec, descs))
		return -22;
	return flagcxP2pEngineWriteVector(conn, mrIds.data(), dstVec.data(), sizeVec.data(),
					  descs.data(), numIovs, transferId, nullptr);
}

/* With the policy chosen by the caller, as a type or a number. */
inline int flagcxP2pEngineWriteVector(FlagcxP2pConn *conn, const std::vector<FlagcxP2pMr> &mrIds,
				      const std::vector<void *> &srcVec,
				      const std::vector<size_t> &sizeVec,
				      const std::vector<FlagcxP2pRdmaDesc> &descs, int numIovs,
				      uint64_t *transferId, FlagcxP2pPolicy policyKind)
{
	if (flagcx_p2p_detail::shorter(numIovs, mrIds, srcVec, sizeVec, descs))
		return -22;
	return flagcxP2pEngineWriteVectorPolicy(conn, mrIds.data(), srcVec.data(), sizeVec.data(),
						descs.data(), numIovs, policyKind, transferId);
}

inline int flagcxP2pEngineWriteVectorSync(FlagcxP2pConn *conn,
					  const std::vector<FlagcxP2pMr> &mrIds,
					  const std::vector<void *> &srcVec,
					  const std::vector<size_t> &sizeVec,
					  const std::vector<FlagcxP2pRdmaDesc> &descs)
{
	const size_t n = sizeVec.size();

	if (mrIds.size() != n || srcVec.size() != n || descs.size() != n || n > 0x7fffffff)
		return -22;
	return flagcxP2pEngineWriteVectorSync(conn, mrIds.data(), srcVec.data(), sizeVec.data(),
					      descs.data(), static_cast<int>(n));
}

inline int flagcxP2pEngineSendVector(FlagcxP2pConn *conn, std::vector<FlagcxP2pMr> mrIds,
				     std::vector<const void *> srcVec, std::vector<size_t> sizeVec,
				     int numIovs, uint64_t *transferId)
{
	if (flagcx_p2p_detail::shorter(numIovs, mrIds, srcVec, sizeVec))
		return -22;
	return flagcxP2pEngineSendVector(conn, mrIds.data(), srcVec.data(), sizeVec.data(), numIovs,
					 transferId);
}

/* Every notification of every engine of the process that has come. */
inline std::vector<FlagcxP2pNotifyMsg> flagcxP2pEngineGetNotifs()
{
	std::vector<FlagcxP2pNotifyMsg> all;
	constexpr int batch = 32;

	for (;;) {
		const size_t have = all.size();

		all.resize(have + batch);
		const int n = flagcxP2pEngineGetNotifs(all.data() + have, batch);
		all.resize(have + static_cast<size_t>(n > 0 ? n : 0));
		if (n < batch)
			return all;
	}
}

#endif /* FLAGCX_P2P_HPP_ */
