// SPDX-License-Identifier: Apache-2.0
/* Notifications: any size, in order, once; credit; several engines in a process. */
#include "tp.h"

#include <pthread.h>
#include <signal.h>

/* Two engines of this process and a connection between them. */
struct pair {
	FlagcxP2pEngine *a, *b;
	FlagcxP2pConn *ab, *ba;
};

static struct pair pair_new(void)
{
	struct pair p = { tp_engine(), tp_engine(), NULL, NULL };
	char ip[64];
	int gpu;

	p.ab = flagcxP2pEngineConnect(p.a, "::1", 0, flagcxP2pEngineGetRpcPort(p.b), true);
	p.ba = flagcxP2pEngineAccept(p.b, ip, sizeof(ip), &gpu);
	TP_CHECK(p.ab && p.ba);
	return p;
}

static void pair_free(struct pair *p)
{
	flagcxP2pEngineDestroy(p->a);
	flagcxP2pEngineDestroy(p->b);
}

static FlagcxP2pNotif take_one(FlagcxP2pEngine *e)
{
	FlagcxP2pNotif n;
	int got = 0;

	TP_WITHIN(20, (got = flagcxP2pEngineGetNotifsV(e, &n, 1)) != 0);
	TP_EQ(got, 1);
	return n;
}

static void any_size_arrives_whole(void)
{
	static const size_t sizes[] = { 0, 1, 255, 256, 257, 65535, 65536, 65537, 1 << 20,
					(8 << 20) + 3 };
	struct pair p = pair_new();

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *msg = malloc(sizes[i] + 1), name[70000];
		size_t name_len = sizes[i] % 65537;
		FlagcxP2pNotif n;

		tp_fill(msg, i, 0, sizes[i]);
		tp_fill(name, 50 + i, 0, name_len);
		TP_OK(flagcxP2pEngineSendNotifV(p.ab, name, name_len, msg, sizes[i]));
		n = take_one(p.b);
		TP_EQ(n.name_len, name_len);
		TP_EQ(n.msg_len, sizes[i]);
		TP_EQ(tp_differs(n.name, 50 + i, 0, name_len), -1);
		TP_EQ(tp_differs(n.msg, i, 0, sizes[i]), -1);
		TP_EQ(n.name[name_len], 0);
		TP_EQ(((char *)n.msg)[sizes[i]], 0);
		TP_CHECK(n.conn == p.ba);
		flagcxP2pNotifFree(&n);
		free(msg);
	}
	TP_EQ(flagcxP2pEngineSendNotifV(p.ab, NULL, 1, "", 0), -EINVAL);
	TP_EQ(flagcxP2pEngineSendNotifV(p.ab, "", 0, NULL, 1), -EINVAL);
	TP_EQ(flagcxP2pEngineSendNotifV(p.ab, "", 65537, "", 0), -EMSGSIZE);
	TP_EQ(flagcxP2pEngineSendNotifV(p.ab, "", 0, "", (1ull << 30) + 1), -EMSGSIZE);
	TP_EQ(flagcxP2pEngineSendNotifV(NULL, "", 0, "", 0), -ENOTCONN);
	pair_free(&p);
}

struct sender {
	FlagcxP2pConn *conn;
	int id, count;
};

static void *send_many(void *arg)
{
	struct sender *s = arg;

	for (int i = 0; i < s->count; i++) {
		FlagcxP2pNotifyMsg m = { 0 };

		snprintf(m.name, sizeof(m.name), "%d", s->id);
		snprintf(m.msg, sizeof(m.msg), "%d", i);
		TP_EQ(flagcxP2pEngineSendNotif(s->conn, &m), (int)sizeof(m));
	}
	return NULL;
}

