// SPDX-License-Identifier: Apache-2.0
/*
 * The workers. Each owns some paths for their whole life and does everything
 * on them: posts what waits, receives what comes, serves the peer's requests.
 * Nothing on the data path is shared but the line a path draws from.
 *
 * A worker sleeps in epoll_wait. Who has work for it stores the work, then
 * looks at asleep; the worker stores asleep, then looks for work. Both orders
 * are sequentially consistent, so one of them sees the other: no wake-up is
 * lost and none is sent to a worker that is awake. One whose last sleep was
 * short looks around for a moment before it sleeps again.
 *
 * Waking a thread takes longer than a small transfer. So who starts one posts
 * it by itself where the worker sleeps, and who waits for it looks for the
 * answer by itself for a moment (p2p_pool_help()).
 *
 * Locks: turn is held by who works on the paths: the worker, except while it
 * sleeps, or a caller, who only tries for it, keeps it for microseconds and
 * waits for nothing meanwhile. cmd_lock guards the commands, a leaf.
 */
#include "net_adaptor.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOK_NS 50000    /* looking around costs about what a sleep and a wake-up do */
#define SHORT_NS 100000  /* of a sleep, a wake-up included */
#define VAIN_MAX 4       /* waits that were longer; then only one in VAIN_TRY is tried */
#define VAIN_TRY 32

static void wake(struct p2p_worker *w)
{
	uint64_t one = 1;

	/* pairs with the store in sleep_until_work() */
	if (atomic_exchange_explicit(&w->asleep, 0, memory_order_seq_cst) &&
	    write(w->wake_fd, &one, sizeof(one)) < 0)
		return; /* EAGAIN: the counter is full, so it wakes anyway */
}

void p2p_worker_wake(struct p2p_worker *w)
{
	wake(w);
}

void p2p_worker_command(struct p2p_worker *w, struct p2p_cmd *cmd)
{
	cmd->next = NULL;
	pthread_mutex_lock(&w->cmd_lock);
	*w->cmds_end = cmd;
	w->cmds_end = &cmd->next;
	atomic_store_explicit(&w->has_cmds, true, memory_order_seq_cst);
	pthread_mutex_unlock(&w->cmd_lock);
	wake(w);
}

static void run_commands(struct p2p_worker *w)
{
	struct p2p_cmd *cmd, *next;

	if (!atomic_load_explicit(&w->has_cmds, memory_order_acquire))
		return;
	pthread_mutex_lock(&w->cmd_lock);
	cmd = w->cmds;
	w->cmds = NULL;
	w->cmds_end = &w->cmds;
	atomic_store_explicit(&w->has_cmds, false, memory_order_relaxed);
	pthread_mutex_unlock(&w->cmd_lock);
	for (; cmd; cmd = next) {
		next = cmd->next; /* run may free it */
		cmd->run(w, cmd);
	}
}

static bool slices_wait(struct p2p_engine *e)
{
	for (unsigned int i = 0; i < e->shards; i++)
		if (atomic_load_explicit(&e->shard[i].waiting, memory_order_seq_cst))
			return true;
	return false;
}

static bool path_has_work(struct p2p_path *p)
{
	unsigned int slices = 1;

	for (int op = 0; op < 2; op++)
		if (atomic_load_explicit(&p->conn->pending[op], memory_order_seq_cst) &&
		    p->ops->path_room(p, op, &slices))
			return true;
	return false;
}

/* Post once on a path for each opcode; true when something was posted. */
static bool feed(struct p2p_path *p)
{
	struct p2p_engine *e = p->worker->engine;
	struct p2p_slice *slice[P2P_FRAME_SLICES];
	bool any = false;

	for (int op = 0; op < 2; op++) {
		unsigned int most = (unsigned int)e->config.g.maxWrPerPost, n;
		size_t room;

		if (!atomic_load_explicit(&p->conn->pending[op], memory_order_relaxed))
			continue;
		room = p->ops->path_room(p, op, &most);
		if (!room)
			continue;
		n = p2p_queue_pull(p->conn, op, slice, most, room);
		if (!n)
			continue;
		p2p_count(e, posted, n);
		p->ops->path_post(p, op, slice, n);
		any = true;
	}
	return any;
}

