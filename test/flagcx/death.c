// SPDX-License-Identifier: Apache-2.0
/* Peers that die, stop, come back; transfers that are cancelled. */
#include "tp.h"

#include <signal.h>

struct load {
	FlagcxP2pConn *conn;
	uint8_t *mem;
	int n;
	FlagcxP2pMr *mr;
	void **local;
	size_t *size;
	FlagcxP2pRdmaDesc *desc;
};

/* n blocks, one behind the other, of the server's memory. */
static struct load load_new(FlagcxP2pEngine *e, FlagcxP2pConn *c, const struct tp_server *s, int n,
			    size_t block)
{
	struct load l = { c, tp_alloc((size_t)n * block), n, calloc((size_t)n, 8),
			  calloc((size_t)n, sizeof(void *)), calloc((size_t)n, sizeof(size_t)),
			  calloc((size_t)n, sizeof(FlagcxP2pRdmaDesc)) };
	FlagcxP2pMr mr = tp_reg(e, l.mem, (size_t)n * block);

	for (int i = 0; i < n; i++) {
		l.mr[i] = mr;
		l.local[i] = l.mem + (size_t)i * block;
		l.size[i] = block;
		l.desc[i] = tp_desc(s, (uint64_t)i * block, block);
	}
	return l;
}

static int start(struct load *l, bool write, uint64_t *id)
{
	return write ? flagcxP2pEngineWriteVector(l->conn, l->mr, l->local, l->size, l->desc, l->n,
						  id, NULL)
		     : flagcxP2pEngineReadVector(l->conn, l->mr, l->local, l->size, l->desc, l->n,
						 id, NULL);
}

static void load_free(struct load *l, size_t block)
{
	tp_free(l->mem, (size_t)l->n * block);
	free(l->mr);
	free(l->local);
	free(l->size);
	free(l->desc);
}

/* R12: kill -9 during 1,000 x 64 KiB: every transfer ends, soon; gauges zero. */
static void kill_ends_every_transfer(void)
{
	enum { N = 40 };
	FlagcxP2pEngine *e = tp_engine();

	for (int write = 0; write < 2; write++) {
		struct tp_server s;
		struct load l;
		uint64_t id[N];
		double killed;
		FlagcxP2pXferInfo info = { .size = sizeof(info) };
		uint8_t *copy;
		int failed = 0, started = 0;

		tp_serve(&s, 1000 * 65536, 0, NULL);
		l = load_new(e, tp_connect(e, &s), &s, 1000, 65536);
		for (; started < N; started++)
			TP_OK(start(&l, write, &id[started]));
		tp_kill(s.peer, SIGKILL);
		killed = tp_now();
		for (int i = 0; i < N; i++) {
			int rc = flagcxP2pEngineXferWait(l.conn, id[i], tp_ms(20000));

			TP_CHECK(rc == 0 || rc == -ECONNRESET || rc == -EPIPE || rc == -ETIMEDOUT);
			TP_EQ(flagcxP2pEngineXferQuery(l.conn, id[i], &info), -ENOENT);
			failed += rc != 0;
		}
		printf("%s: %d of %d failed, %.3f s after the kill\n", write ? "write" : "read",
		       failed, N, tp_now() - killed);
		TP_CHECK(tp_now() - killed < 20);
		TP_CHECK(failed > 0);
		tp_gauges_zero(e);
		TP_EQ(tp_stats(e).connections, 0);
		/* and from now on nothing touches the memory */
		memset(l.mem, 0x5a, 1000 * 65536);
		copy = malloc(1000 * 65536);
		memset(copy, 0x5a, 1000 * 65536);
		tp_sleep(0.5);
		TP_CHECK(!memcmp(l.mem, copy, 1000 * 65536));
		free(copy);
		TP_CHECK(start(&l, write, &id[0]) < 0);
		TP_EQ(flagcxP2pEngineSendNotif(l.conn, &(FlagcxP2pNotifyMsg){ .name = "" }), -1);
		flagcxP2pEngineConnDestroy(l.conn);
		load_free(&l, 65536);
	}
	flagcxP2pEngineDestroy(e);
}

