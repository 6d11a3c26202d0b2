// SPDX-License-Identifier: Apache-2.0
// A program written against the C++ header: every overload, slice and task
// type, as its callers use them. Compiled as C++11 and later.
#include "flagcx_net_adaptor.h"
#include "flagcx_p2p.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			std::fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, \
				     #cond, flagcxP2pLastError()); \
			std::exit(1); \
		} \
	} while (0)

namespace
{

bool ended(FlagcxP2pConn *conn, uint64_t id)
{
	for (int i = 0; i < 10000; i++) {
		if (flagcxP2pEngineXferStatus(conn, id))
			return true;
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	return false;
}

void types_are_as_clients_expect()
{
	FlagcxSlice plain;
	FlagcxTransferTask task;

	CHECK(plain.srcVa == 0 && plain.dstVa == 0 && plain.length == 0 && plain.lkey == 0);
	CHECK(plain.rkey == 0 && plain.opcode == FLAGCX_SLICE_OP_WRITE);
	CHECK(plain.task == nullptr && plain.qpDepth == nullptr);
	plain.markSuccess(); // without a task nothing happens
	plain.markFailed();
	CHECK(!task.isAllDone() && !task.hasErrors());
	CHECK(sizeof(FlagcxSliceOp) == 1);
	CHECK(FLAGCX_SLICE_OP_READ == 1);

	task.sliceCount.store(2, std::memory_order_release);
	FlagcxSlice one, two;
	one.task = &task;
	two.task = &task;
	one.markSuccess();
	CHECK(!task.isAllDone() && task.doneSliceCount.load() == 1);
	two.markFailed();
	CHECK(task.isAllDone() && task.hasErrors() && task.failedCount.load() == 1);

	FlagcxP2pGlobalConfig defaults;
	CHECK(defaults.qpsPerConn == 4 && defaults.workersPerPool == 2 && defaults.ibPort == 1);
	CHECK(defaults.gidIndex == -1 && !defaults.enableDestDeviceAffinity);
	CHECK(defaults.readBatchWindow == 8 && defaults.sliceSize == 65536);
	const FlagcxP2pGlobalConfig &config = flagcxP2pGlobalConfig();
	CHECK(&config == &flagcxP2pGlobalConfig());
	CHECK(config.maxWrPerPost > 0);
	flagcxP2pDumpGlobalConfig();
	flagcxP2pClampToDeviceLimits(0, 0, 0, 0);
	static_assert(kFlagcxP2pMaxQpsPerEngine == 8, "as published");
	static_assert(sizeof(FlagcxP2pNotifyMsg) == 512, "as published");
	static_assert(sizeof(FlagcxP2pMd) == 512, "as published");
}

template <typename Policy> size_t cut(size_t len)
{
	FlagcxTransferTask task;
	uint64_t at = 0;

	buildSlices<Policy>(&task, 1000, 5000, len, 7, 8, FLAGCX_SLICE_OP_READ, std::string("nic"));
	for (FlagcxSlice *s : task.sliceList) {
		CHECK(s->srcVa == 1000 + at && s->dstVa == 5000 + at);
		CHECK(s->lkey == 7 && s->rkey == 8 && s->opcode == FLAGCX_SLICE_OP_READ);
		CHECK(s->task == &task);
		at += s->length;
		s->markSuccess();
		delete s;
	}
	CHECK(at == len);
	CHECK(task.sliceCount.load() == task.sliceList.size());
	CHECK(task.isAllDone() || len == 0);
	return task.sliceList.size();
}

void slices_are_cut_by_policy()
{
	CHECK(cut<NixlSlicePolicy>(0) == 0);
	CHECK(cut<NixlSlicePolicy>(1 << 20) == 1);
	CHECK(cut<NixlSlicePolicy>((size_t(1) << 32) + 4096) == 3); // never fewer bytes
	CHECK(cut<FlagcxSlicePolicy>(65536) == 1);
	CHECK(cut<FlagcxSlicePolicy>(65536 + 4096) == 1);
	CHECK(cut<FlagcxSlicePolicy>(65536 + 4097) == 2);
	CHECK(cut<FlagcxSlicePolicy>(300000) == 5);
}

uint64_t va(const void *p)
{
	return reinterpret_cast<uint64_t>(p);
}

// Two engines, connected the way a plugin does it.
struct Pair {
	FlagcxP2pEngine *server, *client;
	FlagcxP2pConn *conn, *accepted;

	Pair()
	{
		server = flagcxP2pEngineCreate();
		client = flagcxP2pEngineCreate();
		CHECK(server && client);
		char *raw = nullptr;
		CHECK(flagcxP2pEngineGetMetadata(server, &raw) == 0);
		std::unique_ptr<char[]> metadata(raw); // delete[]
		const std::string text(metadata.get());
		const size_t colon = text.rfind(':'), mark = text.find('?');
		const std::string ip = text.substr(0, colon);
		const int port = std::stoi(text.substr(colon + 1, mark - colon - 1));
		CHECK(port == flagcxP2pEngineGetRpcPort(server));
		auto accepting = std::async(std::launch::async, [this] {
			char from[64];
			int gpu = -2;
			FlagcxP2pConn *c = flagcxP2pEngineAccept(server, from, sizeof(from), &gpu);

			CHECK(gpu >= -1);
			return c;
		});
		conn = flagcxP2pEngineConnect(client, ip.c_str(), 0, port); // default argument
		CHECK(conn != nullptr);
		accepted = accepting.get();
		CHECK(accepted != nullptr);
		CHECK(flagcxP2pEngineStartListener(conn) == 0);
		CHECK(flagcxP2pEngineConnIsLocal(conn));
	}
};

struct Batch {
	static constexpr int n = 16;
	std::vector<char> from, to;
	FlagcxP2pMr lmr = 0, rmr = 0;
	FlagcxP2pRdmaDesc desc;
	std::vector<FlagcxP2pMr> mrs;
	std::vector<void *> local;
	std::vector<size_t> sizes;
	std::vector<FlagcxP2pRdmaDesc> descs;

	explicit Batch(Pair &p) : from(1 << 20), to(1 << 20)
	{
		const size_t block = from.size() / n;
		char blob[FLAGCX_P2P_DESC_SIZE], again[FLAGCX_P2P_DESC_SIZE];

		CHECK(flagcxP2pEngineReg(p.client, va(from.data()), from.size(), lmr) == 0);
		CHECK(flagcxP2pEngineReg(p.server, va(to.data()), to.size(), rmr) == 0);
		CHECK(lmr && rmr);
		CHECK(flagcxP2pEnginePrepareDesc(p.server, rmr, to.data(), to.size(), blob) == 0);
		flagcxP2pDeserializeRdmaDesc(blob, &desc);
		flagcxP2pSerializeRdmaDesc(desc, again);
		CHECK(std::memcmp(blob, again, sizeof(blob)) == 0);
		mrs.assign(n, lmr);
		sizes.assign(n, block);
		descs.assign(n, desc);
		for (int i = 0; i < n; i++) {
			local.push_back(from.data() + i * block);
			CHECK(flagcxP2pEngineUpdateDesc(descs[i], va(to.data()) + i * block,
							static_cast<uint32_t>(block)) == 0);
		}
	}

	void fill(int seed)
	{
		for (size_t i = 0; i < from.size(); i++) {
			from[i] = static_cast<char>(i * 31 + (i >> 9) + seed);
			to[i] = static_cast<char>(seed);
		}
	}
};

void vectors_in_every_overload(Pair &p, Batch &b)
{
	const int n = Batch::n;
	uint64_t id = 0;

	b.fill(1);
	CHECK(flagcxP2pEngineWriteVector(p.conn, b.mrs, b.local, b.sizes, b.descs, n, &id) == 0);
	CHECK(ended(p.conn, id) && b.from == b.to);
	b.fill(2);
	CHECK(flagcxP2pEngineWriteVector(p.conn, b.mrs, b.local, b.sizes, b.descs, n, &id,
					 std::vector<char *>()) == 0);
	CHECK(ended(p.conn, id) && b.from == b.to);
	b.fill(3);
	CHECK(flagcxP2pEngineWriteVector(p.conn, b.mrs, b.local, b.sizes, b.descs, n, &id,
					 FLAGCX_P2P_POLICY_CONNECTOR) == 0);
	CHECK(ended(p.conn, id) && b.from == b.to);
	b.fill(4);
	CHECK(flagcxP2pEngineWriteVectorSync(p.conn, b.mrs, b.local, b.sizes, b.descs) == 0);
	CHECK(b.from == b.to);
	b.fill(5);
	CHECK(flagcxP2pEngineReadVector(p.conn, b.mrs, b.local, b.sizes, b.descs, n, &id) == 0);
	CHECK(ended(p.conn, id) && b.from == b.to);
	b.fill(6);
	CHECK(flagcxP2pEngineReadVector(p.conn, b.mrs, b.local, b.sizes, b.descs, n, &id,
					std::vector<char *>(n, nullptr)) == 0);
	CHECK(ended(p.conn, id) && b.from == b.to);

	// vectors shorter than the count start nothing
	std::vector<size_t> shorter(b.sizes.begin(), b.sizes.end() - 1);
	CHECK(flagcxP2pEngineReadVector(p.conn, b.mrs, b.local, shorter, b.descs, n, &id) != 0);
	CHECK(flagcxP2pEngineWriteVector(p.conn, b.mrs, b.local, shorter, b.descs, n, &id) != 0);
	CHECK(flagcxP2pEngineWriteVectorSync(p.conn, b.mrs, b.local, shorter, b.descs) != 0);
}

void single_transfers(Pair &p, Batch &b)
{
	const size_t block = b.from.size() / Batch::n;
	std::vector<const void *> sources(Batch::n, b.from.data());
	FlagcxP2pRdmaDesc made;
	uint64_t id = 0;

	b.fill(7);
	CHECK(flagcxP2pEngineRead(p.conn, b.lmr, b.from.data(), 10, b.descs[3], &id) == 0);
	CHECK(ended(p.conn, id));
	CHECK(std::memcmp(b.from.data(), b.to.data() + 3 * block, 10) == 0);
	CHECK(flagcxP2pEngineWrite(p.conn, b.lmr, b.from.data() + 50, 10, b.descs[5], &id) == 0);
	CHECK(ended(p.conn, id));
	CHECK(std::memcmp(b.from.data() + 50, b.to.data() + 5 * block, 10) == 0);
	CHECK(flagcxP2pEngineMakeDesc(p.conn, b.descs[7].addr, 100, &made) == 0);
	CHECK(made.rkey == b.desc.rkey && made.addr == b.descs[7].addr && made.size == 100);
	CHECK(flagcxP2pEngineSend(p.conn, b.lmr, b.from.data(), 1, &id) != 0);
	CHECK(flagcxP2pEngineSendVector(p.conn, b.mrs, sources, b.sizes, Batch::n, &id) != 0);
	CHECK(flagcxP2pEngineRecv(p.conn, b.lmr, b.from.data(), 1) != 0);
}

void notifications(Pair &p)
{
	FlagcxP2pNotifyMsg note{};
	std::vector<FlagcxP2pNotifyMsg> all;

	std::strcpy(note.name, "client");
	for (int i = 0; i < 100; i++) {
		std::snprintf(note.msg, sizeof(note.msg), "%d", i);
		CHECK(flagcxP2pEngineSendNotif(p.conn, &note) == static_cast<int>(sizeof(note)));
	}
	for (int i = 0; i < 5000 && all.size() < 100; i++) {
		for (const FlagcxP2pNotifyMsg &m : flagcxP2pEngineGetNotifs())
			all.push_back(m);
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
	CHECK(all.size() == 100);
	for (int i = 0; i < 100; i++)
		CHECK(std::string(all[i].name) == "client" && std::stoi(all[i].msg) == i);
	CHECK(flagcxP2pEngineGetNotifs().empty());
}

void a_session_as_a_plugin_has_it()
{
	Pair p;
	Batch b(p);
	char ipc[FLAGCX_P2P_IPC_INFO_SIZE];
	bool has = true;

	vectors_in_every_overload(p, b);
	single_transfers(p, b);
	notifications(p);
	CHECK(flagcxP2pEngineGetIpcInfo(p.client, va(b.from.data()), ipc, &has) == 0);
	CHECK(!has);
	CHECK(flagcxP2pEngineUpdateIpcInfo(ipc, 200, 100, 50) == 0);

	// the order in which a plugin takes leave
	flagcxP2pEngineStopAccept(p.server);
	flagcxP2pEngineMrDestroy(p.server, b.rmr);
	flagcxP2pEngineMrDestroy(p.client, b.lmr);
	flagcxP2pEngineConnDestroy(p.conn);
	flagcxP2pEngineConnDestroy(p.accepted);
	flagcxP2pEngineDestroy(p.server);
	flagcxP2pEngineDestroy(p.client);
}

void the_plain_facade()
{
	void *server = flagcxP2pRpcEngineCreate(), *client = flagcxP2pRpcEngineCreate();
	std::vector<unsigned char> source(256, 0), destination(256, 9), expected(256, 9);
	const size_t so[] = { 3, 71, 151 }, to[] = { 17, 93, 189 }, len[] = { 11, 23, 31 };
	uint64_t id = 0, mr = 0, src[3], dst[3], size[3];

	for (size_t i = 0; i < source.size(); i++)
		source[i] = static_cast<unsigned char>(i);
	CHECK(flagcxP2pRpcStartServer(server) == 0 && flagcxP2pRpcStartServer(server) == 0);
	CHECK(flagcxP2pRpcRegister(client, va(source.data()), 256, &mr) == 0);
	CHECK(flagcxP2pRpcRegisterHost(server, va(destination.data()), 256, &mr) == 0);
	const std::string session = "127.0.0.1:" + std::to_string(flagcxP2pRpcGetPort(server));
	void *conn = flagcxP2pRpcGetConn(client, session.c_str());
	CHECK(conn && conn == flagcxP2pRpcGetConn(client, session.c_str()));
	for (int i = 0; i < 3; i++) {
		src[i] = va(source.data() + so[i]);
		dst[i] = va(destination.data() + to[i]);
		size[i] = len[i];
		std::memcpy(expected.data() + to[i], source.data() + so[i], len[i]);
	}
	CHECK(flagcxP2pRpcBatchWriteSync(conn, 3, src, dst, size) == 0);
	CHECK(destination == expected);
	CHECK(flagcxP2pRpcBatchReadSync(conn, 3, src, dst, size) == 0);
	CHECK(flagcxP2pRpcBatchStart(conn, 3, src, dst, size, 1, &id) == 0);
	CHECK(flagcxP2pEngineXferWait(static_cast<FlagcxP2pConn *>(conn), id, 5000) == 0);
	CHECK(flagcxP2pRpcBatchWriteSync(conn, 0, nullptr, nullptr, nullptr) == 0);
	CHECK(flagcxP2pRpcBatchWriteSync(conn, -1, nullptr, nullptr, nullptr) != 0);
	CHECK(flagcxP2pRpcBatchWriteSync(nullptr, 1, src, dst, size) != 0);
	size[1] = 1000; // beyond the registrations
	CHECK(flagcxP2pRpcBatchWriteSync(conn, 3, src, dst, size) != 0);
	CHECK(flagcxP2pRpcRegister(client, 0, 0, nullptr) != 0);
	CHECK(flagcxP2pRpcDeregister(client, va(source.data())) == 0);
	CHECK(flagcxP2pRpcDeregister(client, va(source.data())) != 0);
	flagcxP2pRpcEngineDestroy(client);
	flagcxP2pRpcEngineDestroy(server);
}

#ifdef HAVE_OBJECT
// A worker of a caller's own: it cuts a range by a policy and posts the slices through the
// table's object. Without a device every call says so.
void slices_through_the_object()
{
	flagcxNetAdaptor &net = flagcxNetIbP2p;
	constexpr size_t len = 1000000;
	std::vector<unsigned char> from(len), to(len);
	char handle[FLAGCX_NET_HANDLE_MAXSIZE];
	void *listener, *send, *recv = nullptr, *mine, *theirs;
	FlagcxTransferTask task;
	int n = -1;

	CHECK(net.testBatch(nullptr, 0, nullptr, &n) == flagcxSuccess && n == 0);
	CHECK(net.igetBatch(nullptr, 1, nullptr) == flagcxInvalidArgument);
	if (net.init() != flagcxSuccess) {
		CHECK(net.devices(&n) == flagcxSuccess && n == 0);
		CHECK(net.listen(0, handle, &listener) == flagcxInvalidArgument);
		return;
	}
	for (size_t i = 0; i < len; i++)
		from[i] = static_cast<unsigned char>(i * 7);
	CHECK(net.listen(0, handle, &listener) == flagcxSuccess);
	auto accepted = std::async(std::launch::async,
				   [&] { return net.accept(listener, &recv); });
	CHECK(net.connect(0, handle, &send) == flagcxSuccess);
	CHECK(accepted.get() == flagcxSuccess);
	CHECK(net.regMr(send, from.data(), len, 0, 0, &mine) == flagcxSuccess);
	CHECK(net.regMr(recv, to.data(), len, 0, 0, &theirs) == flagcxSuccess);
	buildSlices<FlagcxSlicePolicy>(&task, va(from.data()), va(to.data()), len,
				       static_cast<flagcxP2pMrHandle *>(mine)->lkey,
				       static_cast<flagcxP2pMrHandle *>(theirs)->rkey,
				       FLAGCX_SLICE_OP_WRITE);
	CHECK(net.iputBatch(send, static_cast<int>(task.sliceList.size()),
			    task.sliceList.data()) == flagcxSuccess);
	for (int i = 0; i < 10000 && !task.isAllDone(); i++)
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	CHECK(task.isAllDone() && !task.hasErrors());
	CHECK(from == to);
	for (FlagcxSlice *s : task.sliceList)
		delete s;
	CHECK(net.deregMr(send, mine) == flagcxSuccess);
	CHECK(net.deregMr(recv, theirs) == flagcxSuccess);
	CHECK(net.closeSend(send) == flagcxSuccess && net.closeRecv(recv) == flagcxSuccess);
	CHECK(net.closeListen(listener) == flagcxSuccess);
}
#endif

} // namespace

int main()
{
	types_are_as_clients_expect();
	slices_are_cut_by_policy();
	a_session_as_a_plugin_has_it();
	the_plain_facade();
#ifdef HAVE_OBJECT
	slices_through_the_object();
#endif
	return 0;
}