static bool feed_all(struct p2p_worker *w)
{
	struct p2p_list *i, *next;
	bool any = false;

	if (!slices_wait(w->engine))
		return false;
	for (i = w->paths.next; i != &w->paths; i = next) {
		next = i->next;
		any |= feed(p2p_list_entry(i, struct p2p_path, link));
	}
	/* so that the first path is not always served first */
	if (any && w->paths.next != w->paths.prev) {
		i = w->paths.next;
		p2p_list_del(i);
		p2p_list_add_tail(&w->paths, i);
	}
	return any;
}

static bool has_work(struct p2p_worker *w)
{
	if (atomic_load_explicit(&w->has_cmds, memory_order_seq_cst) ||
	    atomic_load_explicit(&w->stopping, memory_order_seq_cst))
		return true;
	if (!slices_wait(w->engine))
		return false;
	for (struct p2p_list *i = w->paths.next; i != &w->paths; i = i->next)
		if (path_has_work(p2p_list_entry(i, struct p2p_path, link)))
			return true;
	return false;
}

static void on_wake(struct p2p_source *source, uint32_t events)
{
	struct p2p_worker *w = p2p_container_of(source, struct p2p_worker, wake);
	uint64_t n;

	while (read(w->wake_fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}

static void handle(const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		struct p2p_source *s = ev[i].data.ptr;

		s->event(s, ev[i].events);
	}
}

/* What has come; false: nothing. */
static bool take_events(struct p2p_worker *w)
{
	struct epoll_event ev[256];
	int n = epoll_wait(w->epoll, ev, (int)w->engine->config.g.batchPollSize, 0);

	handle(ev, n);
	return n > 0;
}

/* Others may take the turn meanwhile, but only the worker stops paths: what came is there. */
static void sleep_for_events(struct p2p_worker *w)
{
	struct epoll_event ev[256];
	int n;

	pthread_mutex_unlock(&w->turn);
	n = epoll_wait(w->epoll, ev, (int)w->engine->config.g.batchPollSize, -1);
	pthread_mutex_lock(&w->turn);
	handle(ev, n);
}

static int poll_transports(struct p2p_worker *w)
{
	int n = 0;

	for (int i = 0; i < P2P_NETS; i++)
		if (w->engine->ops[i])
			n += w->engine->ops[i]->poll(w);
	return n;
}

static bool armed(struct p2p_worker *w)
{
	for (int i = 0; i < P2P_NETS; i++)
		if (w->engine->ops[i] && w->engine->ops[i]->arm(w))
			return true;
	return false;
}

/* True: something came. */
static bool look_around(struct p2p_worker *w)
{
	uint64_t end = p2p_now_ns() + LOOK_NS;

	do {
		pthread_mutex_unlock(&w->turn);
		sched_yield();
		pthread_mutex_lock(&w->turn);
		if (take_events(w) || has_work(w) || poll_transports(w))
			return true;
	} while (p2p_now_ns() < end);
	return false;
}

static void sleep_until_work(struct p2p_worker *w)
{
	uint64_t start;

	if (w->restless && look_around(w))
		return;
	atomic_store_explicit(&w->asleep, 1, memory_order_seq_cst);
	if (has_work(w) || armed(w)) {
		take_events(w);
	} else {
		start = p2p_now_ns();
		sleep_for_events(w);
		w->restless = p2p_now_ns() - start < SHORT_NS;
	}
	atomic_store_explicit(&w->asleep, 0, memory_order_relaxed);
}

static void *worker_main(void *arg)
{
	struct p2p_worker *w = arg;

	pthread_mutex_lock(&w->turn);
	while (!atomic_load_explicit(&w->stopping, memory_order_acquire)) {
		bool busy;

		run_commands(w);
		busy = feed_all(w);
		busy |= poll_transports(w) > 0;
		if (busy)
			take_events(w);
		else
			sleep_until_work(w);
	}
	run_commands(w); /* paths stopped before the end give back their conns */
	pthread_mutex_unlock(&w->turn);
	return NULL;
}

/* --------------------------------------------------------- callers take part */

/* Try for the turn of a path that runs. A cancelled thread would never give it back. */
static bool take_turn(struct p2p_path *p, int *cancel_state)
{
	if (pthread_mutex_trylock(&p->worker->turn))
		return false;
	if (!p->running) {
		pthread_mutex_unlock(&p->worker->turn);
		return false;
	}
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancel_state);
	return true;
}