/* A third peer that is well goes on while another hangs; how fast is the benchmark's to say. */
static void a_healthy_peer_is_not_held_up(void)
{
	struct tp_server well, ill;
	FlagcxP2pEngine *e = tp_engine();
	struct tp_pair pair;
	struct load l;
	uint64_t id;

	tp_serve(&well, 64 * 65536, 0, NULL);
	tp_serve(&ill, 1000 * 65536, 0, NULL);
	tp_pair_start(&pair, e, &well);
	l = load_new(e, tp_connect(e, &ill), &ill, 1000, 65536);
	tp_pair_moves(&pair);
	/* it stops: its kernel still acknowledges, its program does nothing */
	kill(ill.peer->pid, SIGSTOP);
	TP_OK(start(&l, true, &id));
	TP_OK(start(&l, false, &id));
	tp_pair_moves(&pair);
	TP_OK(flagcxP2pEngineConnStatus(l.conn)); /* so it did hang all that time */
	kill(ill.peer->pid, SIGKILL);
	TP_CHECK(flagcxP2pEngineXferWait(l.conn, id, tp_ms(20000)) < 0);
	tp_pair_moves(&pair);
	tp_pair_stop(&pair);
	tp_gauges_zero(e);
	tp_kill(ill.peer, SIGKILL);
	flagcxP2pEngineDestroy(e);
	load_free(&l, 65536);
	tp_quit(well.peer, 20);
}

/* R31: killed and restarted on the same port under load, twenty times. */
static void restarts_are_survived(void)
{
	enum { ROUNDS = 20 };
	FlagcxP2pEngine *e = tp_engine();
	struct tp_server s;
	uint8_t *mem = tp_alloc(1 << 20);
	double worst = 0;
	int port = 0;

	tp_reg(e, mem, 1 << 20);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t local = (uint64_t)(uintptr_t)mem, remote, size = 1 << 20;
		FlagcxP2pRdmaDesc old = s.desc;
		FlagcxP2pConn *c;
		double start_;
		uint64_t id = 0;

		tp_serve(&s, 1 << 20, port, NULL);
		port = s.port;
		remote = s.addr;
		start_ = tp_now();
		for (;;) {
			c = flagcxP2pEngineGetConn(e, s.session);
			if (c && !flagcxP2pRpcBatchReadSync(c, 1, &local, &remote, &size))
				break;
			TP_CHECK(tp_now() - start_ < 20);
		}
		worst = tp_now() - start_ > worst ? tp_now() - start_ : worst;
		TP_EQ(tp_differs(mem, 1, 0, 1 << 20), -1);
		if (i) /* keys of the former life are known for what they are */
			TP_EQ(flagcxP2pEngineRead(c, 1 << 20, mem, 8, old, &id), -ESTALE);
		for (int k = 0; k < 8; k++)
			TP_OK(flagcxP2pRpcBatchStart(c, 1, &local, &remote, &size, k % 2, &id));
		tp_kill(s.peer, SIGKILL);
		TP_CHECK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)) != -ETIMEDOUT);
	}
	printf("worst first transfer after a restart: %.3f s\n", worst);
	TP_WITHIN(20, tp_stats(e).connections == 0);
	TP_WITHIN(20, tp_stats(e).in_flight == 0);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
}

