/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The RDMA transport: reliable connections over verbs.
 *
 * A path is a TCP stream (tcp_p2p.h) with a queue pair beside it. The stream
 * brings the queue pair up, and brings it up anew after an error; it carries
 * what hardware cannot: slices whose memory is not registered with the device,
 * or whose key is not (any more) known, for which the peer's answer is the
 * truth. So a bad key fails one transfer, and memory that verbs cannot reach is
 * slower, not out of reach.
 *
 *   net     a process's view of the devices for one engine: one rail for each
 *           port in use
 *   worker  completion queues, with the worker's turn, or all workers' together.
 *           A queue pair takes as many entries of one as it has work requests,
 *           so none overflows
 *   path    a queue pair on one rail; everything on it with its worker's turn
 *
 * Work requests in flight are a ring. Every chain ends in a signalled one, and
 * a completion stands for all before it. A queue pair that failed is moved to
 * the error state and flushed; what it had not done is done again on the next
 * one: reads and writes bear repetition while their transfer has not ended.
 */
#ifndef P2P_IBRC_H
#define P2P_IBRC_H

#include "ibrc_p2p_select.h"
#include "tcp_p2p.h"

#include <infiniband/verbs.h>

#define IB_SLICE_MAX (1u << 20)      /* the port's limit: large ones are cut over the paths */
#define IB_AHEAD_BYTES (4u << 20)    /* under way on a path */
#define IB_FAILS_MAX 3u              /* queue pairs lost in a row before the path rests */
#define IB_REST_FIRST_MS 1000u
#define IB_REST_MAX_MS 60000u
#define IB_DRAIN_MS 2000u
#define IB_TICK_MS 500u               /* how often paths with work are looked after */
#define IB_PATIENCE 4u               /* times what all retries take without a completion */
#define IB_SLOWEST (512u << 10)      /* bytes a tick that what is in flight may take more */
#define IB_SPIN_NS 20000u            /* completions come in crowds */
#define IB_INBOX 4096u               /* completions that others polled for a worker */

/* A path's id in a work request's: generation, worker, index with that worker. */
#define IB_ID(generation, worker, index) \
	((uint32_t)(generation) << 19 | (uint32_t)(worker) << 16 | (uint32_t)(index))
#define IB_ID_WORKER(id) ((id) >> 16 & 7u)
#define IB_ID_INDEX(id) ((id) & 0xffffu)
#define IB_ID_GENERATIONS 0x1fffu

/* --------------------------------------------------------------------- verbs */

/* libibverbs, found at run time. Each as its name there without ibv_. */
struct ib_verbs {
	struct ibv_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *ctx);
	int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
	int (*query_gid_ex)(struct ibv_context *ctx, uint32_t port, uint32_t index,
			    struct ibv_gid_entry *entry, uint32_t flags, size_t size);
	int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *event);
	void (*ack_async_event)(struct ibv_async_event *event);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access);
	struct ibv_mr *(*reg_mr_iova)(struct ibv_pd *pd, void *addr, size_t length,
				      uint64_t iova, int access);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access); /* may be NULL */
	int (*dereg_mr)(struct ibv_mr *mr);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int n);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	const char *(*wc_status_str)(enum ibv_wc_status status);
};

/* The library's calls, NULL: why says what is missing. Loaded once, for good. */
const struct ib_verbs *ib_verbs_get(char *why, size_t size);

/* --------------------------------------------------------------------- rails */

enum ib_rail_state { IB_RAIL_UP, IB_RAIL_DOWN, IB_RAIL_DEAD };

struct ib_rail {
	struct p2p_net *net;
	unsigned int index;
	char name[64];
	uint8_t port;
	enum ib_link link;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	uint32_t max_msg;
	uint64_t speed;           /* Mbit/s */
	struct p2p_source async;  /* worker 0 */
	_Atomic int state;        /* enum ib_rail_state */
	pthread_mutex_t lock;     /* of what a port's events change: */
	struct ib_gid gid;
	uint16_t lid;
	int mtu;                  /* bytes */
};

struct ib_fatal {
	struct p2p_cmd cmd;
	_Atomic bool sent;
};

/* A queue pair is in error, says the device, whose number it is: another's may have it, too. */
struct ib_sick {
	struct p2p_cmd cmd;
	const struct ib_rail *rail;
	uint32_t qpn;
};

struct ib_channel {
	struct p2p_source source;
	struct p2p_net *net;
	struct ibv_comp_channel *channel;
};

struct p2p_net {
	struct p2p_engine *engine;
	const struct ib_verbs *v;
	bool strict;              /* FLAGCX_P2P_TRANSPORT=ibrc */
	bool shared;              /* FLAGCX_P2P_SHARED_CQ */
	unsigned int rails;
	struct ib_rail rail[IB_RAILS_MAX];
	struct ib_fatal fatal[P2P_WORKERS_MAX];