/* Eight threads on one connection: frames do not mix, each thread's stay in order. */
static void threads_share_a_connection(void)
{
	enum { N = 8 };
	struct pair p = pair_new();
	struct sender s[N];
	pthread_t t[N];
	int next[N] = { 0 }, total = 0, count = (int)tp_scale(2000);
	double until = tp_now() + 30 * tp_slow();

	for (int i = 0; i < N; i++) {
		s[i] = (struct sender){ p.ab, i, count };
		pthread_create(&t[i], NULL, send_many, &s[i]);
	}
	while (total < N * count && tp_now() < until) {
		FlagcxP2pNotifyMsg m[100];
		int got = flagcxP2pEngineGetNotifs(m, 100);

		for (int i = 0; i < got; i++) {
			int id = atoi(m[i].name);

			TP_EQ(atoi(m[i].msg), next[id]);
			next[id]++;
			/* the fixed size comes with zeros to its end */
			for (size_t k = strlen(m[i].msg); k < sizeof(m[i].msg); k++)
				TP_EQ(m[i].msg[k], 0);
		}
		total += got;
	}
	TP_EQ(total, N * count);
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	pair_free(&p);
}

/* A peer that takes nothing costs the sender a second and an error, not its memory. */
static void credit_bounds_what_is_not_taken(void)
{
	struct pair p = pair_new();
	size_t size = 1 << 20;
	char *msg = calloc(1, size);
	FlagcxP2pNotif n;
	double start;
	int sent = 0, rc;

	while ((rc = flagcxP2pEngineSendNotifV(p.ab, "x", 1, msg, size)) == 0 && sent < 100)
		sent++;
	TP_EQ(rc, -ENOBUFS);
	TP_EQ(sent, 63); /* 64 MiB with what each costs */
	TP_CHECK(strstr(flagcxP2pLastError(), "does not take"));
	start = tp_now();
	TP_EQ(flagcxP2pEngineSendNotifV(p.ab, "x", 1, msg, size), -ENOBUFS);
	TP_CHECK(tp_now() - start > 0.9 && tp_now() - start < 20);
	TP_OK(flagcxP2pEngineConnStatus(p.ab)); /* it is alive all the same */
	n = take_one(p.b);
	flagcxP2pNotifFree(&n);
	TP_OK(flagcxP2pEngineSendNotifV(p.ab, "x", 1, msg, size));
	for (int i = 0; i < 63; i++) {
		n = take_one(p.b);
		TP_EQ(n.msg_len, size);
		flagcxP2pNotifFree(&n);
	}
	free(msg);
	pair_free(&p);
}

/* One larger than the credit goes when nothing else is under way. */
static void one_larger_than_the_credit_goes_alone(void)
{
	struct pair p = pair_new();
	size_t size = 100 << 20;
	char *msg = malloc(size);
	FlagcxP2pNotif n;

	tp_fill(msg, 4, 0, size);
	TP_OK(flagcxP2pEngineSendNotifV(p.ab, "big", 3, msg, size));
	n = take_one(p.b);
	TP_EQ(n.msg_len, size);
	TP_EQ(tp_differs(n.msg, 4, 0, size), -1);
	flagcxP2pNotifFree(&n);
	free(msg);
	pair_free(&p);
}

/* Engines of one process keep theirs apart; the call without an engine takes all. */
static void engines_do_not_steal_from_each_other(void)
{
	FlagcxP2pEngineOptions o = { .size = sizeof(o), .private_notifs = 1 };
	FlagcxP2pEngine *to[4], *from = tp_engine();
	FlagcxP2pNotifyMsg m = { .name = "n" }, got[8];
	FlagcxP2pNotif n;

	for (int i = 0; i < 4; i++) {
		FlagcxP2pConn *c;

		TP_OK(flagcxP2pEngineCreateWith(i == 3 ? &o : NULL, &to[i]));
		c = flagcxP2pEngineConnect(from, "::1", 0, flagcxP2pEngineGetRpcPort(to[i]),
					   false);
		snprintf(m.msg, sizeof(m.msg), "%d", i);
		TP_EQ(flagcxP2pEngineSendNotif(c, &m), (int)sizeof(m));
	}
	for (int i = 0; i < 4; i++)
		TP_WITHIN(20, tp_stats(to[i]).notifs_received == 1);
	flagcxP2pEngineDestroy(to[0]); /* with it goes its own, and nothing else */
	n = take_one(to[1]);
	TP_EQ(*(char *)n.msg, '1');
	flagcxP2pNotifFree(&n);
	TP_EQ(flagcxP2pEngineGetNotifsV(to[1], &n, 1), 0);
	TP_EQ(flagcxP2pEngineGetNotifs(got, 8), 1);
	TP_EQ(got[0].msg[0], '2');
	n = take_one(to[3]); /* a private engine's are not taken by the common call */
	TP_EQ(*(char *)n.msg, '3');
	flagcxP2pNotifFree(&n);
	TP_EQ(flagcxP2pEngineGetNotifsV(to[0], &n, 1), -EINVAL);
	for (int i = 1; i < 4; i++)
		flagcxP2pEngineDestroy(to[i]);
	flagcxP2pEngineDestroy(from);
}

