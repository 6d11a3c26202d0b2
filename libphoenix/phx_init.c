// SPDX-License-Identifier: Apache-2.0
/*
 * The library starts on the first call that needs it, not when it is loaded:
 * a program that links it and never calls it pays nothing.
 *
 * fork(): the preparing handler takes every lock in the library's lock order
 * (start, queues, devices, chunk pools, worker pool, log), so that no structure is half
 * changed in the child. The child keeps the structures, forgets the threads
 * and transfers that it does not have, and makes new conditions, since those
 * of the parent may have waiters that do not exist here.
 */
#include <pthread.h>

#include "phoenix.h"
#include "phx_config.h"
#include "phx_device.h"
#include "phx_error.h"
#include "phx_file.h"
#include "phx_init.h"
#include "phx_queue.h"
#include "phx_staging.h"
#include "phx_stats.h"
#include "phx_stream.h"
#include "io_engine/io_engine.h"
#include "io_engine/io_pool.h"
#include "io_engine/thread_ring.h"

#define STRING(x) #x
#define VERSION(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

atomic_bool phx_ready;
atomic_uint phx_generation;

/* Held while the library starts, so that a fork() finds it started or untouched. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;
/* A vendor's runtime may fork() a helper while it starts: that is let pass. */
static _Thread_local bool starting;
static bool fork_unsafe;

static void fork_prepare(void)
{
	if (starting)
		return;
	pthread_mutex_lock(&start_lock);
	if (!phx_ready)
		return;
	phx_queues_fork_prepare();
	phx_device_fork_prepare();
	phx_staging_fork_prepare();
	phx_pool_fork_prepare();
	phx_thread_ring_fork_prepare();
	phx_log_fork_prepare();
}

static void fork_parent(void)
{
	if (starting)
		return;
	if (phx_ready) {
		phx_log_fork_parent();
		phx_thread_ring_fork_parent();
		phx_pool_fork_parent();
		phx_staging_fork_parent();
		phx_device_fork_parent();
		phx_queues_fork_parent();
	}
	pthread_mutex_unlock(&start_lock);
}

static void fork_child(void)
{
	if (starting)
		return;
	if (phx_ready) {
		atomic_fetch_add(&phx_generation, 1);
		phx_stats_fork_child();
		phx_log_fork_child();
		phx_job_fork_child();
		phx_thread_ring_fork_child();
		phx_pool_fork_child();
		phx_staging_fork_child();
		phx_stream_fork_child();
		phx_device_fork_child();
		phx_queues_fork_child();
	}
	pthread_mutex_unlock(&start_lock);
}

/* Without the handlers only a fork() beside other calls is unsafe. */
static void handle_forks(void)
{
	fork_unsafe = pthread_atfork(fork_prepare, fork_parent, fork_child) != 0;
}

static void init(void)
{
	phx_config_init();
	phx_log_init(phx_config.log);
	phx_file_init();
	phx_stats_init();
	phx_device_init();
	if (fork_unsafe)
		phx_log(PHXFS_LOG_WARN, "no memory for fork handlers: "
			"do not fork while transfers run");
	atomic_store_explicit(&phx_ready, true, memory_order_release);
}

void phx_init_slow(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, handle_forks);
	pthread_mutex_lock(&start_lock);
	if (!phx_ready) {
		starting = true;
		init();
		starting = false;
	}
	pthread_mutex_unlock(&start_lock);
}

const char *phxfs_version(void)
{
	return VERSION(PHXFS_VERSION_MAJOR, PHXFS_VERSION_MINOR, PHXFS_VERSION_PATCH);
}
