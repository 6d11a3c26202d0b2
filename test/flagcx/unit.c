// SPDX-License-Identifier: Apache-2.0
/* The pure parts: cutting, settings, addresses, wire, proofs, handles, regions. */
#include "addr.h"
#include "auth.h"
#include "config.h"
#include "region.h"
#include "slice.h"
#include "table.h"
#include "tp.h"
#include "wire.h"

#include <sys/socket.h>

/* --------------------------------------------------------------------- slices */

/* Every cut: whole, in order, within the limit, tails merged, and counted right. */
static void check_cut(int policy, size_t slice, size_t frag, size_t limit, size_t len)
{
	struct p2p_cut cut;
	size_t left = len, n = 0, last = 0, step;

	TP_OK(p2p_cut_init(&cut, policy, slice, frag, limit));
	while (left) {
		last = p2p_cut_next(&cut, left);
		TP_CHECK(last > 0 && last <= left && last <= limit);
		left -= last;
		n++;
		if (left)
			TP_EQ(last, slice < limit && policy == FLAGCX_P2P_POLICY_CONNECTOR ? slice :
											     limit);
	}
	TP_EQ(p2p_cut_count(&cut, len), n);
	step = slice < limit ? slice : limit;
	if (policy == FLAGCX_P2P_POLICY_CONNECTOR && n > 1 && slice + frag <= limit)
		TP_CHECK(last > frag && last <= step + frag);
}

static void slices_cover_a_range(void)
{
	static const size_t lens[] = { 0, 1, 4095, 4096, 65535, 65536, 65537, 69632, 69633,
				       131072, 135168, 135169, 1 << 20, (1 << 20) + 1, 10000019 };

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		check_cut(FLAGCX_P2P_POLICY_NIXL, 65536, 4096, 1 << 20, lens[i]);
		check_cut(FLAGCX_P2P_POLICY_CONNECTOR, 65536, 4096, 1 << 20, lens[i]);
		check_cut(FLAGCX_P2P_POLICY_CONNECTOR, 65536, 0, 1 << 20, lens[i]);
		check_cut(FLAGCX_P2P_POLICY_CONNECTOR, 65536, 65536, 1 << 20, lens[i]);
		check_cut(FLAGCX_P2P_POLICY_CONNECTOR, 1 << 20, 4096, 65536, lens[i]);
		check_cut(FLAGCX_P2P_POLICY_CONNECTOR, 65536, 4096, 65536, lens[i]);
		check_cut(FLAGCX_P2P_POLICY_CONNECTOR, 1024, 100, 4096, lens[i]);
	}
}

static void slices_of_a_terabyte_are_counted_at_once(void)
{
	struct p2p_cut cut;

	TP_OK(p2p_cut_init(&cut, FLAGCX_P2P_POLICY_CONNECTOR, 65536, 4096, 1 << 20));
	TP_EQ(p2p_cut_count(&cut, 1ull << 40), 1 << 24);
	TP_EQ(p2p_cut_count(&cut, (1ull << 40) + 4096), 1 << 24);
	TP_EQ(p2p_cut_count(&cut, (1ull << 40) + 4097), (1 << 24) + 1);
	TP_EQ(p2p_cut_init(&cut, 2, 1, 1, 1), -EINVAL);
	TP_EQ(p2p_cut_init(&cut, -1, 1, 1, 1), -EINVAL);
}

/* ------------------------------------------------------------------- settings */

static const char *env_name[8], *env_value[8];

static const char *fake_env(const char *name)
{
	for (int i = 0; i < 8; i++)
		if (env_name[i] && !strcmp(env_name[i], name))
			return env_value[i];
	return NULL;
}

static void set_env(int i, const char *name, const char *value)
{
	env_name[i] = name;
	env_value[i] = value;
}

static void settings_have_the_documented_defaults(void)
{
	struct p2p_config c;

	p2p_config_read(&c, NULL, NULL);
	TP_EQ(c.g.qpsPerConn, 4);
	TP_EQ(c.g.workersPerPool, 2);
	TP_EQ(c.g.shardCount, 8);
	TP_EQ(c.g.sharedCqDepth, 4096);
	TP_EQ(c.g.maxWrPerPost, 64);
	TP_EQ(c.g.maxRequests, 256);
	TP_EQ(c.g.batchPollSize, 32);
	TP_EQ(c.g.readBatchWindow, 8);
	TP_EQ(c.g.sliceSize, 65536);
	TP_EQ(c.g.fragmentLimit, 4096);
	TP_EQ(c.g.maxSge, 4);
	TP_EQ(c.g.maxInline, 64);
	TP_EQ(c.g.ibPort, 1);
	TP_EQ(c.g.gidIndex, -1);
	TP_EQ(c.g.mtuLength, 4096);
	TP_EQ(c.g.ibTrafficClass, -1);
	TP_EQ(c.g.retryCnt, 7);
	TP_EQ(c.g.notifMaxPeers, 64);
	TP_EQ(c.g.enableDestDeviceAffinity, 0);
}