/* The same while nobody is there for a while: tried again, found again. */
static void a_peer_that_comes_back_late_is_found(void)
{
	FlagcxP2pEngine *e = tp_engine();
	struct tp_server s;
	char session[80];
	double start_;
	int port;

	tp_serve(&s, 4096, 0, NULL);
	port = s.port;
	snprintf(session, sizeof(session), "%s", s.session);
	TP_CHECK(flagcxP2pEngineGetConn(e, session) != NULL);
	tp_kill(s.peer, SIGKILL);
	TP_WITHIN(20, tp_stats(e).connections == 0);
	for (int i = 0; i < 10; i++) /* attempts at nobody */
		TP_CHECK(!flagcxP2pEngineGetConn(e, session));
	tp_serve(&s, 4096, port, NULL);
	start_ = tp_now();
	while (!flagcxP2pEngineGetConn(e, session)) {
		TP_CHECK(tp_now() - start_ < 20);
		tp_sleep(0.02);
	}
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

static void role_reader(int argc, char **argv)
{
	FlagcxP2pEngine *e = tp_engine();
	uint64_t remote = strtoull(argv[1], NULL, 0), size = 64 << 20, local, id;
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pConn *c = flagcxP2pEngineGetConn(e, argv[0]);

	TP_CHECK(c != NULL);
	tp_reg(e, mem, size);
	local = (uint64_t)(uintptr_t)mem;
	TP_OK(flagcxP2pRpcBatchStart(c, 1, &local, &remote, &size, 0, &id));
	tp_answer("started");
	TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)));
	tp_answer("done %lld", (long long)tp_differs(mem, 1, 0, size));
	tp_line();
	flagcxP2pEngineDestroy(e);
}

/* R32: readers that die half-way do not spoil the source. */
static void dying_readers_leave_the_source_whole(void)
{
	struct tp_server s;
	char addr[32];
	struct tp_peer *p;
	unsigned int alive;
	double start_;

	tp_serve(&s, 64 << 20, 0, NULL);
	snprintf(addr, sizeof(addr), "%llu", (unsigned long long)s.addr);
	for (int i = 0; i < 10; i++) {
		p = tp_spawn(NULL, "reader", s.session, addr, NULL);
		TP_CHECK(!strcmp(tp_hear(p, 20), "started"));
		tp_kill(p, SIGKILL);
	}
	start_ = tp_now();
	p = tp_spawn(NULL, "reader", s.session, addr, NULL);
	TP_CHECK(!strcmp(tp_hear(p, 20), "started"));
	TP_CHECK(!strcmp(tp_hear(p, 20), "done -1"));
	tp_quit(p, 20);
	do {
		tp_say(s.peer, "stats");
		sscanf(tp_hear(s.peer, 20), "stats %u", &alive);
	} while (alive && tp_now() - start_ < 30);
	TP_EQ(alive, 0);
	tp_quit(s.peer, 20);
}

static void role_mayfly(int argc, char **argv)
{
	FlagcxP2pEngine *e = tp_engine();

	TP_CHECK(flagcxP2pEngineConnect(e, "127.0.0.1", 0, atoi(argv[0]), false) != NULL);
	tp_answer("connected");
	tp_line();
}

/* R21: what dead peers held is given back without anyone asking. */
static void dead_peers_are_reclaimed(void)
{
	struct tp_server s;
	int n = (int)tp_scale(200);
	unsigned int alive = 9;
	char port[16];
	double start_;

	tp_serve(&s, 4096, 0, NULL);
	snprintf(port, sizeof(port), "%d", s.port);
	for (int i = 0; i < n; i += 10) {
		struct tp_peer *p[10];

		for (int k = 0; k < 10; k++)
			p[k] = tp_spawn(NULL, "mayfly", port, NULL);
		for (int k = 0; k < 10; k++)
			TP_CHECK(!strcmp(tp_hear(p[k], 20), "connected"));
		for (int k = 0; k < 10; k++)
			tp_kill(p[k], SIGKILL);
	}
	start_ = tp_now();
	while (alive && tp_now() - start_ < 30) {
		tp_say(s.peer, "stats");
		sscanf(tp_hear(s.peer, 20), "stats %u", &alive);
	}
	TP_EQ(alive, 0);
	tp_quit(s.peer, 20);
}

