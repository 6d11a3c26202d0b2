// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of a path: its file system, what lies under it, direct I/O, and the
 * way that data takes between it and a device.
 */
#include "findings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Length of the transfer that is asked about, and of the file made in a directory. */
#define PROBE_BYTES (1u << 20)
#define PROBE_ALIGN 4096u

struct target {
	const char *path;
	int fd;
	bool direct; /* fd has O_DIRECT */
	uint64_t size;
};

static void fail_errno(struct findings *f, const char *path, const char *step, int error)
{
	char name[WORD_MAX];

	find_add(f, VERDICT_FAIL, "file", path, "cannot %s: %s (%s)", step,
		 errno_name(name, error), strerror(error));
}

static int make_unnamed(const char *directory)
{
	char template[4096];
	int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
		return fd;
	/* a file system without unnamed files */
	if ((size_t)snprintf(template, sizeof(template), "%s/.phx-check-XXXXXX", directory) >=
	    sizeof(template)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = mkostemp(template, O_CLOEXEC);
	if (fd >= 0)
		unlink(template);
	return fd;
}

/* Fills the unnamed file, so that its blocks exist. Returns 0 or an errno. */
static int fill(int fd)
{
	static char zeros[65536];
	size_t done;
	ssize_t n;

	for (done = 0; done < PROBE_BYTES; done += (size_t)n) {
		n = pwrite(fd, zeros, sizeof(zeros), (off_t)done);
		if (n <= 0)
			return n < 0 ? errno : ENOSPC;
	}
	return fsync(fd) ? errno : 0;
}

static bool open_target(struct findings *f, struct target *t)
{
	struct stat st;
	int error;

	if (stat(t->path, &st)) {
		fail_errno(f, t->path, "find it", errno);
		return false;
	}
	if (S_ISDIR(st.st_mode)) {
		t->fd = make_unnamed(t->path);
		if (t->fd < 0) {
			fail_errno(f, t->path, "make a file in it", errno);
			return false;
		}
		error = fill(t->fd);
		if (error) {
			fail_errno(f, t->path, "write a file in it", error);
			close(t->fd);
			return false;
		}
		t->size = PROBE_BYTES;
		return true;
	}
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
		find_add(f, VERDICT_FAIL, "file", t->path,
			 "neither a file, a directory nor a block device");
		return false;
	}
	t->fd = open(t->path, O_RDONLY | O_CLOEXEC);
	if (t->fd < 0) {
		fail_errno(f, t->path, "open it for reading", errno);
		return false;
	}
	t->size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size :
					(uint64_t)lseek(t->fd, 0, SEEK_END);
	return true;
}

/* True: files on it live in memory. */
static bool check_filesystem(struct findings *f, const struct target *t)
{
	const char *name;
	struct statfs fs;
	char unknown[WORD_MAX], room[WORD_MAX];
	struct finding *x;

	if (fstatfs(t->fd, &fs)) {
		fail_errno(f, t->path, "ask for its file system", errno);
		return false;
	}
	name = filesystem_name((long)fs.f_type);
	if (!name) {
		snprintf(unknown, sizeof(unknown), "unknown (magic 0x%lx)", (long)fs.f_type);
		name = unknown;
	}
	if (is_memory_filesystem((long)fs.f_type)) {
		x = find_add(f, VERDICT_WARN, "file", t->path,
			     "file system %s: it lives in memory, there is no storage to read",
			     name);
		find_cure(x, "use a path on a disk");
	} else {
		x = find_add(f, VERDICT_INFO, "file", t->path, "file system %s, %s free", name,
			     size_word(room, (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize));
	}
	cJSON_AddStringToObject(find_data(x), "filesystem", name);
	return is_memory_filesystem((long)fs.f_type);
}

/* Appends the names of the block devices below; returns how many there are. */
static int list_slaves(char *list, size_t size, const char *sysfs, const char *device)
{
	size_t used = 0;
	char path[512];
	struct dirent *entry;
	int count = 0;
	DIR *dir;

	list[0] = '\0';
	snprintf(path, sizeof(path), "%s/dev/block/%s/slaves", sysfs, device);
	dir = opendir(path);
	if (!dir)
		return 0;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (used < size)
			used += (size_t)snprintf(list + used, size - used, "%s%s",
						 count ? ", " : "", entry->d_name);
		count++;
	}
	closedir(dir);
	return count;
}

/* RAID, device mapper and multipath stand between the file and a disk. */
static void check_block(struct findings *f, const struct target *t, const char *sysfs)
{
	char device[32], name[128] = "", uuid[64] = "", list[256], link[512], real[4096];
	struct finding *x;
	struct stat st;
	dev_t number;
	int below;

	if (fstat(t->fd, &st))
		return;
	number = S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev;
	/* major 0: a network, overlay or memory file system has no block device */
	if (major(number) == 0)
		return;
	snprintf(device, sizeof(device), "%u:%u", major(number), minor(number));
	snprintf(link, sizeof(link), "%s/dev/block/%s", sysfs, device);
	if (!realpath(link, real)) {
		find_add(f, VERDICT_INFO, "file", t->path, "on block device %s", device);
		return;
	}
	snprintf(name, sizeof(name), "%s", strrchr(real, '/') + 1);
	below = list_slaves(list, sizeof(list), sysfs, device);
	read_line(uuid, sizeof(uuid), "%s/dev/block/%s/dm/uuid", sysfs, device);
	if (!strncmp(uuid, "mpath-", 6)) {
		x = find_add(f, VERDICT_WARN, "file", t->path,
			     "on multipath device %s over %s: peer-to-peer DMA may be refused",
			     name, list);
		find_cure(x, "use the disk without dm-multipath (nvme_core.multipath=N for NVMe)");
	} else if (below) {
		x = find_add(f, VERDICT_INFO, "file", t->path, "on %s, made of %s", name, list);
	} else {
		x = find_add(f, VERDICT_INFO, "file", t->path, "on %s", name);
	}
	cJSON_AddStringToObject(find_data(x), "block_device", name);
}

