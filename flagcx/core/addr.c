// SPDX-License-Identifier: Apache-2.0
/* See addr.h. */
#include "addr.h"
#include "common.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int parse_port(const char *text, int *port)
{
	char *end;
	long v;

	if (!*text || strspn(text, "0123456789") != strlen(text))
		return -EINVAL;
	v = strtol(text, &end, 10);
	if (v < 1 || v > 65535)
		return -EINVAL;
	*port = (int)v;
	return 0;
}

static int copy_host(char *host, size_t size, const char *from, size_t len)
{
	if (!len || len >= size)
		return -EINVAL;
	memcpy(host, from, len);
	host[len] = '\0';
	return 0;
}

int p2p_session_parse(const char *text, char *host, size_t host_size, int *port,
		      int default_port)
{
	const char *first = strchr(text, ':'), *last = strrchr(text, ':'), *close;

	if (*text == '[') {
		close = strchr(text, ']');
		if (!close || copy_host(host, host_size, text + 1, (size_t)(close - text - 1)))
			return -EINVAL;
		if (close[1] == ':')
			return parse_port(close + 2, port);
		if (close[1])
			return -EINVAL;
	} else if (first && first == last) {
		if (copy_host(host, host_size, text, (size_t)(first - text)))
			return -EINVAL;
		return parse_port(first + 1, port);
	} else {
		/* no colon: a name; several: a bare IPv6 address, which must be one */
		struct in6_addr v6;

		if (copy_host(host, host_size, text, strlen(text)))
			return -EINVAL;
		if (first && inet_pton(AF_INET6, host, &v6) != 1)
			return -EINVAL;
	}
	if (default_port < 0)
		return -EINVAL;
	*port = default_port;
	return 0;
}

void p2p_addr_format(const char *ip, int port, char *out, size_t size)
{
	snprintf(out, size, strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip, port);
}

void p2p_metadata_format(const char *ip, int port, int device, char *out, size_t size)
{
	char where[P2P_ADDR_TEXT];

	p2p_addr_format(ip, port, where, sizeof(where));
	snprintf(out, size, "%s?%d?%d", where, device, port);
}

int p2p_ip_parse(const char *ip, union p2p_sockaddr *a)
{
	if (inet_pton(AF_INET, ip, &a->in.sin_addr) == 1) {
		a->sa.sa_family = AF_INET;
		return 0;
	}
	if (inet_pton(AF_INET6, ip, &a->in6.sin6_addr) == 1) {
		a->sa.sa_family = AF_INET6;
		return 0;
	}
	return -EINVAL;
}

socklen_t p2p_sockaddr_len(const union p2p_sockaddr *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

void p2p_sockaddr_ip(const union p2p_sockaddr *a, char *out, size_t size)
{
	*out = '\0';
	if (a->sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &a->in.sin_addr, out, (socklen_t)size);
	else if (a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		inet_ntop(AF_INET, a->in6.sin6_addr.s6_addr + 12, out, (socklen_t)size);
	else if (a->sa.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &a->in6.sin6_addr, out, (socklen_t)size);
}

/* ------------------------------------------------------ choice of interface */

static bool is_virtual(const char *name)
{
	static const char *const prefixes[] = { "docker", "veth", "br-", "virbr", "cni", "flannel",
						"cali", "tun", "tap" };

	for (size_t i = 0; i < P2P_ARRAY_SIZE(prefixes); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

/* Does ip lie in "address" or "address/bits"? -1: want is no address at all. */
static int in_subnet(const char *ip, const char *want)
{
	char net[64];
	const char *slash = strchr(want, '/');
	unsigned char a[16], b[16];
	size_t len = slash ? (size_t)(slash - want) : strlen(want);
	int family = strchr(want, ':') ? AF_INET6 : AF_INET;
	int bits = family == AF_INET ? 32 : 128;

	if (len >= sizeof(net))
		return -1;
	memcpy(net, want, len);
	net[len] = '\0';
	if (inet_pton(family, net, b) != 1)
		return -1;
	if (slash) {
		char *end;
		long v = strtol(slash + 1, &end, 10);

		if (end == slash + 1 || *end || v < 0 || v > bits)
			return -1;
		bits = (int)v;
	}
	if (inet_pton(family, ip, a) != 1)
		return 0;
	if (memcmp(a, b, (size_t)bits / 8))
		return 0;
	return bits % 8 == 0 || (a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8) == 0;
}

/* Is name in the comma-separated list? Entries are prefixes unless exact. */
static bool in_names(const char *name, const char *list, bool exact)
{
	while (*list) {
		size_t len = strcspn(list, ",");

		if (len && !strncmp(name, list, len) && (!exact || !name[len]))
			return true;
		list += len + (list[len] == ',');
	}
	return false;
}

static bool wanted(const struct p2p_iface *i, const char *want)
{
	int net;

	if (!*want)
		return !i->link_local;
	net = in_subnet(i->ip, want);
	if (net >= 0)
		return net;
	if (*want == '^')
		return !i->link_local &&
		       !in_names(i->name, want[1] == '=' ? want + 2 : want + 1, want[1] == '=');
	return in_names(i->name, *want == '=' ? want + 1 : want, *want == '=');
}

/* Smaller is better. */
static int rank(const struct p2p_iface *i)
{
	int place = i->loopback ? 3 : is_virtual(i->name) ? 2 : strncmp(i->name, "ib", 2) ? 1 : 0;

	return place * 2 + (i->family == AF_INET ? 0 : 1);
}

int p2p_iface_choose(const struct p2p_iface *list, int n, const char *want, int family)
{
	int best = -ENODEV;

	for (int i = 0; i < n; i++) {
		if (!list[i].up || (family && list[i].family != family) ||
		    !wanted(&list[i], want))
			continue;
		if (best < 0 || rank(&list[i]) < rank(&list[best]))
			best = i;
	}
	return best;
}

static bool link_local(const union p2p_sockaddr *a)
{
	if (a->sa.sa_family == AF_INET6)
		return IN6_IS_ADDR_LINKLOCAL(&a->in6.sin6_addr);
	return (ntohl(a->in.sin_addr.s_addr) >> 16) == 0xa9fe;
}

int p2p_iface_list(struct p2p_iface *list, int cap)
{
	struct ifaddrs *all, *i;
	int n = 0;

	if (getifaddrs(&all))
		return -errno;
	for (i = all; i && n < cap; i = i->ifa_next) {
		union p2p_sockaddr *a = (union p2p_sockaddr *)i->ifa_addr;

		if (!a || (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6))
			continue;
		snprintf(list[n].name, sizeof(list[n].name), "%s", i->ifa_name);
		p2p_sockaddr_ip(a, list[n].ip, sizeof(list[n].ip));
		list[n].family = a->sa.sa_family;
		list[n].up = i->ifa_flags & IFF_UP;
		list[n].loopback = i->ifa_flags & IFF_LOOPBACK;
		list[n].link_local = link_local(a);
		n++;
	}
	freeifaddrs(all);
	return n;
}
