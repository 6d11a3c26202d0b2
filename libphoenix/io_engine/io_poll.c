// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdint.h>

#include "io_engine.h"
#include "io_poll.h"
#include "thread_ring.h"
#include "../phx_time.h"

#define LOOK_NS 1000000 /* a disk that takes longer is not waited for like that */

/* False: it was not begun. */
static bool run(struct phx_io *io)
{
	const struct phx_engine_ops *ops = &phx_engine_io_uring;
	struct phx_engine *ring = phx_thread_ring_take();
	uint64_t until;

	if (!ring)
		return false;
	if (ops->start(ring, io)) {
		phx_thread_ring_give();
		return false;
	}
	/* A sandbox, or someone who closed the ring: nothing is under way, or ever will be. */
	if (ops->flush(ring)) {
		phx_thread_ring_drop();
		return false;
	}
	until = phx_now_ns() + LOOK_NS;
	while (!ops->reap(ring)) {
		if (phx_now_ns() < until)
			ops->look(ring);
		else
			ops->wait(ring, NULL);
	}
	phx_thread_ring_give();
	return true;
}

static int by_call(struct phx_file *file, bool write, char *addr, size_t len, off_t off,
		   size_t *moved)
{
	return write ? phx_file_write(file, false, addr, len, off, moved) :
		       phx_file_read(file, false, addr, len, off, moved);
}

static int move(struct phx_file *file, bool write, char *addr, size_t len, off_t off,
		size_t *moved)
{
	struct phx_io io = { .fd = file->fd, .write = write, .addr = addr, .len = len, .off = off,
			     .device_id = file->device_id };
	size_t more;
	int err;

	if (!file->poll || !phx_poll_size(len) || !(phx_file_flags(file) & O_DIRECT) || !run(&io))
		return by_call(file, write, addr, len, off, moved);
	*moved = io.moved;
	if (!io.err)
		return 0;
	/* What is wrong with the transfer is so again, what was with the ring is not. */
	err = by_call(file, write, addr + io.moved, len - io.moved, off + (off_t)io.moved, &more);
	*moved += more;
	return err;
}

int phx_poll_read(struct phx_file *file, void *to, size_t len, off_t off, size_t *moved)
{
	return move(file, false, to, len, off, moved);
}

int phx_poll_write(struct phx_file *file, const void *from, size_t len, off_t off, size_t *moved)
{
	return move(file, true, (char *)from, len, off, moved);
}
