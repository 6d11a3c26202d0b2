// SPDX-License-Identifier: Apache-2.0
/* The RDMA transport as an object of the collective library's shape: flagcxNetIbP2p. */
#include "flagcx_net_adaptor.h"
#include "tp.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#define NET flagcxNetIbP2p

struct ends {
	void *listener, *send, *recv;
};

static void need_device(void)
{
	int n = 0;

	if (NET.init() != flagcxSuccess)
		tp_skip("no RDMA device");
	TP_OK(NET.init()); /* again: nothing more */
	TP_OK(NET.devices(&n));
	TP_CHECK(n >= 1);
}

static void *accept_one(void *arg)
{
	struct ends *e = arg;

	if (NET.accept(e->listener, &e->recv) != flagcxSuccess)
		e->recv = NULL;
	return NULL;
}

static struct ends ends_new(void)
{
	char handle[FLAGCX_NET_HANDLE_MAXSIZE];
	struct ends e = { 0 };
	pthread_t t;

	need_device();
	TP_OK(NET.listen(0, handle, &e.listener));
	TP_OK(pthread_create(&t, NULL, accept_one, &e));
	TP_OK(NET.connect(0, handle, &e.send));
	pthread_join(t, NULL);
	TP_CHECK(e.recv != NULL);
	return e;
}

static void ends_free(struct ends *e)
{
	TP_OK(NET.closeSend(e->send));
	TP_OK(NET.closeRecv(e->recv));
	TP_OK(NET.closeListen(e->listener));
}

/* ------------------------------------------------------------------ batches */

enum { N = 500, BLOCK = 3000 };

struct work {
	struct FlagcxTransferTask task;
	struct FlagcxSlice slice[N];
	struct FlagcxSlice *list[N];
};

static void work_fill(struct work *w, int opcode, const struct flagcxP2pMrHandle *local,
		      const struct flagcxP2pMrHandle *remote)
{
	memset(w, 0, sizeof(*w));
	w->task.sliceCount = N;
	for (int i = 0; i < N; i++) {
		w->slice[i] = (struct FlagcxSlice){
			.srcVa = local->baseVa + (uint64_t)i * BLOCK,
			.dstVa = remote->baseVa + (uint64_t)((i + 7) % N) * BLOCK,
			.length = BLOCK,
			.lkey = local->lkey,
			.rkey = remote->rkey,
			.opcode = (uint8_t)opcode,
			.task = &w->task,
		};
		w->list[i] = &w->slice[i];
	}
}

static uint64_t done(struct work *w)
{
	return __atomic_load_n(&w->task.doneSliceCount, __ATOMIC_ACQUIRE);
}

static uint64_t failed(struct work *w)
{
	return __atomic_load_n(&w->task.failedCount, __ATOMIC_ACQUIRE);
}

static bool moved(const uint8_t *local, const uint8_t *remote)
{
	for (int i = 0; i < N; i++)
		if (memcmp(local + (size_t)i * BLOCK, remote + (size_t)((i + 7) % N) * BLOCK,
			   BLOCK))
			return false;
	return true;
}

static void slices_move_both_ways(void)
{
	struct ends e = ends_new();
	uint8_t *a = tp_alloc(N * BLOCK), *b = tp_alloc(N * BLOCK);
	static struct work w;
	void *ma, *mb;

	TP_OK(NET.regMr(e.send, a, N * BLOCK, 1, 0, &ma));
	TP_OK(NET.regMrDmaBuf(e.recv, b, N * BLOCK, 1, 0, -1, 0, &mb));
	tp_fill(a, 3, 0, N * BLOCK);
	memset(b, 0, N * BLOCK);
	work_fill(&w, FLAGCX_SLICE_OP_WRITE, ma, mb);
	TP_OK(NET.iputBatch(e.send, N, w.list));
	TP_WITHIN(30, done(&w) == N);
	TP_EQ(failed(&w), 0);
	TP_EQ(*w.slice[0].qpDepth, 0);
	TP_CHECK(moved(a, b));
	/* back, over the other end's comm: it is a whole one */
	tp_fill(a, 4, 0, N * BLOCK);
	work_fill(&w, FLAGCX_SLICE_OP_READ, mb, ma);
	TP_OK(flagcxP2pIgetBatch(e.recv, N, w.list));
	TP_WITHIN(30, done(&w) == N);
	TP_EQ(failed(&w), 0);
	TP_CHECK(moved(b, a));
	TP_OK(NET.iputBatch(e.send, 0, NULL));
	TP_EQ(NET.iputBatch(e.send, -1, w.list), flagcxInvalidArgument);
	TP_EQ(NET.igetBatch(NULL, 1, w.list), flagcxInvalidArgument);
	TP_OK(NET.deregMr(e.send, ma));
	TP_OK(NET.deregMr(e.recv, mb));
	ends_free(&e);
}

