// SPDX-License-Identifier: Apache-2.0
/*
 * Accelerator memory, which the processor cannot touch: its bytes pass through
 * host memory at either end. The driver is the tests' own (fakecuda.h), and so
 * are its failures.
 */
#include "phoenix.h"
#include "tp.h"

#include <dlfcn.h>
#include <signal.h>

static int device;

/* Device memory with the bytes of a seed. */
static uint8_t *dev_alloc(size_t size, uint64_t seed)
{
	uint8_t *host = malloc(size);
	void *mem;

	device = phxfs_find_device("nvidia", 0);
	if (device < 0)
		TP_FAIL("no device: %s", phxfs_last_error());
	TP_OK(phxfs_mem_alloc(device, size, &mem));
	tp_fill(host, seed, 0, size);
	TP_OK(phxfs_memcpy_to(device, mem, host, size));
	free(host);
	return mem;
}

/* Where [off, off + len) of device memory differs from a seed's bytes from at on. */
static int64_t dev_differs(const uint8_t *mem, size_t off, size_t len, uint64_t seed, size_t at)
{
	uint8_t *host = malloc(len);
	int64_t where;

	TP_OK(phxfs_memcpy_from(device, host, mem + off, len));
	where = tp_differs(host, seed, at, len);
	free(host);
	return where;
}

/* The next call of the driver's functions for copies fails. */
static void fail_next_copy(void)
{
	void (*fail)(const char *, int, unsigned int, bool) =
		(void (*)(const char *, int, unsigned int, bool))dlsym(RTLD_DEFAULT,
									"fakecuda_fail");
	void *lib;

	if (!fail) {
		lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
		TP_CHECK(lib != NULL);
		fail = (void (*)(const char *, int, unsigned int, bool))dlsym(lib,
									      "fakecuda_fail");
	}
	TP_CHECK(fail != NULL);
	fail("copies", 2, 1, false);
}

/* A peer with device memory, filled from seed 1; "check SEED OFF LEN AT". */
static void role_device_server(int argc, char **argv)
{
	size_t size = strtoull(argv[0], NULL, 0);
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = dev_alloc(size, 1);
	unsigned long long seed, off, len, at;
	char *line;

	tp_reg(e, mem, size);
	TP_OK(flagcxP2pEngineStartRpcServer(e));
	tp_answer("127.0.0.1:%d %llu", flagcxP2pEngineGetRpcPort(e),
		  (unsigned long long)(uintptr_t)mem);
	while ((line = tp_line()) != NULL && strcmp(line, "quit")) {
		if (sscanf(line, "check %llu %llu %llu %llu", &seed, &off, &len, &at) == 4) {
			tp_answer("%lld", (long long)dev_differs(mem, off, len, seed, at));
		} else if (!strcmp(line, "fail")) {
			fail_next_copy();
			tp_answer("ready");
		}
	}
	flagcxP2pEngineDestroy(e);
}

struct far {
	struct tp_peer *peer;
	char session[64];
	unsigned long long addr;
};

static struct far far_serve(size_t size)
{
	struct far f;
	char text[32];

	snprintf(text, sizeof(text), "%zu", size);
	f.peer = tp_spawn(NULL, "device_server", text, NULL);
	TP_EQ(sscanf(tp_hear(f.peer, 30), "%63s %llu", f.session, &f.addr), 2);
	return f;
}

static void far_check(struct far *f, uint64_t seed, size_t off, size_t len, size_t at)
{
	tp_say(f->peer, "check %llu %zu %zu %zu", (unsigned long long)seed, off, len, at);
	TP_EQ(atoll(tp_hear(f->peer, 30)), -1);
}