/* R28: after a cancel returns the buffer is not touched any more. */
static void cancel_leaves_memory_alone(void)
{
	const size_t size = 64 << 20;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size), *want = malloc(size);
	FlagcxP2pMr mr = tp_reg(e, mem, size);
	int cancelled = 0;
	FlagcxP2pConn *c;

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	memset(want, 0x5a, size);
	for (int i = 0; i < (int)tp_scale(40); i++) {
		FlagcxP2pXferInfo info = { .size = sizeof(info) };
		uint64_t id;
		int rc;

		TP_OK(flagcxP2pEngineRead(c, mr, mem, size, s.desc, &id));
		tp_sleep((i % 20) * 0.001);
		TP_OK(flagcxP2pEngineXferCancel(c, id));
		memset(mem, 0x5a, size);
		TP_OK(flagcxP2pEngineXferQuery(c, id, &info));
		TP_EQ(info.quiet, 1);
		TP_CHECK(info.state == FLAGCX_P2P_XFER_CANCELED ||
			 info.state == FLAGCX_P2P_XFER_DONE);
		TP_OK(flagcxP2pEngineXferCancel(c, id)); /* again: nothing to do */
		rc = flagcxP2pEngineXferWait(c, id, 0);
		TP_EQ(rc, info.state == FLAGCX_P2P_XFER_DONE ? 0 : -ECANCELED);
		cancelled += rc != 0;
		tp_sleep(i % 10 ? 0.005 : 0.3);
		TP_CHECK(!memcmp(mem, want, size));
	}
	printf("%d cancelled under way\n", cancelled);
	TP_CHECK(cancelled > 0);
	/* the connection is as good as new, and a cancelled write may be repeated */
	for (int i = 0; i < 10; i++) {
		uint64_t id;

		tp_fill(mem, 7, 0, size);
		TP_OK(flagcxP2pEngineWrite(c, mr, mem, size, s.desc, &id));
		tp_sleep(i * 0.001);
		TP_OK(flagcxP2pEngineXferCancel(c, id));
		memset(mem, 0, size);
		TP_CHECK(flagcxP2pEngineXferStatus(c, id));
	}
	TP_OK(flagcxP2pEngineConnStatus(c));
	tp_gauges_zero(e);
	{
		void *src = mem;

		tp_fill(mem, 8, 0, size);
		TP_OK(flagcxP2pEngineWriteVectorSync(c, &mr, &src, &size, &s.desc, 1));
		tp_server_check(&s, 8, 0, size);
	}
	free(want);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

/* Deregistering at the target while peers write: it returns, and then nothing is touched. */
static void deregistering_under_fire_is_safe(void)
{
	const size_t size = 8 << 20;
	FlagcxP2pEngine *a = tp_engine(), *b = tp_engine();
	uint8_t *from = tp_alloc(size), *to = tp_alloc(size), *want = malloc(size);
	FlagcxP2pMr ma = tp_reg(a, from, size);
	FlagcxP2pConn *c = flagcxP2pEngineConnect(a, "::1", 0, flagcxP2pEngineGetRpcPort(b), true);

	memset(want, 0x77, size);
	for (int i = 0; i < (int)tp_scale(100); i++) {
		FlagcxP2pMr mb = tp_reg(b, to, size);
		FlagcxP2pRdmaDesc d;
		uint64_t id;
		int rc;

		TP_OK(flagcxP2pEngineMakeDesc(c, (uintptr_t)to, (uint32_t)size, &d));
		TP_OK(i % 2 ? flagcxP2pEngineRead(c, ma, from, size, d, &id) :
			      flagcxP2pEngineWrite(c, ma, from, size, d, &id));
		tp_sleep((i % 10) * 0.0004);
		flagcxP2pEngineMrDestroy(b, mb);
		memset(to, 0x77, size);
		rc = flagcxP2pEngineXferWait(c, id, tp_ms(10000));
		TP_CHECK(rc == 0 || rc == -ESTALE);
		TP_CHECK(!memcmp(to, want, size));
	}
	flagcxP2pEngineDestroy(a);
	flagcxP2pEngineDestroy(b);
	free(want);
}

