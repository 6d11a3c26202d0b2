/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's objects and who owns them.
 *
 *   engine  made by a caller. Owns the workers, the control thread, the
 *           registrations, the transfer table and the transport.
 *   conn    one peer. Users: its owner (the caller of Connect or Accept, or
 *           the engine), its control session, each of its paths while a
 *           worker has it, each flight. Freed with the last.
 *   path    one stream or queue pair of a conn. Belongs to one worker for
 *           life: only who has that worker's turn posts on it and reads from it.
 *   worker  a thread. What others want of it goes through its commands. While
 *           it sleeps, a caller may take its turn to post a small transfer and
 *           to wait for it by itself (pool.c).
 *
 * Locks, outermost first; a thread never takes one further out:
 *   worker->turn         its paths; others only try for it
 *   engine->conns_lock   the list of live conns, and with it the order in
 *                        which peers learn of registrations
 *   engine->accept_lock, engine->sessions_lock, engine->notif_lock
 *   conn->tasks_lock
 *   shard lock           waiting slices of the conns of a shard
 *   region locks         registrations, ours and peers'
 *   conn->tx_lock        what waits to be sent on the control session
 *   worker->cmd_lock, control->lock, table locks: leaves
 */
#ifndef P2P_ENGINE_H
#define P2P_ENGINE_H

#include "addr.h"
#include "common.h"
#include "config.h"
#include "keys.h"
#include "region.h"
#include "table.h"
#include "task.h"
#include "wire.h"

#include <pthread.h>
#include <stdatomic.h>

#define P2P_HANDSHAKE_MS 5000
#define P2P_PATHS_MAX 32
#define P2P_WORKERS_MAX 8
#define P2P_SHARDS_MAX 64
#define P2P_LATENCIES 32

struct p2p_net;
struct p2p_net_ops;
struct p2p_control;
struct p2p_engine;
struct p2p_conn;
struct p2p_worker;

/* Something a worker or the control thread polls. */
struct p2p_source {
	void (*event)(struct p2p_source *source, uint32_t events);
};

/* ------------------------------------------------------------------ workers */

struct p2p_cmd {
	struct p2p_cmd *next;
	void (*run)(struct p2p_worker *worker, struct p2p_cmd *cmd);
};

struct p2p_path {
	const struct p2p_net_ops *ops;
	struct p2p_conn *conn;
	struct p2p_worker *worker;
	struct p2p_list link;       /* worker->paths; worker's turn */
	unsigned int index;
	bool running;               /* worker's turn */
	struct p2p_cmd start, stop;
	_Atomic bool stop_sent;
	_Atomic uint64_t busy_since; /* ns of the last progress while work is due; 0: none is */
};

struct p2p_worker {
	struct p2p_engine *engine;
	unsigned int index;
	pthread_t thread;
	int epoll;
	int wake_fd;
	struct p2p_source wake;
	_Atomic uint32_t asleep;
	_Atomic bool stopping;
	pthread_mutex_t turn;
	bool restless;                    /* its last sleep was short; worker's thread */
	pthread_mutex_t cmd_lock;
	struct p2p_cmd *cmds, **cmds_end; /* cmd_lock */
	_Atomic bool has_cmds;
	struct p2p_list paths;            /* turn */
	void *net_ctx[P2P_NETS];          /* each transport's own, of this worker */
};

struct p2p_shard {
	pthread_mutex_t lock;
	_Atomic uint64_t waiting; /* slices */
};

/* Counters for flagcxP2pEngineStats(); relaxed, exact when nothing runs. */
struct p2p_counters {
	_Atomic uint64_t in_flight, posted, staging_busy, xfers, xfers_failed;
	_Atomic uint64_t read_bytes, write_bytes, served_read, served_write, refused, staged,
		rdma;
	_Atomic uint64_t notifs_sent, notifs_received;
	_Atomic uint64_t connects, connects_failed, peers_lost;
	_Atomic uint64_t latency[P2P_LATENCIES];
};

