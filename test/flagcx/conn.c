// SPDX-License-Identifier: Apache-2.0
/* Engines, connections, greetings, registrations as peers see them. */
#include "tp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int dial_raw(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	TP_OK(connect(fd, (struct sockaddr *)&a, sizeof(a)));
	return fd;
}

static void metadata_tells_where_to_connect(void)
{
	FlagcxP2pEngine *e = tp_engine();
	char *text = NULL, ip[64], transport[128];
	int port, device, notif, gpu = -5;
	FlagcxP2pConn *c, *d;

	TP_OK(flagcxP2pEngineGetMetadata(e, &text));
	TP_EQ(sscanf(text, "%63[0-9.]:%d?%d?%d", ip, &port, &device, &notif), 4);
	free(text);
	TP_EQ(port, flagcxP2pEngineGetRpcPort(e));
	TP_EQ(port, notif);
	TP_CHECK(device >= -1);
	c = flagcxP2pEngineConnect(e, ip, device, port, false); /* to itself */
	TP_CHECK(c != NULL);
	d = flagcxP2pEngineAccept(e, ip, sizeof(ip), &gpu);
	TP_CHECK(d != NULL);
	TP_EQ(gpu, device);
	TP_CHECK(inet_addr(ip) != INADDR_NONE);
	TP_CHECK(flagcxP2pEngineConnIsLocal(c) && flagcxP2pEngineConnIsLocal(d));
	TP_CHECK(!flagcxP2pEngineConnIsLocal(NULL));
	TP_OK(flagcxP2pEngineStartListener(c));
	TP_OK(flagcxP2pEngineTransport(e, transport, sizeof(transport)));
	TP_CHECK(strstr(transport, "tcp: ")); /* behind what is preferred to it */
	flagcxP2pEngineConnDestroy(c);
	TP_EQ(flagcxP2pEngineStartListener(c), -ENOTCONN);
	TP_WITHIN(20, flagcxP2pEngineConnStatus(d) == -ECONNRESET);
	flagcxP2pEngineConnDestroy(d);
	flagcxP2pEngineDestroy(e);
	flagcxP2pEngineDestroy(e);
	flagcxP2pEngineDestroy(NULL);
	TP_EQ(flagcxP2pEngineGetMetadata(e, &text), -EINVAL);
}

/* Both ends of one connection read and write. */
static void a_connection_serves_both_ends(void)
{
	FlagcxP2pEngine *a = tp_engine(), *b = tp_engine();
	const size_t n = 3 << 20;
	uint8_t *ma = tp_alloc(n), *mb = tp_alloc(n);
	FlagcxP2pMr ra = tp_reg(a, ma, n), rb = tp_reg(b, mb, n);
	FlagcxP2pConn *c = flagcxP2pEngineConnect(a, "127.0.0.1", 0, flagcxP2pEngineGetRpcPort(b),
						  false);
	char ip[64];
	int gpu;
	FlagcxP2pConn *d = flagcxP2pEngineAccept(b, ip, sizeof(ip), &gpu);

	TP_CHECK(c && d);
	for (int round = 0; round < 20; round++) {
		FlagcxP2pRdmaDesc da, db;
		uint64_t i, j;

		TP_OK(flagcxP2pEngineMakeDesc(c, (uint64_t)(uintptr_t)mb, (uint32_t)n, &db));
		TP_OK(flagcxP2pEngineMakeDesc(d, (uint64_t)(uintptr_t)ma, (uint32_t)n, &da));
		tp_fill(ma, (uint64_t)round + 1, 0, n / 2);
		tp_fill(mb + n / 2, (uint64_t)round + 100, n / 2, n - n / 2);
		da.addr += n / 2;
		TP_OK(flagcxP2pEngineWrite(c, ra, ma, n / 2, db, &i)); /* a's first half to b */
		TP_OK(flagcxP2pEngineWrite(d, rb, mb + n / 2, n - n / 2, da, &j)); /* and back */
		TP_OK(flagcxP2pEngineXferWait(c, i, tp_ms(10000)));
		TP_OK(flagcxP2pEngineXferWait(d, j, tp_ms(10000)));
		TP_EQ(tp_differs(mb, (uint64_t)round + 1, 0, n / 2), -1);
		TP_EQ(tp_differs(ma + n / 2, (uint64_t)round + 100, n / 2, n - n / 2), -1);
	}
	flagcxP2pEngineDestroy(a);
	flagcxP2pEngineDestroy(b);
}

