// SPDX-License-Identifier: Apache-2.0
/*
 * The RDMA transport, over whatever libibverbs the process finds: a device of
 * the kernel's, or the tests' own library (test/fake/verbs.c), which can fail
 * in every place. What needs failures is skipped with the former.
 */
#include "tp.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/mman.h>

/* --------------------------------------------------------------------- faults */

static void *fake(const char *name)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);
	void *symbol = lib ? dlsym(lib, name) : NULL;

	if (!symbol)
		tp_skip("not the tests' own libibverbs");
	return symbol;
}

static void inject(const char *text)
{
	((void (*)(const char *))fake("phx_verbs_fail"))(text);
}

static void event(int type)
{
	((void (*)(int))fake("phx_verbs_event"))(type);
}

static void event_on(int device, int type)
{
	((void (*)(int, int))fake("phx_verbs_event_on"))(device, type);
}

static long calls(const char *name)
{
	return ((long (*)(const char *))fake("phx_verbs_calls"))(name);
}

static long seen(const char *name)
{
	return ((long (*)(const char *))fake("phx_verbs_seen"))(name);
}

/* ---------------------------------------------------------------------- moving */

struct pair {
	struct tp_server s;
	FlagcxP2pEngine *e;
	FlagcxP2pConn *c;
	FlagcxP2pMr mr;
	uint8_t *mem;
	size_t size;
};

static struct pair pair_new(size_t size, const char *server_env)
{
	struct pair p = { .size = size, .e = tp_engine(), .mem = tp_alloc(size) };

	tp_serve(&p.s, size, 0, server_env);
	p.mr = tp_reg(p.e, p.mem, size);
	p.c = tp_connect(p.e, &p.s);
	return p;
}

static void pair_end(struct pair *p)
{
	tp_gauges_zero(p->e);
	flagcxP2pEngineDestroy(p->e);
	tp_free(p->mem, p->size);
	tp_quit(p->s.peer, 20);
}

static uint64_t by_rdma(struct pair *p)
{
	return tp_stats(p->e).rdma_bytes;
}

static bool carried(struct pair *p, const char *how)
{
	char text[256];

	TP_OK(flagcxP2pEngineConnTransport(p->c, text, sizeof(text)));
	return !strncmp(text, how, strlen(how));
}

/* All of both memories, there and back, in n blocks; the outcome of the first that fails. */
static int move(struct pair *p, uint64_t seed, int n)
{
	size_t block = p->size / (size_t)n;
	FlagcxP2pMr *mr = calloc((size_t)n, sizeof(*mr));
	void **at = calloc((size_t)n, sizeof(*at));
	size_t *size = calloc((size_t)n, sizeof(*size));
	FlagcxP2pRdmaDesc *d = calloc((size_t)n, sizeof(*d));
	int rc;

	for (int i = 0; i < n; i++) {
		mr[i] = p->mr;
		at[i] = p->mem + (size_t)i * block;
		size[i] = block;
		d[i] = tp_desc(&p->s, (size_t)i * block, block);
	}
	tp_fill(p->mem, seed, 0, p->size);
	rc = flagcxP2pEngineWriteVectorSync(p->c, mr, at, size, d, n);
	if (!rc) {
		tp_server_check(&p->s, seed, 0, block * (size_t)n);
		memset(p->mem, 0, p->size);
		rc = flagcxP2pEngineReadVectorSync(p->c, mr, at, size, d, n);
	}
	if (!rc)
		TP_EQ(tp_differs(p->mem, seed, 0, block * (size_t)n), -1);
	free(mr);
	free(at);
	free(size);
	free(d);
	return rc;
}

static void bytes_go_by_queue_pairs(void)
{
	struct pair p = pair_new(4 << 20, NULL);
	FlagcxP2pMrInfo info = { .size = sizeof(info) };
	FlagcxP2pStats s;

	if (carried(&p, "tcp"))
		tp_skip("no RDMA device");
	TP_OK(flagcxP2pEngineMrInfo(p.e, p.mr, &info));
	TP_CHECK(!strcmp(info.path, "host") && !info.reason[0]);
	TP_OK(move(&p, 3, 1));
	TP_OK(move(&p, 4, 64));
	TP_OK(move(&p, 5, 65536)); /* of 64 bytes: inline */
	s = tp_stats(p.e);
	TP_EQ(s.rdma_bytes, s.read_bytes + s.write_bytes);
	TP_EQ(s.rdma_bytes, 6ull * (4 << 20));
	TP_CHECK(carried(&p, "ibrc: 4 of 4 "));
	pair_end(&p);
}