#define p2p_count(engine, field, n) \
	atomic_fetch_add_explicit(&(engine)->stats.field, (n), memory_order_relaxed)
#define p2p_uncount(engine, field, n) \
	atomic_fetch_sub_explicit(&(engine)->stats.field, (n), memory_order_relaxed)

/* -------------------------------------------------------------- connections */

struct p2p_txbuf {
	struct p2p_txbuf *next;
	size_t len, sent;
	uint8_t data[];
};

/* A notification as it is put together, and as it waits to be taken. */
struct p2p_note {
	struct p2p_list link;
	uint64_t conn;   /* handle */
	uint64_t cost;   /* against the sender's credit */
	uint32_t name_len;
	uint64_t msg_len;
	uint64_t got;    /* bytes of name and message that have come */
	size_t cap;
	char *bytes;     /* name, NUL, message, NUL */
};

struct p2p_conn {
	struct p2p_engine *engine;
	uint64_t handle;
	struct p2p_list link;         /* engine->conns while live; conns_lock */
	struct p2p_list all_link;     /* engine->all; conns_lock */
	bool live;                    /* conns_lock */
	struct p2p_list accept_link;  /* engine->accepted; accept_lock */
	_Atomic bool owned;           /* by the engine */

	uint64_t peer_incarnation;
	bool local, same_process;
	char peer_ip[64];
	int peer_port, peer_device;

	_Atomic int error;            /* first thing that broke it; 0 */
	_Atomic int failed;           /* a collected failure: later calls fail */
	_Atomic uint32_t event;       /* a futex: counts what others wait for */

	const struct p2p_net_ops *ops;
	size_t slice_limit;
	unsigned int paths;
	struct p2p_path *path[P2P_PATHS_MAX];
	_Atomic uint32_t paths_alive;
	_Atomic uint32_t flights;
	_Atomic uint32_t next_path;   /* whose worker is woken next */
	_Atomic uint32_t in_vain;     /* waits in a row that p2p_pool_help() did not shorten */

	struct p2p_shard *shard;
	struct p2p_list pend[2];      /* tasks by opcode; shard lock */
	_Atomic uint64_t pending[2];  /* slices in them */

	pthread_mutex_t tasks_lock;
	struct p2p_list tasks;        /* not yet collected; tasks_lock */

	struct p2p_remote_table remote;
	_Atomic bool remote_ready;    /* the first table has come */
	struct p2p_key_table keys;    /* of its registrations, for transports that need them */
	bool keys_full;               /* and that was said; control thread */

	/* control session; the control thread reads, anyone sends */
	struct p2p_source session;
	struct p2p_list session_link; /* control->sessions; control thread */
	struct p2p_list inbox_link;   /* control's inboxes; its lock */
	bool closing, shut;           /* control thread */
	bool listening;               /* closing, and what the peer said last still counts */
	bool ended;                   /* closing, and the peer says no more; it may listen yet */
	int fd;                       /* tx_lock to use, control thread to close */
	pthread_mutex_t tx_lock;
	struct p2p_txbuf *tx, **tx_end; /* tx_lock */
	uint64_t last_rx;             /* ns; control thread */
	_Atomic uint64_t last_data;   /* ns; workers */
	_Atomic uint64_t last_tx;     /* ns */
	uint64_t linger_until;        /* closing: ns, moved on by progress; control thread */
	uint64_t linger_end;          /* closing: ns, whatever happens; control thread */
	uint64_t linger_left;         /* closing: bytes that the peer has not got */
	uint8_t *rx;
	size_t rx_len, rx_cap;
	struct p2p_note *note;        /* being put together */
	pthread_mutex_t notif_lock;   /* one notification is sent at a time */
	_Atomic uint64_t credit_used; /* bytes sent that the peer has not taken */
	_Atomic uint64_t notes_held;  /* bytes come that our caller has not taken */

	/* one range query at a time */
	pthread_mutex_t query_lock;
	uint32_t query_id;            /* query_lock */
	pthread_mutex_t answer_lock;
	uint32_t answer_id;           /* answer_lock */
	int answer_rc;                /* answer_lock */
	struct p2p_region answer;     /* answer_lock */