/* R30: a wait never outlasts its deadline; the outcome may come later. */
static void waits_keep_their_deadline(void)
{
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	struct load l;
	FlagcxP2pXferInfo info = { .size = sizeof(info) };
	double start_;
	uint64_t id;

	tp_serve(&s, 256 << 20, 0, NULL);
	l = load_new(e, tp_connect(e, &s), &s, 256, 1 << 20);
	kill(s.peer->pid, SIGSTOP);
	TP_OK(start(&l, true, &id));
	for (int ms = 0; ms <= 200; ms += 50) {
		start_ = tp_now();
		TP_EQ(flagcxP2pEngineXferWait(l.conn, id, ms), -ETIMEDOUT);
		TP_CHECK(tp_now() - start_ >= ms * 0.001 - 0.001);
		TP_CHECK(tp_now() - start_ < ms * 0.001 + 10);
		TP_OK(flagcxP2pEngineXferQuery(l.conn, id, &info));
		TP_EQ(info.state, FLAGCX_P2P_XFER_PENDING);
		TP_EQ(info.quiet, 0);
	}
	kill(s.peer->pid, SIGCONT);
	TP_OK(flagcxP2pEngineXferWait(l.conn, id, tp_ms(20000)));
	flagcxP2pEngineDestroy(e);
	load_free(&l, 1 << 20);
	tp_quit(s.peer, 20);
}

/* Memory that its program unmaps while registered: an error, not a crash. */
static void role_unmapper(int argc, char **argv)
{
	FlagcxP2pEngine *e = tp_engine();
	size_t size = 4 << 20;
	uint8_t *mem = tp_alloc(size);

	tp_reg(e, mem, size);
	TP_OK(flagcxP2pEngineStartRpcServer(e));
	tp_free(mem, size);
	tp_answer("%d %llu", flagcxP2pEngineGetRpcPort(e), (unsigned long long)(uintptr_t)mem);
	tp_line();
	flagcxP2pEngineDestroy(e);
}

static void unmapped_memory_is_an_error(void)
{
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(4 << 20);
	struct tp_peer *p = tp_spawn(NULL, "unmapper", NULL);
	uint64_t local = (uint64_t)(uintptr_t)mem, size = 4 << 20;
	unsigned long long remote;
	char session[64];
	FlagcxP2pConn *c;
	int port;

	tp_reg(e, mem, 4 << 20);
	TP_EQ(sscanf(tp_hear(p, 20), "%d %llu", &port, &remote), 2);
	snprintf(session, sizeof(session), "127.0.0.1:%d", port);
	c = flagcxP2pEngineGetConn(e, session);
	TP_CHECK(c != NULL);
	TP_CHECK(flagcxP2pRpcBatchReadSync(c, 1, &local, &(uint64_t){ remote }, &size) < 0);
	tp_gauges_zero(e);
	tp_quit(p, 20);
	flagcxP2pEngineDestroy(e);
}

static const struct tp_case cases[] = {
	TP_CASE(kill_ends_every_transfer),
	TP_CASE(a_healthy_peer_is_not_held_up, .env = "FLAGCX_P2P_LIVENESS_MS=60000",
		.timeout = 120),
	TP_CASE(restarts_are_survived, .timeout = 120),
	TP_CASE(a_peer_that_comes_back_late_is_found, .env = "FLAGCX_P2P_CONNECT_MS=1000"),
	TP_CASE(dying_readers_leave_the_source_whole, .timeout = 120),
	TP_CASE(dead_peers_are_reclaimed, .timeout = 120),
	TP_CASE(cancel_leaves_memory_alone),
	TP_CASE(deregistering_under_fire_is_safe),
	TP_CASE(waits_keep_their_deadline, .env = "FLAGCX_P2P_LIVENESS_MS=60000"),
	TP_CASE(unmapped_memory_is_an_error),
};
static const struct tp_role roles[] = {
	TP_SERVER,
	{ "reader", role_reader },
	{ "mayfly", role_mayfly },
	{ "unmapper", role_unmapper },
};

TP_MAIN(cases, roles)