	/* shared completion queues; cq_lock */
	pthread_mutex_t cq_lock;
	struct p2p_list cqs;
	struct ib_channel channel[IB_RAILS_MAX];
	struct ib_worker *iw[P2P_WORKERS_MAX]; /* whose inboxes are open */
};

/* Find the ports and open those to use: 0, or -errno with why. */
int ib_rails_open(struct p2p_net *net, char *why, size_t size);
void ib_rails_close(struct p2p_net *net);
/* Look at the port anew: 0, or -errno: it is not usable now. */
int ib_rail_refresh(struct ib_rail *rail);
/* Keep the calling thread on the processors near the device, if they are known and ours. */
void ib_rail_bind(const struct ib_rail *rail);
/* Take the device's events; worker 0. */
int ib_rails_watch(struct p2p_net *net, struct p2p_worker *w);
void ib_rails_unwatch(struct p2p_net *net, struct p2p_worker *w);

/* ------------------------------------------------------------- registrations */

struct ib_mr {
	struct p2p_mr_net base;
	uint64_t step;            /* bytes of a piece */
	unsigned int rails, pieces;
	void *mapping;            /* of the device's memory; NULL: none of ours */
	struct ibv_mr *mr[];      /* by rail, then by piece */
};

int ib_mr_reg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net **out);
void ib_mr_dereg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net *m);
size_t ib_mr_keys(const struct p2p_mr_net *m, const struct p2p_mr *mr, uint8_t *buf, size_t size);

/* ------------------------------------------------------------------- workers */

struct ib_cq {
	struct p2p_list link;     /* ib_worker->cqs */
	struct ib_rail *rail;
	struct ibv_cq *cq;
	uint32_t cap, used;       /* entries; those that queue pairs may need */
	unsigned int events;      /* taken, not acknowledged */
	bool armed;
};

struct ib_worker {
	struct p2p_worker *w;
	struct p2p_net *net;
	struct p2p_list cqs;
	struct ib_channel channel[IB_RAILS_MAX];
	struct ib_path **path;    /* by the index in its id */
	uint16_t *generation;     /* the latest of each index */
	uint32_t paths;
	struct p2p_list pump;     /* paths with something to do after a poll */
	struct p2p_list later;    /* paths whose queue pair is to be made or to go */
	unsigned int flying;      /* paths with work requests in flight or to be flushed */
	struct p2p_source tick;
	int tick_fd;
	bool ticking;
	uint32_t ticks;           /* since the start; stands while nothing flies */
	uint32_t patience;        /* ticks without a completion: the queue pair is dead */
	uint64_t last_done;       /* ns of the latest completion */
	struct ibv_send_wr *wr;   /* a chain being built */
	struct ibv_sge *sge;
	struct p2p_slice **aside[2]; /* of it, what goes by the stream, by opcode */
	unsigned int asides[2];
	struct ibv_wc *wc;
	struct ibv_wc *inbox;     /* a ring of IB_INBOX; net->cq_lock */
	uint32_t inbox_first, inbox_n; /* net->cq_lock */
	bool own_stream;          /* the engine has no TCP transport of its own */
	bool bound;               /* to the processors near the device */
};

static inline struct ib_worker *ib_worker_of(struct p2p_worker *w)
{
	return w->net_ctx[p2p_net_ibrc.slot];
}

void ib_shared_init(struct p2p_net *net);
void ib_shared_fini(struct p2p_net *net);
int ib_worker_init(struct p2p_net *net, struct p2p_worker *w);
void ib_worker_exit(struct p2p_net *net, struct p2p_worker *w);
int ib_poll(struct p2p_worker *w);
bool ib_arm(struct p2p_worker *w);
int ib_borrow(struct p2p_path *path);
int ib_step(struct p2p_path *path);
/* Look after the paths in a while. */
void ib_tick_soon(struct ib_worker *iw);
/* A completion queue with n entries to spare; they are the caller's then. */
int ib_cq_take(struct ib_worker *iw, struct ib_rail *rail, uint32_t n, struct ib_cq **out);
/* Give them back; what is left in it of the queue pair has been polled. */
void ib_cq_give(struct ib_worker *iw, struct ib_cq *cq, uint32_t n);
/* Completions of one queue into their paths; how many. */
int ib_cq_poll(struct ib_worker *iw, struct ib_cq *cq);

/* --------------------------------------------------------------------- paths */

enum ib_state {
	IB_NONE,     /* not started, or stopped */
	IB_WAITING,  /* offered; waits for the peer's offer or its READY */
	IB_UP,
	IB_DRAINING, /* in error; waits for the flush */
	IB_RESTING,  /* no queue pair: everything goes by the stream, for a while */
};