	/* handshake */
	uint64_t session_id;
	uint8_t token[16], nonce_c[16], nonce_s[16];
	uint32_t adopted;             /* bits of paths that stand; control thread */
	uint64_t deadline;            /* control thread */
};

/* ------------------------------------------------------------------ engines */

struct p2p_session_cache {
	struct p2p_list link;
	char *name;
	uint64_t conn;       /* handle; 0: none */
	uint64_t not_before; /* ns: no attempt before */
	uint32_t delay_ms;
	bool busy;           /* a thread is connecting */
};

struct p2p_engine {
	struct p2p_list link;      /* engine.c's list */
	uint64_t handle;
	struct p2p_config config;
	uint64_t incarnation;
	bool private_notifs;
	char ip[64];               /* advertised */
	int port;
	int device;

	/* transports in use, by their slot; NULL where there is none */
	const struct p2p_net_ops *ops[P2P_NETS];
	struct p2p_net *net[P2P_NETS];
	char transport_why[256];

	struct p2p_mr_table mrs;
	struct p2p_table tasks;

	unsigned int shards;
	struct p2p_shard shard[P2P_SHARDS_MAX];
	/* how many stand: the first runs already, and counts, while the others are made */
	_Atomic unsigned int workers;
	struct p2p_worker worker[P2P_WORKERS_MAX];
	_Atomic uint32_t next_worker;

	struct p2p_control *control;

	pthread_mutex_t conns_lock;
	struct p2p_list conns;     /* the live ones; conns_lock */
	struct p2p_list all;       /* every one not yet freed; conns_lock */
	_Atomic uint32_t peers;

	pthread_mutex_t accept_lock;
	pthread_cond_t accept_cond;
	struct p2p_list accepted;  /* waits for an Accept, broken or not; accept_lock */
	bool accept_stopped;       /* accept_lock */
	bool rpc_server;           /* accept_lock */

	pthread_mutex_t sessions_lock;
	pthread_cond_t sessions_cond;
	struct p2p_list sessions;  /* struct p2p_session_cache; sessions_lock */

	pthread_mutex_t notif_lock;
	struct p2p_list notes;     /* notif_lock */
	_Atomic uint64_t notes_cost; /* of those, and of those coming in */

	_Atomic bool destroying;
	_Atomic uint32_t released; /* a futex: no user is left */
	_Atomic uint32_t objects;  /* a futex: conns not yet freed */
	struct p2p_counters stats;
};

/* ----------------------------------------------------------------- engine.c */

/* The engine or conn of a caller's handle with one more user; NULL. */
struct p2p_engine *p2p_engine_get(const FlagcxP2pEngine *handle);
void p2p_engine_put(struct p2p_engine *e);
struct p2p_conn *p2p_conn_get(const FlagcxP2pConn *handle);
void p2p_conn_put(struct p2p_conn *c);
void p2p_conn_ref(struct p2p_conn *c);
/* Every live engine of the process, oldest first, with one more user each. */
int p2p_engines(struct p2p_engine **out, int cap);

/* ---------------------------------------------------------------- process.c */

/* True in a child of a process that used the library. */
bool p2p_process_forked(void);
/* Random number of this process; the same for all its engines. */
uint64_t p2p_process_cookie(void);
/* Boot id of the kernel: the same exactly for processes of one host. */
void p2p_host_id(uint8_t id[16]);
/* Note a descriptor that a forked child must not keep open; returns it, also when < 0. */
int p2p_fd_track(int fd);
/* Someone else closes it. */
void p2p_fd_untrack(int fd);
void p2p_fd_close(int fd);
/* A thread that takes no signal of the program's. 0 or -errno. */
int p2p_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg);

/* ------------------------------------------------------------------- conn.c */

