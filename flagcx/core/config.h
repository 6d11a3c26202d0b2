/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings: where they come from, what they may be. An engine copies them
 * when it is made and never looks here again.
 */
#ifndef P2P_CONFIG_H
#define P2P_CONFIG_H

#include "flagcx_p2p.h"

enum p2p_transport { P2P_TRANSPORT_AUTO, P2P_TRANSPORT_IBRC, P2P_TRANSPORT_TCP };

struct p2p_config {
	FlagcxP2pGlobalConfig g;
	int transport; /* enum p2p_transport */
	int port;
	int liveness_ms;
	int connect_ms;
	int stall_ms;
	int zerocopy;  /* 0 never, 1 where it pays, 2 always */
	int family;    /* 0, AF_INET or AF_INET6 */
	char secret[256];
	char ifname[256];
	char hca[256]; /* which RDMA devices */
	bool shared_cq; /* completion queues of the engine's, not of each worker's */
	int ib_timeout;
	int ib_sl;
	int ib_pkey;
};

/* The settings in force; never NULL, never changes once returned. */
const struct p2p_config *p2p_config_get(void);

/*
 * Value of NAME in the text of a configuration file, trimmed, into out.
 * Returns 1 found, 0 not, -E2BIG when out is too small. Pure.
 */
int p2p_config_find(const char *text, const char *name, char *out, size_t size);

/*
 * Read settings from an environment and file texts (each may be NULL) into c.
 * lookup answers like getenv. Pure but for the log. For tests.
 */
void p2p_config_read(struct p2p_config *c, const char *(*lookup)(const char *name),
		     const char *const files[2]);
/* "auto", "ibrc", "tcp" to enum p2p_transport; -EINVAL. */
int p2p_config_transport(const char *text);

#endif /* P2P_CONFIG_H */
