// SPDX-License-Identifier: Apache-2.0
/*
 * The sync engine: pread(2) and pwrite(2), done in start(). It always works,
 * and stands in wherever a ring cannot be made.
 */
#include <errno.h>
#include <stdlib.h>

#include "io_engine.h"
#include "../phx_file.h"

struct phx_engine {
	struct phx_io *finished, **tail;
};

static int probe(void)
{
	return 0;
}

static int create(unsigned int depth, enum phx_engine_use use, struct phx_engine **out)
{
	struct phx_engine *engine = calloc(1, sizeof(*engine));

	if (!engine)
		return -ENOMEM;
	engine->tail = &engine->finished;
	*out = engine;
	return 0;
}

static void destroy(struct phx_engine *engine)
{
	free(engine);
}

static int start(struct phx_engine *engine, struct phx_io *io)
{
	struct phx_file file = phx_file(io->fd, io->device_id);

	io->err = io->write ? phx_file_write(&file, false, io->addr, io->len, io->off, &io->moved) :
			      phx_file_read(&file, false, io->addr, io->len, io->off, &io->moved);
	io->next = NULL;
	*engine->tail = io;
	engine->tail = &io->next;
	return 0;
}

static int flush(struct phx_engine *engine)
{
	return 0;
}

static struct phx_io *reap(struct phx_engine *engine)
{
	struct phx_io *list = engine->finished;

	engine->finished = NULL;
	engine->tail = &engine->finished;
	return list;
}

/* Whatever was started has finished: there is nothing to wait for. */
static void wait_for(struct phx_engine *engine, const struct timespec *timeout)
{
}

static void nothing(struct phx_engine *engine)
{
}

static int notify(struct phx_engine *engine, int fd)
{
	return -EOPNOTSUPP;
}

const struct phx_engine_ops phx_engine_sync = {
	.name = "sync",
	.probe = probe,
	.create = create,
	.destroy = destroy,
	.start = start,
	.flush = flush,
	.reap = reap,
	.wait = wait_for,
	.look = nothing,
	.arm = nothing,
	.wake = nothing,
	.notify = notify,
};
