// SPDX-License-Identifier: Apache-2.0
/* The RDMA transport's decisions, words and keys, by tables. */
#include "engine.h"
#include "ibrc_p2p.h"
#include "keys.h"
#include "tp.h"

static void devices_are_chosen_by_name(void)
{
	static const struct {
		const char *filter, *name;
		unsigned int port;
		bool in;
	} rows[] = {
		{ NULL, "mlx5_0", 1, true },	    { "", "mlx5_0", 1, true },
		{ "mlx5", "mlx5_0", 1, true },	    { "mlx5_0", "mlx5_0", 1, true },
		{ "mlx5_1", "mlx5_0", 1, false },   { "mlx5_1", "mlx5_10", 1, true },
		{ "=mlx5_1", "mlx5_10", 1, false }, { "=mlx5_1", "mlx5_1", 1, true },
		{ "mlx5_0:1", "mlx5_0", 1, true },  { "mlx5_0:2", "mlx5_0", 1, false },
		{ "=mlx5_0:2", "mlx5_0", 2, true }, { "^mlx5_0", "mlx5_0", 1, false },
		{ "^mlx5_0", "rxe0", 1, true },	    { "^=mlx5_1", "mlx5_10", 1, true },
		{ "a,b,rxe", "rxe1", 1, true },	    { "a,,b", "rxe1", 1, false },
		{ ",", "rxe1", 1, false },	    { "^a,rxe1", "rxe1", 1, false },
		{ ":1", "rxe1", 1, false },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (ib_hca_match(rows[i].filter, rows[i].name, rows[i].port) != rows[i].in)
			TP_FAIL("%s %s %s:%u", rows[i].filter, rows[i].in ? "keeps out" : "lets in",
				rows[i].name, rows[i].port);
}

static struct ib_port port_of(const char *name, enum ib_link link, int distance, uint64_t speed)
{
	struct ib_port p = { .port = 1, .link = link, .distance = distance, .speed = speed };

	snprintf(p.name, sizeof(p.name), "%s", name);
	return p;
}

static void the_nearest_like_ports_are_used(void)
{
	struct ib_port p[10] = {
		port_of("d", IB_LINK_ROCE, 2, 100), port_of("b", IB_LINK_ROCE, 2, 100),
		port_of("far", IB_LINK_ROCE, 6, 400), port_of("lost", IB_LINK_ROCE, -1, 400),
		port_of("slow", IB_LINK_ROCE, 2, 10),
	};

	TP_EQ(ib_ports_choose(p, 5, false), 2);
	TP_CHECK(!strcmp(p[0].name, "b") && !strcmp(p[1].name, "d"));
	/* by name they are all wanted, wherever they are; of one kind */
	p[4] = port_of("ib", IB_LINK_IB, 0, 1);
	TP_EQ(ib_ports_choose(p, 4, true), 4);
	TP_EQ(ib_ports_choose(p, 0, true), 0);
	p[0] = port_of("r", IB_LINK_ROCE, 0, 100);
	p[1] = port_of("i", IB_LINK_IB, 0, 100);
	TP_EQ(ib_ports_choose(p, 2, false), 1);
	TP_CHECK(!strcmp(p[0].name, "i"));
	for (int i = 0; i < 10; i++)
		p[i] = port_of((char[]){ (char)('a' + i), 0 }, IB_LINK_ROCE, -1, 100);
	TP_EQ(ib_ports_choose(p, 10, false), IB_RAILS_MAX);
	TP_CHECK(!strcmp(p[0].name, "a"));
}

static void set_v4(struct ib_gid *g, int index, enum ib_gid_kind kind, uint8_t last)
{
	*g = (struct ib_gid){ .raw = { [10] = 0xff, [11] = 0xff, 10, 0, 0, last },
			      .index = index,
			      .kind = kind };
}

static void the_address_fits_link_and_family(void)
{
	static const uint8_t ours[16] = { [10] = 0xff, [11] = 0xff, 10, 0, 0, 2 };
	struct ib_gid g[6] = {
		{ .raw = { 0xfe, 0x80, [15] = 1 }, .index = 0, .kind = IB_GID_ROCE1 },
		{ .raw = { 0xfe, 0x80, [15] = 1 }, .index = 1, .kind = IB_GID_ROCE2 },
		{ .raw = { 0x20, 1, [15] = 9 }, .index = 2, .kind = IB_GID_ROCE2 },
	};

	set_v4(&g[3], 3, IB_GID_ROCE1, 2);
	set_v4(&g[4], 4, IB_GID_ROCE2, 1);
	set_v4(&g[5], 5, IB_GID_ROCE2, 2);
	TP_EQ(ib_gid_choose(g, 6, IB_LINK_ROCE, -1, false, NULL), 4);
	TP_EQ(ib_gid_choose(g, 6, IB_LINK_ROCE, -1, false, ours), 5);
	TP_EQ(ib_gid_choose(g, 6, IB_LINK_ROCE, -1, true, NULL), 2);
	TP_EQ(ib_gid_choose(g, 3, IB_LINK_ROCE, -1, false, NULL), 2); /* what there is */
	TP_EQ(ib_gid_choose(g, 2, IB_LINK_ROCE, -1, false, NULL), 1);
	TP_EQ(ib_gid_choose(g, 1, IB_LINK_ROCE, -1, false, NULL), 0);
	TP_EQ(ib_gid_choose(g, 6, IB_LINK_ROCE, 0, false, NULL), 0); /* as it was told */
	TP_EQ(ib_gid_choose(g, 6, IB_LINK_ROCE, 7, false, NULL), -ENOENT);
	TP_EQ(ib_gid_choose(g, 6, IB_LINK_IB, -1, false, NULL), -ENOENT);
	TP_EQ(ib_gid_choose(g, 0, IB_LINK_ROCE, -1, false, NULL), -ENOENT);
	memset(g[4].raw, 0, 16); /* an interface that has lost its address */
	TP_EQ(ib_gid_choose(g, 5, IB_LINK_ROCE, -1, false, NULL), 2);
	g[0].kind = IB_GID_IB;
	TP_EQ(ib_gid_choose(g, 6, IB_LINK_IB, -1, false, NULL), 0);
}

static void paths_join_what_can_be_joined(void)
{
	struct ib_gid v4, v6 = { .raw = { 0x20, 1, [15] = 9 }, .kind = IB_GID_ROCE2 };
	static const uint8_t none[16];

	set_v4(&v4, 1, IB_GID_ROCE2, 1);
	TP_OK(ib_reach(IB_LINK_ROCE, &v4, IB_LINK_ROCE, v4.raw, 0));
	TP_OK(ib_reach(IB_LINK_ROCE, &v6, IB_LINK_ROCE, v6.raw, 0));
	TP_EQ(ib_reach(IB_LINK_ROCE, &v4, IB_LINK_ROCE, v6.raw, 0), -EAFNOSUPPORT);
	TP_EQ(ib_reach(IB_LINK_ROCE, &v4, IB_LINK_ROCE, none, 0), -EHOSTUNREACH);
	TP_EQ(ib_reach(IB_LINK_ROCE, &v4, IB_LINK_IB, v4.raw, 7), -EPROTONOSUPPORT);
	TP_EQ(ib_reach(IB_LINK_NONE, &v4, IB_LINK_NONE, v4.raw, 7), -EPROTONOSUPPORT);
	TP_OK(ib_reach(IB_LINK_IB, &v6, IB_LINK_IB, none, 7));
	TP_EQ(ib_reach(IB_LINK_IB, &v6, IB_LINK_IB, none, 0), -EHOSTUNREACH);
	v4.kind = IB_GID_ROCE1; /* which is no IP */
	TP_OK(ib_reach(IB_LINK_ROCE, &v4, IB_LINK_ROCE, v6.raw, 0));
}

static void numbers_keep_to_both_ends(void)
{
	TP_EQ(ib_mtu_bytes(1), 256);
	TP_EQ(ib_mtu_bytes(5), 4096);
	TP_EQ(ib_mtu_bytes(0), 0);
	TP_EQ(ib_mtu_bytes(6), 0);
	TP_EQ(ib_mtu_value(255), 0);
	TP_EQ(ib_mtu_value(1500), 3);
	TP_EQ(ib_mtu_value(4096), 5);
	TP_EQ(ib_mtu_value(65536), 5);
	TP_EQ(ib_mtu_choose(4096, 1024, 2048), 1024);
	TP_EQ(ib_mtu_choose(512, 1024, 2048), 512);
	TP_EQ(ib_mtu_choose(4096, 4096, 2048), 2048);
	TP_EQ(ib_read_depth(128, 128), 128);
	TP_EQ(ib_read_depth(16, 128), 16);
	TP_EQ(ib_read_depth(1000, 1000), 255);
	TP_EQ(ib_read_depth(4, 128), 4);
	TP_EQ(ib_read_depth(128, 1), 1);
	TP_EQ(ib_read_depth(0, 16), 0);
	TP_EQ(ib_read_depth(-1, 16), 0);
	TP_EQ(ib_depth(256, 4, 8192), 64);
	TP_EQ(ib_depth(256, 3, 8192), 85);
	TP_EQ(ib_depth(1, 4, 8192), 1);
	TP_EQ(ib_depth(65536, 1, 100), 100);
	TP_EQ(ib_depth(256, 0, 0), 1);
}

static void distance_is_steps_in_the_tree(void)
{
	const char *gpu = "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.0";

	TP_EQ(ib_distance(gpu, gpu), 0);
	TP_EQ(ib_distance(gpu, "/sys/devices/pci0000:10/0000:10:01.0/0000:11:00.1"), 2);
	TP_EQ(ib_distance(gpu, "/sys/devices/pci0000:10/0000:10:03.0/0000:12:00.0"), 4);
	TP_CHECK(ib_distance(gpu, "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0") > 4);
	TP_EQ(ib_distance("/a", "/b"), -1);
	TP_EQ(ib_distance("/a/bc", "/a/b"), 2); /* whole names only */
}

static void processors_are_near_and_ours(void)
{
	static const struct {
		const char *list;
		int n;
	} rows[] = { { "0-3", 4 },    { "0-3\n", 4 }, { "1,3,9\n", 2 }, { "", 0 },  { "\n", 0 },
		     { "4-7,0", 1 },  { "0-99999", 4 }, { "x", -EINVAL },  { "3-1", -EINVAL },
		     { "1-", -EINVAL }, { "1;2", -EINVAL }, { ",1", -EINVAL } };
	cpu_set_t ours, near;

	CPU_ZERO(&ours);
	for (int i = 0; i < 4; i++)
		CPU_SET(i, &ours);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (ib_cpus(rows[i].list, &ours, &near) != rows[i].n)
			TP_FAIL("\"%s\" is %d", rows[i].list, ib_cpus(rows[i].list, &ours, &near));
	TP_EQ(ib_cpus("1,3", &ours, &near), 2);
	TP_CHECK(CPU_ISSET(1, &near) && CPU_ISSET(3, &near));
}

static void words_come_back_as_they_were(void)
{
	struct ib_note n = { .kind = IB_NOTE_OFFER, .link = IB_LINK_ROCE, .reads = 16, .mtu = 1024,
			     .epoch = 7, .qpn = 0x123456, .psn = 0xabcdef, .lid = 9, .rail = 3,
			     .gid = { 1, 2, 3, [15] = 4 } };
	struct ib_note back;
	uint8_t buf[P2P_FRAME_NOTE_SIZE], bad[P2P_FRAME_NOTE_SIZE];
	static const struct {
		int at;
		uint8_t value;
	} wrong[] = { { 0, 0 }, { 0, 3 }, { 3, 1 }, { 4, 1 }, { 8, IB_RAILS_MAX }, { 10, 1 },
		      { 12, 0 }, { 16, 1 }, { 23, 1 }, { 27, 1 }, { 44, 1 }, { 63, 1 } };

	ib_note_encode(&n, buf);
	TP_OK(ib_note_decode(buf, &back));
	TP_CHECK(!memcmp(&n, &back, sizeof(n)));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		memcpy(bad, buf, sizeof(bad));
		bad[wrong[i].at] = wrong[i].value;
		if (ib_note_decode(bad, &back) != -EPROTO)
			TP_FAIL("byte %d may be %u", wrong[i].at, wrong[i].value);
	}
	n.qpn = 0; /* none, and why */
	n.mtu = 0;
	n.status = -ENETDOWN;
	ib_note_encode(&n, buf);
	TP_OK(ib_note_decode(buf, &back));
	TP_EQ(back.status, -ENETDOWN);
	n.status = 0;
	ib_note_encode(&n, buf);
	TP_EQ(ib_note_decode(buf, &back), -EPROTO);
}

