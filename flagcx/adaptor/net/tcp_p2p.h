/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TCP transport: a path is one stream, full duplex, that carries frames
 * of both ends' requests and answers. The worker that owns the path serves
 * the peer's requests by itself.
 *
 * Answers come in the order of requests, so those in flight are a FIFO and an
 * answer belongs to its head. Bytes of a frame's body go from and to their
 * final place: sendmsg gathers, recvmsg scatters; only what was read together
 * with a header is copied. Device memory goes through a staging buffer of the
 * path, a chunk at a time.
 *
 * Everything here runs with the turn of the path's worker.
 */
#ifndef P2P_TCP_H
#define P2P_TCP_H

#include "net_adaptor.h"

#include <sys/uio.h>

#define TCP_SLICE_MAX (1u << 20)  /* the port's limit, and about the most in a frame */
#define TCP_STAGE (1u << 20)
#define TCP_TRASH (64u << 10)
#define TCP_IOV 256
#define TCP_ZC_MIN (64u << 10)    /* below, a copy is cheaper than its accounting */
#define TCP_FRAMES_MAX 70000u     /* answers owed to one peer: it has run wild beyond */

/* A piece of a body. */
struct tcp_ext {
	uint8_t *ptr;       /* NULL: discard what comes */
	uint32_t len;       /* 0: not part of the body */
	int16_t device;     /* -1: host */
	int16_t err;        /* -errno: refused or failed */
	struct p2p_mr *mr;  /* pinned for a peer's request */
	struct p2p_slice *slice; /* of our request; NULL: cancelled */
};

/* A place in a body. */
struct tcp_cursor {
	uint32_t ext;
	uint32_t off;
};

struct tcp_frame {
	struct tcp_frame *next;
	struct p2p_frame_header h;
	uint8_t class;           /* which free list */
	uint64_t bytes;          /* of a request's slices */
	uint32_t exts;
	size_t head_len, head_sent;
	uint64_t body_sent;
	struct tcp_cursor at;    /* sending */
	uint32_t zc_first;       /* number of its first send without a copy */
	uint32_t zc_sends;       /* how many of them */
	uint32_t zc_left;        /* of which the kernel still reads the memory */
	struct tcp_ext *ext;
	uint8_t *head;           /* header and descriptors or refusals */
};

struct tcp_fifo {
	struct tcp_frame *first, **last;
	uint32_t count;
};

static inline void tcp_fifo_init(struct tcp_fifo *q)
{
	q->first = NULL;
	q->last = &q->first;
	q->count = 0;
}

static inline void tcp_fifo_push(struct tcp_fifo *q, struct tcp_frame *f)
{
	f->next = NULL;
	*q->last = f;
	q->last = &f->next;
	q->count++;
}

static inline struct tcp_frame *tcp_fifo_pop(struct tcp_fifo *q)
{
	struct tcp_frame *f = q->first;

	if (f) {
		q->first = f->next;
		if (!q->first)
			q->last = &q->first;
		q->count--;
	}
	return f;
}

#define TCP_CLASSES 4

struct tcp_worker {
	struct tcp_frame *free[TCP_CLASSES];
	uint32_t frees[TCP_CLASSES];
	uint8_t *trash;        /* what nobody wants is received here */
	struct p2p_list ready; /* paths with more to read */
};

struct tcp_path {
	struct p2p_path base;
	struct p2p_source source;
	struct p2p_list ready; /* tcp_worker->ready: more to read than a turn allows */
	struct tcp_worker *tw;
	int fd;
	bool writable, hup, broken;
	bool awaits_room;       /* the event of room to write is asked for */
	bool borrowed;          /* a caller attends: no event but the end is asked for */
	bool other_work;        /* a transport that rides on the stream waits for more than it */
	int (*note)(struct tcp_path *p, const uint8_t *note); /* and its words; NULL: none */
	bool zc;                /* send large bodies without a copy */
	uint32_t zc_next;       /* the kernel counts such sends, and so do we */
	struct tcp_fifo held;   /* answers sent whose memory the kernel still reads */

	struct tcp_fifo tx;     /* to be sent, in order */
	struct tcp_fifo flight; /* our requests, sent, not answered */
	uint32_t seq;           /* of our next request */
	uint64_t unsent[2];     /* body bytes of our requests in tx, by opcode */
	uint64_t out_bytes[2];  /* of our requests not answered */
	uint32_t out_frames[2];
	uint32_t reads_owed;    /* peer's READs in tx */

	uint8_t *tx_stage;
	struct tcp_frame *tx_staged; /* whose bytes are in it; NULL: free */
	uint64_t tx_stage_pos;
	uint32_t tx_stage_len;

	uint8_t *rbuf;          /* headers and descriptors, and what came with them */
	size_t rcap, rpos, rlen;
	struct tcp_frame *in;   /* whose body is being received */
	struct tcp_cursor in_at;
	uint64_t in_left;
	uint8_t *rx_stage;
	uint32_t rx_stage_len;  /* chunk being received into it; 0: none */
	uint32_t rx_stage_got;
};

static inline struct tcp_path *tcp_of(struct p2p_path *p)
{
	return p2p_container_of(p, struct tcp_path, base);
}

/* tcp_p2p_adaptor.c */
struct tcp_frame *tcp_frame_get(struct tcp_worker *tw, uint32_t exts);
void tcp_frame_put(struct tcp_worker *tw, struct tcp_frame *f);
/* The stream is of no use any more. */
void tcp_break(struct tcp_path *p, int err);
/* Note progress for the stall watch; heard: the peer has sent something. */
void tcp_progress(struct tcp_path *p, bool heard);
/* End the request's slices by what its exts say and free the frame. */
void tcp_request_end(struct tcp_path *p, struct tcp_frame *f);
/* The same with one error for all. */
void tcp_request_fail(struct tcp_path *p, struct tcp_frame *f, int err);
void tcp_unpin(struct tcp_frame *f);
/* The socket is full: ask for its event. */
void tcp_await_room(struct tcp_path *p);
uint8_t *tcp_stage_get(struct tcp_path *p, uint8_t **stage);

/* Send a word of P2P_FRAME_NOTE_SIZE bytes: 0 or -ENOMEM. */
int tcp_note(struct tcp_path *p, const uint8_t *note);

/* tcp_p2p_tx.c */
void tcp_tx_push(struct tcp_path *p, struct tcp_frame *f);
void tcp_tx_flush(struct tcp_path *p);

/* tcp_p2p_zerocopy.c */
/* Ask for sends without a copy, if the settings and the peer are such. */
void tcp_zc_open(struct tcp_path *p);
/* Bytes at the start of f's unsent body that can be sent so; 0: none. */
size_t tcp_zc_span(const struct tcp_path *p, const struct tcp_frame *f);
/* Send them. As sendmsg(), but -errno. */
ssize_t tcp_zc_send(struct tcp_path *p, struct tcp_frame *f);
/* Take what the kernel says to be done with. */
void tcp_zc_reap(struct tcp_path *p);

/* tcp_p2p_rx.c */
/* Receive for one turn; true: there may be more. */
bool tcp_rx_turn(struct tcp_path *p);
/* The task's slices in the frame being received are not wanted any more. */
void tcp_rx_cancel(struct tcp_path *p, struct p2p_task *task);
/* Refusals of a peer's request into the head of its answer. */
void tcp_answer_encode(struct tcp_frame *f, uint8_t type);

#endif /* P2P_TCP_H */
