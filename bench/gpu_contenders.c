// SPDX-License-Identifier: Apache-2.0
/*
 * The contenders: this library; a loop of pread() or pwrite() with two pinned
 * blocks and asynchronous copies in each thread; the disk alone, with direct
 * I/O and pinned memory; and NVIDIA's cuFile.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <phoenix.h>

#include "gpu.h"
#include "gpu/driver.h"

/* ----------------------------------------------------------- this library */

static int phx_device;

static const char *phx_start(void)
{
	phx_device = phxfs_find_device("nvidia", 0);
	if (phx_device < 0 || phxfs_open(phx_device) ||
	    phxfs_regmem(phx_device, bench_device, DEVICE_BUFFER, NULL))
		return phxfs_last_error();
	return NULL;
}

static const char *phx_begin(struct thread *t)
{
	return NULL; /* a plain thread: no context */
}

static int phx_move(struct thread *t, size_t at, size_t len, off_t off)
{
	ssize_t n = t->point->write ? phxfs_write(t->fd, phx_device, bench_device, (off_t)at,
						  (ssize_t)len, off) :
				      phxfs_read(t->fd, phx_device, bench_device, (off_t)at,
						 (ssize_t)len, off);

	return n == (ssize_t)len ? 0 : -EIO;
}

static int phx_end(struct thread *t)
{
	return 0;
}

static int phx_registration(struct thread *t, char *buffer, size_t len, off_t off)
{
	int err = phxfs_regmem(phx_device, buffer, len, NULL);

	if (!err && phxfs_read(t->fd, phx_device, buffer, 0, 65536, off) != 65536)
		err = -EIO;
	return err ? err : phxfs_deregmem(phx_device, buffer, len);
}

const struct contender phx_contender = { "phoenix", phx_start, phx_begin,
					 phx_move,  phx_end,   phx_registration };

/* -------------------------------------------------------------- the loops */

static const char *plain_start(void)
{
	return NULL;
}

/* Blocks and stream of a thread, made once. */
static const char *plain_begin(struct thread *t)
{
	const char *why = bench_enter_cuda();

	if (why || t->stream)
		return why;
	if (cu.stream_create(&t->stream, DRIVER_STREAM_NON_BLOCKING) ||
	    cu.event_create(&t->events[0], 2) || cu.event_create(&t->events[1], 2) ||
	    cu.host_alloc((void **)&t->pinned, 32 * MIB, DRIVER_HOST_PORTABLE))
		return "no pinned memory";
	return NULL;
}

static int whole(ssize_t n, size_t len)
{
	return n == (ssize_t)len ? 0 : -EIO;
}

static int loop_read(struct thread *t, size_t at, size_t len, off_t off)
{
	unsigned int turn = t->count % 2;
	char *block = t->pinned + turn * 16 * MIB;

	if (cu.event_sync(t->events[turn]) || whole(pread(t->fd, block, len, off), len) ||
	    cu.copy_async((uintptr_t)bench_device + at, (uintptr_t)block, len, t->stream))
		return -EIO;
	return cu.event_record(t->events[turn], t->stream) ? -EIO : 0;
}

/* What waits to be written is written when the next copy is under way. */
struct pending {
	size_t len;
	off_t off;
};

static _Thread_local struct pending pending[2];

static int write_pending(struct thread *t, unsigned int turn)
{
	struct pending *p = &pending[turn];
	int err = 0;

	if (p->len)
		err = cu.event_sync(t->events[turn]) ||
		      whole(pwrite(t->fd, t->pinned + turn * 16 * MIB, p->len, p->off), p->len);
	p->len = 0;
	return err ? -EIO : 0;
}

static int loop_write(struct thread *t, size_t at, size_t len, off_t off)
{
	unsigned int turn = t->count % 2;
	char *block = t->pinned + turn * 16 * MIB;

	if (cu.copy_async((uintptr_t)block, (uintptr_t)bench_device + at, len, t->stream) ||
	    cu.event_record(t->events[turn], t->stream))
		return -EIO;
	pending[turn] = (struct pending){ len, off };
	return write_pending(t, !turn);
}

static int loop_move(struct thread *t, size_t at, size_t len, off_t off)
{
	return t->point->write ? loop_write(t, at, len, off) : loop_read(t, at, len, off);
}