static void end_turn(struct p2p_path *p, int cancel_state)
{
	bool more = path_has_work(p);

	pthread_mutex_unlock(&p->worker->turn);
	if (more)
		wake(p->worker);
	pthread_setcancelstate(cancel_state, NULL);
}

struct p2p_path *p2p_pool_choose(struct p2p_conn *c)
{
	uint32_t turn = atomic_fetch_add_explicit(&c->next_path, 1, memory_order_relaxed);

	return c->path[turn % c->paths];
}

void p2p_pool_kick(struct p2p_path *path, bool small)
{
	struct p2p_conn *c = path->conn;
	int cancel_state;

	/* what finds no room is posted when answers make some */
	if (small && take_turn(path, &cancel_state)) {
		feed(path);
		end_turn(path, cancel_state);
		return;
	}
	wake(path->worker);
	for (unsigned int i = 0; !small && i < c->paths; i++)
		wake(c->path[i]->worker);
}

/* Is a look worth its time on this conn, as it went lately? */
static bool promising(struct p2p_conn *c)
{
	uint32_t vain = atomic_load_explicit(&c->in_vain, memory_order_relaxed);

	if (vain < VAIN_MAX)
		return true;
	atomic_fetch_add_explicit(&c->in_vain, 1, memory_order_relaxed);
	return vain % VAIN_TRY == 0;
}

void p2p_pool_help(struct p2p_path *path, struct p2p_task *task)
{
	const struct p2p_net_ops *ops = path->ops;
	struct p2p_conn *c = path->conn;
	int cancel_state, rc = 0;
	uint64_t end;

	if (!promising(c) || !take_turn(path, &cancel_state))
		return;
	if (!ops->path_borrow(path)) {
		end = p2p_now_ns() + LOOK_NS;
		while (!rc && !p2p_task_ended(task) && p2p_now_ns() < end) {
			feed(path);
			rc = ops->path_step(path);
			if (!p2p_task_ended(task))
				sched_yield();
		}
		ops->path_give_back(path);
	}
	end_turn(path, cancel_state);
	if (p2p_task_ended(task))
		atomic_store_explicit(&c->in_vain, 0, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&c->in_vain, 1, memory_order_relaxed);
}

/* ---------------------------------------------------------- paths come, go */

static void run_start(struct p2p_worker *w, struct p2p_cmd *cmd)
{
	struct p2p_path *p = p2p_container_of(cmd, struct p2p_path, start);
	int rc;

	p2p_list_add_tail(&w->paths, &p->link);
	p->running = true;
	rc = p->ops->path_start(p);
	if (rc)
		p2p_conn_break(p->conn, rc);
}

static void run_stop(struct p2p_worker *w, struct p2p_cmd *cmd)
{
	struct p2p_path *p = p2p_container_of(cmd, struct p2p_path, stop);
	struct p2p_conn *c = p->conn;
	int err = atomic_load(&c->error);

	if (p->running) {
		p->ops->path_stop(p, err ? err : -ECANCELED);
		p2p_list_del(&p->link);
		p->running = false;
	}
	if (atomic_fetch_sub_explicit(&c->paths_alive, 1, memory_order_acq_rel) == 1)
		p2p_conn_signal(c);
	p2p_conn_put(c);
}

void p2p_pool_start_path(struct p2p_path *p)
{
	p->start.run = run_start;
	p2p_worker_command(p->worker, &p->start);
}

void p2p_pool_stop_path(struct p2p_path *p)
{
	/* commands run in order: the stop comes after the start */
	if (atomic_exchange(&p->stop_sent, true))
		return;
	p->stop.run = run_stop;
	p2p_worker_command(p->worker, &p->stop);
}

struct cancel_cmd {
	struct p2p_cmd cmd;
	struct p2p_task *task;
	_Atomic uint32_t *left;
};