/* Each range: its ends are taken, one beyond is refused for the default. */
static void settings_keep_their_ranges(void)
{
	static const struct {
		const char *name;
		long long min, max, def;
		size_t offset, size;
	} rows[] = {
#define ROW(n, f, lo, hi, d) \
	{ "FLAGCX_P2P_" n, lo, hi, d, offsetof(struct p2p_config, g.f), \
	  sizeof(((struct p2p_config *)0)->g.f) }
		ROW("QPS_PER_CONN", qpsPerConn, 1, 32, 4),
		ROW("WORKERS_PER_POOL", workersPerPool, 1, 8, 2),
		ROW("SHARD_COUNT", shardCount, 1, 64, 8),
		ROW("CQ_DEPTH", sharedCqDepth, 1, 1 << 20, 4096),
		ROW("MAX_WR_PER_POST", maxWrPerPost, 1, 1024, 64),
		ROW("MAX_REQUESTS", maxRequests, 1, 65536, 256),
		ROW("BATCH_POLL_SIZE", batchPollSize, 1, 256, 32),
		ROW("READ_BATCH_WINDOW", readBatchWindow, 1, 256, 8),
		ROW("SLICE_SIZE", sliceSize, 1024, 1 << 26, 65536),
		ROW("FRAGMENT_LIMIT", fragmentLimit, 0, 65536, 4096),
		ROW("MAX_SGE", maxSge, 1, 32, 4),
		ROW("MAX_INLINE", maxInline, 0, 1024, 64),
		ROW("IB_PORT", ibPort, 1, 255, 1),
		ROW("GID_INDEX", gidIndex, -1, 255, -1),
		ROW("IB_TC", ibTrafficClass, -1, 255, -1),
		ROW("RETRY_CNT", retryCnt, 0, 7, 7),
		ROW("NOTIF_MAX_PEERS", notifMaxPeers, 1, 1024, 64),
		ROW("DEST_DEV_AFFINITY", enableDestDeviceAffinity, 0, 1, 0),
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		long long tries[] = { rows[i].min, rows[i].max, rows[i].min - 1, rows[i].max + 1 };

		for (int k = 0; k < 4; k++) {
			/* the top of the fragment limit moves with the slice size */
			long long want = k < 2 ? tries[k] : rows[i].def;
			struct p2p_config c;
			char text[32];
			long long got = 0;

			if (k == 3 && strstr(rows[i].name, "FRAGMENT"))
				want = 65536;
			snprintf(text, sizeof(text), "%lld", tries[k]);
			set_env(0, rows[i].name, text);
			p2p_config_read(&c, fake_env, NULL);
			memcpy(&got, (char *)&c + rows[i].offset, rows[i].size);
			if (rows[i].size == 4)
				got = *(int *)((char *)&c + rows[i].offset);
			if (got != want)
				TP_FAIL("%s=%s gives %lld, not %lld", rows[i].name, text, got,
					want);
		}
	}
}

static void settings_refuse_nonsense(void)
{
	static const char *const bad[] = { "", "x", "4x", "0x", "1 2", "4KK",
					   "99999999999999999999" };
	struct p2p_config c;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		set_env(0, "FLAGCX_P2P_MAX_REQUESTS", bad[i]);
		p2p_config_read(&c, fake_env, NULL);
		TP_EQ(c.g.maxRequests, 256);
	}
	set_env(0, "FLAGCX_P2P_SLICE_SIZE", "128K");
	set_env(1, "FLAGCX_P2P_MTU", "1500");
	set_env(2, "FLAGCX_P2P_TRANSPORT", "TCP");
	p2p_config_read(&c, fake_env, NULL);
	TP_EQ(c.g.sliceSize, 128 << 10);
	TP_EQ(c.g.mtuLength, 4096);
	TP_EQ(c.transport, P2P_TRANSPORT_TCP);
	set_env(1, "FLAGCX_P2P_MTU", "1024");
	set_env(0, "FLAGCX_P2P_SLICE_SIZE", "1K");
	set_env(2, "FLAGCX_P2P_FRAGMENT_LIMIT", "2000");
	p2p_config_read(&c, fake_env, NULL);
	TP_EQ(c.g.mtuLength, 1024);
	TP_EQ(c.g.fragmentLimit, 1024); /* never above the slice size */
}