static size_t message(uint8_t *buf, struct p2p_keys_head h, uint32_t first)
{
	p2p_keys_head_encode(&h, buf);
	for (uint32_t i = 0; i < (uint32_t)h.rails * h.pieces; i++)
		p2p_u32_encode(first + i, buf + P2P_KEYS_HEAD + 4 * i);
	return P2P_KEYS_HEAD + 4u * h.rails * h.pieces;
}

static void keys_are_of_one_generation(void)
{
	struct p2p_keys_head h = { .base = 0x10000, .size = 0x5000, .step = 0x2000, .rkey = 77,
				   .rid = 5 << 20 | 1000, .rails = 2, .pieces = 3 };
	struct p2p_key_table t;
	const struct p2p_keyset *k;
	uint8_t buf[256];
	size_t len;

	TP_OK(p2p_keys_init(&t));
	TP_CHECK(!p2p_keys_find(&t, h.rid, h.rkey, h.base, 1));
	len = message(buf, h, 100);
	TP_OK(p2p_keys_take(&t, buf, len));
	k = p2p_keys_find(&t, h.rid, 77, 0x10000, 0x5000);
	TP_CHECK(k && k->key[0] == 100 && k->key[5] == 105);
	TP_CHECK(!p2p_keys_find(&t, h.rid, 78, 0x10000, 1));
	TP_CHECK(!p2p_keys_find(&t, 6 << 20 | 1000, 77, 0x10000, 1));
	TP_CHECK(!p2p_keys_find(&t, 5 << 20 | 999, 77, 0x10000, 1));
	TP_CHECK(!p2p_keys_find(&t, h.rid, 77, 0xffff, 2));
	TP_CHECK(!p2p_keys_find(&t, h.rid, 77, 0x10000, 0x5001));
	TP_CHECK(!p2p_keys_find(&t, h.rid, 77, UINT64_MAX, 2));
	/* the next registration in the same place; a late farewell of the former is not its */
	h.rid = 6 << 20 | 1000;
	len = message(buf, h, 200);
	TP_OK(p2p_keys_take(&t, buf, len));
	TP_CHECK(!p2p_keys_find(&t, 5 << 20 | 1000, 77, 0x10000, 1));
	p2p_keys_del(&t, 5 << 20 | 1000, 77);
	p2p_keys_del(&t, h.rid, 78);
	TP_CHECK(p2p_keys_find(&t, h.rid, 77, 0x10000, 1)->key[0] == 200);
	p2p_keys_del(&t, h.rid, 77);
	p2p_keys_del(&t, 9999, 77);
	TP_CHECK(!p2p_keys_find(&t, h.rid, 77, 0x10000, 1));
	p2p_keys_destroy(&t);
}

