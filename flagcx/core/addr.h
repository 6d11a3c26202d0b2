/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses: sessions as text, and which interface an engine advertises. The
 * choice is a pure function over a list, so that every rule has a test.
 */
#ifndef P2P_ADDR_H
#define P2P_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define P2P_ADDR_TEXT 72 /* "[v6%scope]:port" */

union p2p_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/*
 * Split "host:port", "[v6]:port", "host" or a bare v6 address. Without a port
 * *port becomes default_port; default_port < 0: a port is required.
 * -EINVAL for anything else.
 */
int p2p_session_parse(const char *text, char *host, size_t host_size, int *port,
		      int default_port);
/* "ip:port", "[ip]:port" */
void p2p_addr_format(const char *ip, int port, char *out, size_t size);
/* "ip:port?device?port" */
void p2p_metadata_format(const char *ip, int port, int device, char *out, size_t size);

/* Set address and family, not the port; -EINVAL. */
int p2p_ip_parse(const char *ip, union p2p_sockaddr *a);
socklen_t p2p_sockaddr_len(const union p2p_sockaddr *a);
/* Numeric text without port; an IPv4 address mapped into IPv6 comes as IPv4. */
void p2p_sockaddr_ip(const union p2p_sockaddr *a, char *out, size_t size);

struct p2p_iface {
	char name[32];
	char ip[64];
	int family;
	bool up;
	bool loopback;
	bool link_local; /* fe80::, 169.254: only when named */
};

/*
 * The interface to use. want is FLAGCX_SOCKET_IFNAME: "" or an address, a
 * CIDR, names (prefixes; "=" exact; "^" all but these), comma-separated.
 * family 0: IPv4 before IPv6. Unasked: InfiniBand, then any that is not
 * virtual, then docker's and the like, then loopback.
 * Returns an index, or -ENODEV: nothing fits what was asked.
 */
int p2p_iface_choose(const struct p2p_iface *list, int n, const char *want, int family);
/* The interfaces of this network namespace; the count, or -errno. */
int p2p_iface_list(struct p2p_iface *list, int cap);

#endif /* P2P_ADDR_H */
