// SPDX-License-Identifier: Apache-2.0
/*
 * What belongs to the process: its identity, its fork, its threads.
 *
 * A forked child has none of our threads but all our descriptors; were it to
 * keep them, a peer would not notice the parent's death. So every descriptor
 * is noted, and the child closes them. What it still holds of our memory it
 * must not use: p2p_process_forked() tells.
 */
#include "engine.h"
#include "auth.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FDS 65536u

static _Atomic uint64_t fds[FDS / 64];
static _Atomic bool forked;
static _Atomic bool used;
static uint64_t cookie;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
	if (!atomic_load(&used))
		return;
	for (unsigned int i = 0; i < FDS / 64; i++) {
		uint64_t word = atomic_exchange(&fds[i], 0);

		for (; word; word &= word - 1)
			close((int)(i * 64 + (unsigned int)__builtin_ctzll(word)));
	}
	atomic_store(&forked, true);
}

static void init(void)
{
	cookie = p2p_random_u64();
	pthread_atfork(NULL, NULL, in_child);
}

uint64_t p2p_process_cookie(void)
{
	pthread_once(&once, init);
	return cookie;
}

bool p2p_process_forked(void)
{
	return atomic_load_explicit(&forked, memory_order_relaxed);
}

int p2p_fd_track(int fd)
{
	pthread_once(&once, init);
	if (fd >= 0 && (unsigned int)fd < FDS) {
		atomic_store_explicit(&used, true, memory_order_relaxed);
		atomic_fetch_or(&fds[fd / 64], 1ull << (fd % 64));
	}
	return fd;
}

void p2p_fd_untrack(int fd)
{
	if ((unsigned int)fd < FDS)
		atomic_fetch_and(&fds[fd / 64], ~(1ull << (fd % 64)));
}

void p2p_fd_close(int fd)
{
	p2p_fd_untrack(fd);
	close(fd);
}

void p2p_host_id(uint8_t id[16])
{
	char text[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	size_t n = 0;

	memset(id, 0, 16);
	if (fd < 0)
		return;
	if (read(fd, text, sizeof(text) - 1) < 0)
		text[0] = '\0';
	close(fd);
	for (const char *p = text; n < 32 && *p; p++) {
		int v = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10
										   : -1;

		if (v < 0)
			continue;
		id[n / 2] = (uint8_t)(id[n / 2] << 4 | v);
		n++;
	}
}

int p2p_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int rc;

	/* a signal handler of the program must not run on our threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		pthread_setname_np(*thread, name);
	return -rc;
}