/* Give a conn its handle (one user, the caller); take it back: false: done before. */
int p2p_conn_enter(struct p2p_conn *c);
bool p2p_conn_leave(struct p2p_conn *c);
/* A conn with one user, the caller; it is not alive yet. */
int p2p_conn_new(struct p2p_engine *e, struct p2p_conn **out);
/* Paths for the negotiated transport. */
int p2p_conn_make_paths(struct p2p_conn *c, const struct p2p_net_ops *ops, unsigned int n);
/* The handshake is over; c->fd is the session. ready: tell the peer so first. */
int p2p_conn_live(struct p2p_conn *c, bool ready);
/* Everything on it ends with err; idempotent; from any thread; does not wait. */
void p2p_conn_break(struct p2p_conn *c, int err);
/*
 * Retire, break with -ECANCELED, wait until quiet, drop the owner's use. The
 * caller has a use of its own.
 */
void p2p_conn_destroy(struct p2p_conn *c);
/* 0, or why a call on it must fail. */
int p2p_conn_check(const struct p2p_conn *c);
void p2p_conn_signal(struct p2p_conn *c);
void p2p_conn_release(void *object);

/* ------------------------------------------------------------------ queue.c */

/* Put a task's slices in line. -errno: the conn broke, nothing was queued. */
int p2p_queue_push(struct p2p_task *task);
/* Take up to max slices of one opcode, up to about max_bytes. */
unsigned int p2p_queue_pull(struct p2p_conn *c, int opcode, struct p2p_slice **out,
			    unsigned int max, size_t max_bytes);
/* End what of a task, or of all tasks of a conn, is still in line. */
void p2p_queue_cancel(struct p2p_task *task, int err);
void p2p_queue_purge(struct p2p_conn *c, int err);

/* ------------------------------------------------------------------- pool.c */

int p2p_pool_start(struct p2p_engine *e);
void p2p_pool_stop(struct p2p_engine *e);
/* The path that a conn's next transfer starts on. */
struct p2p_path *p2p_pool_choose(struct p2p_conn *c);
/* Slices wait: post them, or wake who can. small: the path alone will do. */
void p2p_pool_kick(struct p2p_path *path, bool small);
/* Wait a moment for a task that was started on a path by taking part in the work. */
void p2p_pool_help(struct p2p_path *path, struct p2p_task *task);
void p2p_worker_command(struct p2p_worker *w, struct p2p_cmd *cmd);
/* Something that its transport's arm() would see has come for a worker. */
void p2p_worker_wake(struct p2p_worker *w);
/* Hand a conn's paths to their workers; take one back. */
void p2p_pool_start_path(struct p2p_path *path);
void p2p_pool_stop_path(struct p2p_path *path);
/* Slices of the task that are on paths end or let go of memory; waits for it. */
void p2p_pool_cancel(struct p2p_task *task);

/* ---------------------------------------------------------------- control.c */

int p2p_control_start(struct p2p_engine *e);
void p2p_control_stop(struct p2p_engine *e);
void p2p_control_wake(struct p2p_engine *e);
void p2p_control_stop_accept(struct p2p_engine *e);
/* Poll the session of a conn that goes live; it becomes a user. conns_lock held. */
void p2p_control_add(struct p2p_conn *c);
/* Close the session of a broken conn once what waits has been sent. */
void p2p_control_close(struct p2p_conn *c);
/* A new conn for whoever accepts, or for the engine to keep; takes the owner's use. */
void p2p_control_accepted(struct p2p_conn *c);

struct p2p_piece {
	const void *data;
	size_t len;
};

/* Send one message; never blocks. 0, -ENOTCONN, -ENOMEM. */
int p2p_session_send(struct p2p_conn *c, const struct p2p_msg *m, const struct p2p_piece *piece,
		     int pieces);
/* Send what waits; the control thread, when the socket takes more. */
void p2p_session_flush(struct p2p_conn *c);

/* ----------------------------------------------------------------- accept.c */

/* Newcomers who have not finished their greetings; the control thread's. */
struct p2p_waiting {
	struct p2p_list live, dead;
	unsigned int count;
};

/* A connection to the listener: serve its greetings; takes fd. */
void p2p_waiting_add(struct p2p_waiting *room, struct p2p_engine *e, int epoll, int fd,
		     const union p2p_sockaddr *from);