static struct p2p_keys_head head_at(uint32_t rid, uint16_t pieces)
{
	return (struct p2p_keys_head){ .base = 4096, .size = 4096ull * pieces, .step = 4096,
				       .rkey = 7, .rid = rid, .rails = 1, .pieces = pieces };
}

/* A peer makes us keep so many registrations' keys, and so many keys, but no more. */
static void keys_that_are_kept_have_a_limit(void)
{
	static uint8_t buf[P2P_MSG_MAX];
	struct p2p_key_table t;
	uint32_t n = 0;
	int rc;

	TP_OK(p2p_keys_init(&t));
	for (; n < P2P_KEYSETS_MAX; n++)
		TP_OK(p2p_keys_take(&t, buf, message(buf, head_at(n, 1), n)));
	TP_EQ(p2p_keys_take(&t, buf, message(buf, head_at(n, 1), n)), -ENOSPC);
	TP_CHECK(!p2p_keys_find(&t, n, 7, 4096, 1));
	/* those that are in stay, and each can be replaced, or gives its place to another */
	TP_OK(p2p_keys_take(&t, buf, message(buf, head_at(1 << 20 | 3, 1), 99)));
	TP_CHECK(p2p_keys_find(&t, 1 << 20 | 3, 7, 4096, 1)->key[0] == 99);
	p2p_keys_del(&t, 4, 7);
	TP_OK(p2p_keys_take(&t, buf, message(buf, head_at(n, 1), n)));
	TP_CHECK(p2p_keys_find(&t, n, 7, 4096, 1)->key[0] == n);
	p2p_keys_destroy(&t);

	TP_OK(p2p_keys_init(&t));
	for (n = 0; !(rc = p2p_keys_take(&t, buf, message(buf, head_at(n, 60000), 1))); n++)
		TP_CHECK(n < 1000);
	TP_EQ(rc, -ENOSPC);
	TP_EQ(n, P2P_KEYS_KEPT_MAX / 60000);
	TP_OK(p2p_keys_take(&t, buf, message(buf, head_at(n, 1), 1)));
	p2p_keys_destroy(&t);
}