static void settings_come_from_three_places_in_order(void)
{
	const char *files[2] = {
		"# comment\n FLAGCX_P2P_MAX_SGE = 7 \nFLAGCX_P2P_MAX_SGE2=9\n"
		"FLAGCX_P2P_RETRY_CNT=3",
		"FLAGCX_P2P_MAX_SGE=8\nFLAGCX_P2P_MAX_INLINE=99\r\nFLAGCX_P2P_RETRY_CNT=2\n",
	};
	struct p2p_config c;
	char out[4];

	set_env(0, "FLAGCX_P2P_RETRY_CNT", "1");
	p2p_config_read(&c, fake_env, files);
	TP_EQ(c.g.retryCnt, 1);
	TP_EQ(c.g.maxSge, 7);
	TP_EQ(c.g.maxInline, 99);
	TP_EQ(p2p_config_find("A=12345\n", "A", out, sizeof(out)), -E2BIG);
	TP_EQ(p2p_config_find("A=123\n", "A", out, sizeof(out)), 1);
	TP_EQ(p2p_config_find("=\n==\nB\nA", "A", out, sizeof(out)), 0);
	TP_EQ(p2p_config_find("", "A", out, sizeof(out)), 0);
}

static int count_setting(void *arg, const FlagcxP2pSetting *s)
{
	int *n = arg;

	TP_CHECK(s->name && s->value && s->source && s->help && *s->help);
	TP_CHECK(!strstr(s->value, "hunter2"));
	++*n;
	return 0;
}

static void settings_are_listed_and_clamped(void)
{
	const FlagcxP2pGlobalConfig *before = flagcxP2pGlobalConfigGet(), *after;
	int n = 0;

	TP_OK(flagcxP2pConfigEach(count_setting, &n));
	TP_CHECK(n >= 19);
	TP_CHECK(flagcxP2pGlobalConfigGet() == before);
	flagcxP2pClampToDeviceLimits(0, 0, 0, 0);
	TP_CHECK(flagcxP2pGlobalConfigGet() == before);
	flagcxP2pClampToDeviceLimits(16, 2, 100, 3);
	after = flagcxP2pGlobalConfigGet();
	TP_EQ(after->maxWrPerPost, 16);
	TP_EQ(after->maxSge, 2);
	TP_EQ(after->sharedCqDepth, 100);
	TP_EQ(after->qpsPerConn, 3);
	TP_EQ(before->maxWrPerPost, 64); /* who holds the old ones is not disturbed */
	flagcxP2pClampToDeviceLimits(1000, 1000, 1000000, 1000);
	TP_CHECK(flagcxP2pGlobalConfigGet() == after);
}

/* ------------------------------------------------------------------ addresses */

static void sessions_are_parsed(void)
{
	static const struct {
		const char *text, *host;
		int port;
	} good[] = {
		{ "h:5000", "h", 5000 },
		{ "h", "h", 77 },
		{ "10.0.0.1:1", "10.0.0.1", 1 },
		{ "[2001:db8::1]:5000", "2001:db8::1", 5000 },
		{ "[2001:db8::1]", "2001:db8::1", 77 },
		{ "2001:db8::1", "2001:db8::1", 77 },
		{ "::1", "::1", 77 },
		{ "[::1]:65535", "::1", 65535 },
	};
	static const char *const bad[] = { "", ":5000", "h:", "h:70000", "h:0", "h:-1", "h:5x",
					   "h: 5", "[::1", "[]:5", "[::1]x", "[::1]:", "a:b:c",
					   "[::1]:99999" };
	char host[64];
	int port;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		TP_OK(p2p_session_parse(good[i].text, host, sizeof(host), &port, 77));
		TP_CHECK(!strcmp(host, good[i].host));
		TP_EQ(port, good[i].port);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (p2p_session_parse(bad[i], host, sizeof(host), &port, 77) != -EINVAL)
			TP_FAIL("\"%s\" was taken", bad[i]);
	TP_EQ(p2p_session_parse("h", host, sizeof(host), &port, -1), -EINVAL);
	TP_EQ(p2p_session_parse("abcdefgh:1", host, 8, &port, -1), -EINVAL);
}

static void metadata_is_written_for_both_families(void)
{
	char text[128];

	p2p_metadata_format("10.1.2.3", 4567, -1, text, sizeof(text));
	TP_CHECK(!strcmp(text, "10.1.2.3:4567?-1?4567"));
	p2p_metadata_format("2001:db8::1", 4567, 3, text, sizeof(text));
	TP_CHECK(!strcmp(text, "[2001:db8::1]:4567?3?4567"));
}

