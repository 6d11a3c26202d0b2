// SPDX-License-Identifier: Apache-2.0
/* Large counts: blocks, engines, processes, threads. */
#include "tp.h"

#include <pthread.h>
#include <signal.h>

struct blocks {
	int n;
	FlagcxP2pMr *mr;
	void **local;
	size_t *size;
	FlagcxP2pRdmaDesc *desc;
};

static struct blocks blocks_new(int n)
{
	return (struct blocks){ n, calloc((size_t)n, 8), calloc((size_t)n, sizeof(void *)),
				calloc((size_t)n, sizeof(size_t)),
				calloc((size_t)n, sizeof(FlagcxP2pRdmaDesc)) };
}

static void blocks_free(struct blocks *b)
{
	free(b->mr);
	free(b->local);
	free(b->size);
	free(b->desc);
}

static int start(FlagcxP2pConn *c, struct blocks *b, bool write, uint64_t *id)
{
	return write ? flagcxP2pEngineWriteVector(c, b->mr, b->local, b->size, b->desc, b->n, id,
						  NULL)
		     : flagcxP2pEngineReadVector(c, b->mr, b->local, b->size, b->desc, b->n, id,
						 NULL);
}

/* Returns the processor time that starting took, in seconds. */
static double move_blocks(FlagcxP2pConn *c, struct blocks *b, bool write)
{
	size_t before = tp_rss(), most = 0;
	double t = tp_now(), cpu = tp_thread_cpu(), submitted;
	uint64_t id;

	TP_OK(start(c, b, write, &id));
	cpu = tp_thread_cpu() - cpu;
	submitted = tp_now() - t;
	do {
		size_t now = tp_rss();

		most = now > most ? now : most;
	} while (flagcxP2pEngineXferWait(c, id, 5) == -ETIMEDOUT);
	printf("%s %d x %zu: submitted in %.1f ms (%.1f of CPU), done in %.1f ms, "
	       "%.1f MiB more memory\n",
	       write ? "write" : "read", b->n, b->size[0], submitted * 1e3, cpu * 1e3,
	       (tp_now() - t) * 1e3, (double)(most > before ? most - before : 0) / 1048576);
	if (!tp_sanitized()) {
		TP_CHECK(most < before + (64 << 20));
		TP_CHECK(tp_now() - t <= 30 * tp_slow());
	}
	return cpu;
}

/* R23, R37: 100,000 scattered blocks in one call, both ways. */
static void scattered(size_t block)
{
	const int n = 100000;
	const size_t size = (size_t)n * 4096;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pMr mr = tp_reg(e, mem, size);
	struct blocks b = blocks_new(n);
	FlagcxP2pConn *c;

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	memset(mem, 0, size);
	for (int i = 0; i < n; i++) {
		b.mr[i] = mr;
		b.local[i] = mem + (size_t)((uint64_t)i * 7919 % (uint64_t)n) * 4096;
		b.size[i] = block;
		b.desc[i] = tp_desc(&s, (uint64_t)i * 4096, block);
	}
	for (int write = 0; write < 2; write++) {
		int tries = 1;

		if (write)
			for (int i = 0; i < n; i++)
				tp_fill(b.local[i], 6, (uint64_t)i * 4096, block);
		/* what else runs on an emulated processor counts as the caller's time */
		while (move_blocks(c, &b, write) > 0.050 * tp_slow() && !tp_sanitized())
			TP_CHECK(tries++ < 3);
		if (write) {
			for (int i = 0; i < n; i += 991)
				tp_server_check(&s, 6, (uint64_t)i * 4096, block);
		} else {
			for (int i = 0; i < n; i++)
				TP_EQ(tp_differs(b.local[i], 1, (uint64_t)i * 4096, block), -1);
		}
	}
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	blocks_free(&b);
	tp_quit(s.peer, 20);
}

static void a_hundred_thousand_pages(void)
{
	scattered(4096);
}