/* Bad ones are marked, each once, and hold up nobody. */
static void bad_slices_fail_alone(void)
{
	struct ends e = ends_new();
	uint8_t *a = tp_alloc(N * BLOCK), *b = tp_alloc(N * BLOCK);
	static struct work w;
	void *ma, *mb;

	TP_OK(NET.regMr(e.send, a, N * BLOCK, 1, 0, &ma));
	TP_OK(NET.regMr(e.send, b, N * BLOCK, 1, 0, &mb));
	tp_fill(a, 3, 0, N * BLOCK);
	work_fill(&w, FLAGCX_SLICE_OP_WRITE, ma, mb);
	w.slice[10].lkey ^= 1;
	w.slice[20].rkey ^= 1;
	w.slice[30].opcode = FLAGCX_SLICE_OP_READ;
	w.slice[40].srcVa -= 1ull << 40;
	w.slice[50].dstVa -= 1ull << 40;
	w.slice[60].length = 0;
	w.slice[70].task = NULL; /* nobody counts it */
	TP_OK(NET.iputBatch(e.send, N, w.list));
	TP_WITHIN(30, done(&w) == N - 1);
	tp_sleep(0.05);
	TP_EQ(done(&w), N - 1);
	TP_EQ(failed(&w), 6);
	TP_EQ(__atomic_load_n((int *)w.slice[0].qpDepth, __ATOMIC_ACQUIRE), 0);
	for (int i = 0; i < N; i++) {
		bool bad = i >= 10 && i <= 60 && i % 10 == 0;

		TP_EQ(memcmp(a + (size_t)i * BLOCK, b + (size_t)((i + 7) % N) * BLOCK, BLOCK) != 0,
		      bad);
	}
	ends_free(&e);
}

static void put_one(struct ends *e, void *local, void *remote)
{
	void *request;
	int over = 0;

	TP_OK(NET.iput(e->send, 1, 2, BLOCK, 0, 0, local, remote, &request));
	TP_WITHIN(30, NET.test(request, &over, NULL) != flagcxSuccess || over);
	TP_CHECK(over);
}

/* The same bytes registered alone and as a part of more: a slice may name either. */
static void slices_name_any_of_overlapping_registrations(void)
{
	struct ends e = ends_new();
	size_t size = N * BLOCK;
	uint8_t *a = tp_alloc(2 * size), *b = tp_alloc(2 * size);
	static struct work w;
	void *ma[2], *mb[2];

	for (size_t i = 0; i < 2; i++) {
		TP_OK(NET.regMr(e.send, a, (i + 1) * size, 1, 0, &ma[i]));
		TP_OK(NET.regMr(e.recv, b, (i + 1) * size, 1, 0, &mb[i]));
	}
	for (unsigned int i = 0; i < 4; i++) {
		tp_fill(a, 20 + i, 0, size);
		work_fill(&w, FLAGCX_SLICE_OP_WRITE, ma[i / 2], mb[i % 2]);
		TP_OK(NET.iputBatch(e.send, N, w.list));
		TP_WITHIN(30, done(&w) == N);
		TP_EQ(failed(&w), 0);
		TP_CHECK(moved(a, b));
		put_one(&e, ma[i / 2], mb[i % 2]);
		TP_CHECK(!memcmp(a + 1, b + 2, BLOCK));
	}
	ends_free(&e);
}

/* Few slices, but of many bytes: the caller copies none of them by itself. */
static void large_batches_are_left_to_the_workers(void)
{
	enum { LARGE = 8, SIZE = 1 << 20 };
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);
	long (*seen)(const char *) = lib ? (long (*)(const char *))dlsym(lib, "phx_verbs_seen")
					 : NULL;
	struct ends e = ends_new();
	uint8_t *a = tp_alloc(LARGE * SIZE), *b = tp_alloc(LARGE * SIZE);
	static struct work w;
	void *ma, *mb;

	if (!seen)
		tp_skip("not the tests' own libibverbs");
	TP_OK(NET.regMr(e.send, a, LARGE * SIZE, 1, 0, &ma));
	TP_OK(NET.regMr(e.recv, b, LARGE * SIZE, 1, 0, &mb));
	for (uint64_t round = 0; round < 5; round++) {
		tp_fill(a, round, 0, LARGE * SIZE);
		work_fill(&w, FLAGCX_SLICE_OP_WRITE, ma, mb);
		for (uint64_t i = 0; i < LARGE; i++) {
			w.slice[i].srcVa = (uintptr_t)a + i * SIZE;
			w.slice[i].dstVa = (uintptr_t)b + i * SIZE;
			w.slice[i].length = SIZE;
		}
		TP_OK(NET.iputBatch(e.send, LARGE, w.list));
		TP_WITHIN(30, done(&w) == LARGE);
		TP_EQ(failed(&w), 0);
		TP_EQ(tp_differs(b, round, 0, LARGE * SIZE), -1);
		tp_sleep(0.02); /* the workers sleep: who posts by itself can */
	}
	TP_EQ(seen("main_post"), 0);
	ends_free(&e);
}