#define V4(n, a, ...) { .name = n, .ip = a, .family = AF_INET, .up = true, ##__VA_ARGS__ }
#define V6(n, a, ...) { .name = n, .ip = a, .family = AF_INET6, .up = true, ##__VA_ARGS__ }

static void interface_choice_follows_its_rules(void)
{
	static const struct p2p_iface list[] = {
		V4("lo", "127.0.0.1", .loopback = true),
		V4("docker0", "172.17.0.1"),
		V6("eth0", "fe80::1", .link_local = true),
		V6("eth0", "2001:db8::5"),
		V4("eth0", "10.0.0.5"),
		V4("eth1", "10.1.0.5"),
		V4("ib0", "192.168.9.9"),
		{ .name = "eth9", .ip = "10.9.0.9", .family = AF_INET, .up = false },
	};
	static const struct {
		const char *want;
		int family, from, n, index;
	} rows[] = {
		{ "", 0, 0, 8, 6 },               /* InfiniBand first */
		{ "", 0, 0, 6, 4 },               /* then the first real one, IPv4 before IPv6 */
		{ "", AF_INET6, 0, 8, 3 },        /* not the link-local one */
		{ "", 0, 0, 4, 3 },               /* IPv6 of a real one before docker's IPv4 */
		{ "", 0, 0, 2, 1 },               /* docker before loopback */
		{ "", 0, 0, 1, 0 },               /* loopback when there is nothing else */
		{ "eth1", 0, 0, 8, 5 },
		{ "eth", 0, 0, 8, 4 },            /* a prefix */
		{ "=eth", 0, 0, 8, -ENODEV },     /* exact */
		{ "=eth1", 0, 0, 8, 5 },
		{ "^ib,eth0", 0, 0, 8, 5 },
		{ "^=ib0", 0, 0, 8, 4 },
		{ "docker0", 0, 0, 8, 1 },        /* an explicit choice wins */
		{ "10.1.0.5", 0, 0, 8, 5 },
		{ "10.1.0.0/16", 0, 0, 8, 5 },
		{ "10.0.0.0/9", 0, 0, 8, 4 },
		{ "0.0.0.0/0", 0, 0, 6, 4 },
		{ "fe80::1", 0, 0, 8, 2 },
		{ "2001:db8::/32", 0, 0, 8, 3 },
		{ "10.2.0.0/16", 0, 0, 8, -ENODEV },
		{ "eth9", 0, 0, 8, -ENODEV },     /* it is down */
		{ "nothing", 0, 0, 8, -ENODEV },
		{ "eth0", AF_INET6, 0, 8, 2 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int got = p2p_iface_choose(list + rows[i].from, rows[i].n, rows[i].want,
					   rows[i].family);

		if (got != rows[i].index)
			TP_FAIL("row %zu (\"%s\"): %d, not %d", i, rows[i].want, got,
				rows[i].index);
	}
	TP_EQ(p2p_iface_choose(list, 0, "", 0), -ENODEV);
}

static void interfaces_are_listed(void)
{
	struct p2p_iface list[64];
	int n = p2p_iface_list(list, 64);
	bool loopback = false;

	TP_CHECK(n > 0);
	for (int i = 0; i < n; i++)
		loopback |= list[i].loopback && list[i].up && !strcmp(list[i].ip, "127.0.0.1");
	TP_CHECK(loopback);
}

/* ----------------------------------------------------------------------- wire */

static void greetings_come_back_as_sent(void)
{
	struct p2p_greeting g = {
		.version = P2P_WIRE_VERSION, .kind = P2P_GREETING_SESSION, .status = -13,
		.incarnation = 0x1122334455667788, .cookie = 9, .session = 77, .transports = 3,
		.paths = 4, .path = 2, .port = 65535, .device = -1,
	}, back;
	uint8_t buf[P2P_GREETING_SIZE], copy[P2P_GREETING_SIZE];

	memset(g.nonce, 1, 16);
	memset(g.host, 2, 16);
	memset(g.token, 3, 16);
	memset(g.proof, 4, 32);
	p2p_greeting_encode(&g, buf);
	TP_OK(p2p_greeting_decode(buf, &back));
	TP_CHECK(!memcmp(&g, &back, sizeof(g)));
	/* one wrong bit anywhere in magic, version, kind or padding is noticed */
	for (size_t bit = 0; bit < 8 * 12; bit++) {
		memcpy(copy, buf, sizeof(buf));
		copy[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (bit / 8 < 10)
			TP_CHECK(p2p_greeting_decode(copy, &back) != 0);
	}
	for (size_t i = 136; i < P2P_GREETING_SIZE; i++) {
		memcpy(copy, buf, sizeof(buf));
		copy[i] = 1;
		TP_EQ(p2p_greeting_decode(copy, &back), -EPROTO);
	}
	g.version++;
	p2p_greeting_encode(&g, buf);
	TP_EQ(p2p_greeting_decode(buf, &back), -EPROTONOSUPPORT);
}

static void messages_are_checked(void)
{
	static const struct {
		struct p2p_msg m;
		int rc;
	} rows[] = {
		{ { P2P_MSG_PING, 0, 0, 0 }, 0 },
		{ { P2P_MSG_PING, 0, 1, 0 }, -EPROTO },
		{ { P2P_MSG_REGION_ADD, P2P_MSG_F_LAST, 48, 0 }, 0 },
		{ { P2P_MSG_REGION_ADD, 0, 47, 0 }, -EPROTO },
		{ { P2P_MSG_REGION_DEL, 0, 0, 0 }, -EPROTO },
		{ { P2P_MSG_REGION_QUERY, 0, 16, 5 }, 0 },
		{ { P2P_MSG_REGION_QUERY, 0, 15, 5 }, -EPROTO },
		{ { P2P_MSG_REGION_ANSWER, 0, 0, 5 }, 0 },
		{ { P2P_MSG_REGION_ANSWER, 0, 24, 5 }, 0 },
		{ { P2P_MSG_REGION_ANSWER, 0, 25, 5 }, -EPROTO },
		{ { P2P_MSG_NOTIF, P2P_MSG_F_FIRST, 15, 0 }, -EPROTO },
		{ { P2P_MSG_NOTIF, P2P_MSG_F_FIRST, 16, 0 }, 0 },
		{ { P2P_MSG_NOTIF, 0, 0, 0 }, -EPROTO },
		{ { P2P_MSG_NOTIF, 0, P2P_MSG_MAX, 0 }, 0 },
		{ { P2P_MSG_NOTIF, 0, P2P_MSG_MAX + 1, 0 }, -EPROTO },
		{ { P2P_MSG_NOTIF, 4, 100, 0 }, -EPROTO },
		{ { 0, 0, 0, 0 }, -EPROTO },
		{ { P2P_MSG_TYPES, 0, 0, 0 }, -EPROTO },
		{ { 0xffff, 0, 0xffffffff, 0 }, -EPROTO },
	};
	uint8_t buf[P2P_MSG_HEADER];
	struct p2p_msg m;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		p2p_msg_encode(&rows[i].m, buf);
		TP_EQ(p2p_msg_decode(buf, &m), rows[i].rc);
		if (!rows[i].rc)
			TP_CHECK(!memcmp(&m, &rows[i].m, sizeof(m)));
	}
	buf[0] ^= 1;
	TP_EQ(p2p_msg_decode(buf, &m), -EPROTO);
}

static void frames_are_checked(void)
{
	static const struct {
		struct p2p_frame_header h;
		int rc;
		size_t meta;
	} rows[] = {
		{ { P2P_FRAME_WRITE, 3, 9, 0, 100 }, 0, 72 },
		{ { P2P_FRAME_WRITE, 0, 9, 0, 100 }, -EPROTO, 0 },
		{ { P2P_FRAME_WRITE, 1025, 9, 0, 100 }, -EPROTO, 0 },
		{ { P2P_FRAME_WRITE, 3, 9, 1, 100 }, -EPROTO, 0 },
		{ { P2P_FRAME_WRITE, 1, 9, 0, 1ull << 32 }, -EPROTO, 0 },
		{ { P2P_FRAME_READ, 1024, 9, 0, 0 }, 0, 24576 },
		{ { P2P_FRAME_READ, 3, 9, 0, 1 }, -EPROTO, 0 },
		{ { P2P_FRAME_WRITE_ACK, 3, 9, 3, 0 }, 0, 24 },
		{ { P2P_FRAME_WRITE_ACK, 3, 9, 4, 0 }, -EPROTO, 0 },
		{ { P2P_FRAME_WRITE_ACK, 3, 9, 0, 5 }, -EPROTO, 0 },
		{ { P2P_FRAME_READ_RESP, 3, 9, 2, 77 }, 0, 16 },
		{ { 0, 3, 9, 0, 0 }, -EPROTO, 0 },
		{ { P2P_FRAME_TYPES, 3, 9, 0, 0 }, -EPROTO, 0 },
	};
	uint8_t buf[P2P_FRAME_HEADER];
	struct p2p_frame_header h;
	struct p2p_frame_desc d;
	struct p2p_frame_bad b;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		p2p_frame_encode(&rows[i].h, buf);
		TP_EQ(p2p_frame_decode(buf, &h), rows[i].rc);
		if (!rows[i].rc)
			TP_EQ(p2p_frame_meta(&h), rows[i].meta);
	}
	p2p_frame_desc_encode(&(struct p2p_frame_desc){ 1, 0, 2, 3 }, buf);
	TP_EQ(p2p_frame_desc_decode(buf, &d), -EPROTO);
	p2p_frame_desc_encode(&(struct p2p_frame_desc){ 1, 7, 2, 3 }, buf);
	TP_OK(p2p_frame_desc_decode(buf, &d));
	TP_CHECK(d.addr == 1 && d.len == 7 && d.rkey == 2 && d.rid == 3);
	p2p_frame_bad_encode(&(struct p2p_frame_bad){ 4, -EFAULT }, buf);
	TP_OK(p2p_frame_bad_decode(buf, 4, 5, &b));
	TP_EQ(p2p_frame_bad_decode(buf, 5, 6, &b), -EPROTO);
	TP_EQ(p2p_frame_bad_decode(buf, 0, 4, &b), -EPROTO);
	p2p_frame_bad_encode(&(struct p2p_frame_bad){ 4, 5 }, buf);
	TP_EQ(p2p_frame_bad_decode(buf, 0, 5, &b), -EPROTO);
	p2p_frame_bad_encode(&(struct p2p_frame_bad){ 4, 0 }, buf);
	TP_EQ(p2p_frame_bad_decode(buf, 0, 5, &b), -EPROTO);
}