static char warned[256];
static int warnings;

static void listen_to(void *arg, int level, const char *line)
{
	snprintf(warned, sizeof(warned), "%s", line);
	warnings++;
}

/* It is told once, and the peer stays: what is beyond goes by the stream. */
static void a_peer_with_too_many_keys_is_kept(void)
{
	static uint8_t buf[P2P_MSG_MAX];
	static struct p2p_conn c = { .peer_ip = "192.0.2.9", .peer_port = 77 };
	struct p2p_msg m = { .type = P2P_MSG_REGION_KEYS };

	flagcxP2pSetLog(listen_to, NULL, FLAGCX_P2P_LOG_WARN);
	TP_OK(p2p_keys_init(&c.keys));
	for (uint32_t n = 0; n < 100; n++) {
		m.len = (uint32_t)message(buf, head_at(n, 60000), 1);
		TP_OK(p2p_session_message(&c, &m, buf));
	}
	TP_EQ(warnings, 1);
	TP_CHECK(strstr(warned, "192.0.2.9:77 has more registrations"));
	p2p_keys_destroy(&c.keys);
}

static void keys_that_do_not_add_up_are_refused(void)
{
	const struct p2p_keys_head good = { .base = 4096, .size = 8192, .step = 4096, .rkey = 1,
					    .rid = 1, .rails = 1, .pieces = 2 };
	struct p2p_keys_head h;
	uint8_t buf[256];
	size_t len = message(buf, good, 1);

	TP_OK(p2p_keys_head_decode(buf, len, &h));
	TP_EQ(p2p_keys_head_decode(buf, len - 4, &h), -EPROTO);
	TP_EQ(p2p_keys_head_decode(buf, len + 4, &h), -EPROTO);
	TP_EQ(p2p_keys_head_decode(buf, 8, &h), -EPROTO);
#define BAD(field, value)                                             \
	do {                                                          \
		struct p2p_keys_head b = good;                        \
		b.field = value;                                      \
		len = message(buf, b, 1);                             \
		TP_EQ(p2p_keys_head_decode(buf, len, &h), -EPROTO);   \
	} while (0)
	BAD(size, 0);
	BAD(size, UINT64_MAX);
	BAD(step, 0);
	BAD(step, 8192);
	BAD(step, 2000);
	BAD(rails, 0);
	BAD(pieces, 0);
	BAD(pieces, 3);
	BAD(base, UINT64_MAX - 100);
	len = message(buf, good, 1);
	buf[36] = 1;
	TP_EQ(p2p_keys_head_decode(buf, len, &h), -EPROTO);
}

static const struct tp_case cases[] = {
	TP_CASE(devices_are_chosen_by_name),
	TP_CASE(the_nearest_like_ports_are_used),
	TP_CASE(the_address_fits_link_and_family),
	TP_CASE(paths_join_what_can_be_joined),
	TP_CASE(numbers_keep_to_both_ends),
	TP_CASE(distance_is_steps_in_the_tree),
	TP_CASE(processors_are_near_and_ours),
	TP_CASE(words_come_back_as_they_were),
	TP_CASE(keys_are_of_one_generation),
	TP_CASE(keys_that_are_kept_have_a_limit),
	TP_CASE(a_peer_with_too_many_keys_is_kept),
	TP_CASE(keys_that_do_not_add_up_are_refused),
};
static const struct tp_role roles[] = { TP_SERVER };

TP_MAIN(cases, roles)
