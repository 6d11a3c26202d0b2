// SPDX-License-Identifier: GPL-2.0-only
/*
 * An engine for fio: transfers between files and device memory by libphoenix.
 *
 *   fio --ioengine=external:.../lib/phoenix/fio/phoenix.so --phx_device=0 ...
 *
 * Requests go into a completion queue, as many as fio has collected at once, and
 * each completes by itself. fio fills and checks its buffers with the processor.
 * On HOST devices these are the device's memory. Of any other device they are a
 * shadow, copied to the device before a write and back after a read where fio
 * verifies, and otherwise once, so that what is measured is the transfer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fio.h"
#include "optgroup.h"
#include "verify.h"

#include <phoenix.h>

struct phx_options {
	void *pad; /* no option may be at offset 0 */
	int device;
	const char *path;
	const char *engine;
	unsigned int staging_mib;
};

static struct fio_option options[] = {
	{
		.name = "phx_device",
		.lname = "Phoenix device",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct phx_options, device),
		.help = "Number of the device whose memory is used; -1: plain host memory",
		.def = "0",
		.minval = -1,
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "phx_path",
		.lname = "Phoenix path",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct phx_options, path),
		.help = "auto, direct, staging or bounce (PHX_PATH)",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "phx_engine",
		.lname = "Phoenix I/O engine",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct phx_options, engine),
		.help = "auto, io_uring or sync (PHX_IO_ENGINE)",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "phx_staging",
		.lname = "Phoenix chunk pool",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct phx_options, staging_mib),
		.help = "MiB of the pool of chunks (PHX_STAGING_SIZE_MB)",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

/* Of a job. Its own thread uses it. */
struct engine {
	phxfs_queue_t *queue;
	int device;
	bool open;
	bool shadow;         /* fio's buffers are not the device's memory */
	bool filled;         /* the device's memory has been written once */
	char *memory;        /* device address of td->orig_buffer; NULL: plain host memory */
	size_t len;          /* of both */
	unsigned int depth;
	unsigned int pending; /* collected, and not submitted */
	phxfs_io_req_t *reqs;
	void **io_us;         /* of the requests */
	struct phxfs_completion *done;
	struct phxfs_stats before;
};

static int fail(struct thread_data *td, int err, const char *what)
{
	log_err("phoenix: %s: %s\n", what, phxfs_last_error());
	td_verror(td, -err, what);
	return 1;
}

/* ------------------------------------------------------------- preparation */

static int set(const char *variable, const char *value)
{
	return value && *value ? setenv(variable, value, 1) : 0;
}

/* Before the library's first call, which reads them. */
static int set_environment(const struct phx_options *o)
{
	char mib[16];

	snprintf(mib, sizeof(mib), "%u", o->staging_mib);
	if (set("PHX_PATH", o->path) || set("PHX_IO_ENGINE", o->engine))
		return -errno;
	return o->staging_mib ? set("PHX_STAGING_SIZE_MB", mib) : 0;
}

static int allocate(struct engine *e, unsigned int depth)
{
	e->depth = depth;
	e->reqs = calloc(depth, sizeof(*e->reqs));
	e->io_us = calloc(depth, sizeof(*e->io_us));
	e->done = calloc(depth, sizeof(*e->done));
	return e->reqs && e->io_us && e->done ? 0 : -ENOMEM;
}

static int phx_init(struct thread_data *td)
{
	const struct phx_options *o = td->eo;
	struct engine *e = calloc(1, sizeof(*e));
	int err;

	/* The layout of its structs is what a version of fio decides. */
	if (strncmp(fio_version_string, PHX_FIO_VERSION, strlen(PHX_FIO_VERSION))) {
		log_err("phoenix: built for %s, this is %s\n", PHX_FIO_VERSION, fio_version_string);
		free(e);
		return 1;
	}
	td->io_ops_data = e;
	if (!e || allocate(e, td->o.iodepth) || set_environment(o)) {
		td_verror(td, ENOMEM, "phoenix");
		return 1;
	}
	e->device = o->device;
	if (e->device >= 0) {
		err = phxfs_open(e->device);
		if (err)
			return fail(td, err, "phxfs_open");
		e->open = true;
		e->shadow = phxfs_device_mode(e->device) != PHXFS_MODE_HOST;
	}
	err = phxfs_queue_create(e->depth, &e->queue);
	if (err)
		return fail(td, err, "phxfs_queue_create");
	e->before.size = sizeof(e->before);
	phxfs_stats(e->device, &e->before);
	return 0;
}