static int loop_end(struct thread *t)
{
	if (t->point->write)
		return write_pending(t, 0) || write_pending(t, 1) ? -EIO : 0;
	return cu.stream_sync(t->stream) ? -EIO : 0;
}

const struct contender loop_contender = { "loop",    plain_start, plain_begin,
					  loop_move, loop_end,	  NULL };

static int raw_move(struct thread *t, size_t at, size_t len, off_t off)
{
	return whole(t->point->write ? pwrite(t->fd, t->pinned, len, off) :
				       pread(t->fd, t->pinned, len, off),
		     len);
}

static int raw_end(struct thread *t)
{
	return 0;
}

const struct contender raw_contender = { "raw", plain_start, plain_begin, raw_move, raw_end, NULL };

/* ----------------------------------------------------------------- cuFile */

struct cufile_error {
	int err, cuda;
};

struct cufile_descriptor {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *operations;
};

static struct {
	struct cufile_error (*open)(void);
	struct cufile_error (*handle)(void **handle, struct cufile_descriptor *d);
	struct cufile_error (*reg)(const void *p, size_t len, int flags);
	struct cufile_error (*dereg)(const void *p);
	ssize_t (*read)(void *handle, void *p, size_t len, off_t off, off_t at);
	ssize_t (*write)(void *handle, const void *p, size_t len, off_t off, off_t at);
	void *handles[2];
} cufile;

static const char *cufile_load(void)
{
	static const char *const files[] = { "libcufile.so.0", "libcufile.so",
					     "/usr/local/cuda/lib64/libcufile.so.0" };
	const struct {
		const char *name;
		void **slot;
	} symbols[] = {
		{ "cuFileDriverOpen", (void **)&cufile.open },
		{ "cuFileHandleRegister", (void **)&cufile.handle },
		{ "cuFileBufRegister", (void **)&cufile.reg },
		{ "cuFileBufDeregister", (void **)&cufile.dereg },
		{ "cuFileRead", (void **)&cufile.read },
		{ "cuFileWrite", (void **)&cufile.write },
	};
	void *library = NULL;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !library; i++)
		library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; library && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].slot = dlsym(library, symbols[i].name);
		if (!*symbols[i].slot)
			return symbols[i].name;
	}
	return library ? NULL : "libcufile is not here";
}

static const char *cufile_start(void)
{
	const char *missing = cufile_load();
	static char why[80];

	if (missing)
		return missing;
	if (cufile.open().err)
		return "cuFileDriverOpen fails";
	for (int direct = 0; direct < 2; direct++) {
		struct cufile_descriptor d = { .type = 1, .handle.fd = bench_fds[direct] };
		int err = cufile.handle(&cufile.handles[direct], &d).err;

		if (err) {
			snprintf(why, sizeof(why), "cuFileHandleRegister: %d for %s", err,
				 direct ? "O_DIRECT" : "a buffered descriptor");
			return why;
		}
	}
	if (cufile.reg(bench_device, DEVICE_BUFFER, 0).err)
		return "cuFileBufRegister fails";
	return NULL;
}

static const char *cufile_begin(struct thread *t)
{
	return bench_enter_cuda();
}

static int cufile_move(struct thread *t, size_t at, size_t len, off_t off)
{
	void *handle = cufile.handles[t->handle];
	size_t done = 0;

	while (done < len) {
		size_t n = len - done < GIB ? len - done : GIB;
		ssize_t moved = t->point->write ? cufile.write(handle, bench_device, n,
							       off + (off_t)done,
							       (off_t)(at + done)) :
						  cufile.read(handle, bench_device, n,
							      off + (off_t)done,
							      (off_t)(at + done));

		if (moved <= 0)
			return -EIO;
		done += (size_t)moved;
	}
	return 0;
}

static int cufile_end(struct thread *t)
{
	return 0;
}

static int cufile_registration(struct thread *t, char *buffer, size_t len, off_t off)
{
	int bad = cufile.reg(buffer, len, 0).err;

	if (!bad)
		bad = cufile.read(cufile.handles[t->handle], buffer, 65536, off, 0) != 65536;
	return bad || cufile.dereg(buffer).err ? -EIO : 0;
}

const struct contender cufile_contender = { "cufile",	 cufile_start, cufile_begin,
					    cufile_move, cufile_end,   cufile_registration };