/* The common call leaves what does not fit its fields for the other one. */
static void large_ones_wait_for_the_call_that_can_take_them(void)
{
	struct pair p = pair_new();
	FlagcxP2pNotifyMsg m[4];
	char big[300] = "big";
	FlagcxP2pNotif n;

	TP_OK(flagcxP2pEngineSendNotifV(p.ab, "a", 1, big, sizeof(big)));
	TP_OK(flagcxP2pEngineSendNotifV(p.ab, "b", 1, "small", 5));
	TP_WITHIN(20, tp_stats(p.b).notifs_received == 2);
	TP_EQ(flagcxP2pEngineGetNotifs(m, 4), 1);
	TP_CHECK(!strcmp(m[0].msg, "small"));
	n = take_one(p.b);
	TP_EQ(n.msg_len, sizeof(big));
	flagcxP2pNotifFree(&n);
	flagcxP2pNotifFree(NULL);
	pair_free(&p);
}

static void role_parting(int argc, char **argv)
{
	FlagcxP2pEngine *e = tp_engine();
	FlagcxP2pConn *c = flagcxP2pEngineConnect(e, "127.0.0.1", 0, atoi(argv[0]), false);
	char text[200] = "";

	TP_CHECK(c != NULL);
	for (int i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "%d", i);
		TP_OK(flagcxP2pEngineSendNotifV(c, "last words", 10, text, sizeof(text)));
	}
	flagcxP2pEngineConnDestroy(c);
	flagcxP2pEngineDestroy(e);
}

/* What was sent before an orderly end arrives, to the last. */
static void last_words_arrive(void)
{
	FlagcxP2pEngine *e = tp_engine();
	struct tp_peer *p;
	FlagcxP2pConn *d;
	char port[16], ip[64];
	int gpu;

	TP_CHECK(!flagcxP2pEngineAccept(NULL, ip, sizeof(ip), &gpu));
	snprintf(port, sizeof(port), "%d", flagcxP2pEngineGetRpcPort(e));
	p = tp_spawn(NULL, "parting", port, NULL);
	d = flagcxP2pEngineAccept(e, ip, sizeof(ip), &gpu);
	TP_CHECK(d != NULL);
	for (int i = 0; i < 1000; i++) {
		FlagcxP2pNotif n = take_one(e);

		TP_EQ(atoi(n.msg), i);
		flagcxP2pNotifFree(&n);
	}
	TP_WITHIN(20, flagcxP2pEngineConnStatus(d) == -ECONNRESET);
	tp_kill(p, SIGKILL);
	flagcxP2pEngineDestroy(e);
}

/* More than the kernel takes for a peer that hears nothing for a while, then an orderly end. */
static void last_words_reach_a_slow_peer(void)
{
	FlagcxP2pEngine *e = tp_engine();
	struct tp_server s;
	FlagcxP2pConn *c;
	size_t size = 1 << 20;
	char *msg = calloc(1, size);
	int n = 0, total = 0;
	double until;

	tp_serve(&s, 4096, 0, NULL);
	c = tp_connect(e, &s);
	kill(s.peer->pid, SIGSTOP);
	for (int i = 0; i < 30; i++)
		TP_OK(flagcxP2pEngineSendNotifV(c, "x", 1, msg, size));
	flagcxP2pEngineConnDestroy(c);
	tp_sleep(1.5);
	kill(s.peer->pid, SIGCONT);
	flagcxP2pEngineDestroy(e);
	for (until = tp_now() + 20 * tp_slow(); total < 30 && tp_now() < until; total += n) {
		tp_say(s.peer, "notifs");
		TP_EQ(sscanf(tp_hear(s.peer, 20), "notifs %d", &n), 1);
	}
	TP_EQ(total, 30);
	free(msg);
	tp_quit(s.peer, 20);
}