static const char *const path_names[] = { "direct", "staging", "bounce", "edges" };

static void report_way(const char *way, const struct phxfs_path_stats *before,
		       const struct phxfs_path_stats *after)
{
	for (int path = 0; path < PHXFS_PATHS; path++) {
		uint64_t ops = after[path].ops - before[path].ops;
		uint64_t bytes = after[path].bytes - before[path].bytes;
		uint64_t errors = after[path].errors - before[path].errors;

		if (ops || bytes)
			log_info("  phoenix: %s %s: %llu ops, %llu bytes, %llu errors\n", way,
				 path_names[path], (unsigned long long)ops,
				 (unsigned long long)bytes, (unsigned long long)errors);
	}
}

/* Which way the bytes went. Not between other programs' braces. */
static void report(const struct engine *e)
{
	struct phxfs_stats after = { .size = sizeof(after) };

	if (output_format != FIO_OUTPUT_NORMAL || phxfs_stats(e->device, &after))
		return;
	report_way("read", e->before.read, after.read);
	report_way("write", e->before.write, after.write);
}

static void phx_cleanup(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;

	if (!e)
		return;
	if (e->queue) {
		report(e);
		phxfs_queue_destroy(e->queue);
	}
	if (e->open)
		phxfs_close(e->device);
	free(e->reqs);
	free(e->io_us);
	free(e->done);
	free(e);
	td->io_ops_data = NULL;
}

/* ----------------------------------------------------------------- memory */

static size_t whole_pages(size_t n)
{
	return (n + PHXFS_DEVICE_PAGE - 1) / PHXFS_DEVICE_PAGE * PHXFS_DEVICE_PAGE;
}

