// SPDX-License-Identifier: Apache-2.0
/*
 * The io_uring engine: plain IORING_OP_READ and IORING_OP_WRITE, which take
 * the same route through the kernel as pread(2) and pwrite(2). Buffers are not
 * registered with the ring: that would pin device pages a second time, for
 * long, and buys nothing where the device does the copying.
 *
 * A worker's ring has one issuer and defers its completions to the waits of
 * that thread, where the kernel can. A shared ring must take submissions and
 * waits from any thread, so it asks for nothing special; a wait then goes
 * straight to io_uring_enter(2) and touches neither ring.
 *
 * A wait is ended from outside by a completion of no operation. On a shared
 * ring wake() submits a no-op, with the owner's lock held. Into a worker's ring
 * no other thread may submit: wake() writes to an eventfd on which the worker
 * has put a read before it waited (arm()).
 */
#include <errno.h>
#include <liburing.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "phoenix.h"
#include "io_engine.h"
#include "thread_ring.h"
#include "../phx_file.h"
#include "../phx_stats.h"

#define MAX_ENTRIES 1024 /* submission entries; more in flight are handed over in turns */
#define SPARE_CQES 64
#define EAGAIN_TRIES 16  /* in the ring; after that the caller's slow path retries */

struct phx_engine {
	struct io_uring ring;
	bool shared;
	unsigned int depth, in_flight;
	int last_fd;            /* found to have offsets; -1: none yet */
	unsigned char last_flags; /* of an entry for it: 0 or IOSQE_ASYNC */
	struct phx_io *restart; /* could not be put back into the full ring yet */
	int wake_fd;            /* a worker's; else -1 */
	bool armed;
	uint64_t wakes;         /* where the armed read puts the eventfd's value */
};

#ifdef PHX_TESTING
int (*phx_test_completion)(const struct phx_io *io, int result);
#endif

static int setup(struct io_uring *ring, unsigned int entries, unsigned int cqes, bool shared)
{
	static const unsigned int exclusive[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* 6.1 */
		IORING_SETUP_COOP_TASKRUN,                               /* 5.19 */
		0,
	};
	int err = -EINVAL;

	for (size_t i = shared ? 2 : 0; i < 3 && err == -EINVAL; i++) {
		struct io_uring_params params = {
			.flags = exclusive[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
			.cq_entries = cqes,
		};

		err = io_uring_queue_init_params(entries, ring, &params);
		if (!err && !(params.features & IORING_FEAT_EXT_ARG)) { /* 5.11 */
			io_uring_queue_exit(ring);
			return -ENOSYS;
		}
	}
	return err;
}

/* Making a ring may be allowed and entering it forbidden: a no-op tells. */
static int probe(void)
{
	struct io_uring ring;
	int err = setup(&ring, 4, 8, true), n;

	if (err)
		return err;
	io_uring_prep_nop(io_uring_get_sqe(&ring));
	do {
		n = io_uring_submit_and_wait(&ring, 1);
	} while (n == -EINTR);
	io_uring_queue_exit(&ring);
	return n < 0 ? n : 0;
}

/*
 * A ring's memory is mapped where an earlier ring's may have been. The kernel
 * orders the two; this tells the memory model (and tools that follow it).
 */
static _Atomic unsigned int rings_destroyed;

static int create(unsigned int depth, enum phx_engine_use use, struct phx_engine **out)
{
	unsigned int entries = depth < MAX_ENTRIES ? depth : MAX_ENTRIES;
	struct phx_engine *engine = calloc(1, sizeof(*engine));
	int err;

	if (!engine)
		return -ENOMEM;
	engine->shared = use == PHX_ENGINE_SHARED;
	engine->depth = depth;
	engine->last_fd = -1;
	engine->wake_fd = -1;
	if (use == PHX_ENGINE_WORKER) {
		engine->wake_fd = eventfd(0, EFD_CLOEXEC);
		if (engine->wake_fd < 0) {
			err = -errno;
			goto err_free;
		}
	}
	err = setup(&engine->ring, entries, 2 * depth + SPARE_CQES, engine->shared);
	if (err)
		goto err_close;
	atomic_load_explicit(&rings_destroyed, memory_order_acquire);
	if (engine->shared)
		phx_thread_ring_keep();
	*out = engine;
	return 0;

err_close:
	if (engine->wake_fd >= 0)
		close(engine->wake_fd);
err_free:
	free(engine);
	return err;
}

static void destroy(struct phx_engine *engine)
{
	atomic_fetch_add_explicit(&rings_destroyed, 1, memory_order_release);
	io_uring_queue_exit(&engine->ring);
	if (engine->wake_fd >= 0)
		close(engine->wake_fd);
	free(engine);
}

static int flush(struct phx_engine *engine)
{
	int n;

	/* A queue's ring goes with the queue, whoever submitted into it. */
	if (engine->shared && io_uring_sq_ready(&engine->ring))
		phx_thread_ring_keep();
	do {
		/* The kernel stops behind an operation that it refuses at once. */
		n = io_uring_submit(&engine->ring);
	} while (n == -EINTR || (n > 0 && io_uring_sq_ready(&engine->ring)));
	/* -EBUSY, -EAGAIN: what was not taken stays in the ring for the next flush. */
	return n < 0 ? n : 0;
}

static inline struct io_uring_sqe *get_sqe(struct phx_engine *engine)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&engine->ring);

	if (__builtin_expect(!sqe, 0) && !flush(engine))
		sqe = io_uring_get_sqe(&engine->ring);
	return sqe;
}

