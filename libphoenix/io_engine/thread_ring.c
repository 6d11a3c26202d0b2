// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdlib.h>
#include <sys/utsname.h>

#include "thread_ring.h"
#include "../phx_init.h"

#define DEPTH 64
#define LOSES_REQUESTS 7 /* the first major version of Linux that was seen to */

struct ring {
	struct phx_engine *engine; /* NULL: it cannot be had, or was of no use */
	unsigned int generation;
	bool taken;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool have_key, loses_requests;

static void free_ring(void *arg)
{
	struct ring *ring = arg;

	if (ring->engine)
		phx_engine_io_uring.destroy(ring->engine);
	free(ring);
}

static void set_up(void)
{
	struct utsname name;

	have_key = !pthread_key_create(&key, free_ring);
	loses_requests = !uname(&name) && strtoul(name.release, NULL, 10) >= LOSES_REQUESTS;
}

static struct ring *make_ring(void)
{
	struct ring *ring = calloc(1, sizeof(*ring));

	if (!ring)
		return NULL;
	ring->generation = phx_fork_generation();
	if (pthread_setspecific(key, ring)) {
		free(ring);
		return NULL;
	}
	if (phx_engine_io_uring.create(DEPTH, false, &ring->engine))
		ring->engine = NULL; /* remembered: to ask takes long too */
	return ring;
}

/* NULL: there is none. */
static struct ring *own(void)
{
	struct ring *ring;

	pthread_once(&once, set_up);
	if (!have_key || phx_engine() != &phx_engine_io_uring)
		return NULL;
	ring = pthread_getspecific(key);
	if (ring && ring->generation != phx_fork_generation()) {
		pthread_setspecific(key, NULL);
		free_ring(ring);
		ring = NULL;
	}
	if (!ring)
		ring = make_ring();
	return ring && ring->engine ? ring : NULL;
}

struct phx_engine *phx_thread_ring_take(void)
{
	struct ring *ring = own();

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