static char *map_host(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void phx_iomem_free(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;
	bool apart = td->orig_buffer && (void *)td->orig_buffer != (void *)e->memory;

	if (apart)
		munmap(td->orig_buffer, e->len);
	td->orig_buffer = NULL;
	if (e->memory) {
		phxfs_deregmem(e->device, e->memory, e->len);
		phxfs_mem_free(e->device, e->memory);
	}
	e->memory = NULL;
}

static int phx_iomem_alloc(struct thread_data *td, size_t total)
{
	struct engine *e = td->io_ops_data;
	void *memory;
	int err;

	e->len = whole_pages(total);
	if (e->device >= 0) {
		err = phxfs_mem_alloc(e->device, e->len, &memory);
		if (err)
			return fail(td, err, "phxfs_mem_alloc");
		e->memory = memory;
		err = phxfs_regmem(e->device, memory, e->len, NULL);
		if (err) {
			fail(td, err, "phxfs_regmem");
			phxfs_mem_free(e->device, memory);
			e->memory = NULL;
			return 1;
		}
	}
	td->orig_buffer = e->memory && !e->shadow ? e->memory : map_host(e->len);
	if (!td->orig_buffer) {
		td_verror(td, ENOMEM, "phoenix: buffers");
		phx_iomem_free(td);
		return 1;
	}
	return 0;
}

/* The address that the library knows a byte of fio's buffers by. */
static char *device_address(const struct thread_data *td, const struct engine *e, void *buf)
{
	if (!e->memory)
		return buf;
	return e->memory + ((char *)buf - (char *)td->orig_buffer);
}

/* --------------------------------------------------------------- transfers */

static bool verifies(const struct thread_data *td)
{
	return td->o.verify != VERIFY_NONE;
}

/* A write's bytes, to where the device has them. */
static int copy_out(struct thread_data *td, struct engine *e, struct io_u *io_u)
{
	if (!e->shadow)
		return 0;
	if (verifies(td))
		return phxfs_memcpy_to(e->device, device_address(td, e, io_u->xfer_buf),
				       io_u->xfer_buf, io_u->xfer_buflen);
	if (e->filled)
		return 0;
	e->filled = true;
	return phxfs_memcpy_to(e->device, e->memory, td->orig_buffer, e->len);
}

static enum fio_q_status phx_queue(struct thread_data *td, struct io_u *io_u)
{
	struct engine *e = td->io_ops_data;
	int err;

	fio_ro_check(td, io_u);
	if (io_u->ddir == DDIR_TRIM || ddir_sync(io_u->ddir)) {
		if (e->pending)
			return FIO_Q_BUSY;
		if (io_u->ddir == DDIR_TRIM)
			do_io_u_trim(td, io_u);
		else
			do_io_u_sync(td, io_u);
		return FIO_Q_COMPLETED;
	}
	if (e->pending == e->depth)
		return FIO_Q_BUSY;
	err = io_u->ddir == DDIR_WRITE ? copy_out(td, e, io_u) : 0;
	if (err) {
		io_u->error = -err;
		td_verror(td, -err, "phoenix: copy to the device");
		return FIO_Q_COMPLETED;
	}
	e->io_us[e->pending] = io_u;
	e->reqs[e->pending++] = (phxfs_io_req_t){
		.fd = io_u->file->fd,
		.device_id = e->device,
		.buf = device_address(td, e, io_u->xfer_buf),
		.nbytes = io_u->xfer_buflen,
		.f_offset = (off_t)io_u->offset,
	};
	return FIO_Q_QUEUED;
}

static void note_issue(struct thread_data *td, struct engine *e, unsigned int n)
{
	struct timespec now;

	if (fio_fill_issue_time(td))
		fio_gettime(&now, NULL);
	for (unsigned int i = 0; i < n; i++) {
		struct io_u *io_u = e->io_us[i];

		if (fio_fill_issue_time(td)) {
			memcpy(&io_u->issue_time, &now, sizeof(now));
			io_u_queued(td, io_u);
		}
	}
	io_u_mark_submit(td, n);
}

/* Requests from the first on that go the same way. */
static unsigned int same_way(const struct engine *e)
{
	enum fio_ddir way = ((struct io_u *)e->io_us[0])->ddir;
	unsigned int n = 1;

	while (n < e->pending && ((struct io_u *)e->io_us[n])->ddir == way)
		n++;
	return n;
}

static int phx_commit(struct thread_data *td)
{
	struct engine *e = td->io_ops_data;

	while (e->pending) {
		int op = ((struct io_u *)e->io_us[0])->ddir == DDIR_WRITE ? PHXFS_OP_WRITE :
									   PHXFS_OP_READ;
		int n = phxfs_queue_submit(e->queue, op, e->reqs, e->io_us, (int)same_way(e));

		if (n < 0) { /* never full: fio has no more than depth under way */
			log_err("phoenix: phxfs_queue_submit: %s\n", phxfs_last_error());
			return n;
		}
		note_issue(td, e, (unsigned int)n);
		e->pending -= (unsigned int)n;
		memmove(e->reqs, e->reqs + n, e->pending * sizeof(*e->reqs));
		memmove(e->io_us, e->io_us + n, e->pending * sizeof(*e->io_us));
	}
	return 0;
}

static int phx_getevents(struct thread_data *td, unsigned int min, unsigned int max,
			 const struct timespec *timeout)
{
	struct engine *e = td->io_ops_data;

	if (max > e->depth)
		max = e->depth;
	return phxfs_queue_wait(e->queue, e->done, (int)min, (int)max, timeout);
}

static struct io_u *phx_event(struct thread_data *td, int event)
{
	struct engine *e = td->io_ops_data;
	struct io_u *io_u = e->done[event].user_data;
	ssize_t result = e->done[event].result;

	if (result >= 0 && e->shadow && io_u->ddir == DDIR_READ && verifies(td)) {
		int err = phxfs_memcpy_from(e->device, io_u->xfer_buf,
					    device_address(td, e, io_u->xfer_buf), (size_t)result);

		result = err ? err : result;
	}
	io_u->error = result < 0 ? (unsigned int)-result : 0;
	io_u->resid = result < 0 ? io_u->xfer_buflen : io_u->xfer_buflen - (size_t)result;
	return io_u;
}

static int phx_cancel(struct thread_data *td, struct io_u *io_u)
{
	struct engine *e = td->io_ops_data;

	return phxfs_queue_cancel(e->queue, io_u) ? 1 : 0;
}

struct ioengine_ops ioengine = {
	.name = "phoenix",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_ASYNCIO_SYNC_TRIM,
	.init = phx_init,
	.queue = phx_queue,
	.commit = phx_commit,
	.getevents = phx_getevents,
	.event = phx_event,
	.cancel = phx_cancel,
	.cleanup = phx_cleanup,
	.open_file = generic_open_file,
	.close_file = generic_close_file,
	.get_file_size = generic_get_file_size,
	.iomem_alloc = phx_iomem_alloc,
	.iomem_free = phx_iomem_free,
	.options = options,
	.option_struct_size = sizeof(struct phx_options),
};