static void a_late_registration_is_reached(void)
{
	struct pair p = pair_new(1 << 20, NULL);
	double until = tp_now() + 30 * tp_slow();
	uint64_t before;

	if (carried(&p, "tcp"))
		tp_skip("no RDMA device");
	TP_OK(move(&p, 3, 16));
	tp_say(p.s.peer, "dereg");
	tp_hear(p.s.peer, 20);
	TP_EQ(move(&p, 4, 16), -ESTALE);
	tp_say(p.s.peer, "reg");
	tp_hear(p.s.peer, 20);
	/* by the peer's table: descriptors of the former one stay stale */
	TP_OK(flagcxP2pEngineMakeDesc(p.c, p.s.addr, 1 << 20, &p.s.desc));
	/* its keys come behind it; what is faster goes by the stream, and as right */
	do {
		before = by_rdma(&p);
		TP_OK(move(&p, 5, 16));
		TP_CHECK(tp_now() < until);
	} while (by_rdma(&p) - before != 2 << 20);
	pair_end(&p);
}

static void a_peer_without_rdma_is_reached_by_tcp(void)
{
	struct pair p = pair_new(1 << 20, "FLAGCX_P2P_TRANSPORT=tcp");

	TP_CHECK(carried(&p, "tcp: 4 streams"));
	TP_OK(move(&p, 3, 16));
	TP_EQ(by_rdma(&p), 0);
	pair_end(&p);
}

/* ---------------------------------------------------------------------- mock */

/* A device that cannot be opened is no device. */
static void a_broken_device_leaves_tcp(void)
{
	static const char *const how[] = {
		"get_device_list:1:38", "open_device:1:13:9",  "query_device:1:5:9",
		"query_port:1:5:9",	"query_gid_ex:1:5:99", "alloc_pd:1:12:9",
		"open_device:2:24:9",
	};

	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		FlagcxP2pEngineOptions o = { .size = sizeof(o), .transport = "ibrc" };
		FlagcxP2pEngine *strict;
		struct pair p;

		inject(how[i]);
		p = pair_new(1 << 20, NULL);
		if (!carried(&p, "tcp"))
			TP_FAIL("%s: RDMA all the same", how[i]);
		TP_OK(move(&p, i, 16));
		inject(how[i]);
		TP_EQ(flagcxP2pEngineCreateWith(&o, &strict), -ENODEV);
		pair_end(&p);
	}
	inject("create_comp_channel:2:24:9"); /* the second worker's */
	TP_CHECK(!flagcxP2pEngineCreate());
	inject("");
}

/* What fails when a connection is made: its bytes go by TCP, and nothing is left behind. */
static void without_queue_pairs_bytes_go_by_tcp(void)
{
	static const char *const how[] = { "create_cq:1:12:999", "create_qp:1:12:999",
					   "modify_init:1:22:999", "modify_rtr:1:110:999",
					   "modify_rts:1:22:999", "reg_mr:1:12:999" };

	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		struct pair p;
		FlagcxP2pMrInfo info = { .size = sizeof(info) };

		inject(how[i]);
		p = pair_new(1 << 20, NULL);
		TP_OK(move(&p, i, 16));
		if (by_rdma(&p))
			TP_FAIL("%s: %llu bytes by RDMA", how[i], (unsigned long long)by_rdma(&p));
		TP_OK(flagcxP2pEngineMrInfo(p.e, p.mr, &info));
		TP_EQ(!info.reason[0], !!strncmp(how[i], "reg_mr", 6));
		inject("");
		pair_end(&p);
	}
}

