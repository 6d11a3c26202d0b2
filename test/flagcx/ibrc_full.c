// SPDX-License-Identifier: Apache-2.0
/*
 * The RDMA transport with its queues full, and with peers that die over and over.
 * Over the tests' own libibverbs (test/fake/verbs.c) an overflow ends the process;
 * over a device it is an event that costs the device, and shows in the log and in
 * the bytes that go by RDMA.
 *
 *   PHX_KILL_ROUNDS=N  how many peers are killed (6); from 200 on, each within 5 s
 */
#include "tp.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { CONNS = 64,
       PATHS = 4,
       DEPTH = 64,
       BLOCKS = 300,
       BLOCK = 1024 };

/* ----------------------------------------------------------------- the library */

/* A call of whatever libibverbs there is; NULL: it has none of that name. */
static void *verb(const char *name)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);

	return lib ? dlsym(lib, name) : NULL;
}

#define VERB(name) ((__typeof__(&name))verb(#name))

static bool mocked(void)
{
	return verb("phx_verbs_hold") != NULL;
}

static void hold(int what)
{
	((void (*)(int))verb("phx_verbs_hold"))(what);
}

static long held(const char *where)
{
	return ((long (*)(const char *))verb("phx_verbs_held"))(where);
}

static void inject(const char *text)
{
	((void (*)(const char *))verb("phx_verbs_fail"))(text);
}

/* ---------------------------------------------------- that a check can fail */

/* Post n requests to a queue pair of depth sq whose completions go to a queue of cqe. */
static void post_into(int sq, int cqe, int n)
{
	struct ibv_device **list = VERB(ibv_get_device_list)(NULL);
	struct ibv_context *ctx = VERB(ibv_open_device)(list[0]);
	struct ibv_pd *pd = VERB(ibv_alloc_pd)(ctx);
	struct ibv_cq *cq = VERB(ibv_create_cq)(ctx, cqe, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq,
					 .recv_cq = cq,
					 .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = (uint32_t)sq } };
	struct ibv_qp *qp = VERB(ibv_create_qp)(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	VERB(ibv_modify_qp)(qp, &attr, IBV_QP_STATE);
	for (int i = 0; i < n; i++) {
		struct ibv_sge sge = { 0 };
		struct ibv_send_wr *bad, wr = { .sg_list = &sge,
						.num_sge = 1,
						.opcode = IBV_WR_RDMA_WRITE,
						.send_flags = IBV_SEND_SIGNALED };

		if (ibv_post_send(qp, &wr, &bad))
			_exit(2);
	}
	tp_sleep(5); /* the other thread's turn; the test waits for its end */
	_exit(0);
}

static int fate_of(int sq, int cqe, int n)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		freopen("/dev/null", "w", stderr);
		post_into(sq, cqe, n);
	}
	TP_EQ(waitpid(pid, &status, 0), pid);
	return status;
}