struct ib_entry {
	struct p2p_slice *slice; /* NULL: an earlier part of the next one */
	uint32_t bytes;
	uint8_t opcode;
};

/* A word on the stream. */
struct ib_note {
	uint8_t kind;     /* enum ib_note_kind */
	uint8_t link;     /* enum ib_link */
	uint8_t reads;    /* that it serves at once */
	uint16_t mtu;     /* bytes */
	uint32_t epoch;   /* number of the queue pair on this path; both ends' is the same */
	int32_t status;   /* OFFER: 0, or why there is none */
	uint32_t qpn, psn;
	uint16_t lid, rail;
	uint8_t gid[16];
};

enum ib_note_kind { IB_NOTE_OFFER = 1, IB_NOTE_READY = 2 };

void ib_note_encode(const struct ib_note *n, uint8_t buf[P2P_FRAME_NOTE_SIZE]);
int ib_note_decode(const uint8_t buf[P2P_FRAME_NOTE_SIZE], struct ib_note *n);

struct ib_path {
	struct tcp_path stream;   /* first: a path is one */
	struct ib_worker *iw;
	struct ib_rail *rail;
	_Atomic int state;        /* enum ib_state; its worker writes */
	struct p2p_list pump;     /* ib_worker->pump */
	struct p2p_list later;    /* ib_worker->later */

	struct ibv_qp *qp;
	struct ib_cq *cq;
	uint32_t id;              /* high half of a work request's; 0: none */
	uint32_t psn;
	uint32_t inline_max;
	uint32_t epoch;           /* of qp, or of the next one */
	bool connected;           /* in RTS */
	bool reads;               /* both devices can */
	uint16_t peer_rail;
	bool reopen;              /* after the flush: a new one */
	int rest_status;          /* else: what the peer is told, 0: it knows */
	struct ib_note offer;     /* the peer's latest */
	unsigned int fails;
	uint64_t rest_ms, rest_until;
	uint32_t moved;           /* tick of the latest completion, or of the first post */
	int last_error;

	struct ib_entry *ring;    /* of mask + 1 */
	uint32_t mask, depth, head, tail; /* in flight: [tail, head) */
	uint32_t unsignalled, reads_out;
	uint64_t out_bytes;
	struct p2p_slice **todo;  /* taken, to be posted; a stack */
	uint32_t todos, todo_cap;
	bool flying;              /* counted in ib_worker->flying */
	bool alive;               /* something was done since the latest ib_busy() */
};

static inline struct ib_path *ib_of(struct p2p_path *p)
{
	return p2p_container_of(p, struct ib_path, stream.base);
}

static inline bool ib_is(const struct ib_path *p, enum ib_state state)
{
	return atomic_load_explicit(&((struct ib_path *)p)->state, memory_order_relaxed) ==
	       (int)state;
}

void ib_become(struct ib_path *p, enum ib_state state);

/* ibrc_p2p_qp.c: the life of a path's queue pair */

/* Make one of the path's epoch and offer it to the peer. */
void ib_qp_open(struct ib_path *p);
/* It is of no use any more: flush, then a new one or a rest. err: why. */
void ib_qp_fail(struct ib_path *p, int err, bool counts);
/*
 * All of it is flushed, or it goes as it is, or a new one is to be made: that takes
 * the device's time, and a caller may have the turn. The worker does it, soon.
 */
void ib_qp_later(struct ib_path *p);
/* It goes, flushed or not; what was in flight is in todo then. */
void ib_qp_drop(struct ib_path *p);
/* Try again, if a rest is over. */
void ib_qp_retry(struct ib_path *p);
/* The worker: what has been left to it. */
void ib_qp_work(struct ib_worker *iw);
/* Flush and destroy; what was in flight ends with err. */
void ib_qp_stop(struct ib_path *p, int err);
int ib_on_note(struct tcp_path *stream, const uint8_t *buf);

/* ibrc_p2p_adaptor.c: posting and ending */

/* Post what is to do, as far as there is room. */
void ib_pump(struct ib_path *p);
/* Ring entries before seq have been done. */
void ib_done(struct ib_path *p, uint32_t seq);
/* Everything in flight is to be done again. */
void ib_undo(struct ib_path *p);
/* One slice again, and by the stream. */
void ib_aside(struct ib_path *p, struct p2p_slice *slice);
/* End what is to do. */
void ib_todo_fail(struct ib_path *p, int err);
/* Note for the watches, and for who polls, whether the path waits for anything. */
void ib_busy(struct ib_path *p, bool heard);

#endif /* P2P_IBRC_H */
