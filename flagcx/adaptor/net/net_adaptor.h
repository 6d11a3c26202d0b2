/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport, as the engine sees it: one const table of calls. Adding one is
 * a file and a line in net_adaptor.c. A transport that has no use for an
 * optional slot fills it from p2p_net_nosys_*, so that no caller tests NULL.
 *
 * Threads. Calls marked W are made with the turn of the path's worker, one at a
 * time: by that worker, and path_post, path_room and those marked C by callers,
 * too. The others are made by whoever makes or frees the object, before the
 * first W call or after the last.
 *
 * A transport ends every slice it was given exactly once, by p2p_task_done()
 * or p2p_task_fail(), and does not touch the slice's memory afterwards. It
 * reports a path that broke by p2p_conn_break() and goes on until stop.
 */
#ifndef P2P_NET_ADAPTOR_H
#define P2P_NET_ADAPTOR_H

#include "flagcx/core/engine.h"

#define P2P_NET_ABI 2

struct p2p_net_ops {
	uint32_t abi;     /* P2P_NET_ABI */
	const char *name; /* FLAGCX_P2P_TRANSPORT's word for it */
	uint32_t bit;     /* in a greeting's transports */
	unsigned int slot; /* in an engine's net[], a worker's net_ctx[]; the lower is preferred */
	size_t path_size; /* of its struct, which starts with struct p2p_path */

	/* Usable here? 0 with what it found in why, or -errno with what is missing. */
	int (*open)(struct p2p_engine *e, struct p2p_net **net, char *why, size_t size);
	void (*close)(struct p2p_net *net);
	/* The longest slice it takes. */
	size_t (*slice_limit)(const struct p2p_net *net);

	/* State of each worker. */
	int (*worker_init)(struct p2p_net *net, struct p2p_worker *w);
	void (*worker_exit)(struct p2p_net *net, struct p2p_worker *w);

	/* path is zeroed but for struct p2p_path; init may be undone by fini at any time. */
	int (*path_init)(struct p2p_path *path);
	void (*path_fini)(struct p2p_path *path);
	/* A connected stream for the path, on either side. Optional; takes fd on 0. */
	int (*path_adopt)(struct p2p_path *path, int fd);

	/* W: begin. The peer may have begun already. */
	int (*path_start)(struct p2p_path *path);
	/* W: end everything with err and let go of all memory. */
	void (*path_stop)(struct p2p_path *path, int err);
	/* W: bytes of the opcode that may be posted now; 0: wait. Lowers *slices to how many. */
	size_t (*path_room)(struct p2p_path *path, int opcode, unsigned int *slices);
	/* W: post slices of one opcode, as many as there was room for; all are taken. */
	void (*path_post)(struct p2p_path *path, int opcode, struct p2p_slice **slice,
			  unsigned int n);
	/* W: end the task's slices as far as that can be done without touching others. */
	void (*path_cancel)(struct p2p_path *path, struct p2p_task *task);
	/*
	 * W, C: a caller attends to the path for a moment: from borrow to give_back
	 * no event of it wakes the worker. step: take what has come, send what can
	 * be sent; -errno: the path is broken. Optional, all three.
	 */
	int (*path_borrow)(struct p2p_path *path);
	int (*path_step)(struct p2p_path *path);
	void (*path_give_back)(struct p2p_path *path);
	/* W: look for completions that raise no event. Things done. Optional. */
	int (*poll)(struct p2p_worker *w);
	/* W: about to sleep: true when something came meanwhile. Optional. */
	bool (*arm)(struct p2p_worker *w);

	/*
	 * Make a registration reachable, from any thread; mr is pinned. Optional: 0 with
	 * *out NULL. It does not fail for want of a better way, but says why in *out;
	 * -ENOMEM: there is not even room for that.
	 */
	int (*mr_reg)(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net **out);
	/* Nobody reaches it any more when this returns. */
	void (*mr_dereg)(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net *m);
	/* A REGION_KEYS message for peers, if it fits; its length, 0: they need none. */
	size_t (*mr_keys)(const struct p2p_mr_net *m, const struct p2p_mr *mr, uint8_t *buf,
			  size_t size);
	/* How a live conn's bytes go, in words; from any thread. */
	void (*describe)(struct p2p_conn *c, char *buf, size_t size);
};

/* The table of an enum p2p_transport or a wire bit; NULL. */
const struct p2p_net_ops *p2p_net_by_name(const char *name);
const struct p2p_net_ops *p2p_net_by_bit(uint32_t bit);
/* Choose and open the engine's transport by its settings. */
int p2p_net_open(struct p2p_engine *e);
/* Every transport makes of a registration what it can; mr is pinned. */
void p2p_net_reg(struct p2p_engine *e, struct p2p_mr *mr);
/* And lets go of it. */
void p2p_net_dereg(struct p2p_engine *e, struct p2p_mr *mr);

int p2p_net_nosys_adopt(struct p2p_path *path, int fd);
int p2p_net_nosys_poll(struct p2p_worker *w);
bool p2p_net_nosys_arm(struct p2p_worker *w);
int p2p_net_nosys_borrow(struct p2p_path *path);
int p2p_net_nosys_step(struct p2p_path *path);
void p2p_net_nosys_give_back(struct p2p_path *path);
int p2p_net_nosys_reg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net **out);
void p2p_net_nosys_dereg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net *m);
size_t p2p_net_nosys_keys(const struct p2p_mr_net *m, const struct p2p_mr *mr, uint8_t *buf,
			  size_t size);

extern const struct p2p_net_ops p2p_net_tcp;
extern const struct p2p_net_ops p2p_net_ibrc;

#endif /* P2P_NET_ADAPTOR_H */