/* R16: over IPv6 without any option; by name too. */
static void loopback_works_in_both_families(void)
{
	static const char *const hosts[] = { "127.0.0.1", "::1", "localhost" };
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	char session[128];

	tp_serve(&s, 4096, 0, NULL);
	for (int i = 0; i < 3; i++) {
		FlagcxP2pConn *c = flagcxP2pEngineConnect(e, hosts[i], 0, s.port, false);

		TP_CHECK(c != NULL);
		flagcxP2pEngineConnDestroy(c);
		snprintf(session, sizeof(session), i == 1 ? "[%s]:%d" : "%s:%d", hosts[i], s.port);
		TP_CHECK(flagcxP2pEngineGetConn(e, session) != NULL);
	}
	TP_CHECK(!flagcxP2pEngineGetConn(e, "localhost"));
	TP_EQ(errno, EINVAL);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

/* R17 */
static void ports_are_distinct_and_a_busy_one_is_refused(void)
{
	enum { N = 20 };
	FlagcxP2pEngine *e[N], *other = NULL;
	FlagcxP2pEngineOptions o = { .size = sizeof(o) };
	int port[N];

	for (int i = 0; i < N; i++) {
		e[i] = tp_engine();
		port[i] = flagcxP2pEngineGetRpcPort(e[i]);
		for (int k = 0; k < i; k++)
			TP_CHECK(port[k] != port[i]);
	}
	o.port = port[3];
	TP_EQ(flagcxP2pEngineCreateWith(&o, &other), -EADDRINUSE);
	TP_CHECK(!other);
	flagcxP2pEngineDestroy(e[3]);
	TP_OK(flagcxP2pEngineCreateWith(&o, &other)); /* free again at once */
	TP_EQ(flagcxP2pEngineGetRpcPort(other), port[3]);
	flagcxP2pEngineDestroy(other);
	for (int i = 0; i < N; i++)
		flagcxP2pEngineDestroy(e[i]);
}

static void options_are_checked(void)
{
	FlagcxP2pEngine *e = NULL;
	FlagcxP2pEngineOptions o = { .size = 4 };

	TP_EQ(flagcxP2pEngineCreateWith(&o, &e), -EINVAL);
	o = (FlagcxP2pEngineOptions){ .size = sizeof(o), .port = 70000 };
	TP_EQ(flagcxP2pEngineCreateWith(&o, &e), -EINVAL);
	o = (FlagcxP2pEngineOptions){ .size = sizeof(o), .transport = "carrier pigeon" };
	TP_EQ(flagcxP2pEngineCreateWith(&o, &e), -EINVAL);
	o = (FlagcxP2pEngineOptions){ .size = sizeof(o), .interface = "no such thing" };
	TP_EQ(flagcxP2pEngineCreateWith(&o, &e), -ENODEV);
	TP_EQ(flagcxP2pEngineCreateWith(&o, NULL), -EINVAL);
	TP_CHECK(!e);
	o = (FlagcxP2pEngineOptions){ .size = sizeof(o), .transport = "tcp", .interface = "lo" };
	TP_OK(flagcxP2pEngineCreateWith(&o, &e));
	flagcxP2pEngineDestroy(e);
}

/* An address that was asked for is the one told to peers and the only one bound. */
static void a_chosen_address_is_the_only_one(void)
{
	FlagcxP2pEngine *e = NULL, *from = tp_engine();
	FlagcxP2pEngineOptions o = { .size = sizeof(o), .interface = "127.0.0.1" };
	char *text = NULL;
	int port;

	TP_OK(flagcxP2pEngineCreateWith(&o, &e));
	TP_OK(flagcxP2pEngineGetMetadata(e, &text));
	TP_CHECK(!strncmp(text, "127.0.0.1:", 10));
	free(text);
	port = flagcxP2pEngineGetRpcPort(e);
	TP_CHECK(flagcxP2pEngineConnect(from, "127.0.0.1", 0, port, false) != NULL);
	TP_CHECK(flagcxP2pEngineConnect(from, "::1", 0, port, false) == NULL);
	TP_EQ(errno, EHOSTUNREACH);
	flagcxP2pEngineDestroy(from);
	flagcxP2pEngineDestroy(e);
}

static FlagcxP2pConn *connect_to(FlagcxP2pEngine *from, FlagcxP2pEngine *to)
{
	return flagcxP2pEngineConnect(from, "::1", 0, flagcxP2pEngineGetRpcPort(to), false);
}

static void the_secret_is_asked_of_both_ends(void)
{
	FlagcxP2pEngineOptions o = { .size = sizeof(o), .secret = "open sesame" };
	FlagcxP2pEngine *with = NULL, *also = NULL, *without = tp_engine(), *wrong = NULL;
	FlagcxP2pStats st;

	TP_OK(flagcxP2pEngineCreateWith(&o, &with));
	TP_OK(flagcxP2pEngineCreateWith(&o, &also));
	o.secret = "open barley";
	TP_OK(flagcxP2pEngineCreateWith(&o, &wrong));
	TP_CHECK(connect_to(with, also));
	TP_CHECK(!connect_to(without, with));
	TP_EQ(errno, EACCES);
	TP_CHECK(!connect_to(with, without));
	TP_EQ(errno, EACCES);
	TP_CHECK(!connect_to(wrong, with));
	TP_EQ(errno, EACCES);
	st = tp_stats(with);
	TP_EQ(st.connections, 1);
	flagcxP2pEngineDestroy(with);
	flagcxP2pEngineDestroy(also);
	flagcxP2pEngineDestroy(without);
	flagcxP2pEngineDestroy(wrong);
}

static void peers_beyond_the_limit_are_refused(void)
{
	FlagcxP2pEngine *e = tp_engine(), *from[4];
	FlagcxP2pConn *c[4];

	for (int i = 0; i < 4; i++) {
		from[i] = tp_engine();
		c[i] = flagcxP2pEngineConnect(from[i], "::1", 0, flagcxP2pEngineGetRpcPort(e),
					      false);
		TP_EQ(c[i] != NULL, i < 3);
	}
	TP_EQ(errno, EUSERS);
	flagcxP2pEngineConnDestroy(c[0]);
	TP_WITHIN(20, tp_stats(e).connections == 2);
	TP_CHECK(flagcxP2pEngineConnect(from[3], "::1", 0, flagcxP2pEngineGetRpcPort(e), false));
	for (int i = 0; i < 4; i++)
		flagcxP2pEngineDestroy(from[i]);
	flagcxP2pEngineDestroy(e);
}

static void *blocked_accept(void *arg)
{
	char ip[64];
	int gpu;

	return flagcxP2pEngineAccept(arg, ip, sizeof(ip), &gpu);
}

/* R09 */
static void a_blocked_accept_ends_with_the_engine(void)
{
	for (int how = 0; how < 2; how++) {
		FlagcxP2pEngine *e = tp_engine();
		pthread_t t[3];
		double start;
		void *got;

		for (int i = 0; i < 3; i++)
			pthread_create(&t[i], NULL, blocked_accept, e);
		tp_sleep(0.05);
		start = tp_now();
		if (how)
			flagcxP2pEngineStopAccept(e);
		else
			flagcxP2pEngineDestroy(e);
		for (int i = 0; i < 3; i++) {
			pthread_join(t[i], &got);
			TP_CHECK(!got);
		}
		TP_CHECK(tp_now() - start < 20);
		flagcxP2pEngineStopAccept(e);
		flagcxP2pEngineDestroy(e);
	}
}

static void stop_accept_keeps_what_is_connected(void)
{
	FlagcxP2pEngine *e = tp_engine(), *from = tp_engine();
	int port = flagcxP2pEngineGetRpcPort(e), gpu;
	FlagcxP2pConn *c = flagcxP2pEngineConnect(from, "::1", 0, port, false), *d;
	FlagcxP2pNotifyMsg note = { .name = "still", .msg = "here" };
	char ip[64];

	d = flagcxP2pEngineAccept(e, ip, sizeof(ip), &gpu);
	TP_CHECK(c && d);
	flagcxP2pEngineStopAccept(e);
	TP_CHECK(!flagcxP2pEngineAccept(e, ip, sizeof(ip), &gpu));
	TP_EQ(flagcxP2pEngineStartRpcServer(e), -ESHUTDOWN);
	TP_EQ(flagcxP2pEngineSendNotif(c, &note), (int)sizeof(note));
	TP_WITHIN(20, tp_stats(e).notifs_received == 1);
	TP_CHECK(!flagcxP2pEngineConnect(from, "::1", 0, port, false));
	flagcxP2pEngineDestroy(e);
	flagcxP2pEngineDestroy(from);
}

/* R09: no thread, descriptor or memory is left behind. */
static void engines_come_and_go_without_a_trace(void)
{
	long rounds = tp_scale(500);
	int fds, threads;
	size_t rss = 0;

	flagcxP2pEngineDestroy(tp_engine());
	fds = tp_fds();
	threads = tp_threads();
	for (long i = 0; i < rounds; i++) {
		flagcxP2pEngineDestroy(tp_engine());
		if (i == rounds / 10)
			rss = tp_rss();
	}
	TP_EQ(tp_fds(), fds);
	/* the kernel lists a thread for a moment after it has been joined */
	TP_WITHIN(10, tp_threads() == threads);
	if (!tp_sanitized())
		TP_CHECK(tp_rss() < rss + (2 << 20));
}

static void connections_come_and_go_without_a_trace(void)
{
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(65536);
	FlagcxP2pMr mr = tp_reg(e, mem, 65536);
	long rounds = tp_scale(300);
	int fds = 0, threads = tp_threads();
	size_t rss = 0;
	unsigned int alive = 9;

	tp_serve(&s, 65536, 0, NULL);
	for (long i = 0; i < rounds; i++) {
		FlagcxP2pConn *c = tp_connect(e, &s);
		uint64_t id;

		TP_OK(flagcxP2pEngineRead(c, mr, mem, 65536, s.desc, &id));
		if (i % 2)
			TP_OK(flagcxP2pEngineXferWait(c, id, 5000));
		flagcxP2pEngineConnDestroy(c);
		if (i == rounds / 10) {
			tp_sleep(1.2);
			rss = tp_rss();
			fds = tp_fds();
		}
	}
	tp_sleep(1.5); /* sessions linger */
	TP_EQ(tp_fds(), fds);
	/* the kernel lists a thread for a moment after it has been joined */
	TP_WITHIN(10, tp_threads() == threads);
	if (!tp_sanitized())
		TP_CHECK(tp_rss() < rss + (2 << 20));
	tp_say(s.peer, "stats");
	sscanf(tp_hear(s.peer, 20), "stats %u", &alive);
	TP_EQ(alive, 0);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

/* R06 and the like: whoever talks nonsense is dropped and disturbs nobody. */
static void nonsense_at_the_listener_is_dropped(void)
{
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	int fd[64], silent;
	char byte;

	tp_serve(&s, 4096, 0, "FLAGCX_P2P_LIVENESS_MS=4000");
	silent = dial_raw(s.port); /* says nothing: must not hold up the others */
	for (int i = 0; i < 64; i++) {
		uint8_t junk[400];

		fd[i] = dial_raw(s.port);
		tp_fill(junk, (uint64_t)i, 0, sizeof(junk));
		if (i % 3 == 0)
			memset(junk, 0xff, sizeof(junk));
		TP_CHECK(send(fd[i], junk, sizeof(junk) - (size_t)i, MSG_NOSIGNAL) > 0);
	}
	TP_CHECK(tp_connect(e, &s) != NULL);
	for (int i = 0; i < 64; i++) {
		struct timeval tv = { .tv_sec = 8 };

		setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		TP_CHECK(recv(fd[i], &byte, 1, 0) <= 0 && errno != EAGAIN);
		close(fd[i]);
	}
	{
		struct timeval tv = { .tv_sec = 8 };

		setsockopt(silent, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
		TP_EQ(recv(silent, &byte, 1, 0), 0); /* the deadline of greetings */
	}
	TP_CHECK(tp_connect(e, &s) != NULL);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

/* A listener that takes connections and never answers: no call hangs. */
static void a_mute_listener_times_out(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FlagcxP2pEngine *e = tp_engine();
	double start = tp_now();

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	TP_OK(bind(fd, (struct sockaddr *)&a, sizeof(a)));
	TP_OK(listen(fd, 8));
	TP_OK(getsockname(fd, (struct sockaddr *)&a, &len));
	TP_CHECK(!flagcxP2pEngineConnect(e, "127.0.0.1", 0, ntohs(a.sin_port), false));
	TP_EQ(errno, ETIMEDOUT);
	TP_CHECK(tp_now() - start < 30);
	flagcxP2pEngineDestroy(e);
}

/* R13: attempts at a peer that is not there grow rarer, and then fail at once. */
static void an_absent_peer_is_tried_ever_more_rarely(void)
{
	FlagcxP2pEngine *e = tp_engine();
	double start = tp_now(), cpu = tp_cpu();
	FlagcxP2pStats st;

	TP_CHECK(!flagcxP2pEngineGetConn(e, "127.0.0.1:1"));
	TP_EQ(errno, EHOSTUNREACH);
	TP_CHECK(tp_now() - start > 5 && tp_now() - start < 40);
	st = tp_stats(e);
	TP_CHECK(st.connects_failed >= 5 && st.connects_failed <= 10);
	start = tp_now();
	TP_CHECK(!flagcxP2pEngineGetConn(e, "127.0.0.1:1"));
	TP_CHECK(tp_now() - start < 5); /* not ten seconds again */
	TP_EQ(tp_stats(e).connects_failed, st.connects_failed);
	TP_CHECK(tp_cpu() - cpu < 0.3);
	flagcxP2pEngineDestroy(e);
}

static void *endless_connect(void *arg)
{
	return flagcxP2pEngineConnect(arg, "127.0.0.1", 0, 1, false);
}

static void destroying_the_engine_ends_a_connect(void)
{
	FlagcxP2pEngine *e = tp_engine();
	double start;
	pthread_t t;
	void *got;

	pthread_create(&t, NULL, endless_connect, e);
	tp_sleep(0.3);
	start = tp_now();
	flagcxP2pEngineDestroy(e);
	pthread_join(t, &got);
	TP_CHECK(!got);
	TP_CHECK(tp_now() - start < 20);
}

static void late_registrations_are_found(void)
{
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	FlagcxP2pRdmaDesc d;
	FlagcxP2pConn *c;

	tp_serve(&s, 1 << 20, 0, NULL);
	c = tp_connect(e, &s);
	TP_OK(flagcxP2pEngineMakeDesc(c, s.addr + 100, 1000, &d));
	TP_EQ(d.addr, s.addr + 100);
	TP_EQ(d.rkey, s.desc.rkey);
	TP_EQ(flagcxP2pEngineMakeDesc(c, s.addr, (1 << 20) + 1, &d), -ENOENT);
	TP_EQ(flagcxP2pEngineMakeDesc(c, UINT64_MAX - 10, 20, &d), -ENOENT); /* wraps */
	TP_EQ(flagcxP2pEngineMakeDesc(c, s.addr, 0, &d), -EINVAL);
	tp_say(s.peer, "dereg");
	tp_hear(s.peer, 20);
	TP_WITHIN(20, flagcxP2pEngineMakeDesc(c, s.addr, 1000, &d) == -ENOENT);
	tp_say(s.peer, "reg");
	tp_hear(s.peer, 20);
	TP_OK(flagcxP2pEngineMakeDesc(c, s.addr, 1000, &d)); /* at once: it asks */
	TP_CHECK(d.rid != s.desc.rid);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

static void *churn(void *arg)
{
	void **a = arg;
	long rounds = tp_scale(1000);

	for (long i = 0; i < rounds; i++) {
		FlagcxP2pMr mr = tp_reg(a[0], a[1], 1 << 20);

		flagcxP2pEngineMrDestroy(a[0], mr);
	}
	return NULL;
}

/* R07 */
static void threads_register_the_same_range(void)
{
	FlagcxP2pEngine *e = tp_engine();
	void *a[2] = { e, tp_alloc(1 << 20) };
	FlagcxP2pMrInfo info = { .size = sizeof(info) };
	FlagcxP2pMr one, two;
	pthread_t t[16];

	for (int i = 0; i < 16; i++)
		pthread_create(&t[i], NULL, churn, a);
	for (int i = 0; i < 16; i++)
		pthread_join(t[i], NULL);
	TP_EQ(tp_stats(e).regions, 0);
	one = tp_reg(e, a[1], 1 << 20);
	two = tp_reg(e, a[1], 1 << 20);
	TP_EQ(one, two);
	TP_OK(flagcxP2pEngineMrInfo(e, one, &info));
	TP_EQ(info.refs, 2);
	TP_EQ(info.device, -1);
	TP_CHECK(!strcmp(info.path, "host"));
	flagcxP2pEngineMrDestroy(e, one);
	TP_EQ(tp_stats(e).regions, 1);
	flagcxP2pEngineMrDestroy(e, one);
	flagcxP2pEngineMrDestroy(e, one); /* unknown now: nothing happens */
	TP_EQ(tp_stats(e).regions, 0);
	TP_EQ(flagcxP2pEngineMrInfo(e, one, &info), -ENOENT);
	flagcxP2pEngineDestroy(e);
}

/* R40: children of a process that uses the library touch nothing of it. */
static void a_forked_child_is_refused_and_harmless(void)
{
	const size_t n = 4 << 20;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(n);
	FlagcxP2pMr mr = tp_reg(e, mem, n), other;
	FlagcxP2pConn *c;
	uint64_t id[4];
	pid_t pid[8];

	tp_serve(&s, n, 0, NULL);
	c = tp_connect(e, &s);
	for (int i = 0; i < 4; i++)
		TP_OK(flagcxP2pEngineRead(c, mr, mem + (size_t)i * (n / 4), n / 4,
					  tp_desc(&s, (size_t)i * (n / 4), n / 4), &id[i]));
	for (int i = 0; i < 8; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			FlagcxP2pEngine *none = NULL;

			memset(mem, i, n);
			if (flagcxP2pEngineCreateWith(NULL, &none) != -ECHILD ||
			    flagcxP2pEngineReg(e, (uintptr_t)mem, n, &other) != -EINVAL ||
			    flagcxP2pEngineConnect(e, "::1", 0, s.port, false) ||
			    errno != ECHILD || !flagcxP2pEngineXferStatus(c, id[0]))
				_exit(1);
			flagcxP2pEngineConnDestroy(c);
			flagcxP2pEngineDestroy(e);
			_exit(0);
		}
	}
	for (int i = 0; i < 4; i++)
		TP_OK(flagcxP2pEngineXferWait(c, id[i], tp_ms(10000)));
	for (int i = 0; i < 8; i++) {
		int status;

		waitpid(pid[i], &status, 0);
		TP_EQ(status, 0);
	}
	TP_EQ(tp_differs(mem, 1, 0, n), -1);
	TP_OK(flagcxP2pEngineRead(c, mr, mem, n, s.desc, &id[0]));
	TP_OK(flagcxP2pEngineXferWait(c, id[0], tp_ms(10000)));
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

/* A child that lives on does not keep the parent's death from its peers. */
static void a_parents_death_shows_despite_its_children(void)
{
	FlagcxP2pEngine *e = tp_engine();
	struct tp_peer *p;
	FlagcxP2pConn *d;
	char port[16], ip[64];
	int gpu;

	snprintf(port, sizeof(port), "%d", flagcxP2pEngineGetRpcPort(e));
	p = tp_spawn(NULL, "forker", port, NULL);
	d = flagcxP2pEngineAccept(e, ip, sizeof(ip), &gpu);
	TP_CHECK(d != NULL);
	TP_CHECK(!strcmp(tp_hear(p, 10), "forked"));
	tp_kill(p, SIGKILL); /* its child sleeps on */
	TP_WITHIN(20, flagcxP2pEngineConnStatus(d) == -ECONNRESET);
	flagcxP2pEngineDestroy(e);
}

static void role_forker(int argc, char **argv)
{
	FlagcxP2pEngine *e = tp_engine();

	TP_CHECK(flagcxP2pEngineConnect(e, "127.0.0.1", 0, atoi(argv[0]), false) != NULL);
	if (fork() == 0) {
		tp_sleep(6);
		_exit(0);
	}
	tp_answer("forked");
	tp_sleep(60);
}

static void ipc_info_is_right_and_repeatable(void)
{
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(8192);
	char a[FLAGCX_P2P_IPC_INFO_SIZE], b[FLAGCX_P2P_IPC_INFO_SIZE];
	uint64_t field;
	bool has = true;

	TP_EQ(flagcxP2pEngineGetIpcInfo(e, (uintptr_t)mem, a, &has), -ENOENT);
	tp_reg(e, mem, 8192);
	TP_OK(flagcxP2pEngineGetIpcInfo(e, (uintptr_t)mem, a, &has));
	TP_CHECK(!has);
	TP_OK(flagcxP2pEngineUpdateIpcInfo(a, (uintptr_t)mem + 100, (uintptr_t)mem, 50));
	memcpy(b, a, sizeof(a));
	TP_OK(flagcxP2pEngineUpdateIpcInfo(b, (uintptr_t)mem + 100, (uintptr_t)mem, 50));
	TP_CHECK(!memcmp(a, b, sizeof(a)));
	memcpy(&field, a + 64, 8);
	TP_EQ(field, (uintptr_t)mem);
	memcpy(&field, a + 72, 8);
	TP_EQ(field, 100);
	memcpy(&field, a + 80, 8);
	TP_EQ(field, 50);
	TP_EQ(flagcxP2pEngineUpdateIpcInfo(a, (uintptr_t)mem - 1, (uintptr_t)mem, 50), -EINVAL);
	TP_EQ(flagcxP2pEngineUpdateIpcInfo(NULL, 1, 1, 1), -EINVAL);
	flagcxP2pEngineDestroy(e);
}

static void an_idle_engine_costs_nothing(void)
{
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	double mine, its[2];

	tp_serve(&s, 4096, 0, NULL);
	TP_CHECK(tp_connect(e, &s) != NULL);
	tp_sleep(0.3);
	mine = tp_cpu();
	tp_say(s.peer, "cpu");
	sscanf(tp_hear(s.peer, 20), "cpu %lf", &its[0]);
	tp_sleep(4);
	mine = tp_cpu() - mine;
	tp_say(s.peer, "cpu");
	sscanf(tp_hear(s.peer, 20), "cpu %lf", &its[1]);
	printf("idle: %.2f %% here, %.2f %% there\n", mine / 4 * 100, (its[1] - its[0]) / 4 * 100);
	if (!tp_sanitized()) {
		TP_CHECK(mine / 4 < 0.01);
		TP_CHECK((its[1] - its[0]) / 4 < 0.01);
	}
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 20);
}

static const struct tp_case cases[] = {
	TP_CASE(metadata_tells_where_to_connect),
	TP_CASE(a_connection_serves_both_ends),
	TP_CASE(loopback_works_in_both_families),
	TP_CASE(ports_are_distinct_and_a_busy_one_is_refused),
	TP_CASE(options_are_checked),
	TP_CASE(a_chosen_address_is_the_only_one, .env = "FLAGCX_P2P_CONNECT_MS=300"),
	TP_CASE(the_secret_is_asked_of_both_ends),
	TP_CASE(peers_beyond_the_limit_are_refused, .env = "FLAGCX_P2P_NOTIF_MAX_PEERS=3"),
	TP_CASE(a_blocked_accept_ends_with_the_engine),
	TP_CASE(stop_accept_keeps_what_is_connected, .env = "FLAGCX_P2P_CONNECT_MS=300"),
	TP_CASE(engines_come_and_go_without_a_trace),
	TP_CASE(connections_come_and_go_without_a_trace),
	TP_CASE(nonsense_at_the_listener_is_dropped),
	TP_CASE(a_mute_listener_times_out, .env = "FLAGCX_P2P_CONNECT_MS=1000"),
	TP_CASE(an_absent_peer_is_tried_ever_more_rarely),
	TP_CASE(destroying_the_engine_ends_a_connect, .env = "FLAGCX_P2P_CONNECT_MS=50000"),
	TP_CASE(late_registrations_are_found),
	TP_CASE(threads_register_the_same_range),
	TP_CASE(a_forked_child_is_refused_and_harmless),
	TP_CASE(a_parents_death_shows_despite_its_children),
	TP_CASE(ipc_info_is_right_and_repeatable),
	TP_CASE(an_idle_engine_costs_nothing),
};
static const struct tp_role roles[] = { TP_SERVER, { "forker", role_forker } };

TP_MAIN(cases, roles)
