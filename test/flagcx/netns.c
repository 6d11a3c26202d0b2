// SPDX-License-Identifier: Apache-2.0
/*
 * Hosts as network namespaces: partitions, links that go and come, addresses.
 *
 *	b 10.77.1.2 -- 10.77.1.1 a 10.77.2.1 -- 10.77.2.2 c
 *
 * Each case makes its own; a process of its own removes them when the case's
 * process has ended, however it did.
 */
#include "tp.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

static char ns[3][32];

__attribute__((format(printf, 1, 2))) static int sh(const char *fmt, ...)
{
	char cmd[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	return system(cmd);
}

/* Outlives the case: waits for the pipe to close, then cleans up. */
static void clean_up_later(void)
{
	int p[2];

	TP_OK(pipe(p));
	if (fork() == 0) {
		struct pollfd f = { .fd = p[0] };

		setsid();
		close(p[1]);
		while (poll(&f, 1, -1) < 0)
			;
		for (int i = 0; i < 3; i++)
			(void)!sh("ip netns del %s 2>/dev/null", ns[i]);
		_exit(0);
	}
	close(p[0]);
	/* the write end stays open in this process, and in no program it starts */
	TP_CHECK(dup3(p[1], 200, 02000000 /* O_CLOEXEC */) == 200);
	close(p[1]);
}

static void join(const char *a, const char *b, int net)
{
	TP_OK(sh("ip -n %s link add eth%d type veth peer name eth0 netns %s", a, net, b));
	TP_OK(sh("ip -n %s addr add 10.77.%d.1/24 dev eth%d", a, net, net));
	TP_OK(sh("ip -n %s addr add 10.77.%d.2/24 dev eth0", b, net));
	TP_OK(sh("ip -n %s link set eth%d up", a, net));
	TP_OK(sh("ip -n %s link set eth0 up", b));
}

static void hosts(void)
{
	if (geteuid() != 0)
		tp_skip("needs root for network namespaces");
	for (int i = 0; i < 3; i++) {
		snprintf(ns[i], sizeof(ns[i]), "phx%d%c", (int)getpid(), 'a' + i);
		if (sh("ip netns add %s 2>/dev/null", ns[i]))
			tp_skip("no network namespaces here");
		TP_OK(sh("ip -n %s link set lo up", ns[i]));
	}
	clean_up_later();
	join(ns[0], ns[1], 1);
	join(ns[0], ns[2], 2);
	tp_enter(ns[0]);
}

/* R24, R33: whatever cuts b off, its transfers end soon and c goes on. */
static void cut_off(const char *how)
{
	const size_t size = 64 << 20;
	struct tp_server b, c;
	struct tp_pair pair;
	FlagcxP2pEngine *e;
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pConn *conn;
	FlagcxP2pMr mr;
	double cut;
	uint64_t id[4];

	tp_serve_in(&b, ns[1], "10.77.1.2", size, 0, NULL);
	tp_serve_in(&c, ns[2], "10.77.2.2", 1 << 20, 0, NULL);
	e = tp_engine();
	mr = tp_reg(e, mem, size);
	conn = tp_connect(e, &b);
	TP_OK(flagcxP2pEngineRead(conn, mr, mem, size, b.desc, &id[0]));
	TP_OK(flagcxP2pEngineXferWait(conn, id[0], tp_ms(20000)));
	TP_EQ(tp_differs(mem, 1, 0, size), -1);
	tp_pair_start(&pair, e, &c);
	tp_pair_moves(&pair);
	if (sh("%s", how))
		tp_skip("cannot: %s", how);
	cut = tp_now();
	for (int i = 0; i < 4; i++)
		TP_OK(i % 2 ? flagcxP2pEngineWrite(conn, mr, mem, size, b.desc, &id[i]) :
			      flagcxP2pEngineRead(conn, mr, mem, size, b.desc, &id[i]));
	tp_pair_moves(&pair);
	for (int i = 0; i < 4; i++)
		TP_EQ(flagcxP2pEngineXferWait(conn, id[i], 30000), -ETIMEDOUT);
	printf("cut off: failed after %.2f s\n", tp_now() - cut);
	TP_CHECK(tp_now() - cut < 20);
	TP_EQ(flagcxP2pEngineConnStatus(conn), -ETIMEDOUT);
	tp_pair_moves(&pair);
	tp_pair_stop(&pair);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_kill(b.peer, SIGKILL);
	tp_quit(c.peer, 20);
}

static void a_link_that_goes_down_is_noticed(void)
{
	char cmd[128];

	hosts();
	snprintf(cmd, sizeof(cmd), "ip -n %s link set eth0 down", ns[1]);
	cut_off(cmd);
}

static void a_firewall_that_drops_is_noticed(void)
{
	char cmd[256];

	hosts();
	snprintf(cmd, sizeof(cmd),
		 "iptables -A INPUT -s 10.77.1.2 -j DROP 2>/dev/null && "
		 "iptables -A OUTPUT -d 10.77.1.2 -j DROP 2>/dev/null");
	cut_off(cmd);
}

static void an_address_that_vanishes_is_noticed(void)
{
	char cmd[128];

	hosts();
	snprintf(cmd, sizeof(cmd), "ip -n %s addr del 10.77.1.2/24 dev eth0", ns[1]);
	cut_off(cmd);
}

/* A short break is survived: the stream goes on where it was. */
static void a_short_break_is_survived(void)
{
	const size_t size = 256 << 20;
	struct tp_server b;
	FlagcxP2pEngine *e;
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pConn *conn;
	FlagcxP2pMr mr;
	uint64_t id;

	hosts();
	tp_serve_in(&b, ns[1], "10.77.1.2", size, 0, NULL);
	e = tp_engine();
	mr = tp_reg(e, mem, size);
	conn = tp_connect(e, &b);
	TP_OK(flagcxP2pEngineRead(conn, mr, mem, size, b.desc, &id));
	TP_OK(sh("ip -n %s link set eth0 down", ns[1]));
	tp_sleep(0.7);
	TP_OK(sh("ip -n %s link set eth0 up", ns[1]));
	TP_OK(flagcxP2pEngineXferWait(conn, id, tp_ms(30000)));
	TP_EQ(tp_differs(mem, 1, 0, size), -1);
	flagcxP2pEngineDestroy(e);
	tp_quit(b.peer, 20);
}

/* Cut off for good and back: the session is made anew. */
static void a_healed_partition_is_reconnected(void)
{
	struct tp_server b;
	FlagcxP2pEngine *e;
	double healed;

	hosts();
	tp_serve_in(&b, ns[1], "10.77.1.2", 4096, 0, NULL);
	e = tp_engine();
	TP_CHECK(flagcxP2pEngineGetConn(e, b.session) != NULL);
	TP_OK(sh("ip -n %s link set eth0 down", ns[1]));
	TP_WITHIN(20, tp_stats(e).connections == 0);
	TP_OK(sh("ip -n %s link set eth0 up", ns[1]));
	healed = tp_now();
	while (!flagcxP2pEngineGetConn(e, b.session)) {
		TP_CHECK(tp_now() - healed < 30);
		tp_sleep(0.05);
	}
	flagcxP2pEngineDestroy(e);
	tp_quit(b.peer, 20);
}

/* R18: what is told to peers is an address of the wire, in the family there is. */
static void the_address_told_is_one_of_the_wire(void)
{
	FlagcxP2pEngine *e;
	char *text;

	hosts();
	e = tp_engine();
	TP_OK(flagcxP2pEngineGetMetadata(e, &text));
	TP_CHECK(!strncmp(text, "10.77.1.1:", 10));
	free(text);
	flagcxP2pEngineDestroy(e);
	TP_OK(sh("ip link set eth1 down && ip link set eth2 down"));
	e = tp_engine();
	TP_OK(flagcxP2pEngineGetMetadata(e, &text));
	TP_CHECK(!strncmp(text, "127.0.0.1:", 10));
	free(text);
	flagcxP2pEngineDestroy(e);
	TP_OK(sh("ip addr flush dev eth1 && ip link set eth1 up && "
		 "ip -6 addr add 2001:db8:77::1/64 dev eth1 nodad"));
	e = tp_engine();
	TP_OK(flagcxP2pEngineGetMetadata(e, &text));
	TP_CHECK(!strncmp(text, "[2001:db8:77::1]:", 17));
	free(text);
	flagcxP2pEngineDestroy(e);
}

/* R17: many engines that start at once have ports of their own, each reachable. */
static void role_starter(int argc, char **argv)
{
	FlagcxP2pEngine *e = tp_engine();

	TP_OK(flagcxP2pEngineStartRpcServer(e));
	tp_answer("%d", flagcxP2pEngineGetRpcPort(e));
	tp_line();
	flagcxP2pEngineDestroy(e);
}

static void engines_that_start_together_have_ports_of_their_own(void)
{
	enum { N = 60 };
	struct tp_peer *p[N];
	FlagcxP2pEngine *e;
	int port[N];

	hosts();
	e = tp_engine();
	for (int i = 0; i < N; i++)
		p[i] = tp_spawn_in(ns[1], NULL, "starter", NULL);
	for (int i = 0; i < N; i++) {
		port[i] = atoi(tp_hear(p[i], 30));
		for (int k = 0; k < i; k++)
			TP_CHECK(port[k] != port[i]);
		TP_CHECK(flagcxP2pEngineConnect(e, "10.77.1.2", 0, port[i], false) != NULL);
	}
	flagcxP2pEngineDestroy(e);
	for (int i = 0; i < N; i++)
		tp_quit(p[i], 20);
}

static const struct tp_case cases[] = {
	TP_CASE(a_link_that_goes_down_is_noticed),
	TP_CASE(a_firewall_that_drops_is_noticed),
	TP_CASE(an_address_that_vanishes_is_noticed),
	TP_CASE(a_short_break_is_survived),
	TP_CASE(a_healed_partition_is_reconnected),
	TP_CASE(the_address_told_is_one_of_the_wire),
	TP_CASE(engines_that_start_together_have_ports_of_their_own),
};
static const struct tp_role roles[] = { TP_SERVER, { "starter", role_starter } };

TP_MAIN(cases, roles)