/* ------------------------------------------------------------- one by one */

static void requests_are_tested(void)
{
	struct ends e = ends_new();
	uint8_t *a = tp_alloc(65536), *b = tp_alloc(65536);
	void *ma, *mb, *request[3] = { 0 };
	int flags[3] = { 0 }, n = -1, size = 0, done_ = 0;

	TP_OK(NET.testBatch(request, 3, flags, &n));
	TP_EQ(n, 3);
	TP_OK(NET.testBatch(NULL, 0, NULL, &n));
	TP_EQ(n, 0);
	TP_OK(NET.regMr(e.send, a, 65536, 1, 0, &ma));
	TP_OK(NET.regMr(e.send, b, 65536, 1, 0, &mb));
	tp_fill(a, 9, 0, 65536);
	memset(b, 0, 65536);
	for (int i = 0; i < 3; i++)
		TP_OK(NET.iput(e.send, (uint64_t)i * 10000, (uint64_t)i * 20000, 10000, 0, 0, ma,
			       mb, &request[i]));
	TP_WITHIN(30, NET.testBatch(request, 3, flags, &n) == flagcxSuccess && n == 3);
	for (int i = 0; i < 3; i++) {
		TP_CHECK(!request[i]);
		TP_EQ(tp_differs(b + i * 20000, 9, (uint64_t)i * 10000, 10000), -1);
	}
	tp_fill(a, 10, 0, 65536);
	TP_OK(NET.iget(e.send, 5, 6, 7777, 0, 0, ma, mb, &request[0]));
	TP_WITHIN(30, NET.test(request[0], &done_, &size) != flagcxSuccess || done_);
	TP_EQ(size, 7777);
	TP_EQ(tp_differs(b + 6, 10, 5, 7777), -1);
	TP_EQ(NET.iput(e.send, 60000, 0, 10000, 0, 0, ma, mb, &request[0]),
	      flagcxInvalidArgument);
	TP_EQ(NET.iputSignal(e.send, 0, 0, 1, 0, 0, ma, mb, 0, NULL, 0, &request[0]),
	      flagcxNotSupported);
	TP_EQ(NET.isend(e.send, a, 1, 0, ma, NULL, &request[0]), flagcxNotSupported);
	TP_EQ(NET.irecv(e.recv, 0, NULL, NULL, NULL, NULL, NULL, NULL), flagcxNotSupported);
	TP_EQ(NET.iflush(e.recv, 0, NULL, NULL, NULL, NULL), flagcxNotSupported);
	ends_free(&e);
}

static void devices_have_names(void)
{
	flagcxNetProperties_t p;
	char name[64], handle[FLAGCX_NET_HANDLE_MAXSIZE] = "not one";
	void *comm, *other;
	pthread_t t;
	struct ends e = { 0 };
	int n = 0, dev = -1;

	need_device();
	TP_OK(NET.devices(&n));
	for (int i = 0; i < n; i++) {
		TP_OK(NET.getProperties(i, &p));
		snprintf(name, sizeof(name), "%s", p.name);
		TP_OK(NET.getDevFromName(name, &dev));
		TP_EQ(dev, i);
		TP_CHECK(p.speed > 0 && p.port == 1 && p.maxMsg > 0);
	}
	TP_EQ(NET.getProperties(n, &p), flagcxInvalidArgument);
	TP_EQ(NET.getDevFromName("none", &dev), flagcxInvalidArgument);
	TP_EQ(NET.connect(0, handle, &comm), flagcxInvalidArgument);
	TP_EQ(NET.listen(n, handle, &comm), flagcxInvalidArgument);
	TP_OK(NET.listen(0, handle, &e.listener));
	TP_EQ(NET.listen(0, handle, &other), flagcxInvalidUsage);
	/* the close of a listener ends who waits at it, and the next one listens */
	e.recv = &e;
	TP_OK(pthread_create(&t, NULL, accept_one, &e));
	tp_sleep(0.1);
	comm = e.listener;
	TP_OK(NET.closeListen(comm));
	pthread_join(t, NULL);
	TP_CHECK(!e.recv);
	TP_OK(NET.listen(0, handle, &e.listener));
	TP_OK(NET.closeListen(e.listener));
}

