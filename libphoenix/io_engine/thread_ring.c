// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include "thread_ring.h"

#define DEPTH 64

struct ring {
	struct phx_engine *engine; /* NULL: it cannot be had, or was of no use */
	bool taken;
	struct ring *next, **at;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool have_key, loses_requests;

/* All threads' rings: a forked child closes them, and has none of those threads. */
static pthread_mutex_t rings_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list; a leaf */
static struct ring *rings;

static void enlist(struct ring *ring)
{
	pthread_mutex_lock(&rings_lock);
	ring->next = rings;
	ring->at = &rings;
	if (rings)
		rings->at = &ring->next;
	rings = ring;
	pthread_mutex_unlock(&rings_lock);
}

static void free_ring(void *arg)
{
	struct ring *ring = arg;

	pthread_mutex_lock(&rings_lock);
	*ring->at = ring->next;
	if (ring->next)
		ring->next->at = ring->at;
	pthread_mutex_unlock(&rings_lock);
	if (ring->engine)
		phx_engine_io_uring.destroy(ring->engine);
	free(ring);
}

static void set_up(void)
{
	unsigned int major, minor;
	struct utsname name;

	have_key = !pthread_key_create(&key, free_ring);
	loses_requests = !uname(&name) && sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
			 (major > 6 || (major == 6 && minor >= 18));
}

/* What goes by itself when others close descriptors or free memory. */
static bool passes(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM;
}

static struct ring *make_ring(void)
{
	struct ring *ring = calloc(1, sizeof(*ring));
	int err;

	if (!ring)
		return NULL;
	err = phx_engine_io_uring.create(DEPTH, PHX_ENGINE_CALLER, &ring->engine);
	if (err)
		ring->engine = NULL; /* remembered: to ask takes long too */
	if (passes(err) || pthread_setspecific(key, ring)) {
		if (ring->engine)
			phx_engine_io_uring.destroy(ring->engine);
		free(ring);
		return NULL;
	}
	enlist(ring);
	return ring;
}

/* NULL: there is none. */
static struct ring *own(void)
{
	struct ring *ring;

	if (!have_key || phx_engine() != &phx_engine_io_uring)
		return NULL;
	ring = pthread_getspecific(key);
	if (!ring)
		ring = make_ring();
	return ring && ring->engine ? ring : NULL;
}

struct phx_engine *phx_thread_ring_take(void)
{
	struct ring *ring;

	pthread_once(&once, set_up);
	ring = own();
	if (!ring || ring->taken)
		return NULL;
	ring->taken = true;
	return ring->engine;
}

void phx_thread_ring_give(void)
{
	struct ring *ring = pthread_getspecific(key);

	ring->taken = false;
}

void phx_thread_ring_drop(void)
{
	struct ring *ring = pthread_getspecific(key);

	phx_engine_io_uring.destroy(ring->engine);
	ring->engine = NULL;
	ring->taken = false;
}

void phx_thread_ring_keep(void)
{
	pthread_once(&once, set_up);
	if (loses_requests)
		own();
}

/* ------------------------------------------------------------------- fork */

void phx_thread_ring_fork_prepare(void)
{
	pthread_mutex_lock(&rings_lock);
}

void phx_thread_ring_fork_parent(void)
{
	pthread_mutex_unlock(&rings_lock);
}

void phx_thread_ring_fork_child(void)
{
	struct ring *ring, *next;

	for (ring = rings; ring; ring = next) {
		next = ring->next;
		if (ring->engine)
			phx_engine_io_uring.destroy(ring->engine);
		free(ring);
	}
	rings = NULL;
	if (have_key)
		pthread_setspecific(key, NULL);
	pthread_mutex_unlock(&rings_lock);
}