/* Drop what is past its time, everything for UINT64_MAX; the next time, 0: none. */
uint64_t p2p_waiting_expire(struct p2p_waiting *room, uint64_t now);
/* What both ends say of themselves. */
void p2p_greeting_fill(struct p2p_engine *e, uint16_t kind, struct p2p_greeting *g);
/* What opens a path of a conn. */
void p2p_greeting_data(struct p2p_conn *c, unsigned int path, struct p2p_greeting *g);
/* Note who the peer is. */
void p2p_conn_meet(struct p2p_conn *c, const struct p2p_greeting *peer,
		   const union p2p_sockaddr *from);

/* ---------------------------------------------------------------- session.c */

/* One control message has come. -errno breaks the conn. */
int p2p_session_message(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload);
/* Tell every peer of a registration made or gone; conns_lock held. */
void p2p_session_tell(struct p2p_engine *e, const struct p2p_region *r, bool gone);
/* Tell those whose transport wants to know by which keys it reaches one; conns_lock held. */
void p2p_session_tell_keys(struct p2p_engine *e, const struct p2p_mr *mr);
/* Send the whole table to a new peer; conns_lock held. */
int p2p_session_table(struct p2p_conn *c);
/* Ask the peer for the region that holds a range: 0, -ENOENT, -errno. */
int p2p_session_query(struct p2p_conn *c, uint64_t va, uint64_t len, struct p2p_region *out);

/* ------------------------------------------------------------------ notif.c */

int p2p_notif_part(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload);
void p2p_note_free(struct p2p_engine *e, struct p2p_note *note);

/* ---------------------------------------------------------------- connect.c */

/* Connect to host:port within the deadline, with growing delays; 0 or -errno. */
int p2p_connect(struct p2p_engine *e, const char *host, int port, bool once,
		struct p2p_conn **out);

/* ------------------------------------------------------------------- rpc.c */

/* Free the cache of sessions. */
void p2p_rpc_forget(struct p2p_engine *e);
/* Descriptor of a range of the peer, asking it if need be: 0, -ENOENT, -errno. */
int p2p_conn_desc(struct p2p_conn *c, uint64_t va, uint64_t size, FlagcxP2pRdmaDesc *desc);
/* The same for the registration of a key. A key of none there is the peer's to refuse. */
int p2p_conn_desc_key(struct p2p_conn *c, uint64_t va, uint64_t size, uint32_t rkey,
		      FlagcxP2pRdmaDesc *desc);

/* ------------------------------------------------------------------ xfer.c */

struct p2p_xfer {
	int opcode;
	int policy;
	uint64_t n;
	const FlagcxP2pMr *mr;   /* NULL: found by address */
	void *const *local;      /* or */
	const uint64_t *local_va;
	const size_t *size;      /* or */
	const uint64_t *size64;
	const FlagcxP2pRdmaDesc *desc;
	/* Nobody collects it: this is told its end, with arg. It is queued, not kicked. */
	void (*ended)(void *arg, int err);
	void *arg;
};

/* Build and queue a task. *id 0: nothing to move. */
int p2p_xfer_start(struct p2p_conn *c, const struct p2p_xfer *x, uint64_t *id);
/* May a caller post so much: no long copying, and nothing that a device's driver does. */
bool p2p_xfer_small(const struct p2p_conn *c, uint64_t slices, uint64_t bytes, bool host);
/* Wait and collect. */
int p2p_xfer_finish(struct p2p_conn *c, uint64_t id, uint64_t deadline_ns);
/* All collected or not: forget the tasks of a destroyed conn. */
void p2p_xfer_forget(struct p2p_conn *c);

/* ----------------------------------------------------------------- device.c */

/* Device of an address, -1: host memory. */
int p2p_device_of(const void *addr);
int p2p_device_read(int device, void *host, const void *dev, size_t n);
int p2p_device_write(int device, void *dev, const void *host, size_t n);
/* Device number to advertise by default. */
int p2p_device_default(void);

#endif /* P2P_ENGINE_H */
