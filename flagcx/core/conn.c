// SPDX-License-Identifier: Apache-2.0
/*
 * The life of a connection.
 *
 *   new      being set up by a connect or an accept; only that thread has it
 *   live     in the engine's list; its paths are with their workers, its
 *            session with the control thread
 *   broken   error is set, once; nothing new is queued; workers and control
 *            thread let go of their parts
 *   quiet    no path runs and no transfer flies: no memory is touched
 *   gone     the last user has put it
 *
 * Going live, and leaving that state, happen under conns_lock, so that a
 * path's stop is always queued after its start.
 */
#include "net_adaptor.h"

#include <stdlib.h>
#include <string.h>

int p2p_conn_new(struct p2p_engine *e, struct p2p_conn **out)
{
	struct p2p_conn *c = calloc(1, sizeof(*c));
	int rc = -ENOMEM;

	if (!c)
		return rc;
	c->engine = e;
	c->fd = -1;
	c->tx_end = &c->tx;
	p2p_list_init(&c->link);
	p2p_list_init(&c->all_link);
	p2p_list_init(&c->accept_link);
	p2p_list_init(&c->session_link);
	p2p_list_init(&c->inbox_link);
	p2p_list_init(&c->pend[0]);
	p2p_list_init(&c->pend[1]);
	p2p_list_init(&c->tasks);
	pthread_mutex_init(&c->tasks_lock, NULL);
	pthread_mutex_init(&c->tx_lock, NULL);
	pthread_mutex_init(&c->notif_lock, NULL);
	pthread_mutex_init(&c->query_lock, NULL);
	pthread_mutex_init(&c->answer_lock, NULL);
	rc = p2p_remote_init(&c->remote);
	if (rc)
		goto err_free;
	rc = p2p_keys_init(&c->keys);
	if (rc)
		goto err_remote;
	atomic_fetch_add(&e->objects, 1);
	rc = p2p_conn_enter(c);
	if (rc)
		goto err_keys;
	c->shard = &e->shard[(c->handle >> 1) % e->shards];
	pthread_mutex_lock(&e->conns_lock);
	p2p_list_add_tail(&e->all, &c->all_link);
	pthread_mutex_unlock(&e->conns_lock);
	*out = c;
	return 0;

err_keys:
	atomic_fetch_sub(&e->objects, 1);
	p2p_keys_destroy(&c->keys);
err_remote:
	p2p_remote_destroy(&c->remote);
err_free:
	free(c);
	return rc;
}

int p2p_conn_make_paths(struct p2p_conn *c, const struct p2p_net_ops *ops, unsigned int n)
{
	struct p2p_engine *e = c->engine;
	uint32_t first = atomic_fetch_add(&e->next_worker, n);

	c->ops = ops;
	c->slice_limit = ops->slice_limit(e->net[ops->slot]);
	while (c->paths < n) {
		struct p2p_path *p = calloc(1, ops->path_size);
		int rc;

		if (!p)
			return -ENOMEM;
		p->ops = ops;
		p->conn = c;
		p->index = c->paths;
		p->worker = &e->worker[(first + c->paths) % e->workers];
		p2p_list_init(&p->link);
		rc = ops->path_init(p);
		if (rc) {
			free(p);
			return rc;
		}
		c->path[c->paths++] = p;
	}
	return 0;
}

int p2p_conn_live(struct p2p_conn *c, bool ready)
{
	struct p2p_engine *e = c->engine;
	int rc = 0;

	pthread_mutex_lock(&e->conns_lock);
	if (atomic_load(&e->destroying))
		rc = -ESHUTDOWN;
	else if (atomic_load(&e->peers) >= (uint32_t)e->config.g.notifMaxPeers)
		rc = -EUSERS;
	if (!rc && ready)
		rc = p2p_session_send(c, &(struct p2p_msg){ .type = P2P_MSG_READY }, NULL, 0);
	if (!rc)
		rc = p2p_session_table(c);
	if (!rc) {
		c->live = true;
		c->last_rx = p2p_now_ns();
		p2p_list_add_tail(&e->conns, &c->link);
		atomic_fetch_add(&e->peers, 1);
		atomic_store(&c->paths_alive, c->paths);
		for (unsigned int i = 0; i < c->paths; i++) {
			p2p_conn_ref(c);
			p2p_pool_start_path(c->path[i]);
		}
		p2p_control_add(c);
	}
	pthread_mutex_unlock(&e->conns_lock);
	return rc;
}

