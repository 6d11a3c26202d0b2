/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transfer: one request whose buffer has been resolved and is held.
 *
 * phx_xfer_start() resolves and holds, phx_xfer_end() counts and lets go.
 * Between them any number of threads may move disjoint parts of it.
 */
#ifndef PHX_XFER_H
#define PHX_XFER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "phx_device.h"
#include "phx_file.h"

struct phx_chunk;

struct phx_xfer {
	int fd;
	int device_id;             /* as given; negative for host buffers */
	bool write;
	bool part;                 /* of a transfer that counts it */
	bool poll;                 /* the call is small, and its thread waits: see io_poll.h */
	int path;                  /* enum phxfs_path of choice */
	int flags;                 /* of the descriptor; -1: not asked */
	struct phx_device *dev;    /* NULL: host buffer */
	struct phx_region *region; /* held; NULL: host buffer, or another holds it */
	char *addr;                /* byte 0 of the buffer: device or host address */
	char *io;                  /* where file I/O reaches it; NULL: nowhere */
	size_t len;
	off_t off;                 /* file offset of byte 0 */
	size_t uncounted;          /* bytes moved that phx_xfer_end() has to count */
	_Atomic size_t chunked;    /* bytes of a direct transfer that went through chunks */
	_Atomic size_t stop_at;    /* a slice that begins behind this is not started */
	uint64_t start_ns;         /* 0: latency not measured */
};

/*
 * Resolve a request. On failure nothing is held and phxfs_last_error() tells
 * why: -EINVAL, -EFAULT, or -EOPNOTSUPP (PHX_PATH=direct).
 */
int phx_xfer_start(struct phx_xfer *x, bool write, int fd, int device_id, const void *buf,
		   off_t buf_offset, size_t nbytes, off_t f_offset);
/*
 * The same for a request of a batch. @near, or NULL: a started transfer that
 * holds a region and will be ended with this one; where this one's buffer lies
 * in it too, that hold serves both and x->region is NULL.
 */
int phx_xfer_start_req(struct phx_xfer *x, bool write, const phxfs_io_req_t *r,
		       const struct phx_xfer *near);
/* Let go; @result: bytes, or -errno. */
void phx_xfer_end(struct phx_xfer *x, ssize_t result);

/* Resolve a read for phxfs_path_query(): what PHX_PATH would refuse too. */
int phx_xfer_probe(struct phx_xfer *x, int fd, int device_id, const void *buf, size_t nbytes,
		   off_t f_offset);
/* Let go without counting: it was part of another, or never began. */
void phx_xfer_drop(struct phx_xfer *x);

/* Transfers that ended alike and are counted together. Starts as zeroes. */
struct phx_tally {
	uint64_t ops, bytes;
	int device_id, path;
	bool write;
};

/* As phx_xfer_end(), but counted no later than phx_tally_flush(). */
void phx_xfer_end_tally(struct phx_xfer *x, ssize_t result, struct phx_tally *tally);
void phx_tally_flush(struct phx_tally *tally);

/*
 * Move bytes @at .. @at + @len, exactly, by this thread alone. *moved counts
 * the bytes, also on failure. 0: all moved, or the end of the file; else
 * -errno of what stopped it.
 */
int phx_xfer_part(struct phx_xfer *x, size_t at, size_t len, size_t *moved);

/*
 * Copy @n bytes between the buffer, from its byte @at, and @chunk, from its
 * byte @in_chunk; *done counts those copied, also on failure. 0, or -errno with
 * the error recorded.
 */
int phx_xfer_from_chunk(struct phx_xfer *x, size_t at, struct phx_chunk *chunk, size_t in_chunk,
			size_t n, size_t *done);
int phx_xfer_to_chunk(struct phx_xfer *x, size_t at, struct phx_chunk *chunk, size_t in_chunk,
		      size_t n, size_t *done);

/*
 * The same, queued: 0: phx_xfer_copied() tells when it is done; -EOPNOTSUPP:
 * the device cannot, copy as above. One copy at a time for each chunk.
 */
int phx_xfer_from_chunk_async(struct phx_xfer *x, size_t at, struct phx_chunk *chunk,
			      size_t in_chunk, size_t n);
int phx_xfer_to_chunk_async(struct phx_xfer *x, size_t at, struct phx_chunk *chunk,
			    size_t in_chunk, size_t n);
/* 0: done, of @n bytes; -EBUSY: not yet (never with @wait); or what went wrong. */
int phx_xfer_copied(struct phx_xfer *x, struct phx_chunk *chunk, size_t n, bool wait);

/* Move it all, with the worker pool's help where that pays; bytes or -errno. */
ssize_t phx_xfer_run(struct phx_xfer *x);

/* bytes or -errno, from what phx_xfer_part() says: bytes moved win. */
static inline ssize_t phx_xfer_result(size_t moved, int err)
{
	return moved || !err ? (ssize_t)moved : err;
}

/* Count bytes that took the path of choice. */
void phx_xfer_count(struct phx_xfer *x, size_t bytes);

/* For errors of requests that other threads ran: record and return @err. */
int phx_xfer_fail(int err, bool write, int fd, size_t len, off_t off);

/* The descriptor's flags, asked for once. */
int phx_xfer_flags(struct phx_xfer *x);

/* Whether writes of @len bytes are cut at pages at all. */
bool phx_xfer_cuts(struct phx_xfer *x, size_t len);

/*
 * Whether bytes @at .. @at + @len of a direct write must not be given to the
 * kernel whole, though it may take them: they begin or end inside a page, on
 * an O_DIRECT descriptor. A neighbour's edge may be in the page cache in that
 * page, and would be written back over them.
 */

static inline bool phx_xfer_must_cut(struct phx_xfer *x, size_t at, size_t len)
{
	return x->write && (((size_t)x->off + at) | len) & (phx_file_page - 1) &&
	       phx_xfer_cuts(x, len);
}

#endif