static void a_hundred_thousand_bytes(void)
{
	scattered(1);
}

/* R27: many transfers, some of which fail, leave nothing behind. */
static void transfers_leave_nothing_behind(void)
{
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(4096);
	FlagcxP2pMr mr = tp_reg(e, mem, 4096);
	long rounds = tp_scale(30000);
	FlagcxP2pRdmaDesc bad;
	FlagcxP2pConn *c;
	size_t rss = 0;

	tp_serve(&s, 4096, 0, NULL);
	c = tp_connect(e, &s);
	bad = s.desc;
	bad.rkey++;
	for (long i = 0; i < rounds; i++) {
		uint64_t id;

		TP_OK(flagcxP2pEngineRead(c, mr, mem, 64, i % 10 ? s.desc : bad, &id));
		TP_EQ(flagcxP2pEngineXferWait(c, id, 5000), i % 10 ? 0 : -EACCES);
		if (i == rounds / 10)
			rss = tp_rss();
	}
	if (!tp_sanitized())
		TP_CHECK(tp_rss() < rss + (2 << 20));
	TP_EQ(tp_stats(e).xfers, rounds);
	TP_EQ(tp_stats(e).xfers_failed, (rounds + 9) / 10);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

/* Engine i of this process writes to engine i + 1; any may go at any time. */
static void engines_do_not_disturb_each_other(void)
{
	enum { N = 64 };
	const size_t size = 1 << 20;
	FlagcxP2pEngine *e[N];
	FlagcxP2pConn *c[N];
	uint8_t *mem[N];
	FlagcxP2pMr mr[N];
	uint64_t id[N];

	for (int i = 0; i < N; i++) {
		e[i] = tp_engine();
		mem[i] = tp_alloc(2 * size);
		mr[i] = tp_reg(e[i], mem[i], 2 * size);
		tp_fill(mem[i], (uint64_t)i, 0, size);
	}
	for (int i = 0; i < N; i++) {
		c[i] = flagcxP2pEngineConnect(e[i], "127.0.0.1", 0,
					      flagcxP2pEngineGetRpcPort(e[(i + 1) % N]), true);
		TP_CHECK(c[i] != NULL);
	}
	for (int round = 0; round < 3; round++) {
		/* each time half of those left go, while the others transfer */
		int step = 1 << round;

		for (int i = 0; i < N; i += step) {
			FlagcxP2pRdmaDesc d;
			int to = (i + 1) % N;

			if (to % step)
				continue; /* it has gone before */
			TP_OK(flagcxP2pEngineMakeDesc(c[i], (uintptr_t)mem[to] + size,
						      (uint32_t)size, &d));
			TP_OK(flagcxP2pEngineWrite(c[i], mr[i], mem[i], size, d, &id[i]));
		}
		for (int i = step; i < N; i += 2 * step) {
			flagcxP2pEngineDestroy(e[i]);
			e[i] = NULL;
		}
		for (int i = 0; i < N; i += 2 * step) {
			FlagcxP2pXferInfo info = { .size = sizeof(info) };

			if (round == 0) {
				int rc = flagcxP2pEngineXferWait(c[i], id[i], tp_ms(10000));

				TP_CHECK(rc == 0 || rc == -ECONNRESET || rc == -EPIPE);
			}
			TP_OK(flagcxP2pEngineStats(e[i], &(FlagcxP2pStats){
								 .size = sizeof(FlagcxP2pStats) }));
			(void)info;
		}
		/* who is left connects anew and moves bytes */
		for (int i = 0; i < N; i += 2 * step) {
			int to = (i + 2 * step) % N;
			FlagcxP2pRdmaDesc d;
			void *src = mem[i];

			flagcxP2pEngineConnDestroy(c[i]);
			c[i] = flagcxP2pEngineConnect(e[i], "127.0.0.1", 0,
						      flagcxP2pEngineGetRpcPort(e[to]), true);
			TP_CHECK(c[i] != NULL);
			TP_OK(flagcxP2pEngineMakeDesc(c[i], (uintptr_t)mem[to] + size,
						      (uint32_t)size, &d));
			TP_OK(flagcxP2pEngineWriteVectorSync(c[i], &mr[i], &src, &size, &d, 1));
			TP_EQ(tp_differs(mem[to] + size, (uint64_t)i, 0, size), -1);
		}
	}
	for (int i = 0; i < N; i++)
		flagcxP2pEngineDestroy(e[i]);
}

static void role_node(int argc, char **argv)
{
	const size_t size = 256 << 10;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(2 * size);
	uint64_t local = (uint64_t)(uintptr_t)mem, seed = strtoull(argv[0], NULL, 0);
	unsigned long long remote;
	char session[80], *line;

	tp_fill(mem, seed, 0, size);
	tp_reg(e, mem, 2 * size);
	TP_OK(flagcxP2pEngineStartRpcServer(e));
	tp_answer("127.0.0.1:%d %llu", flagcxP2pEngineGetRpcPort(e),
		  (unsigned long long)(uintptr_t)(mem + size));
	while ((line = tp_line()) != NULL && strcmp(line, "quit")) {
		if (sscanf(line, "write %79s %llu", session, &remote) == 2) {
			FlagcxP2pConn *c = flagcxP2pEngineGetConn(e, session);

			tp_answer("wrote %d", c ? flagcxP2pRpcBatchWriteSync(
							  c, 1, &local, &(uint64_t){ remote },
							  &(uint64_t){ size })
						: -errno);
		} else if (sscanf(line, "check %llu", &remote) == 1) {
			tp_answer("differs %lld",
				  (long long)tp_differs(mem + size, remote, 0, size));
		}
	}
	flagcxP2pEngineDestroy(e);
}

/* 64 processes in a ring, all writing at once; then every other one is killed. */
static void processes_do_not_disturb_each_other(void)
{
	enum { N = 64 };
	struct tp_peer *p[N];
	char where[N][128];

	for (int i = 0; i < N; i++) {
		char seed[16];

		snprintf(seed, sizeof(seed), "%d", i + 1);
		p[i] = tp_spawn(NULL, "node", seed, NULL);
	}
	for (int i = 0; i < N; i++)
		snprintf(where[i], sizeof(where[i]), "%s", tp_hear(p[i], 60));
	for (int i = 0; i < N; i++)
		tp_say(p[i], "write %s", where[(i + 1) % N]);
	for (int i = 0; i < N; i++)
		TP_CHECK(!strcmp(tp_hear(p[i], 60), "wrote 0"));
	for (int i = 0; i < N; i++)
		tp_say(p[i], "check %d", (i + N - 1) % N + 1);
	for (int i = 0; i < N; i++)
		TP_CHECK(!strcmp(tp_hear(p[i], 60), "differs -1"));
	for (int i = 1; i < N; i += 2)
		tp_kill(p[i], SIGKILL);
	for (int i = 0; i < N; i += 2)
		tp_say(p[i], "write %s", where[(i + 2) % N]);
	for (int i = 0; i < N; i += 2)
		TP_CHECK(!strcmp(tp_hear(p[i], 60), "wrote 0"));
	for (int i = 0; i < N; i += 2)
		tp_quit(p[i], 20);
}

/* R38: polling, connecting, registering, transferring, notifying, all at once. */
struct storm {
	FlagcxP2pEngine *e;
	struct tp_server *s;
	FlagcxP2pConn *shared;
	uint8_t *mem;
	FlagcxP2pMr mr;
	_Atomic bool stop;
	_Atomic long work[4];
};

static void *storm_transfer(void *arg)
{
	struct storm *st = arg;

	while (!st->stop) {
		uint64_t id[4];

		for (int i = 0; i < 4; i++)
			TP_OK(flagcxP2pEngineRead(st->shared, st->mr, st->mem, 65536, st->s->desc,
						  &id[i]));
		for (int i = 0; i < 3; i++)
			while (!flagcxP2pEngineXferStatus(st->shared, id[i]))
				;
		TP_OK(flagcxP2pEngineXferWait(st->shared, id[3], -1));
		st->work[0]++;
	}
	return NULL;
}

static void *storm_connect(void *arg)
{
	struct storm *st = arg;

	while (!st->stop) {
		FlagcxP2pConn *c = tp_connect(st->e, st->s);
		uint64_t id;

		TP_OK(flagcxP2pEngineWrite(c, st->mr, st->mem, 65536, st->s->desc, &id));
		flagcxP2pEngineConnDestroy(c);
		st->work[1]++;
	}
	return NULL;
}

static void *storm_register(void *arg)
{
	struct storm *st = arg;
	uint8_t *mem = tp_alloc(1 << 20);

	while (!st->stop) {
		FlagcxP2pMr mr = tp_reg(st->e, mem, 1 << 20);
		char desc[FLAGCX_P2P_DESC_SIZE];

		TP_OK(flagcxP2pEnginePrepareDesc(st->e, mr, mem, 100, desc));
		flagcxP2pEngineMrDestroy(st->e, mr);
		st->work[2]++;
	}
	return NULL;
}

static void *storm_notify(void *arg)
{
	struct storm *st = arg;

	while (!st->stop) {
		FlagcxP2pRdmaDesc d;

		TP_OK(flagcxP2pEngineSendNotifV(st->shared, "s", 1, "m", 1));
		TP_OK(flagcxP2pEngineMakeDesc(st->shared, st->s->addr, 100, &d));
		if (++st->work[3] % 1000 == 0)
			tp_sleep(0.01);
	}
	return NULL;
}

static void everything_at_once(void)
{
	static void *(*const fns[])(void *) = { storm_transfer, storm_transfer, storm_transfer,
						storm_transfer, storm_connect, storm_connect,
						storm_register, storm_register, storm_notify };
	enum { N = sizeof(fns) / sizeof(fns[0]) };
	struct tp_server s;
	struct storm st = { .e = tp_engine(), .s = &s, .mem = tp_alloc(65536) };
	double until;
	pthread_t t[N];

	st.mr = tp_reg(st.e, st.mem, 65536);
	tp_serve(&s, 1 << 20, 0, NULL);
	st.shared = tp_connect(st.e, &s);
	for (int i = 0; i < N; i++)
		pthread_create(&t[i], NULL, fns[i], &st);
	until = tp_now() + (double)tp_scale(10);
	while (tp_now() < until) {
		tp_say(s.peer, "notifs"); /* so that there is credit */
		tp_hear(s.peer, 20);
		tp_sleep(0.05);
	}
	st.stop = true;
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	printf("%ld transfers x 4, %ld connections, %ld registrations, %ld notifications\n",
	       st.work[0], st.work[1], st.work[2], st.work[3]);
	for (int i = 0; i < 4; i++)
		TP_CHECK(st.work[i] > 0);
	tp_gauges_zero(st.e);
	flagcxP2pEngineDestroy(st.e);
	tp_quit(s.peer, 10);
}

static const struct tp_case cases[] = {
	TP_CASE(a_hundred_thousand_pages, .timeout = 120),
	TP_CASE(a_hundred_thousand_bytes, .timeout = 120),
	TP_CASE(transfers_leave_nothing_behind, .timeout = 120),
	TP_CASE(engines_do_not_disturb_each_other, .timeout = 120),
	TP_CASE(processes_do_not_disturb_each_other, .timeout = 180),
	TP_CASE(everything_at_once, .timeout = 120),
};
static const struct tp_role roles[] = { TP_SERVER, { "node", role_node } };

TP_MAIN(cases, roles)
