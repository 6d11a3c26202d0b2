/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An I/O engine moves bytes between files and memory that the CPU can name.
 *
 * An engine object belongs to one thread (a worker), of which others call only
 * wake(); or it is shared (a queue): then the owner's lock is held for every
 * call but wait(), which may run beside the others.
 *
 * Operations are taken as they are: no alignment is mended here. A short
 * result is continued, EINTR and a bounded number of EAGAINs are retried; any
 * other error ends the operation, with the bytes moved before it.
 */
#ifndef IO_ENGINE_H
#define IO_ENGINE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#define PHX_ENGINE_DEPTH 1024 /* operations in flight in a worker */

struct phx_io {
	int fd;
	bool write;
	void *addr;
	size_t len;
	off_t off;
	int device_id;       /* for the counters */
	/* OUT, once it comes out of reap(): */
	size_t moved;
	int err;             /* 0: all moved, or the end of the file; or -errno */
	/* the engine's: */
	unsigned int tries;
	struct phx_io *next; /* in the list that reap() returns */
};

/*
 * Errors of an operation that the exact, synchronous transfer may get around,
 * or where pread(2) and pwrite(2) say it differently (-EBADF). -EFAULT and
 * -ECANCELED are also what the kernel says of the operations of a thread that
 * has ended since it started them.
 */
static inline bool phx_io_mendable(int err)
{
	return err == -EINVAL || err == -EAGAIN || err == -EOPNOTSUPP || err == -EBADF ||
	       err == -EFAULT || err == -ECANCELED;
}

struct phx_engine;

/* Whose an engine object is. */
enum phx_engine_use {
	PHX_ENGINE_CALLER, /* one thread's; nobody wakes it */
	PHX_ENGINE_WORKER, /* one thread's, that others wake() */
	PHX_ENGINE_SHARED, /* a queue's: any thread's that holds its lock */
};

struct phx_engine_ops {
	const char *name;
	bool asynchronous; /* operations finish later than in start() */
	/* Can it be used in this process at all? 0 or -errno. */
	int (*probe)(void);
	int (*create)(unsigned int depth, enum phx_engine_use use, struct phx_engine **out);
	/* Nothing may be in flight, except in a forked child. */
	void (*destroy)(struct phx_engine *engine);
	/*
	 * Take @io. -EAGAIN: @depth are in flight already, or there is no room for
	 * one more now; -EOPNOTSUPP: it is not for this engine.
	 */
	int (*start)(struct phx_engine *engine, struct phx_io *io);
	/* Hand what was started to the kernel. */
	int (*flush)(struct phx_engine *engine);
	/* What has finished, as a list; does not wait. */
	struct phx_io *(*reap)(struct phx_engine *engine);
	/* Flush (unless shared), then wait until something has finished, for a
	 * wake(), or for the timeout (NULL: none). May return early. */
	void (*wait)(struct phx_engine *engine, const struct timespec *timeout);
	/* Let the kernel report what has finished; does not wait (not shared). */
	void (*look)(struct phx_engine *engine);
	/* Before a worker's wait(): make sure that a wake() will end it. */
	void (*arm)(struct phx_engine *engine);
	/* End the wait()s of other threads. */
	void (*wake)(struct phx_engine *engine);
	/* Make @fd, an eventfd, readable on every completion. */
	int (*notify)(struct phx_engine *engine, int fd);
};

extern const struct phx_engine_ops phx_engine_io_uring;
extern const struct phx_engine_ops phx_engine_sync;

/* The engine in use; chosen on the first call, io_uring before sync. */
const struct phx_engine_ops *phx_engine(void);

/*
 * An engine object of the engine in use or, where that cannot be had, of
 * sync; *ops says which. -ENOMEM.
 */
int phx_engine_create(unsigned int depth, enum phx_engine_use use,
		      const struct phx_engine_ops **ops, struct phx_engine **out);

#ifdef PHX_TESTING
/* Tests: sees, and may change, each completion of io_uring. */
extern int (*phx_test_completion)(const struct phx_io *io, int result);
#endif

#endif