/* RFC 4231, cases 1, 2 and 6 (a key longer than a block) */
static void proofs_are_hmac_sha256(void)
{
	static const uint8_t one[32] = {
		0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b,
		0xf1, 0x2b, 0x88, 0x1d, 0xc2, 0x00, 0xc9, 0x83, 0x3d, 0xa7, 0x26, 0xe9, 0x37, 0x6c,
		0x2e, 0x32, 0xcf, 0xf7,
	};
	static const uint8_t six[32] = {
		0x60, 0xe4, 0x31, 0x59, 0x1e, 0xe0, 0xb6, 0x7f, 0x0d, 0x8a, 0x26, 0xaa, 0xcb, 0xf5,
		0xb7, 0x7f, 0x8e, 0x0b, 0xc6, 0x21, 0x37, 0x28, 0xc5, 0x14, 0x05, 0x46, 0x04, 0x0f,
		0x0e, 0xe3, 0x7f, 0x54,
	};
	const char *text = "Test Using Larger Than Block-Size Key - Hash Key First";
	uint8_t key[131], out[32], other[32], a[16] = { 1 }, b[16] = { 2 };

	memset(key, 0x0b, 20);
	p2p_hmac(key, 20, "Hi There", 8, out);
	TP_CHECK(!memcmp(out, one, 32));
	memset(key, 0xaa, 131);
	p2p_hmac(key, 131, text, strlen(text), out);
	TP_CHECK(!memcmp(out, six, 32));
	p2p_proof("k", 1, 'C', a, b, 5, out);
	p2p_proof("k", 1, 'C', a, b, 5, other);
	TP_CHECK(p2p_proof_equal(out, other));
	p2p_proof("k", 1, 'S', a, b, 5, other);
	TP_CHECK(!p2p_proof_equal(out, other));
	p2p_proof("k", 1, 'C', b, a, 5, other);
	TP_CHECK(!p2p_proof_equal(out, other));
	p2p_proof("k", 1, 'C', a, b, 6, other);
	TP_CHECK(!p2p_proof_equal(out, other));
	p2p_proof("", 0, 'C', a, b, 6, other);
	memset(out, 0, 32);
	TP_CHECK(p2p_proof_equal(out, other));
}

