/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the tests' own libibverbs share; verbs.c says what it is. */
#ifndef VERBS_FAKE_H
#define VERBS_FAKE_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define DEVICES_MAX 4
#define CONTEXTS_MAX 256
#define CQE_MAX 65536
#define WR_MAX 8192
#define MR_MAX 65536

struct mr {
	struct ibv_mr mr;
	uint64_t iova;
	int access;
	unsigned int users; /* lock: requests that use it */
	void *map;          /* of a dma-buf */
	size_t map_len;
};

struct context {
	struct ibv_context ctx;
	int device, id, listener;
	pthread_t server;
	pthread_mutex_t lock;
	pthread_cond_t idle;   /* a mr has one user less */
	struct mr *mr[MR_MAX]; /* lock; by key >> 8 */
	uint32_t generation;
	struct qp *qps;        /* lock */
	unsigned int serving;  /* lock: threads */
	struct ibv_async_event event[16]; /* lock */
	unsigned int events;
	_Atomic bool closing;
	_Atomic bool down;     /* the port */
};

struct cq {
	struct ibv_cq cq;
	struct cq *next;       /* of all; verbs_work.c's lock */
	pthread_mutex_t lock;
	struct ibv_wc *wc;
	struct qp **of;
	uint32_t *upto;        /* of: its send queue is free up to there */
	unsigned int cap, first, n;
	bool armed;
};

struct channel {
	struct ibv_comp_channel channel;
	pthread_mutex_t lock;
	struct cq *pending[4096];
	unsigned int n;
};

struct request {
	uint64_t wr_id, laddr, raddr;
	uint32_t len, lkey, rkey;
	bool write, signalled, inlined;
	uint8_t data[1024];
};

struct qp {
	struct ibv_qp qp;
	struct context *c;
	struct qp *next;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct request *ring;
	uint32_t cap, head, at, retired; /* posted, done, polled */
	int state;
	_Atomic int sock;
	uint32_t peer_qpn;
	union ibv_gid peer;
	bool ending;
};

/* What this call of the name is to fail with; 0: it is not. */
int verbs_fault(const char *name);
/* Note what was asked for. */
void verbs_see(const char *name, long value);
void verbs_die(const char *what) __attribute__((noreturn));
/* A pid and a context's number are the address. */
socklen_t verbs_where(struct sockaddr_un *a, uint32_t pid, uint32_t id);
enum { VERBS_HOLD_WORK = 1, VERBS_HOLD_POLL = 2 };
extern _Atomic int verbs_holds;
extern _Atomic long verbs_completions; /* in all completion queues */
void verbs_cq_enter(struct cq *cq);
void verbs_cq_leave(struct cq *cq);
/* Raise the events of armed queues that hold something. */
void verbs_notify_all(void);
/* Threads of a context's listener and of a queue pair. */
void *verbs_listen(void *context);
void *verbs_work(void *qp);
/* Complete what a queue pair that ends has not done. */
void verbs_flush(struct qp *q);
int verbs_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc);
int verbs_req_notify_cq(struct ibv_cq *cq, int solicited);
int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

#endif /* VERBS_FAKE_H */