static void an_overflow_is_noticed(void)
{
	int status;

	if (!mocked())
		tp_skip("not the tests' own libibverbs");
	status = fate_of(8, 8, 8);
	TP_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	status = fate_of(8, 4, 8); /* completions */
	TP_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	status = fate_of(4, 16, 8); /* requests */
	TP_CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ------------------------------------------------------------- full queues */

static char warned[256];
static _Atomic int warnings;

static void listen_to(void *arg, int level, const char *line)
{
	if (level == FLAGCX_P2P_LOG_WARN && !warnings++)
		snprintf(warned, sizeof(warned), "%s", line);
}

struct crowd {
	FlagcxP2pEngine *e;
	struct tp_server s;
	FlagcxP2pConn *c[CONNS];
	uint64_t id[CONNS];
	FlagcxP2pMr mr;
	uint8_t *mem;
	size_t size;
};

static void crowd_new(struct crowd *k)
{
	char text[256];

	k->e = tp_engine();
	k->size = (size_t)CONNS * BLOCKS * BLOCK;
	k->mem = tp_alloc(k->size);
	k->mr = tp_reg(k->e, k->mem, k->size);
	tp_serve(&k->s, k->size, 0, NULL);
	for (int i = 0; i < CONNS; i++) {
		k->c[i] = tp_connect(k->e, &k->s);
		TP_OK(flagcxP2pEngineConnTransport(k->c[i], text, sizeof(text)));
		if (!strncmp(text, "tcp", 3))
			tp_skip("no RDMA device");
	}
	/* a path takes its share only when its queue pair stands */
	for (int i = 0; i < CONNS; i++)
		TP_WITHIN(60, !flagcxP2pEngineConnTransport(k->c[i], text, sizeof(text)) &&
				      !strncmp(text, "ibrc: 4 of 4 ", 13));
}

/* On every conn more blocks than its queues hold. */
static void crowd_start(struct crowd *k, bool write)
{
	static FlagcxP2pMr mr[BLOCKS];
	static void *at[BLOCKS];
	static size_t size[BLOCKS];
	static FlagcxP2pRdmaDesc d[BLOCKS];

	for (int i = 0; i < CONNS; i++) {
		for (int b = 0; b < BLOCKS; b++) {
			size_t off = ((size_t)i * BLOCKS + (size_t)b) * BLOCK;

			mr[b] = k->mr;
			at[b] = k->mem + off;
			size[b] = BLOCK;
			d[b] = tp_desc(&k->s, off, BLOCK);
		}
		TP_OK(write ? flagcxP2pEngineWriteVector(k->c[i], mr, at, size, d, BLOCKS,
							 &k->id[i], NULL)
			    : flagcxP2pEngineReadVector(k->c[i], mr, at, size, d, BLOCKS,
							&k->id[i], NULL));
	}
}

static void crowd_wait(struct crowd *k)
{
	for (int i = 0; i < CONNS; i++)
		TP_OK(flagcxP2pEngineXferWait(k->c[i], k->id[i], tp_ms(120000)));
	tp_gauges_zero(k->e);
}

static void crowd_end(struct crowd *k)
{
	for (int i = 0; i < CONNS; i++)
		flagcxP2pEngineConnDestroy(k->c[i]);
	flagcxP2pEngineDestroy(k->e);
	tp_free(k->mem, k->size);
	tp_quit(k->s.peer, 60);
}

/* Every byte by RDMA, both ways, with all queues full all the time. */
static void sixty_four_connections_fill_their_queues(void)
{
	struct crowd k;

	flagcxP2pSetLog(listen_to, NULL, FLAGCX_P2P_LOG_WARN);
	crowd_new(&k);
	for (int round = 0; round < 2; round++) {
		tp_fill(k.mem, 40 + (uint64_t)round, 0, k.size);
		crowd_start(&k, true);
		crowd_wait(&k);
		tp_server_check(&k.s, 40 + (uint64_t)round, 0, k.size);
		memset(k.mem, 0, k.size);
		crowd_start(&k, false);
		crowd_wait(&k);
		TP_EQ(tp_differs(k.mem, 40 + (uint64_t)round, 0, k.size), -1);
	}
	/* no queue pair was lost, no device: nothing went another way */
	TP_EQ(tp_stats(k.e).rdma_bytes, 4 * k.size);
	if (warnings)
		TP_FAIL("%d warnings, the first: %s", warnings, warned);
	crowd_end(&k);
}

/*
 * The worst that can be: every send queue is full, then every queue pair fails, which
 * completes each of their requests, and nobody looks at a completion meanwhile.
 */
static void all_of_them_fail_at_once(void)
{
	struct crowd k;

	if (!mocked())
		tp_skip("not the tests' own libibverbs");
	crowd_new(&k);
	tp_fill(k.mem, 50, 0, k.size);
	hold(1);
	crowd_start(&k, true);
	TP_WITHIN(60, held("sq") == CONNS * PATHS * DEPTH);
	TP_EQ(held("cq"), 0);
	inject("wc:1:12:1000000");
	hold(2);
	TP_WITHIN(60, held("cq") == CONNS * PATHS * DEPTH);
	inject("");
	hold(0);
	crowd_wait(&k);
	TP_EQ(held("cq"), 0);
	tp_server_check(&k.s, 50, 0, k.size);
	crowd_end(&k);
}

static FlagcxP2pConn *connect_up(FlagcxP2pEngine *e, struct tp_server *s)
{
	FlagcxP2pConn *c = tp_connect(e, s);
	char text[256];

	TP_WITHIN(60, !flagcxP2pEngineConnTransport(c, text, sizeof(text)) &&
			      !strncmp(text, "ibrc: 1 of 1 ", 13));
	return c;
}

/*
 * The queue's one user is stopped before the device has flushed it. What the flush
 * leaves may not take the next one's room.
 */
static void a_late_flush_takes_no_room_from_the_next(void)
{
	size_t size = (size_t)BLOCKS * BLOCK;
	static FlagcxP2pMr mr[BLOCKS];
	static void *at[BLOCKS];
	static size_t sizes[BLOCKS];
	static FlagcxP2pRdmaDesc d[BLOCKS];
	struct tp_server s;
	FlagcxP2pEngine *e;
	FlagcxP2pConn *c;
	uint8_t *mem;
	uint64_t id;

	if (!mocked())
		tp_skip("not the tests' own libibverbs");
	e = tp_engine();
	mem = tp_alloc(size);
	mr[0] = tp_reg(e, mem, size);
	tp_serve(&s, size, 0, NULL);
	for (size_t b = 0; b < BLOCKS; b++) {
		mr[b] = mr[0];
		at[b] = mem + b * BLOCK;
		sizes[b] = BLOCK;
		d[b] = tp_desc(&s, b * BLOCK, BLOCK);
	}
	c = connect_up(e, &s);
	hold(1);
	TP_OK(flagcxP2pEngineWriteVector(c, mr, at, sizes, d, BLOCKS, &id, NULL));
	TP_WITHIN(60, held("sq") == DEPTH);
	flagcxP2pEngineConnDestroy(c);
	TP_EQ(held("cq"), 0);
	hold(0);
	c = connect_up(e, &s);
	tp_fill(mem, 60, 0, size);
	TP_OK(flagcxP2pEngineWriteVectorSync(c, mr, at, sizes, d, BLOCKS));
	tp_server_check(&s, 60, 0, size);
	flagcxP2pEngineDestroy(e);
	tp_free(mem, size);
	tp_quit(s.peer, 60);
}

/* ---------------------------------------------------------------- deaths */

struct mortal {
	FlagcxP2pEngine *e;
	FlagcxP2pMr mr;
	uint8_t *mem;
	size_t size;
};

/* A peer that is killed under load at a time of chance: how long its transfers lasted. */
static double kill_one(struct mortal *m, int round)
{
	enum { N = 6 };
	struct tp_server s;
	FlagcxP2pConn *c;
	uint64_t id[N];
	void *at = m->mem;
	double killed, took;

	tp_serve(&s, m->size, 0, NULL);
	c = tp_connect(m->e, &s);
	for (int i = 0; i < N; i += 2) {
		TP_OK(flagcxP2pEngineRead(c, m->mr, m->mem, m->size, s.desc, &id[i]));
		TP_OK(flagcxP2pEngineWriteVectorPolicy(c, &m->mr, &at, &m->size, &s.desc, 1,
						       FLAGCX_P2P_POLICY_CONNECTOR, &id[i + 1]));
	}
	tp_sleep((round * 37 % 50) * 0.0005);
	tp_kill(s.peer, SIGKILL);
	killed = tp_now();
	for (int i = 0; i < N; i++)
		TP_CHECK(flagcxP2pEngineXferWait(c, id[i], tp_ms(60000)) != -ETIMEDOUT ||
			 flagcxP2pEngineXferStatus(c, id[i]));
	took = tp_now() - killed;
	flagcxP2pEngineConnDestroy(c);
	return took;
}

static void killed_peers_lose_no_completion(void)
{
	const char *asked = getenv("PHX_KILL_ROUNDS");
	int rounds = asked ? atoi(asked) : 6;
	struct mortal m = { .e = tp_engine(), .size = 4 << 20 };
	struct tp_server well;
	FlagcxP2pConn *c;
	double worst = 0;
	uint64_t moved = 0;

	m.mem = tp_alloc(m.size);
	m.mr = tp_reg(m.e, m.mem, m.size);
	tp_serve(&well, m.size, 0, NULL);
	c = tp_connect(m.e, &well);
	for (int i = 0; i < rounds; i++) {
		double took = kill_one(&m, i);
		void *at = m.mem;
		uint64_t before;

		worst = took > worst ? took : worst;
		TP_WITHIN(30, tp_stats(m.e).connections == 1);
		tp_gauges_zero(m.e);
		/* the one that is well has its queues as before */
		tp_fill(m.mem, (uint64_t)i, 0, m.size);
		before = tp_stats(m.e).rdma_bytes;
		TP_OK(flagcxP2pEngineWriteVectorSync(c, &m.mr, &at, &m.size, &well.desc, 1));
		moved += tp_stats(m.e).rdma_bytes - before;
		tp_server_check(&well, (uint64_t)i, 0, m.size);
	}
	printf("%d peers killed: transfers ended within %.3f s\n", rounds, worst);
	if (rounds >= 200)
		TP_CHECK(worst <= 5);
	/* without a device it all went by TCP, which is another test's matter */
	if (moved)
		TP_EQ(moved, (uint64_t)rounds * m.size);
	flagcxP2pEngineDestroy(m.e);
	tp_quit(well.peer, 20);
}

static const struct tp_case cases[] = {
	TP_CASE(an_overflow_is_noticed),
	TP_CASE(sixty_four_connections_fill_their_queues, .timeout = 300),
	/* nothing is to give up while the queues are held */
	TP_CASE(all_of_them_fail_at_once,
		.env = "FLAGCX_IB_TIMEOUT=20 FLAGCX_P2P_STALL_MS=300000", .timeout = 300),
	TP_CASE(a_late_flush_takes_no_room_from_the_next,
		.env = "FLAGCX_P2P_QPS_PER_CONN=1 FLAGCX_P2P_MAX_REQUESTS=64 "
		       "FLAGCX_P2P_CQ_DEPTH=64 FLAGCX_P2P_WORKERS_PER_POOL=1 "
		       "FLAGCX_IB_TIMEOUT=20 FLAGCX_P2P_STALL_MS=300000",
		.timeout = 120),
	TP_CASE(killed_peers_lose_no_completion, .timeout = 1200),
};
static const struct tp_role roles[] = { TP_SERVER };

TP_MAIN(cases, roles)