/* -------------------------------------------------------------------- handles */

static int released;

static void count_release(void *object)
{
	++*(int *)object;
	released++;
}

static void handles_resolve_until_retired(void)
{
	struct p2p_table t;
	uint64_t h, old = 0;
	int object = 0;

	TP_OK(p2p_table_init(&t, count_release));
	TP_CHECK(!p2p_table_get(&t, 0));
	TP_CHECK(!p2p_table_get(&t, 1));
	TP_CHECK(!p2p_table_get(&t, UINT64_MAX));
	for (int round = 0; round < 1000; round++) {
		TP_OK(p2p_table_add(&t, &object, &h));
		TP_CHECK(h & 1 && h != old);
		TP_CHECK(!old || !p2p_table_get(&t, old));
		TP_CHECK(p2p_table_get(&t, h) == &object);
		TP_CHECK(p2p_table_retire(&t, h));
		TP_CHECK(!p2p_table_retire(&t, h));
		TP_CHECK(!p2p_table_get(&t, h));
		p2p_table_put(&t, h); /* the look-up's */
		TP_EQ(object, round);
		p2p_table_put(&t, h); /* the maker's */
		TP_EQ(object, round + 1);
		old = h;
	}
	p2p_table_destroy(&t);
}

static void handles_are_many(void)
{
	enum { N = 3000 };
	static int objects[N];
	static uint64_t h[N];
	struct p2p_table t;

	released = 0;
	TP_OK(p2p_table_init(&t, count_release));
	for (int i = 0; i < N; i++)
		TP_OK(p2p_table_add(&t, &objects[i], &h[i]));
	for (int i = 0; i < N; i++) {
		TP_CHECK(p2p_table_get(&t, h[i]) == &objects[i]);
		p2p_table_put(&t, h[i]);
	}
	for (int i = N - 1; i >= 0; i--) {
		p2p_table_retire(&t, h[i]);
		p2p_table_put(&t, h[i]);
	}
	TP_EQ(released, N);
	p2p_table_destroy(&t);
}