void p2p_conn_signal(struct p2p_conn *c)
{
	atomic_fetch_add_explicit(&c->event, 1, memory_order_release);
	p2p_futex_wake_all(&c->event);
}

int p2p_conn_check(const struct p2p_conn *c)
{
	int err = atomic_load_explicit(&((struct p2p_conn *)c)->error, memory_order_acquire);

	return err ? err : atomic_load_explicit(&((struct p2p_conn *)c)->failed,
						memory_order_acquire);
}

void p2p_conn_break(struct p2p_conn *c, int err)
{
	struct p2p_engine *e = c->engine;
	int none = 0;
	bool live;

	if (!atomic_compare_exchange_strong(&c->error, &none, err))
		return;
	pthread_mutex_lock(&e->conns_lock);
	live = c->live;
	if (live) {
		c->live = false;
		p2p_list_del(&c->link);
		atomic_fetch_sub(&e->peers, 1);
		for (unsigned int i = 0; i < c->paths; i++)
			p2p_pool_stop_path(c->path[i]);
		p2p_control_close(c);
	}
	pthread_mutex_unlock(&e->conns_lock);
	/* after that: who waits for a transfer's end finds the peer gone */
	p2p_queue_purge(c, err);
	if (live && err != -ECANCELED) {
		p2p_count(e, peers_lost, 1);
		p2p_warn("connection to %s:%d lost: %s", c->peer_ip, c->peer_port,
			 p2p_errno_name(err));
	}
	p2p_conn_signal(c);
}

static void wait_quiet(struct p2p_conn *c)
{
	for (;;) {
		uint32_t seen = atomic_load_explicit(&c->event, memory_order_acquire);

		if (!atomic_load_explicit(&c->paths_alive, memory_order_acquire) &&
		    !atomic_load_explicit(&c->flights, memory_order_acquire))
			return;
		p2p_futex_wait(&c->event, seen, 0);
	}
}

void p2p_conn_destroy(struct p2p_conn *c)
{
	if (!p2p_conn_leave(c))
		return;
	pthread_mutex_lock(&c->engine->accept_lock);
	p2p_list_del(&c->accept_link);
	pthread_mutex_unlock(&c->engine->accept_lock);
	p2p_conn_break(c, -ECANCELED);
	wait_quiet(c);
	p2p_xfer_forget(c);
	p2p_conn_put(c);
}

/* Table callback: the last user is gone, so no worker or control thread has it. */
void p2p_conn_release(void *object)
{
	struct p2p_conn *c = object;
	struct p2p_engine *e = c->engine;
	struct p2p_txbuf *b;

	pthread_mutex_lock(&e->conns_lock);
	p2p_list_del(&c->all_link);
	pthread_mutex_unlock(&e->conns_lock);
	for (unsigned int i = 0; i < c->paths; i++) {
		c->path[i]->ops->path_fini(c->path[i]);
		free(c->path[i]);
	}
	if (c->fd >= 0)
		p2p_fd_close(c->fd);
	while ((b = c->tx) != NULL) {
		c->tx = b->next;
		free(b);
	}
	if (c->note)
		p2p_note_free(e, c->note);
	free(c->rx);
	p2p_keys_destroy(&c->keys);
	p2p_remote_destroy(&c->remote);
	pthread_mutex_destroy(&c->tasks_lock);
	pthread_mutex_destroy(&c->tx_lock);
	pthread_mutex_destroy(&c->notif_lock);
	pthread_mutex_destroy(&c->query_lock);
	pthread_mutex_destroy(&c->answer_lock);
	free(c);
	if (atomic_fetch_sub(&e->objects, 1) == 1)
		p2p_futex_wake_all(&e->objects);
}
