/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files as pread(2) and pwrite(2) see them: loops that take short results,
 * EINTR and EAGAIN for what they are, and what must be known of a descriptor.
 */
#ifndef PHX_FILE_H
#define PHX_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "phoenix.h"

/*
 * Where O_DIRECT requests are cut: a page (at least 4 KiB), so that page cache
 * and direct I/O never meet in one page. Some file systems need more.
 */
extern size_t phx_file_page;

/* One descriptor during one transfer. Not shared between threads. */
struct phx_file {
	int fd;
	int device_id;  /* for the counters */
	int flags;      /* of fcntl(F_GETFL); -1: not asked yet */
	size_t align;   /* where O_DIRECT requests are cut; 0: not asked yet */
	int buffered;   /* the same file without O_DIRECT; -1: not opened */
	bool poll;      /* for the end of small transfers: see io_poll.h */
};

static inline struct phx_file phx_file(int fd, int device_id)
{
	return (struct phx_file){ .fd = fd, .device_id = device_id, .flags = -1, .buffered = -1 };
}

/* The status flags; 0 where fcntl() fails, which the transfer itself will report. */
int phx_file_flags(struct phx_file *file);
/* The cut that this file system needs: asks it once. */
size_t phx_file_align(struct phx_file *file);
/* The cut as far as is known without asking. */
static inline size_t phx_file_cut(const struct phx_file *file)
{
	return file->align ? file->align : phx_file_page;
}
/* The least alignment that O_DIRECT may take: of the file system, else 512. */
size_t phx_file_block(struct phx_file *file);

/*
 * Open the file again without O_DIRECT (and with O_APPEND, O_SYNC, O_DSYNC as
 * they are): sets file->buffered. 0 or -errno.
 */
int phx_file_reopen(struct phx_file *file);
void phx_file_close(struct phx_file *file);

/* True: a read that ended at @end met the end of the file. */
bool phx_file_at_end(struct phx_file *file, off_t end);

/*
 * Move @len bytes at @off by as many calls as it takes, on file->fd or, with
 * @buffered, on file->buffered. *moved counts the bytes, also on failure.
 * 0: all moved, or the end of the file; else -errno of the call that failed.
 */
int phx_file_read(struct phx_file *file, bool buffered, void *to, size_t len, off_t off,
		  size_t *moved);
int phx_file_write(struct phx_file *file, bool buffered, const void *from, size_t len, off_t off,
		   size_t *moved);

/* Whether a call that returned @err, the @tries-th time in a row, is made again. */
bool phx_file_retry(int err, unsigned int tries);

/* What O_DIRECT demands of buffer and offset, as the file system says it. */
void phx_file_demands(struct phx_file *file, size_t *memory, size_t *offset);
void phx_file_init(void);

#endif