static void run_cancel(struct p2p_worker *w, struct p2p_cmd *cmd)
{
	struct cancel_cmd *cc = p2p_container_of(cmd, struct cancel_cmd, cmd);
	_Atomic uint32_t *left = cc->left;
	struct p2p_list *i, *next;

	for (i = w->paths.next; i != &w->paths; i = next) {
		struct p2p_path *p = p2p_list_entry(i, struct p2p_path, link);

		next = i->next;
		if (p->conn == cc->task->conn)
			p->ops->path_cancel(p, cc->task);
	}
	/* cc lives on the caller's stack until left is 0: from then on only its address is used */
	if (atomic_fetch_sub_explicit(left, 1, memory_order_acq_rel) == 1)
		p2p_futex_wake_all(left);
}

void p2p_pool_cancel(struct p2p_task *task)
{
	struct p2p_engine *e = task->conn->engine;
	struct cancel_cmd cmd[P2P_WORKERS_MAX];
	_Atomic uint32_t left = e->workers;
	uint32_t seen;

	for (unsigned int i = 0; i < e->workers; i++) {
		cmd[i] = (struct cancel_cmd){ { NULL, run_cancel }, task, &left };
		p2p_worker_command(&e->worker[i], &cmd[i].cmd);
	}
	while ((seen = atomic_load_explicit(&left, memory_order_acquire)) != 0)
		p2p_futex_wait(&left, seen, 0);
}

/* ------------------------------------------------------------- start, stop */

static void worker_fini(struct p2p_worker *w)
{
	if (w->wake_fd >= 0)
		p2p_fd_close(w->wake_fd);
	if (w->epoll >= 0)
		p2p_fd_close(w->epoll);
	pthread_mutex_destroy(&w->cmd_lock);
	pthread_mutex_destroy(&w->turn);
}

static void exit_transports(struct p2p_worker *w, int upto)
{
	for (int i = upto - 1; i >= 0; i--)
		if (w->engine->ops[i])
			w->engine->ops[i]->worker_exit(w->engine->net[i], w);
}

static int worker_start(struct p2p_engine *e, unsigned int index)
{
	struct p2p_worker *w = &e->worker[index];
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &w->wake };
	int i, rc;

	w->engine = e;
	w->index = index;
	w->wake.event = on_wake;
	w->cmds_end = &w->cmds;
	p2p_list_init(&w->paths);
	pthread_mutex_init(&w->cmd_lock, NULL);
	pthread_mutex_init(&w->turn, NULL);
	w->epoll = p2p_fd_track(epoll_create1(EPOLL_CLOEXEC));
	w->wake_fd = p2p_fd_track(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (w->epoll < 0 || w->wake_fd < 0 ||
	    epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake_fd, &ev)) {
		rc = -errno;
		goto err_fini;
	}
	for (i = 0; i < P2P_NETS; i++) {
		rc = e->ops[i] ? e->ops[i]->worker_init(e->net[i], w) : 0;
		if (rc)
			goto err_exit_transports;
	}
	rc = p2p_thread_start(&w->thread, "flagcx-worker", worker_main, w);
	if (rc)
		goto err_exit_transports;
	return 0;

err_exit_transports:
	exit_transports(w, i);
err_fini:
	worker_fini(w);
	return rc;
}

int p2p_pool_start(struct p2p_engine *e)
{
	unsigned int want = (unsigned int)e->config.g.workersPerPool;
	int rc;

	while (e->workers < want) {
		rc = worker_start(e, e->workers);
		if (rc) {
			p2p_pool_stop(e);
			return p2p_fail(rc, "cannot start worker %u of %u", e->workers, want);
		}
		e->workers++;
	}
	return 0;
}

/*
 * All are there until the last has ended: one may have a command for another, or wake
 * it. The first ends first. It takes the devices' events and tells the others, who
 * run what they were told before they end.
 */
void p2p_pool_stop(struct p2p_engine *e)
{
	for (unsigned int i = 0; i < e->workers; i++) {
		struct p2p_worker *w = &e->worker[i];

		atomic_store_explicit(&w->stopping, true, memory_order_seq_cst);
		wake(w);
		pthread_join(w->thread, NULL);
	}
	while (e->workers) {
		struct p2p_worker *w = &e->worker[--e->workers];

		exit_transports(w, P2P_NETS);
		worker_fini(w);
	}
}