/* What the file says it needs; 0: it does not say. */
static void declared_alignment(int fd, uint32_t *memory, uint32_t *offset)
{
	*memory = *offset = 0;
#ifdef STATX_DIOALIGN
	struct statx sx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &sx) == 0 &&
	    (sx.stx_mask & STATX_DIOALIGN)) {
		*memory = sx.stx_dio_mem_align;
		*offset = sx.stx_dio_offset_align;
	}
#endif
}

/* Reads one block with O_DIRECT. Returns 0 or an errno; *step says where. */
static int try_direct(int fd, const char **step)
{
	int flags = fcntl(fd, F_GETFL);
	void *block = NULL;
	int error = 0;

	*step = "fcntl";
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT))
		return errno;
	*step = "read";
	if (posix_memalign(&block, PROBE_ALIGN, PROBE_ALIGN))
		return ENOMEM;
	if (pread(fd, block, PROBE_ALIGN, 0) < 0)
		error = errno;
	free(block);
	if (error)
		fcntl(fd, F_SETFL, flags);
	return error;
}

static void check_direct(struct findings *f, struct target *t)
{
	uint32_t memory, offset;
	const char *step;
	char name[WORD_MAX];
	struct finding *x;
	int error = try_direct(t->fd, &step);

	t->direct = error == 0;
	declared_alignment(t->fd, &memory, &offset);
	if (error) {
		x = find_add(f, VERDICT_WARN, "file", t->path,
			     "no O_DIRECT: %s gives %s (%s); data goes through the page cache",
			     step, errno_name(name, error), strerror(error));
		find_cure(x, "use a file system with direct I/O (ext4, xfs on a local disk)");
	} else if (offset) {
		x = find_add(f, VERDICT_PASS, "file", t->path,
			     "O_DIRECT works, alignment %u (memory) and %u (offset)", memory,
			     offset);
	} else {
		x = find_add(f, VERDICT_PASS, "file", t->path,
			     "O_DIRECT works, alignment not declared");
	}
	cJSON_AddBoolToObject(find_data(x), "o_direct", t->direct);
	json_uint(find_data(x), "memory_align", memory);
	json_uint(find_data(x), "offset_align", offset);
}

static void judge_path(struct findings *f, const struct target *t, int rc, bool in_memory,
		       const struct phxfs_path_info *info)
{
	enum verdict verdict = VERDICT_WARN;
	struct finding *x;

	if (rc)
		verdict = VERDICT_FAIL;
	else if (info->path == PHXFS_PATH_DIRECT && info->dma && !in_memory)
		verdict = VERDICT_PASS;
	x = find_add(f, verdict, "file", t->path, "path %s%s: %s", path_name(info->path),
		     info->dma ? " by DMA" : "", info->text);
	cJSON_AddStringToObject(find_data(x), "path", path_name(info->path));
	cJSON_AddStringToObject(find_data(x), "reason", reason_name(info->reason));
	cJSON_AddBoolToObject(find_data(x), "dma", info->dma);
}

static void check_path(struct findings *f, const struct target *t, int device, bool in_memory)
{
	struct phxfs_path_info info = { .size = sizeof(info) };
	const char *step = "";
	struct buffer b;
	uint64_t length = t->size < PROBE_BYTES ? t->size : PROBE_BYTES;
	int rc;

	/* whole blocks: the question is about the file, not about its tail */
	length -= length % PROBE_ALIGN;
	if (!length) {
		find_add(f, VERDICT_INFO, "file", t->path,
			 "smaller than a block: it always takes an edge");
		return;
	}
	rc = buffer_get(&b, device, PROBE_BYTES, &step);
	if (rc) {
		find_add(f, VERDICT_FAIL, "file", t->path, "cannot %s: %s", step,
			 phxfs_last_error());
		return;
	}
	rc = phxfs_path_query(t->fd, device, b.addr, length, 0, &info);
	if (rc && rc != -EOPNOTSUPP)
		find_add(f, VERDICT_FAIL, "file", t->path, "no path: %s", phxfs_last_error());
	else
		judge_path(f, t, rc, in_memory, &info);
	buffer_put(&b);
}

void check_file(struct findings *f, const char *path, int device, const char *sysfs)
{
	struct target t = { .path = path, .fd = -1 };
	bool in_memory;

	if (!open_target(f, &t))
		return;
	in_memory = check_filesystem(f, &t);
	check_block(f, &t, sysfs);
	check_direct(f, &t);
	check_path(f, &t, device, in_memory);
	close(t.fd);
}
