// SPDX-License-Identifier: Apache-2.0
/*
 * Every setting of the RDMA transport, by what it asks of the verbs: each row's value
 * arrives, and without it the default does. Over the tests' own libibverbs.
 */
#include "tp.h"

#include <dlfcn.h>

enum { BLOCKS = 400, BLOCK = 1024 };

static void *verb(const char *name)
{
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW);
	void *symbol = lib ? dlsym(lib, name) : NULL;

	if (!symbol)
		tp_skip("not the tests' own libibverbs");
	return symbol;
}

/* Moves bytes both ways to itself, then answers to the names of what was seen. */
static void role_mover(int argc, char **argv)
{
	long (*seen)(const char *) = (long (*)(const char *))verb("phx_verbs_seen");
	long (*calls)(const char *) = (long (*)(const char *))verb("phx_verbs_calls");
	FlagcxP2pEngine *e = tp_engine();
	size_t size = (size_t)BLOCKS * BLOCK;
	uint8_t *mem = tp_alloc(2 * size);
	static uint64_t local[BLOCKS], remote[BLOCKS], sizes[BLOCKS];
	char session[64], *line, text[256];
	FlagcxP2pConn *c;

	tp_reg(e, mem, 2 * size);
	TP_OK(flagcxP2pEngineStartRpcServer(e));
	snprintf(session, sizeof(session), "127.0.0.1:%d", flagcxP2pEngineGetRpcPort(e));
	c = flagcxP2pEngineGetConn(e, session);
	TP_CHECK(c != NULL);
	for (int i = 0; i < BLOCKS; i++) {
		local[i] = (uintptr_t)mem + (uint64_t)i * BLOCK;
		remote[i] = local[i] + size;
		sizes[i] = i ? BLOCK : 8;
	}
	TP_OK(flagcxP2pRpcBatchWriteSync(c, BLOCKS, local, remote, sizes));
	TP_OK(flagcxP2pRpcBatchReadSync(c, BLOCKS, local, remote, sizes));
	while ((line = tp_line()) != NULL && strcmp(line, "quit")) {
		if (!strncmp(line, "calls ", 6)) {
			tp_answer("%ld", calls(line + 6));
		} else if (!strcmp(line, "transport")) {
			TP_OK(flagcxP2pEngineTransport(e, text, sizeof(text)));
			tp_answer("%s", text);
		} else {
			tp_answer("%ld", seen(line));
		}
	}
	flagcxP2pEngineDestroy(e);
}

static void each_setting_reaches_the_verbs(void)
{
	static const struct {
		const char *setting, *what;
		long value, otherwise; /* with the setting; by default */
	} rows[] = {
		{ "FLAGCX_P2P_MTU=1024", "mtu", 1024, 4096 },
		{ "FLAGCX_P2P_RETRY_CNT=3", "retry", 3, 7 },
		{ "FLAGCX_IB_RETRY_CNT=2", "retry", 2, 7 },
		{ "FLAGCX_IB_TIMEOUT=17", "timeout", 17, 14 },
		{ "FLAGCX_P2P_IB_TC=104", "tc", 104, 0 },
		{ "FLAGCX_IB_TC=96", "tc", 96, 0 },
		{ "FLAGCX_IB_SL=5", "sl", 5, 0 },
		{ "FLAGCX_IB_PKEY=1", "pkey", 1, 0 },
		{ "FLAGCX_P2P_GID_INDEX=2", "gid", 2, 2 },
		{ "FLAGCX_P2P_IB_PORT=1", "port", 1, 1 },
		{ "FLAGCX_P2P_MAX_SGE=2", "sge", 2, 4 },
		{ "FLAGCX_P2P_MAX_INLINE=200", "inline", 200, 64 },
		{ "FLAGCX_P2P_MAX_REQUESTS=64", "send_wr", 16, 64 },
		{ "FLAGCX_P2P_CQ_DEPTH=300", "cqe", 300, 4096 },
		{ "FLAGCX_P2P_MAX_WR_PER_POST=8", "chain", 8, 64 },
		{ "FLAGCX_P2P_BATCH_POLL_SIZE=7", "poll", 7, 32 },
		{ "FLAGCX_P2P_READ_BATCH_WINDOW=1", "reads", 16, 64 },
		/* both ends are of one engine: four paths each */
		{ "FLAGCX_P2P_QPS_PER_CONN=2", "calls create_qp", 4, 8 },
		{ "FLAGCX_P2P_WORKERS_PER_POOL=3", "calls create_comp_channel", 3, 2 },
		{ "FLAGCX_P2P_SHARED_CQ=1", "calls create_comp_channel", 1, 2 },
	};
	struct tp_peer *plain, *set;

	verb("phx_verbs_seen");
	plain = tp_spawn(NULL, "mover", NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		long got, other;

		set = tp_spawn(rows[i].setting, "mover", NULL);
		tp_say(plain, "%s", rows[i].what);
		tp_say(set, "%s", rows[i].what);
		other = atol(tp_hear(plain, 60));
		got = atol(tp_hear(set, 60));
		if (got != rows[i].value || other != rows[i].otherwise)
			TP_FAIL("%s: %s is %ld, without it %ld", rows[i].setting, rows[i].what,
				got, other);
		tp_quit(set, 60);
	}
	tp_quit(plain, 60);
}

