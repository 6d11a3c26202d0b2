// SPDX-License-Identifier: Apache-2.0
/*
 * Buffers on a device, and what is known of file systems by their magic.
 */
#include "tool.h"

#include <errno.h>
#include <linux/magic.h>
#include <phoenix.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static size_t whole_pages(size_t len)
{
	return (len + PHXFS_DEVICE_PAGE - 1) / PHXFS_DEVICE_PAGE * PHXFS_DEVICE_PAGE;
}

static int host_get(struct buffer *b)
{
	void *p = mmap(NULL, b->len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	b->addr = p;
	return 0;
}

int buffer_get(struct buffer *b, int device, size_t len, const char **step)
{
	int rc;

	*b = (struct buffer){ .device = device, .len = whole_pages(len) };
	if (device < 0) {
		*step = "allocate host memory";
		return host_get(b);
	}
	*step = "open the device";
	rc = phxfs_open(device);
	if (rc)
		return rc;
	*step = "allocate device memory";
	rc = phxfs_mem_alloc(device, b->len, &b->addr);
	if (rc)
		goto err_close;
	*step = "register device memory";
	rc = phxfs_regmem(device, b->addr, b->len, NULL);
	if (rc)
		goto err_free;
	return 0;

err_free:
	phxfs_mem_free(device, b->addr);
err_close:
	phxfs_close(device);
	b->addr = NULL;
	return rc;
}

void buffer_put(struct buffer *b)
{
	if (!b->addr)
		return;
	if (b->device < 0) {
		munmap(b->addr, b->len);
	} else {
		phxfs_deregmem(b->device, b->addr, b->len);
		phxfs_mem_free(b->device, b->addr);
		phxfs_close(b->device);
	}
	b->addr = NULL;
}

int buffer_store(const struct buffer *b, size_t offset, const void *src, size_t n)
{
	if (b->device >= 0)
		return phxfs_memcpy_to(b->device, (char *)b->addr + offset, src, n);
	memcpy((char *)b->addr + offset, src, n);
	return 0;
}

int buffer_load(const struct buffer *b, size_t offset, void *dst, size_t n)
{
	if (b->device >= 0)
		return phxfs_memcpy_from(b->device, dst, (const char *)b->addr + offset, n);
	memcpy(dst, (const char *)b->addr + offset, n);
	return 0;
}

const void *buffer_view(const struct buffer *b, size_t offset)
{
	if (b->device >= 0 && phxfs_device_mode(b->device) != PHXFS_MODE_HOST)
		return NULL;
	return (const char *)b->addr + offset;
}

int set_environment(const char *name, const char *value)
{
	return setenv(name, value, 1) ? -errno : 0;
}

bool is_memory_filesystem(long magic)
{
	return magic == TMPFS_MAGIC || magic == RAMFS_MAGIC;
}

const char *filesystem_name(long magic)
{
	static const struct {
		long magic;
		const char *name;
	} known[] = {
		{ EXT4_SUPER_MAGIC, "ext4" },
		{ XFS_SUPER_MAGIC, "xfs" },
		{ BTRFS_SUPER_MAGIC, "btrfs" },
		{ F2FS_SUPER_MAGIC, "f2fs" },
		{ TMPFS_MAGIC, "tmpfs" },
		{ RAMFS_MAGIC, "ramfs" },
		{ OVERLAYFS_SUPER_MAGIC, "overlayfs" },
		{ NFS_SUPER_MAGIC, "nfs" },
		{ CIFS_SUPER_MAGIC, "cifs" },
		{ SMB2_SUPER_MAGIC, "smb2" },
		{ CEPH_SUPER_MAGIC, "ceph" },
		{ FUSE_SUPER_MAGIC, "fuse" },
		{ SQUASHFS_MAGIC, "squashfs" },
		{ PROC_SUPER_MAGIC, "proc" },
		{ SYSFS_MAGIC, "sysfs" },
		{ HUGETLBFS_MAGIC, "hugetlbfs" },
		{ MSDOS_SUPER_MAGIC, "vfat" },
		{ EXFAT_SUPER_MAGIC, "exfat" },
		{ V9FS_MAGIC, "9p" },
		/* not in the kernel's own list */
		{ 0x2fc12fc1, "zfs" },
		{ 0x0bd00bd0, "lustre" },
		{ 0x47504653, "gpfs" },
		{ 0x19830326, "beegfs" },
		{ 0x18031977, "wekafs" },
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].magic == magic)
			return known[i].name;
	return NULL;
}