/* ------------------------------------------------------------- other processes */

static void role_target(int argc, char **argv)
{
	uint8_t *mem = tp_alloc(N * BLOCK);
	unsigned char handle[FLAGCX_NET_HANDLE_MAXSIZE];
	char hex[2 * FLAGCX_NET_HANDLE_MAXSIZE + 1];
	struct flagcxP2pMrHandle *h;
	void *listener, *comm, *mr;

	TP_OK(NET.init());
	TP_OK(NET.listen(0, handle, &listener));
	for (int i = 0; i < FLAGCX_NET_HANDLE_MAXSIZE; i++)
		snprintf(hex + 2 * i, 3, "%02x", handle[i]);
	tp_answer("handle %s", hex);
	TP_OK(NET.accept(listener, &comm));
	TP_OK(NET.regMr(comm, mem, N * BLOCK, 1, 0, &mr));
	h = mr;
	tp_answer("mr %llu %u", (unsigned long long)h->baseVa, h->rkey);
	while (tp_line())
		tp_answer("differs %lld", (long long)tp_differs(mem + 7 * BLOCK, 5, 0,
								(N - 7) * BLOCK));
}

/* A peer that dies ends every slice, none twice. */
static void a_peers_death_ends_every_slice(void)
{
	uint8_t *a = tp_alloc(N * BLOCK);
	struct flagcxP2pMrHandle remote = { .size = N * BLOCK };
	unsigned char handle[FLAGCX_NET_HANDLE_MAXSIZE];
	unsigned long long base;
	struct tp_peer *p;
	static struct work w[8];
	uint64_t all = 0;
	void *comm, *ma;
	char *line;

	need_device();
	p = tp_spawn(NULL, "target", NULL);
	line = tp_hear(p, 30);
	TP_CHECK(!strncmp(line, "handle ", 7));
	for (int i = 0; i < FLAGCX_NET_HANDLE_MAXSIZE; i++) {
		unsigned int byte;

		TP_EQ(sscanf(line + 7 + 2 * i, "%2x", &byte), 1);
		handle[i] = (unsigned char)byte;
	}
	TP_OK(NET.connect(0, handle, &comm));
	TP_EQ(sscanf(tp_hear(p, 30), "mr %llu %u", &base, &remote.rkey), 2);
	remote.baseVa = base;
	TP_OK(NET.regMr(comm, a, N * BLOCK, 1, 0, &ma));
	tp_fill(a, 5, 0, N * BLOCK);
	work_fill(&w[0], FLAGCX_SLICE_OP_WRITE, ma, &remote);
	TP_OK(NET.iputBatch(comm, N, w[0].list));
	TP_WITHIN(30, done(&w[0]) == N);
	TP_EQ(failed(&w[0]), 0);
	tp_say(p, "check");
	TP_CHECK(!strcmp(tp_hear(p, 20), "differs -1"));
	for (int i = 0; i < 8; i++) {
		work_fill(&w[i], i % 2, ma, &remote);
		TP_OK(i % 2 ? NET.igetBatch(comm, N, w[i].list) :
			      NET.iputBatch(comm, N, w[i].list));
	}
	tp_kill(p, SIGKILL);
	for (int i = 0; i < 8; i++)
		TP_WITHIN(30, done(&w[i]) == N);
	/* on a dead one every slice fails at once, and is marked all the same */
	work_fill(&w[0], FLAGCX_SLICE_OP_WRITE, ma, &remote);
	TP_OK(NET.iputBatch(comm, N, w[0].list));
	TP_WITHIN(30, done(&w[0]) == N);
	TP_EQ(failed(&w[0]), N);
	TP_OK(NET.closeSend(comm));
	for (int i = 0; i < 8; i++)
		all += done(&w[i]);
	TP_EQ(all, 8 * N);
}

static const struct tp_case cases[] = {
	TP_CASE(slices_move_both_ways),
	TP_CASE(bad_slices_fail_alone),
	TP_CASE(slices_name_any_of_overlapping_registrations),
	TP_CASE(large_batches_are_left_to_the_workers),
	TP_CASE(requests_are_tested),
	TP_CASE(devices_have_names),
	TP_CASE(a_peers_death_ends_every_slice),
};
static const struct tp_role roles[] = { { "target", role_target } };

TP_MAIN(cases, roles)