static void who_insists_on_rdma_gets_an_error(void)
{
	FlagcxP2pEngine *e;
	struct tp_server s;

	inject("create_qp:1:12:999");
	e = tp_engine();
	tp_serve(&s, 4096, 0, NULL);
	/* the connect or the first use of it, as it comes */
	for (double until = tp_now() + 20 * tp_slow();;) {
		FlagcxP2pConn *c = flagcxP2pEngineConnect(e, "127.0.0.1", 0, s.port, false);

		if (!c || flagcxP2pEngineConnStatus(c))
			break;
		TP_CHECK(tp_now() < until);
		tp_sleep(0.05);
	}
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

/* One request fails in any way: all bytes arrive, and the queue pairs stand again. */
static void one_failure_costs_no_transfer(void)
{
	static const struct {
		const char *how;
		bool rebuilt;
	} rows[] = {
		{ "wc:7:10", true },	   /* remote access error */
		{ "wc:1:10", true },	   { "wc:30:4", true }, /* local protection error */
		{ "wc:9:12", true },	   /* retries exceeded */
		{ "wc:3:11:2", true },	   /* remote operation error, twice */
		{ "post_send:1:12", true }, { "post_send:20:12", true },
		{ "post_send:40:22:3", true }, { "req_notify_cq:1:5:5", false },
		{ "modify_err:1:5:9,wc:5:12", true },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pair p = pair_new(4 << 20, NULL);

		TP_OK(move(&p, 90 + i, 64)); /* all stand */
		inject(rows[i].how);
		for (int k = 0; k < 3; k++)
			TP_OK(move(&p, i + (uint64_t)k, 1000));
		TP_EQ(calls("create_qp") > 0, rows[i].rebuilt);
		inject("");
		TP_WITHIN(20, carried(&p, "ibrc: 4 of 4 "));
		TP_OK(move(&p, 50 + i, 64));
		TP_CHECK(by_rdma(&p) > 0);
		pair_end(&p);
	}
}

/* A line on which nothing arrives: TCP meanwhile, and RDMA again when it is well. */
static void a_dead_line_rests_and_comes_back(void)
{
	struct pair p = pair_new(4 << 20, NULL);
	uint64_t before;

	TP_OK(move(&p, 1, 64));
	before = by_rdma(&p);
	inject("wc:1:12:1000000");
	TP_OK(move(&p, 2, 64));
	TP_OK(move(&p, 3, 64));
	TP_EQ(by_rdma(&p), before);
	inject("");
	for (double until = tp_now() + 30 * tp_slow(); by_rdma(&p) == before;) {
		TP_CHECK(tp_now() < until);
		TP_OK(move(&p, 4, 64));
		tp_sleep(0.1);
	}
	pair_end(&p);
}

/* A caller takes part in small transfers; what takes long is left to the worker. */
static void callers_make_no_queue_pair(void)
{
	static const char *const how[] = { "wc:1:12:5", "wc:1:12:40", "post_send:1:12:30" };
	struct pair p = pair_new(4096, NULL);

	TP_WITHIN(20, carried(&p, "ibrc: 4 of 4 "));
	for (uint64_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		inject(how[i]);
		for (uint64_t k = 0; k < 60; k++)
			TP_OK(move(&p, 100 * i + k, 1));
		TP_CHECK(calls("create_qp") > 0);
		inject("");
		TP_WITHIN(30, !move(&p, i, 1) && carried(&p, "ibrc: 4 of 4 "));
	}
	TP_CHECK(seen("main_post") == 1);
	TP_EQ(seen("main_qp"), 0);
	pair_end(&p);
}

static void a_dead_line_fails_who_insists(void)
{
	struct pair p = pair_new(4 << 20, NULL);

	TP_OK(move(&p, 1, 64));
	inject("wc:1:12:1000000");
	TP_EQ(move(&p, 2, 64), -ETIMEDOUT);
	TP_EQ(flagcxP2pEngineConnStatus(p.c), -ETIMEDOUT);
	inject("");
	pair_end(&p);
}

/* No completion and no error either: noticed by ourselves. */
static void a_lost_request_is_done_again(void)
{
	struct pair p = pair_new(4 << 20, NULL);

	TP_OK(move(&p, 1, 64));
	inject("lost:5:1");
	TP_OK(move(&p, 2, 64));
	TP_CHECK(calls("create_qp") > 0);
	TP_OK(move(&p, 3, 64));
	pair_end(&p);
}

static void a_port_goes_down_and_up(void)
{
	struct pair p = pair_new(4 << 20, NULL);
	uint64_t before;

	TP_OK(move(&p, 1, 64));
	event(IBV_EVENT_PORT_ERR);
	TP_OK(move(&p, 2, 64)); /* some of it may be under way still */
	TP_WITHIN(20, carried(&p, "ibrc: 0 of 4 ") || move(&p, 2, 64));
	before = by_rdma(&p);
	TP_OK(move(&p, 3, 64));
	TP_EQ(by_rdma(&p), before);
	event(IBV_EVENT_PORT_ACTIVE);
	for (double until = tp_now() + 30 * tp_slow(); by_rdma(&p) == before;) {
		TP_CHECK(tp_now() < until);
		TP_OK(move(&p, 4, 64));
		tp_sleep(0.1);
	}
	pair_end(&p);
}

static void a_device_dies_under_load(void)
{
	struct pair p = pair_new(32 << 20, NULL);
	void *at = p.mem;
	uint64_t id, before;

	TP_OK(move(&p, 1, 64));
	tp_fill(p.mem, 2, 0, p.size);
	inject("lost:1:1:1000"); /* a dead device completes nothing */
	TP_OK(flagcxP2pEngineWriteVector(p.c, &p.mr, &at, &p.size, &p.s.desc, 1, &id, NULL));
	tp_sleep(0.05);
	event(IBV_EVENT_DEVICE_FATAL);
	TP_OK(flagcxP2pEngineXferWait(p.c, id, tp_ms(20000)));
	tp_server_check(&p.s, 2, 0, p.size);
	inject("");
	before = by_rdma(&p);
	TP_OK(move(&p, 3, 64));
	TP_EQ(by_rdma(&p), before); /* for good */
	pair_end(&p);
}

/* Its completion queue is of no use any more: the same as the device's death. */
static void a_broken_completion_queue_costs_the_device(void)
{
	struct pair p = pair_new(4 << 20, NULL);
	uint64_t before;

	TP_OK(move(&p, 1, 64));
	event(IBV_EVENT_CQ_ERR);
	TP_WITHIN(20, carried(&p, "ibrc: 0 of 4 ") || move(&p, 2, 64));
	before = by_rdma(&p);
	TP_OK(move(&p, 3, 64));
	TP_EQ(by_rdma(&p), before);
	pair_end(&p);
}

static _Atomic bool calm;

static void *storm(void *arg)
{
	while (!calm) {
		event(IBV_EVENT_DEVICE_FATAL);
		tp_sleep(0.0001);
	}
	return NULL;
}

/* Who takes an event tells all workers: also while those are made, and while they go. */
static void engines_come_and_go_in_a_storm_of_events(void)
{
	pthread_t t;

	fake("phx_verbs_event");
	TP_OK(pthread_create(&t, NULL, storm, NULL));
	for (int i = 0; i < 50; i++)
		flagcxP2pEngineDestroy(tp_engine());
	calm = true;
	pthread_join(t, NULL);
}

/* New addresses and keys, of which the ones in use are not: nothing comes of it. */
static void changes_of_a_port_disturb_nothing(void)
{
	static const int types[] = { IBV_EVENT_GID_CHANGE, IBV_EVENT_LID_CHANGE,
				     IBV_EVENT_PKEY_CHANGE, IBV_EVENT_CLIENT_REREGISTER,
				     IBV_EVENT_SM_CHANGE };
	struct pair p = pair_new(4 << 20, NULL);
	uint64_t before;

	TP_OK(move(&p, 1, 64));
	inject("");
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		before = by_rdma(&p);
		event(types[i]);
		TP_OK(move(&p, 2 + i, 64));
		TP_CHECK(by_rdma(&p) > before);
	}
	TP_EQ(calls("create_qp"), 0);
	TP_CHECK(carried(&p, "ibrc: 4 of 4 "));
	pair_end(&p);
}