/*
 * Older kernels (6.1) try files without a block device (FUSE, NFS) as if they could tell
 * that they would wait: the thread that submits then waits in their stead. One that says
 * it cannot tell goes to the ring's own threads at once, as newer kernels do by themselves.
 */
static bool may_block(int fd, const struct stat *st)
{
	char byte;
	struct iovec iov = { &byte, 1 };

	if (!S_ISREG(st->st_mode) || major(st->st_dev))
		return false;
	return preadv2(fd, &iov, 1, 0, RWF_NOWAIT) < 0 && (errno == EOPNOTSUPP || errno == EBADF);
}

/*
 * Descriptors that were found to be files are remembered by number; a number
 * that a program reuses for something else is its own mistake. Each is
 * (descriptor + 1) * 2, and 1 more where a transfer may block.
 */
static _Atomic unsigned int files[256];

/*
 * Pipes, sockets and the like have no offsets: pread(2) refuses them, but the
 * ring would take what is in them, or wait for ever for something to come.
 */
static __attribute__((noinline, cold)) unsigned int look_at(int fd)
{
	unsigned int found = ((unsigned int)fd + 1) * 2;
	struct stat st;

	if (fstat(fd, &st))
		return 2; /* the ring will say what is wrong with it */
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return 0;
	found += may_block(fd, &st);
	atomic_store_explicit(&files[fd & 255], found, memory_order_relaxed);
	return found;
}

/* 0: @fd has no offsets. */
static inline unsigned int known(int fd)
{
	unsigned int found = atomic_load_explicit(&files[fd & 255], memory_order_relaxed);

	return found && found / 2 == (unsigned int)fd + 1 ? found : look_at(fd);
}

/* False: @fd has no offsets. */
static __attribute__((noinline)) bool meet(struct phx_engine *engine, int fd)
{
	unsigned int found = known(fd);

	if (!found)
		return false;
	/* what is no descriptor now may become a pipe: not remembered */
	engine->last_fd = found / 2 == (unsigned int)fd + 1 ? fd : -1;
	engine->last_flags = found & 1 ? IOSQE_ASYNC : 0;
	return true;
}

/* @io has been met; its turn may come again behind others'. */
static inline bool put(struct phx_engine *engine, struct phx_io *io)
{
	struct io_uring_sqe *sqe = get_sqe(engine);
	size_t left = io->len - io->moved;
	unsigned int n = left < PHXFS_IO_CHUNK ? (unsigned int)left : PHXFS_IO_CHUNK;

	if (!sqe)
		return false;
	io_uring_prep_rw(io->write ? IORING_OP_WRITE : IORING_OP_READ, sqe, io->fd,
			 (char *)io->addr + io->moved, n,
			 (uint64_t)io->off + io->moved);
	if (io->fd == engine->last_fd || meet(engine, io->fd))
		sqe->flags = engine->last_flags;
	io_uring_sqe_set_data(sqe, io);
	return true;
}

static void put_or_keep(struct phx_engine *engine, struct phx_io *io)
{
	if (put(engine, io))
		return;
	io->next = engine->restart;
	engine->restart = io;
}

static int start(struct phx_engine *engine, struct phx_io *io)
{
	if (engine->in_flight == engine->depth)
		return -EAGAIN;
	if (io->fd != engine->last_fd && !meet(engine, io->fd))
		return -EOPNOTSUPP;
	io->moved = 0;
	io->err = 0;
	io->tries = 0;
	if (!put(engine, io))
		return -EAGAIN;
	engine->in_flight++;
	return 0;
}