/* -------------------------------------------------------------------- regions */

static void mr_free(struct p2p_mr *m)
{
	p2p_mr_quiet(m);
	free(m);
}

static void regions_are_found_by_id_key_and_address(void)
{
	struct p2p_mr_table t;
	struct p2p_region r[4];
	struct p2p_mr *m;
	uint64_t id[4], again;
	bool fresh;

	TP_OK(p2p_mr_table_init(&t));
	TP_OK(p2p_mr_add(&t, 1000, 100, -1, "", &id[0], &fresh, &r[0]));
	TP_OK(p2p_mr_add(&t, 5000, 1000, -1, "", &id[1], &fresh, &r[1]));
	TP_OK(p2p_mr_add(&t, 0x1000, 0x100000, -1, "", &id[2], &fresh, &r[2])); /* holds both */
	TP_CHECK(fresh);
	TP_OK(p2p_mr_add(&t, 5000, 1000, -1, "", &again, &fresh, &r[3]));
	TP_CHECK(!fresh);
	TP_EQ(again, id[1]);
	TP_EQ(p2p_mr_count(&t), 3);

	m = p2p_mr_pin_range(&t, 5500, 500);
	TP_EQ(m->id, id[1]);
	p2p_mr_unpin(m);
	m = p2p_mr_pin_range_key(&t, 5500, 500, r[2].rkey);
	TP_EQ(m->id, id[2]);
	p2p_mr_unpin(m);
	TP_CHECK(!p2p_mr_pin_range_key(&t, 5500, 500, r[0].rkey)); /* elsewhere */
	TP_CHECK(!p2p_mr_pin_range_key(&t, 5500, 501, r[1].rkey)); /* too short */
	m = p2p_mr_pin_range(&t, 5500, 501); /* only the wide one reaches that far */
	TP_EQ(m->id, id[2]);
	p2p_mr_unpin(m);
	TP_CHECK(!p2p_mr_pin_range(&t, 1099, 2));
	TP_CHECK(!p2p_mr_pin_range(&t, 999, 1));
	TP_CHECK(!p2p_mr_pin_range(&t, UINT64_MAX, 1));
	TP_CHECK(!p2p_mr_pin_range(&t, 5000, UINT64_MAX));
	TP_CHECK(!p2p_mr_pin_id(&t, id[0] + 3));

	TP_OK(p2p_mr_pin_key(&t, r[0].rid, r[0].rkey, 1099, 1, &m));
	p2p_mr_unpin(m);
	TP_EQ(p2p_mr_pin_key(&t, r[0].rid, r[0].rkey, 1099, 2, &m), -EFAULT);
	TP_EQ(p2p_mr_pin_key(&t, r[0].rid, r[0].rkey, 999, 1, &m), -EFAULT);
	TP_EQ(p2p_mr_pin_key(&t, r[0].rid, r[0].rkey, 1000, UINT64_MAX, &m), -EFAULT);
	TP_EQ(p2p_mr_pin_key(&t, r[0].rid, r[0].rkey ^ 1, 1000, 1, &m), -EACCES);
	TP_EQ(p2p_mr_pin_key(&t, r[0].rid + 77, r[0].rkey, 1000, 1, &m), -EACCES);

	TP_EQ(p2p_mr_del(&t, id[1], &m, &r[3]), 0); /* counted twice */
	TP_EQ(p2p_mr_del(&t, id[1], &m, &r[3]), 1);
	mr_free(m);
	TP_EQ(p2p_mr_del(&t, id[1], &m, &r[3]), -ENOENT);
	TP_EQ(p2p_mr_pin_key(&t, r[1].rid, r[1].rkey, 5000, 1, &m), -ESTALE);
	TP_OK(p2p_mr_add(&t, 5000, 1000, -1, "", &again, &fresh, &r[3]));
	TP_CHECK(again != id[1] && r[3].rid != r[1].rid);
	TP_EQ(p2p_mr_pin_key(&t, r[1].rid, r[1].rkey, 5000, 1, &m), -ESTALE);
	p2p_mr_table_destroy(&t);
}