static void a_sick_queue_pair_is_made_anew(void)
{
	struct pair p = pair_new(4 << 20, NULL);

	TP_OK(move(&p, 1, 64));
	inject("");
	event(IBV_EVENT_QP_FATAL);
	TP_WITHIN(20, calls("create_qp") >= 4);
	TP_WITHIN(20, carried(&p, "ibrc: 4 of 4 "));
	TP_OK(move(&p, 2, 64));
	pair_end(&p);
}

/* Queue pairs are numbered by each device: the other's of the same number is well. */
static void a_sick_queue_pair_leaves_the_other_device_alone(void)
{
	struct pair p = pair_new(4 << 20, NULL);

	TP_OK(move(&p, 1, 64));
	TP_WITHIN(20, carried(&p, "ibrc: 4 of 4 "));
	inject("");
	event_on(0, IBV_EVENT_QP_FATAL);
	TP_WITHIN(20, calls("create_qp") >= 2);
	TP_WITHIN(20, carried(&p, "ibrc: 4 of 4 "));
	tp_sleep(0.3); /* for those that should not follow */
	TP_EQ(calls("create_qp"), 2);
	TP_OK(move(&p, 2, 64));
	pair_end(&p);
}

/* A device that registers little at once: several registrations, entries across them. */
static void large_regions_are_of_several_pieces(void)
{
	struct pair p = pair_new(3000000, NULL);
	uint64_t all;

	TP_OK(move(&p, 1, 1));
	TP_OK(move(&p, 2, 7));
	TP_OK(move(&p, 3, 1000));
	all = tp_stats(p.e).read_bytes + tp_stats(p.e).write_bytes;
	TP_EQ(by_rdma(&p), all);
	pair_end(&p);
}