/* A peer that has come and gone is still accepted, and what it said is there. */
static void who_has_gone_is_accepted_late(void)
{
	enum { KEPT = 64 };
	FlagcxP2pEngine *to = tp_engine();
	int port = flagcxP2pEngineGetRpcPort(to), gpu, fds = tp_fds();
	FlagcxP2pConn *c;
	FlagcxP2pNotif n;
	char ip[64];

	for (int i = 0; i < KEPT + 10; i++) {
		FlagcxP2pEngine *e = tp_engine();

		c = flagcxP2pEngineConnect(e, "::1", 0, port, false);
		TP_OK(flagcxP2pEngineSendNotifV(c, "", 0, &i, sizeof(i)));
		flagcxP2pEngineDestroy(e);
	}
	TP_WITHIN(20, tp_stats(to).notifs_received == KEPT + 10);
	TP_WITHIN(20, tp_stats(to).connections == 0);
	TP_WITHIN(20, tp_fds() == fds);
	/* the oldest are forgotten, their words are not */
	for (int i = 0; i < KEPT + 10; i++) {
		n = take_one(to);
		TP_EQ(*(int *)n.msg, i);
		if (i >= 10) {
			c = flagcxP2pEngineAccept(to, ip, sizeof(ip), &gpu);
			TP_CHECK(c != NULL && c == n.conn);
			TP_EQ(flagcxP2pEngineConnStatus(c), -ECONNRESET);
			flagcxP2pEngineConnDestroy(c);
		}
		flagcxP2pNotifFree(&n);
	}
	flagcxP2pEngineDestroy(to);
}

/* A notification sent after a write never comes before its bytes. */
static void a_notification_follows_its_data(void)
{
	struct pair p = pair_new();
	size_t n = 256 << 10;
	uint8_t *from = tp_alloc(n), *to = tp_alloc(n);
	FlagcxP2pMr mr = tp_reg(p.a, from, n);
	FlagcxP2pRdmaDesc d;

	tp_reg(p.b, to, n);
	TP_OK(flagcxP2pEngineMakeDesc(p.ab, (uintptr_t)to, (uint32_t)n, &d));
	for (int i = 0; i < (int)tp_scale(200); i++) {
		void *src = from;
		FlagcxP2pNotif note;

		tp_fill(from, (uint64_t)i, 0, n);
		TP_OK(flagcxP2pEngineWriteVectorSync(p.ab, &mr, &src, &n, &d, 1));
		TP_OK(flagcxP2pEngineSendNotifV(p.ab, "", 0, &i, sizeof(i)));
		note = take_one(p.b);
		TP_CHECK(!memcmp(note.msg, &i, sizeof(i)));
		TP_EQ(tp_differs(to, (uint64_t)i, 0, n), -1);
		flagcxP2pNotifFree(&note);
	}
	pair_free(&p);
}

static const struct tp_case cases[] = {
	TP_CASE(any_size_arrives_whole),
	TP_CASE(threads_share_a_connection),
	TP_CASE(credit_bounds_what_is_not_taken),
	TP_CASE(one_larger_than_the_credit_goes_alone),
	TP_CASE(engines_do_not_steal_from_each_other),
	TP_CASE(large_ones_wait_for_the_call_that_can_take_them),
	TP_CASE(last_words_arrive),
	TP_CASE(last_words_reach_a_slow_peer),
	TP_CASE(who_has_gone_is_accepted_late),
	TP_CASE(a_notification_follows_its_data),
};
static const struct tp_role roles[] = { TP_SERVER, { "parting", role_parting } };

TP_MAIN(cases, roles)