/* Between two processes' device memory, sizes and places as they come; the bytes moved. */
static uint64_t move_about(FlagcxP2pConn *c, struct far *f, uint8_t *mem)
{
	static const size_t sizes[] = { 1, 511, 4096, 65537, (1 << 20) - 1, (1 << 20) + 1,
					3000001 };
	uint64_t all = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t n = sizes[i], from = i * 997, to = i * 4099 + 1;
		uint64_t local = (uintptr_t)mem + from, remote = f->addr + to;

		TP_OK(flagcxP2pRpcBatchWriteSync(c, 1, &local, &remote, &n));
		far_check(f, 2, to, n, from);
		far_check(f, 1, to + n, 4096, to + n);
		local = (uintptr_t)mem + (5 << 20) + from;
		remote = f->addr + (4 << 20) + to;
		TP_OK(flagcxP2pRpcBatchReadSync(c, 1, &local, &remote, &n));
		TP_EQ(dev_differs(mem, (5 << 20) + from, n, 1, (4 << 20) + to), -1);
		/* places only grow: behind them nothing was touched yet */
		TP_EQ(dev_differs(mem, (5 << 20) + 3000001 + 8192, 4096, 2,
				  (5 << 20) + 3000001 + 8192),
		      -1);
		all += 2 * n;
	}
	return all;
}

enum { SPAN = 8 << 20 };

/* The bytes move; by which path, and by what words of why not a better one. */
static void move_by(const char *path, const char *reason, bool rdma)
{
	struct far f = far_serve(SPAN);
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = dev_alloc(SPAN, 2);
	FlagcxP2pMr mr = tp_reg(e, mem, SPAN);
	FlagcxP2pConn *c = flagcxP2pEngineGetConn(e, f.session);
	FlagcxP2pMrInfo info = { .size = sizeof(info) };
	uint64_t all;

	TP_CHECK(c != NULL);
	TP_OK(flagcxP2pEngineMrInfo(e, mr, &info));
	TP_EQ(info.device, device);
	if (strcmp(info.path, path) || (reason && strcmp(info.reason, reason)))
		TP_FAIL("path %s (%s)", info.path, info.reason);
	all = move_about(c, &f, mem);
	TP_EQ(tp_stats(e).rdma_bytes, rdma ? all : 0);
	TP_EQ(tp_stats(e).staged_bytes > 0, !rdma);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(f.peer, 20);
}

static void device_to_device(void)
{
	move_by("staged", NULL, false);
}

static void need_rdma(void)
{
	FlagcxP2pEngine *e = tp_engine();
	char text[256];

	TP_OK(flagcxP2pEngineTransport(e, text, sizeof(text)));
	flagcxP2pEngineDestroy(e);
	if (!strstr(text, "mock0"))
		tp_skip("not the tests' own RDMA device");
}

static void a_dmabuf_goes_to_the_wire(void)
{
	need_rdma();
	move_by("dmabuf", "", true);
}

static void each_way_that_failed_is_told(void)
{
	need_rdma();
	move_by("staged", "dmabuf: EOPNOTSUPP, full: EOPNOTSUPP, peermem: EFAULT", false);
}

static void a_dmabuf_that_is_refused_is_told(void)
{
	need_rdma();
	move_by("staged", "dmabuf: ENOMEM, full: EOPNOTSUPP, peermem: EFAULT", false);
}

/* One call with entries in both kinds of memory, in turns, more than a stage holds. */
static void one_call_mixes_both_kinds(void)
{
	enum { N = 64 };
	const size_t block = 100001, size = N * block;
	struct far f = far_serve(size);
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *dev = dev_alloc(size, 3), *host = tp_alloc(size);
	uint64_t local[N], remote[N], len[N];
	FlagcxP2pConn *c = flagcxP2pEngineGetConn(e, f.session);

	TP_CHECK(c != NULL);
	tp_reg(e, dev, size);
	tp_reg(e, host, size);
	tp_fill(host, 3, 0, size);
	for (int i = 0; i < N; i++) {
		local[i] = (uintptr_t)(i % 3 ? dev : host) + (size_t)i * block;
		remote[i] = f.addr + (size_t)i * block;
		len[i] = block;
	}
	TP_OK(flagcxP2pRpcBatchWriteSync(c, N, local, remote, len));
	far_check(&f, 3, 0, size, 0);
	memset(host, 0, size);
	for (int i = 0; i < N; i++)
		local[i] = (uintptr_t)(i % 2 ? dev : host) + (size_t)i * block;
	TP_OK(flagcxP2pRpcBatchReadSync(c, N, local, remote, len));
	for (int i = 0; i < N; i++)
		TP_EQ(i % 2 ? dev_differs(dev, (size_t)i * block, block, 3, (size_t)i * block) :
			      tp_differs(host + (size_t)i * block, 3, (size_t)i * block, block),
		      -1);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(f.peer, 20);
}

