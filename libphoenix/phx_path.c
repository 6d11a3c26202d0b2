// SPDX-License-Identifier: Apache-2.0
/*
 * Which way a request would go, and why; computed by the rules of phx_io.c,
 * without moving anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <linux/magic.h>

#include "phx_config.h"
#include "phx_error.h"
#include "phx_file.h"
#include "phx_init.h"
#include "phx_path.h"
#include "phx_sized.h"
#include "phx_stats.h"
#include "phx_xfer.h"

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif

int phx_path_host;

int phx_path_choose(int mode)
{
	if (phx_config.path == PHX_PATH_STAGING)
		return PHXFS_PATH_STAGING;
	if (phx_config.path == PHX_PATH_BOUNCE)
		return PHXFS_PATH_BOUNCE;
	if (mode == PHXFS_MODE_HOST || mode == PHXFS_MODE_FULL)
		return PHXFS_PATH_DIRECT;
	if (phx_config.path == PHX_PATH_DIRECT)
		return -1;
	return mode == PHXFS_MODE_STAGING ? PHXFS_PATH_STAGING : PHXFS_PATH_BOUNCE;
}

static const char *file_system(int fd)
{
	static const struct {
		unsigned long magic;
		const char *name;
	} known[] = {
		{ EXT4_SUPER_MAGIC, "ext4" },	   { XFS_SUPER_MAGIC, "xfs" },
		{ BTRFS_SUPER_MAGIC, "btrfs" },	   { TMPFS_MAGIC, "tmpfs" },
		{ OVERLAYFS_SUPER_MAGIC, "overlayfs" }, { NFS_SUPER_MAGIC, "nfs" },
		{ FUSE_SUPER_MAGIC, "fuse" },	   { F2FS_SUPER_MAGIC, "f2fs" },
		{ RAMFS_MAGIC, "ramfs" },
	};
	struct statfs fs;
	struct stat st;

	if (!fstat(fd, &st) && S_ISBLK(st.st_mode))
		return "block device";
	if (fstatfs(fd, &fs))
		return "unknown file system";
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if ((unsigned long)fs.f_type == known[i].magic)
			return known[i].name;
	}
	return "file system";
}

static const char *const path_names[] = { "direct", "staging", "bounce" };

static const char *const reason_texts[] = {
	[PHXFS_REASON_NONE] = "no copy by the library",
	[PHXFS_REASON_FORCED] = "PHX_PATH asks for it",
	[PHXFS_REASON_EDGES] = "unaligned edges pass through a chunk; align offset and length to "
			       "avoid it",
	[PHXFS_REASON_INCONGRUENT] = "buffer and file offset are aligned differently; use a buffer "
				     "aligned like the offset",
	[PHXFS_REASON_BUFFERED_FD] = "the page cache is copied; open with O_DIRECT for DMA",
	[PHXFS_REASON_STAGING_MODE] = "the module maps the staging pool only; load it with "
				      "phxfs_map_mode=0 for FULL",
	[PHXFS_REASON_UNREGISTERED] = "the buffer is in no registration; register it with "
				      "phxfs_regmem()",
	[PHXFS_REASON_NO_MODULE] = "phxfs.ko does not serve the device; load it for DMA",
};

/* What of a request on an O_DIRECT descriptor goes direct. */
static void split(const struct phx_xfer *x, struct phx_file *file, struct phxfs_path_info *info)
{
	size_t memory, block, align, head, first, middle;

	phx_file_demands(file, &memory, &block);
	if (!(((size_t)x->off | x->len) & (block - 1)) && !((uintptr_t)x->io & (memory - 1)))
		return; /* all of it, as it is */
	align = phx_file_align(file);
	head = (size_t)x->off & (align - 1);
	first = head ? align - head : 0;
	first = first < x->len ? first : x->len;
	middle = (x->len - first) & ~(align - 1);
	if (middle && (((uintptr_t)x->io + first) & (memory - 1))) {
		info->path = PHXFS_PATH_BOUNCE;
		info->reason = PHXFS_REASON_INCONGRUENT;
		middle = 0;
	} else {
		info->reason = PHXFS_REASON_EDGES;
	}
	info->direct_bytes = middle;
	info->chunk_bytes = x->len - middle;
}

static void describe(const struct phx_xfer *x, struct phx_file *file, struct phxfs_path_info *info)
{
	int flags = phx_file_flags(file);

	/* Refused by PHX_PATH=direct: the way it would go without. */
	info->path = x->path >= 0			      ? x->path :
		     x->dev->mode == PHXFS_MODE_STAGING ? PHXFS_PATH_STAGING :
							  PHXFS_PATH_BOUNCE;
	info->dma = !!(flags & O_DIRECT);
	if (info->path == PHXFS_PATH_DIRECT) {
		info->direct_bytes = x->len;
		if (flags & O_DIRECT)
			split(x, file, info);
		else
			info->reason = PHXFS_REASON_BUFFERED_FD;
		return;
	}
	info->chunk_bytes = x->len;
	if (phx_config.path == PHX_PATH_STAGING || phx_config.path == PHX_PATH_BOUNCE)
		info->reason = PHXFS_REASON_FORCED;
	else if (x->dev && !x->region)
		info->reason = PHXFS_REASON_UNREGISTERED;
	else if (x->dev && x->dev->mode == PHXFS_MODE_FULL)
		info->reason = PHXFS_REASON_BUFFERED_FD;
	else
		info->reason = info->path == PHXFS_PATH_STAGING ? PHXFS_REASON_STAGING_MODE :
							       PHXFS_REASON_NO_MODULE;
}

int phxfs_path_query(int fd, int device_id, const void *buf, size_t nbytes, off_t f_offset,
		     struct phxfs_path_info *info)
{
	struct phxfs_path_info out = { 0 };
	struct phx_file file;
	struct phx_xfer x;
	int err, flags;

	err = phx_check_size(info, PHX_SIZE_UPTO(struct phxfs_path_info, text), "path_query");
	if (err)
		return err;
	phx_init();
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || (flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
		return phx_fail(-EBADF, "path_query", "open the file for reading",
				"descriptor %d", fd);
	err = phx_xfer_probe(&x, fd, device_id, buf, nbytes, f_offset);
	if (err)
		return err;
	file = phx_file(fd, device_id);
	describe(&x, &file, &out);
	phx_xfer_drop(&x);
	snprintf(out.text, sizeof(out.text), "%s on %s%s: %s", path_names[out.path],
		 file_system(fd), out.dma ? ", O_DIRECT" : ", page cache",
		 reason_texts[out.reason]);
	phx_fill(info, &out, sizeof(out));
	if (phx_config.path == PHX_PATH_DIRECT && out.chunk_bytes)
		return phx_fail(-EOPNOTSUPP, "path_query", "unset PHX_PATH, or align the request",
				"PHX_PATH=direct, but %s", out.text);
	return 0;
}