/* What cannot be had is not replaced in silence. */
static void each_refusal_is_told(void)
{
	static const struct {
		const char *setting;
		const char *says; /* of the transport */
	} rows[] = {
		{ "FLAGCX_P2P_GID_INDEX=1", "ibrc: none of 1 RDMA devices is usable: " },
		{ "FLAGCX_P2P_IB_PORT=2", "ibrc: none of 1 RDMA devices is usable: " },
		{ "FLAGCX_IB_HCA==mock7", "ibrc: none of 1 RDMA devices is usable: " },
		{ "FLAGCX_IB_HCA==mock1 PHX_VERBS_DEVICES=2", "ibrc: mock1 port 1, " },
		{ "FLAGCX_IB_HCA=^mock1 PHX_VERBS_DEVICES=2", "ibrc: mock0 port 1, " },
		{ "FLAGCX_P2P_TRANSPORT=tcp", "tcp: " },
	};

	verb("phx_verbs_seen");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct tp_peer *p = tp_spawn(rows[i].setting, "mover", NULL);
		char *line;

		tp_say(p, "transport");
		line = tp_hear(p, 60);
		if (strncmp(line, rows[i].says, strlen(rows[i].says)))
			TP_FAIL("%s: %s", rows[i].setting, line);
		tp_quit(p, 60);
	}
}

static char refused[256];

static void listen_to(void *arg, int level, const char *line)
{
	if (level == FLAGCX_P2P_LOG_WARN && strstr(line, "FLAGCX_"))
		snprintf(refused, sizeof(refused), "%s", line);
}

/* It has a name and a place in the structure, and nothing does it: said at the first engine. */
static void the_destinations_affinity_is_refused(void)
{
	verb("phx_verbs_seen");
	flagcxP2pSetLog(listen_to, NULL, FLAGCX_P2P_LOG_WARN);
	flagcxP2pEngineDestroy(tp_engine());
	TP_CHECK(strstr(refused, "FLAGCX_P2P_DEST_DEV_AFFINITY=1 is refused"));
}

static void a_value_out_of_range_is_told(void)
{
	verb("phx_verbs_seen");
	flagcxP2pSetLog(listen_to, NULL, FLAGCX_P2P_LOG_WARN);
	flagcxP2pEngineDestroy(tp_engine());
	TP_CHECK(strstr(refused, "FLAGCX_IB_TIMEOUT=77"));
}

static const struct tp_case cases[] = {
	TP_CASE(each_setting_reaches_the_verbs, .timeout = 300),
	TP_CASE(each_refusal_is_told, .timeout = 120),
	TP_CASE(the_destinations_affinity_is_refused, .env = "FLAGCX_P2P_DEST_DEV_AFFINITY=1"),
	TP_CASE(a_value_out_of_range_is_told, .env = "FLAGCX_IB_TIMEOUT=77"),
};
static const struct tp_role roles[] = { { "mover", role_mover } };

TP_MAIN(cases, roles)
