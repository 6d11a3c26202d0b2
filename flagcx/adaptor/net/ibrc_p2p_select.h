/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which device, port, address and packet size: decisions as pure functions of
 * what was found, so that tables can test them.
 */
#ifndef P2P_IBRC_SELECT_H
#define P2P_IBRC_SELECT_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define IB_RAILS_MAX 8u

enum ib_link { IB_LINK_NONE, IB_LINK_IB, IB_LINK_ROCE };
enum ib_gid_kind { IB_GID_IB, IB_GID_ROCE1, IB_GID_ROCE2 };

struct ib_gid {
	uint8_t raw[16];
	int index;
	enum ib_gid_kind kind;
};

/* A port that is active. */
struct ib_port {
	char name[64];  /* of the device */
	uint8_t port;
	enum ib_link link;
	int distance;   /* from the accelerator or, without one, 0; -1: not known */
	uint64_t speed; /* Mbit/s */
};

/*
 * Does FLAGCX_IB_HCA let a port in? A list of NAME or NAME:PORT; a name stands
 * for all that begin so; "=" before the list: exactly; "^": all but these.
 */
bool ib_hca_match(const char *filter, const char *name, unsigned int port);

/*
 * Put the ports to use first, in an order that is the same on every host of a
 * kind: the nearest; of those, the fastest kind; by name. Returns how many, at
 * most IB_RAILS_MAX. named: by the user, so distance does not count.
 */
int ib_ports_choose(struct ib_port *ports, int n, bool named);

/*
 * Place in the list of the address to use; -ENOENT: none fits. index >= 0: that
 * one or none. On RoCE version 2 is preferred, then the engine's family and
 * its very address (16 bytes, IPv4 mapped; NULL: not known), link-local last.
 */
int ib_gid_choose(const struct ib_gid *gids, int n, enum ib_link link, int index, bool want_v6,
		  const uint8_t *address);

/* Bytes of a packet on a path: the least of the setting and both ports. */
int ib_mtu_choose(int setting, int ours, int theirs);
/* IBV_MTU_* to bytes and back; 0: not one. */
int ib_mtu_bytes(int mtu);
int ib_mtu_value(int bytes);

/* READs under way at once: what the asking end starts and the asked one serves. */
uint8_t ib_read_depth(int can_start, int peer_serves);

/* Can a port of this kind and address reach that one? 0 or -errno. */
int ib_reach(enum ib_link ours, const struct ib_gid *our_gid, enum ib_link theirs,
	     const uint8_t *their_gid, uint16_t their_lid);

/* Steps from one device to another in the tree of sysfs paths; -1: no common root. */
int ib_distance(const char *a, const char *b);

/*
 * The processors of a list as sysfs has it ("0-3,8") that are also in allowed, into out;
 * how many, -EINVAL: not such a list.
 */
int ib_cpus(const char *list, const cpu_set_t *allowed, cpu_set_t *out);

/* Work requests of a queue pair: a conn's share, within what the device can. */
uint32_t ib_depth(uint64_t requests, unsigned int paths, uint32_t device_max);

#endif /* P2P_IBRC_SELECT_H */