/* True: @io is finished; else it goes on. */
static bool complete(struct phx_engine *engine, struct phx_io *io, int result)
{
	if (result > 0) {
		size_t asked = io->len - io->moved;

		io->moved += (size_t)result;
		io->tries = 0;
		if (io->moved >= io->len)
			return true;
		if (asked > PHXFS_IO_CHUNK && (size_t)result == PHXFS_IO_CHUNK)
			return false;
	} else if (result == 0) {
		return true;
	} else if (result != -EINTR && (result != -EAGAIN || ++io->tries > EAGAIN_TRIES)) {
		io->err = result;
		return true;
	}
	phx_stats_add(&phx_stats_mine(io->device_id)->retries, 1);
	return false;
}

static struct phx_io *reap(struct phx_engine *engine)
{
	struct phx_io *finished = NULL, **tail = &finished;
	struct io_uring_cqe *cqe;
	unsigned int head, seen = 0, ended = 0;

	if (!engine->shared &&
	    (*engine->ring.sq.kflags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)))
		io_uring_get_events(&engine->ring);
	while (engine->restart) {
		struct phx_io *io = engine->restart;

		engine->restart = io->next;
		if (!put(engine, io)) {
			io->next = engine->restart;
			engine->restart = io;
			break;
		}
	}
	io_uring_for_each_cqe(&engine->ring, head, cqe) {
		struct phx_io *io = io_uring_cqe_get_data(cqe);
		int result = cqe->res;

		seen++;
		if (!io) {
			engine->armed = false;
			continue;
		}
#ifdef PHX_TESTING
		if (phx_test_completion)
			result = phx_test_completion(io, result);
#endif
		if ((size_t)result == io->len && !io->moved) {
			io->moved = io->len;
		} else if (!complete(engine, io, result)) {
			put_or_keep(engine, io);
			continue;
		}
		ended++;
		*tail = io;
		tail = &io->next;
	}
	*tail = NULL;
	engine->in_flight -= ended;
	io_uring_cq_advance(&engine->ring, seen);
	return finished;
}

static void wait_for(struct phx_engine *engine, const struct timespec *timeout)
{
	struct __kernel_timespec ts;
	struct io_uring_getevents_arg arg = { .sigmask_sz = _NSIG / 8 };

	if (!engine->shared && !timeout) {
		io_uring_submit_and_wait(&engine->ring, 1);
		return;
	}
	if (!engine->shared)
		flush(engine);
	if (timeout) {
		ts = (struct __kernel_timespec){ timeout->tv_sec, timeout->tv_nsec };
		arg.ts = (uint64_t)(uintptr_t)&ts;
	}
	syscall(SYS_io_uring_enter, engine->ring.ring_fd, 0, 1,
		IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof(arg));
}

static void look(struct phx_engine *engine)
{
	io_uring_get_events(&engine->ring);
}

static void arm(struct phx_engine *engine)
{
	struct io_uring_sqe *sqe;

	if (engine->wake_fd < 0 || engine->armed)
		return;
	sqe = get_sqe(engine);
	if (!sqe)
		return;
	io_uring_prep_read(sqe, engine->wake_fd, &engine->wakes, sizeof(engine->wakes), 0);
	io_uring_sqe_set_data(sqe, NULL);
	engine->armed = true;
}

static void wake(struct phx_engine *engine)
{
	static const uint64_t one = 1;
	struct io_uring_sqe *sqe;

	if (engine->shared) {
		sqe = get_sqe(engine);
		if (sqe) {
			io_uring_prep_nop(sqe);
			io_uring_sqe_set_data(sqe, NULL);
		}
		flush(engine);
		return;
	}
	/* Cannot fail: the counter would have to reach 2^64 - 1. */
	if (write(engine->wake_fd, &one, sizeof(one)) < 0)
		return;
}

static int notify(struct phx_engine *engine, int fd)
{
	return io_uring_register_eventfd(&engine->ring, fd);
}

const struct phx_engine_ops phx_engine_io_uring = {
	.name = "io_uring",
	.asynchronous = true,
	.probe = probe,
	.create = create,
	.destroy = destroy,
	.start = start,
	.flush = flush,
	.reap = reap,
	.wait = wait_for,
	.look = look,
	.arm = arm,
	.wake = wake,
	.notify = notify,
};