/* Against a plain list, over many random regions. */
static void regions_agree_with_a_list(void)
{
	enum { N = 400 };
	struct p2p_mr_table t;
	struct p2p_remote_table remote;
	struct { uint64_t base, size, id; struct p2p_region r; } all[N];
	uint32_t x = 12345;
	int n = 0;

	TP_OK(p2p_mr_table_init(&t));
	TP_OK(p2p_remote_init(&remote));
	for (int step = 0; step < 20000; step++) {
		uint64_t va, len;
		bool want = false;
		struct p2p_region out;
		struct p2p_mr *m;

		x = x * 1664525 + 1013904223;
		if (n < N && x % 3 == 0) {
			bool fresh;

			all[n].base = 1 + (x >> 8) % 100000;
			all[n].size = 1 + (x >> 4) % (x % 7 ? 500 : 50000);
			TP_OK(p2p_mr_add(&t, all[n].base, all[n].size, -1, "", &all[n].id, &fresh,
					 &all[n].r));
			if (fresh) {
				TP_OK(p2p_remote_add(&remote, &all[n].r));
				n++;
			} else {
				p2p_mr_del(&t, all[n].id, &m, &out);
			}
		} else if (n && x % 3 == 1) {
			int k = (int)((x >> 9) % (uint32_t)n);

			TP_EQ(p2p_mr_del(&t, all[k].id, &m, &out), 1);
			mr_free(m);
			p2p_remote_del(&remote, all[k].r.rid, all[k].r.rkey);
			all[k] = all[--n];
		}
		va = (x >> 5) % 160000;
		len = 1 + (x >> 3) % 600;
		for (int i = 0; i < n; i++)
			want |= va >= all[i].base && va + len <= all[i].base + all[i].size;
		m = p2p_mr_pin_range(&t, va, len);
		TP_EQ(m != NULL, want);
		TP_EQ(p2p_remote_find(&remote, va, len, &out) == 0, want);
		if (n) {
			const struct p2p_region *k = &all[(x >> 7) % (uint32_t)n].r;

			want = va >= k->base && va + len <= k->base + k->size;
			TP_EQ(p2p_remote_find_key(&remote, va, len, k->rkey, &out) == 0, want);
			TP_CHECK(!want || out.rid == k->rid);
		}
		if (m) {
			TP_OK(p2p_remote_find(&remote, va, len, &out));
			TP_CHECK(va >= m->base && va + len <= m->base + m->size);
			TP_CHECK(va >= out.base && va + len <= out.base + out.size);
			p2p_mr_unpin(m);
		}
	}
	p2p_remote_destroy(&remote);
	p2p_mr_table_destroy(&t);
}

static const struct tp_case cases[] = {
	TP_CASE(slices_cover_a_range),
	TP_CASE(slices_of_a_terabyte_are_counted_at_once),
	TP_CASE(settings_have_the_documented_defaults),
	TP_CASE(settings_keep_their_ranges),
	TP_CASE(settings_refuse_nonsense),
	TP_CASE(settings_come_from_three_places_in_order),
	TP_CASE(settings_are_listed_and_clamped, .env = "FLAGCX_P2P_SECRET=hunter2"),
	TP_CASE(sessions_are_parsed),
	TP_CASE(metadata_is_written_for_both_families),
	TP_CASE(interface_choice_follows_its_rules),
	TP_CASE(interfaces_are_listed),
	TP_CASE(greetings_come_back_as_sent),
	TP_CASE(messages_are_checked),
	TP_CASE(frames_are_checked),
	TP_CASE(proofs_are_hmac_sha256),
	TP_CASE(handles_resolve_until_retired),
	TP_CASE(handles_are_many),
	TP_CASE(regions_are_found_by_id_key_and_address),
	TP_CASE(regions_agree_with_a_list),
};
static const struct tp_role roles[] = { TP_SERVER };

TP_MAIN(cases, roles)