/* What a device refuses at either end is the transfer's error, and nothing hangs. */
static void a_copy_that_fails_fails_the_transfer(void)
{
	for (int how = 0; how < 4; how++) {
		const size_t size = 4 << 20;
		struct far f = far_serve(size);
		FlagcxP2pEngine *e = tp_engine();
		uint8_t *mem = how & 1 ? tp_alloc(size) : dev_alloc(size, 2);
		uint64_t local = (uintptr_t)mem, remote = f.addr, n = size;
		FlagcxP2pConn *c = flagcxP2pEngineGetConn(e, f.session);
		int rc;

		TP_CHECK(c != NULL);
		tp_reg(e, mem, size);
		if (how & 1) { /* there */
			tp_say(f.peer, "fail");
			tp_hear(f.peer, 20);
		} else { /* here */
			fail_next_copy();
		}
		rc = how & 2 ? flagcxP2pRpcBatchReadSync(c, 1, &local, &remote, &n) :
			       flagcxP2pRpcBatchWriteSync(c, 1, &local, &remote, &n);
		TP_CHECK(rc < 0 && rc != -ETIMEDOUT);
		TP_EQ(tp_stats(e).xfers_failed, 1);
		tp_gauges_zero(e);
		flagcxP2pEngineDestroy(e);
		tp_kill(f.peer, SIGKILL);
	}
}

/* A death in the middle leaves no stage busy. */
static void a_death_in_the_middle_is_an_end(void)
{
	const size_t size = 64 << 20;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = dev_alloc(size, 2);

	tp_reg(e, mem, size);
	for (int write = 0; write < 2; write++) {
		struct far f = far_serve(size);
		uint64_t local = (uintptr_t)mem, remote = f.addr, n = size, id;
		FlagcxP2pConn *c = flagcxP2pEngineGetConn(e, f.session);

		TP_CHECK(c != NULL);
		TP_OK(flagcxP2pRpcBatchStart(c, 1, &local, &remote, &n, write, &id));
		tp_sleep(0.01);
		tp_kill(f.peer, SIGKILL);
		TP_CHECK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)) != -ETIMEDOUT);
		TP_WITHIN(20, tp_stats(e).connections == 0);
		TP_WITHIN(20, tp_stats(e).in_flight == 0);
		tp_gauges_zero(e);
	}
	flagcxP2pEngineDestroy(e);
}

static const struct tp_case cases[] = {
	TP_CASE(device_to_device, .env = "FLAGCX_P2P_TRANSPORT=tcp"),
	TP_CASE(a_dmabuf_goes_to_the_wire, .env = "FAKE_CUDA_DMABUF=1"),
	TP_CASE(each_way_that_failed_is_told),
	TP_CASE(a_dmabuf_that_is_refused_is_told,
		.env = "FAKE_CUDA_DMABUF=1 PHX_VERBS_FAIL=reg_dmabuf_mr:1:12:99"),
	TP_CASE(one_call_mixes_both_kinds),
	TP_CASE(a_copy_that_fails_fails_the_transfer),
	TP_CASE(a_death_in_the_middle_is_an_end),
};
static const struct tp_role roles[] = { { "device_server", role_device_server } };

TP_MAIN(cases, roles)
