// SPDX-License-Identifier: Apache-2.0
/*
 * What sick peers cost a healthy one, in one run: the writes of an engine that
 * also serves the sick ones, for each write of a second engine that has nothing
 * to do with them. Prints that share while they are sick over the share while
 * they idle. Each case is named on the command line.
 */
#include "test/flagcx/tp.h"

#include <signal.h>

#define BLOCKS 1000
#define BLOCK 65536u

struct ill {
	uint8_t *mem;
	FlagcxP2pMr mr[BLOCKS];
	void *local[BLOCKS];
	size_t size[BLOCKS];
	FlagcxP2pRdmaDesc desc[BLOCKS];
};

static void ill_new(struct ill *l, FlagcxP2pEngine *e)
{
	FlagcxP2pMr mr;

	memset(l, 0, sizeof(*l));
	l->mem = tp_alloc((size_t)BLOCKS * BLOCK);
	mr = tp_reg(e, l->mem, (size_t)BLOCKS * BLOCK);
	for (int i = 0; i < BLOCKS; i++) {
		l->mr[i] = mr;
		l->local[i] = l->mem + (size_t)i * BLOCK;
		l->size[i] = BLOCK;
	}
}

/* 1,000 x 64 KiB each way. */
static void ill_load(struct ill *l, FlagcxP2pConn *c, const struct tp_server *s, uint64_t id[2])
{
	for (int i = 0; i < BLOCKS; i++)
		l->desc[i] = tp_desc(s, (uint64_t)i * BLOCK, BLOCK);
	TP_OK(flagcxP2pEngineWriteVector(c, l->mr, l->local, l->size, l->desc, BLOCKS, &id[0],
					 NULL));
	TP_OK(flagcxP2pEngineReadVector(c, l->mr, l->local, l->size, l->desc, BLOCKS, &id[1],
					NULL));
}

struct scene {
	struct tp_server well, sick;
	FlagcxP2pEngine *e;
	struct tp_pair pair;
	struct ill load;
	FlagcxP2pConn *c;   /* to the sick one */
	double idle;        /* the share while it idles */
};

static void scene_start(struct scene *s)
{
	s->e = tp_engine();
	tp_serve(&s->well, 64 * BLOCK, 0, NULL);
	tp_serve(&s->sick, (size_t)BLOCKS * BLOCK, 0, NULL);
	tp_pair_start(&s->pair, s->e, &s->well);
	ill_new(&s->load, s->e);
	s->c = tp_connect(s->e, &s->sick);
	s->idle = tp_pair_share(&s->pair);
}

static void scene_end(struct scene *s)
{
	flagcxP2pEngineDestroy(s->e);
	tp_quit(s->well.peer, 20);
}

static void hang(void)
{
	static struct scene s;
	double during;
	uint64_t id[2];

	scene_start(&s);
	kill(s.sick.peer->pid, SIGSTOP);
	ill_load(&s.load, s.c, &s.sick, id);
	during = tp_pair_share(&s.pair);
	TP_OK(flagcxP2pEngineConnStatus(s.c));
	printf("hang %.3f\n", during / s.idle);
	tp_kill(s.sick.peer, SIGKILL);
	TP_CHECK(flagcxP2pEngineXferWait(s.c, id[1], 20000) < 0);
	tp_pair_stop(&s.pair);
	scene_end(&s);
}

static void die(void)
{
	static struct scene s;
	double during;
	uint64_t id[2];

	scene_start(&s);
	ill_load(&s.load, s.c, &s.sick, id);
	tp_kill(s.sick.peer, SIGKILL);
	during = tp_pair_share(&s.pair);
	printf("die %.3f\n", during / s.idle);
	for (int i = 0; i < 2; i++)
		TP_CHECK(flagcxP2pEngineXferWait(s.c, id[i], 0) == -ECONNRESET);
	tp_pair_stop(&s.pair);
	tp_gauges_zero(s.e);
	scene_end(&s);
}

static const struct tp_case cases[] = {
	TP_CASE(hang, .env = "FLAGCX_P2P_LIVENESS_MS=60000"),
	TP_CASE(die),
};
static const struct tp_role roles[] = { TP_SERVER };

TP_MAIN(cases, roles)
