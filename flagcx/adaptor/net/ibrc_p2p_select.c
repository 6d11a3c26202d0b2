// SPDX-License-Identifier: Apache-2.0
/* See ibrc_p2p_select.h. */
#include "ibrc_p2p_select.h"

#include "flagcx/core/common.h"

#include <stdlib.h>
#include <string.h>

#define READS_MAX UINT8_MAX /* the word's field, and the queue pair's attribute */

/* --------------------------------------------------------------------- ports */

/* One item of the list; len bytes, perhaps with ":PORT" at the end. */
static bool item_matches(const char *item, size_t len, bool exact, const char *name,
			 unsigned int port)
{
	const char *colon = memchr(item, ':', len);
	size_t name_len = colon ? (size_t)(colon - item) : len;

	if (colon && strtoul(colon + 1, NULL, 10) != port)
		return false;
	if (!name_len || strncmp(item, name, name_len))
		return false;
	return !exact || !name[name_len];
}

bool ib_hca_match(const char *filter, const char *name, unsigned int port)
{
	bool without = false, exact = false, listed = false;

	if (!filter || !*filter)
		return true;
	for (; *filter == '^' || *filter == '='; filter++) {
		without |= *filter == '^';
		exact |= *filter == '=';
	}
	while (*filter) {
		size_t len = strcspn(filter, ",");

		listed |= item_matches(filter, len, exact, name, port);
		filter += len + (filter[len] == ',');
	}
	return listed != without;
}

static int by_preference(const void *a, const void *b)
{
	const struct ib_port *x = a, *y = b;
	int order;

	/* what is not known is farthest */
	if (x->distance != y->distance) {
		if (x->distance < 0 || y->distance < 0)
			return x->distance < 0 ? 1 : -1;
		return x->distance < y->distance ? -1 : 1;
	}
	if (x->speed != y->speed)
		return x->speed > y->speed ? -1 : 1;
	if (x->link != y->link)
		return x->link < y->link ? -1 : 1;
	order = strcmp(x->name, y->name);
	return order ? order : (int)x->port - (int)y->port;
}

int ib_ports_choose(struct ib_port *ports, int n, bool named)
{
	int kept = 0;

	for (int i = 0; named && i < n; i++)
		ports[i].distance = 0;
	qsort(ports, (size_t)n, sizeof(*ports), by_preference);
	/* a message is cut over all of them, so they should be alike */
	while (kept < n && kept < (int)IB_RAILS_MAX && ports[kept].link == ports[0].link &&
	       (named || (ports[kept].distance == ports[0].distance &&
			  ports[kept].speed == ports[0].speed)))
		kept++;
	return kept;
}

/* ----------------------------------------------------------------- addresses */

static bool is_zero(const uint8_t *raw)
{
	static const uint8_t zero[16];

	if (!memcmp(raw, zero, 16))
		return true;
	return raw[0] == 0xfe && raw[1] == 0x80 && !memcmp(raw + 8, zero, 8);
}

static bool is_v4(const uint8_t *raw)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	return !memcmp(raw, mapped, 12);
}

static bool is_link_local(const uint8_t *raw)
{
	return (raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80) ||
	       (is_v4(raw) && raw[12] == 169 && raw[13] == 254);
}

static int gid_rank(const struct ib_gid *g, enum ib_link link, bool want_v6,
		    const uint8_t *address)
{
	int rank = 0;

	if (link == IB_LINK_IB)
		return 1;
	rank += g->kind == IB_GID_ROCE2 ? 1000 : 0;
	rank += is_link_local(g->raw) ? 0 : 100;
	rank += is_v4(g->raw) != want_v6 ? 10 : 0;
	rank += address && !memcmp(address, g->raw, 16) ? 50 : 0;
	return rank + 1;
}

int ib_gid_choose(const struct ib_gid *gids, int n, enum ib_link link, int index, bool want_v6,
		  const uint8_t *address)
{
	int best = -ENOENT, best_rank = 0;

	for (int i = 0; i < n; i++) {
		int rank;

		if ((gids[i].kind == IB_GID_IB) != (link == IB_LINK_IB) || is_zero(gids[i].raw))
			continue;
		if (index >= 0 && gids[i].index != index)
			continue;
		rank = gid_rank(&gids[i], link, want_v6, address);
		if (rank > best_rank) {
			best = i;
			best_rank = rank;
		}
	}
	return best;
}

int ib_reach(enum ib_link ours, const struct ib_gid *our_gid, enum ib_link theirs,
	     const uint8_t *their_gid, uint16_t their_lid)
{
	if (ours != theirs || ours == IB_LINK_NONE)
		return -EPROTONOSUPPORT;
	if (ours == IB_LINK_IB)
		return their_lid ? 0 : -EHOSTUNREACH;
	if (is_zero(their_gid))
		return -EHOSTUNREACH;
	/* version 2 is IP: an IPv4 address reaches no IPv6 one */
	if (our_gid->kind == IB_GID_ROCE2 && is_v4(our_gid->raw) != is_v4(their_gid))
		return -EAFNOSUPPORT;
	return 0;
}

/* ------------------------------------------------------------------- numbers */

int ib_mtu_bytes(int mtu)
{
	return mtu >= 1 && mtu <= 5 ? 128 << mtu : 0;
}

int ib_mtu_value(int bytes)
{
	for (int mtu = 5; mtu > 0; mtu--)
		if (bytes >= 128 << mtu)
			return mtu;
	return 0;
}

int ib_mtu_choose(int setting, int ours, int theirs)
{
	return P2P_MIN(setting, P2P_MIN(ours, theirs));
}

uint8_t ib_read_depth(int can_start, int peer_serves)
{
	int depth = P2P_MIN(P2P_MIN(can_start, peer_serves), READS_MAX);

	return (uint8_t)P2P_MAX(depth, 0);
}

int ib_distance(const char *a, const char *b)
{
	size_t same = 0, at = 0;
	int steps = 0;

	while (a[at] && a[at] == b[at]) {
		at++;
		if ((a[at] == '/' || !a[at]) && (b[at] == '/' || !b[at]))
			same = at;
	}
	if (!same)
		return -1;
	for (const char *p = a + same; *p; p++)
		steps += *p == '/';
	for (const char *p = b + same; *p; p++)
		steps += *p == '/';
	return steps;
}

int ib_cpus(const char *list, const cpu_set_t *allowed, cpu_set_t *out)
{
	CPU_ZERO(out);
	while (*list && *list != '\n') {
		char *end;
		unsigned long first = strtoul(list, &end, 10), last = first;

		if (end == list)
			return -EINVAL;
		if (*end == '-') {
			list = end + 1;
			last = strtoul(list, &end, 10);
			if (end == list || last < first)
				return -EINVAL;
		}
		for (; first <= last && first < CPU_SETSIZE; first++)
			if (CPU_ISSET(first, allowed))
				CPU_SET(first, out);
		if (*end && *end != ',' && *end != '\n')
			return -EINVAL;
		list = end + (*end == ',');
	}
	return CPU_COUNT(out);
}

uint32_t ib_depth(uint64_t requests, unsigned int paths, uint32_t device_max)
{
	uint64_t share = requests / P2P_MAX(paths, 1u);

	return (uint32_t)P2P_MIN(P2P_MAX(share, 1u), P2P_MAX(device_max, 1u));
}