/* More of them than a message to peers holds: by the stream, and it says why. */
static void a_region_of_too_many_pieces_says_so(void)
{
	size_t size = 65536ull * 65536;
	FlagcxP2pMrInfo info = { .size = sizeof(info) };
	FlagcxP2pEngine *e = tp_engine();
	void *mem = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	fake("phx_verbs_calls");
	TP_CHECK(mem != MAP_FAILED);
	TP_OK(flagcxP2pEngineMrInfo(e, tp_reg(e, mem, size), &info));
	TP_CHECK(!strcmp(info.path, "host"));
	TP_CHECK(!strcmp(info.reason, "verbs: E2BIG"));
	flagcxP2pEngineDestroy(e);
}

static void two_devices_share_the_load(void)
{
	struct pair p = pair_new(4 << 20, NULL);

	TP_CHECK(carried(&p, "ibrc: "));
	TP_OK(move(&p, 1, 1024));
	TP_EQ(by_rdma(&p), 8 << 20);
	/* one of them goes: the other's paths go on, and TCP for the rest */
	inject("wc:3:12:4");
	TP_OK(move(&p, 2, 1000));
	pair_end(&p);
}

/* The library ends the process where a queue would overflow. */
static void full_queues_do_not_overflow(void)
{
	enum { CONNS = 12 };
	struct pair p = pair_new(4 << 20, NULL);
	FlagcxP2pConn *c[CONNS];
	uint64_t id[CONNS][8];
	void *at = p.mem;

	for (int i = 0; i < CONNS; i++)
		c[i] = tp_connect(p.e, &p.s);
	for (int round = 0; round < 8; round++)
		for (int i = 0; i < CONNS; i++)
			TP_OK(flagcxP2pEngineWriteVectorPolicy(c[i], &p.mr, &at, &p.size,
							       &p.s.desc, 1,
							       FLAGCX_P2P_POLICY_CONNECTOR,
							       &id[i][round]));
	/* and all of them fail at once */
	inject("wc:500:12:40");
	for (int round = 0; round < 8; round++)
		for (int i = 0; i < CONNS; i++)
			TP_OK(flagcxP2pEngineXferWait(c[i], id[i][round], tp_ms(60000)));
	inject("");
	pair_end(&p);
}

#define MOCK_QUICK "FLAGCX_IB_TIMEOUT=1"

static const struct tp_case cases[] = {
	TP_CASE(bytes_go_by_queue_pairs),
	TP_CASE(a_late_registration_is_reached),
	TP_CASE(a_peer_without_rdma_is_reached_by_tcp),
	TP_CASE(a_broken_device_leaves_tcp),
	TP_CASE(without_queue_pairs_bytes_go_by_tcp),
	TP_CASE(who_insists_on_rdma_gets_an_error, .env = "FLAGCX_P2P_TRANSPORT=ibrc"),
	TP_CASE(one_failure_costs_no_transfer, .env = MOCK_QUICK, .timeout = 120),
	TP_CASE(a_dead_line_rests_and_comes_back),
	TP_CASE(callers_make_no_queue_pair, .timeout = 120),
	TP_CASE(a_dead_line_fails_who_insists, .env = "FLAGCX_P2P_TRANSPORT=ibrc"),
	TP_CASE(a_lost_request_is_done_again, .env = MOCK_QUICK),
	TP_CASE(a_port_goes_down_and_up),
	TP_CASE(a_device_dies_under_load),
	TP_CASE(a_broken_completion_queue_costs_the_device),
	TP_CASE(engines_come_and_go_in_a_storm_of_events, .env = "FLAGCX_P2P_WORKERS_PER_POOL=8"),
	TP_CASE(changes_of_a_port_disturb_nothing),
	TP_CASE(a_sick_queue_pair_is_made_anew),
	TP_CASE(a_sick_queue_pair_leaves_the_other_device_alone, .env = "PHX_VERBS_DEVICES=2"),
	TP_CASE(large_regions_are_of_several_pieces, .env = "PHX_VERBS_MR_MAX=100000"),
	TP_CASE(a_region_of_too_many_pieces_says_so, .env = "PHX_VERBS_MR_MAX=65536"),
	TP_CASE(two_devices_share_the_load, .env = "PHX_VERBS_DEVICES=2"),
	TP_CASE(full_queues_do_not_overflow, .env = "FLAGCX_P2P_CQ_DEPTH=100"),
};
static const struct tp_role roles[] = { TP_SERVER };

TP_MAIN(cases, roles)
