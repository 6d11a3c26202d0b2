// SPDX-License-Identifier: Apache-2.0
#include "t_file.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

static inline uint64_t word(uint64_t seed, uint64_t index)
{
	uint64_t z = (index + 1) * 0x9e3779b97f4a7c15ULL ^ seed * 0xd6e8feb86659fd93ULL;

	z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93ULL;
	return z ^ (z >> 29);
}

static inline uint8_t byte_at(uint64_t seed, uint64_t offset)
{
	return (uint8_t)(word(seed, offset / 8) >> offset % 8 * 8);
}

void t_fill(void *buf, size_t len, uint64_t seed, uint64_t offset)
{
	uint8_t *p = buf;
	size_t i = 0;

	for (; i < len && (offset + i) % 8; i++)
		p[i] = byte_at(seed, offset + i);
	for (; i + 8 <= len; i += 8) {
		uint64_t w = word(seed, (offset + i) / 8);

		memcpy(p + i, &w, 8);
	}
	for (; i < len; i++)
		p[i] = byte_at(seed, offset + i);
}

ssize_t t_differs(const void *buf, size_t len, uint64_t seed, uint64_t offset)
{
	const uint8_t *p = buf;
	size_t i = 0;

	for (; i < len && (offset + i) % 8; i++)
		if (p[i] != byte_at(seed, offset + i))
			return (ssize_t)i;
	for (; i + 8 <= len; i += 8) {
		uint64_t w;

		memcpy(&w, p + i, 8);
		if (w != word(seed, (offset + i) / 8))
			break;
	}
	for (; i < len; i++)
		if (p[i] != byte_at(seed, offset + i))
			return (ssize_t)i;
	return -1;
}

ssize_t t_differs_from(const void *buf, size_t len, int value)
{
	const uint8_t *p = buf;

	if (len == 0 || (p[0] == (uint8_t)value && memcmp(p, p + 1, len - 1) == 0))
		return -1;
	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)value)
			return (ssize_t)i;
	return -1;
}

const char *t_name(const char *name)
{
	static _Thread_local char ring[8][512];
	static _Thread_local unsigned int next;
	char *s = ring[next++ % 8];

	if (name[0] == '/')
		snprintf(s, sizeof(ring[0]), "%s", name);
	else
		snprintf(s, sizeof(ring[0]), "%s/%s", getenv("T_DIR"), name);
	return s;
}

int t_open(const char *name, int flags)
{
	int fd = open(t_name(name), flags | O_CLOEXEC, 0600);

	if (fd < 0)
		T_FAIL("open %s: %s", t_name(name), strerror(errno));
	return fd;
}

static void write_pattern(int fd, size_t size, uint64_t seed)
{
	size_t step = size < T_MIB ? size : T_MIB;
	uint8_t *buf = malloc(step ? step : 1);

	T_CHECK(buf);
	for (size_t at = 0; at < size; at += step) {
		size_t n = size - at < step ? size - at : step;

		t_fill(buf, n, seed, at);
		t_pwrite(fd, buf, n, (off_t)at);
	}
	free(buf);
}

int t_file(const char *name, size_t size, uint64_t seed, int flags)
{
	int fd = t_open(name, O_RDWR | O_CREAT | O_TRUNC);

	write_pattern(fd, size, seed);
	/* an O_DIRECT reader must not meet pages still to be written */
	if (flags & O_DIRECT)
		T_EQ(fsync(fd), 0);
	close(fd);
	return t_open(name, flags);
}

int t_memfile(size_t size, uint64_t seed)
{
	int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		T_FAIL("memfd_create: %s", strerror(errno));
	write_pattern(fd, size, seed);
	return fd;
}

void t_need_direct(void)
{
	int fd = open(t_name("probe"), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);

	if (fd < 0)
		t_skip("%s has no O_DIRECT: set PHX_TEST_DIR", getenv("T_DIR"));
	close(fd);
}

void t_need_root(void)
{
	if (geteuid() != 0)
		t_skip("needs root");
}

void t_need_memory(size_t bytes)
{
	if ((size_t)t_available_kib() * T_KIB < bytes)
		t_skip("needs %zu MiB of free memory", bytes / T_MIB);
}

size_t t_dio_align(void)
{
	struct statx sx;
	size_t align = 4096;

#ifdef STATX_DIOALIGN
	if (statx(AT_FDCWD, t_name("."), 0, STATX_DIOALIGN, &sx) == 0 &&
	    sx.stx_mask & STATX_DIOALIGN && sx.stx_dio_offset_align)
		align = sx.stx_dio_offset_align;
#else
	(void)sx;
#endif
	return align;
}

void t_pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pwrite(fd, (const char *)buf + done, len - done,
				   offset + (off_t)done);

		if (n <= 0)
			T_FAIL("pwrite of %zu at %lld: %s", len, (long long)offset,
			       strerror(errno));
		done += (size_t)n;
	}
}

void t_pread(int fd, void *buf, size_t len, off_t offset)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = pread(fd, (char *)buf + done, len - done, offset + (off_t)done);

		if (n <= 0)
			T_FAIL("pread of %zu at %lld: %s", len, (long long)offset,
			       n ? strerror(errno) : "end of file");
		done += (size_t)n;
	}
}

off_t t_size(int fd)
{
	struct stat st;

	T_EQ(fstat(fd, &st), 0);
	return st.st_size;
}

void t_file_pattern(int fd, off_t from, size_t len, uint64_t seed, uint64_t pattern_offset)
{
	char link[64];
	uint8_t *buf = malloc(T_MIB);
	int own;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	own = open(link, O_RDONLY | O_CLOEXEC);
	T_CHECK(buf && own >= 0);
	for (size_t at = 0; at < len; at += T_MIB) {
		size_t n = len - at < T_MIB ? len - at : T_MIB;
		ssize_t bad;

		t_pread(own, buf, n, from + (off_t)at);
		bad = t_differs(buf, n, seed, pattern_offset + at);
		if (bad >= 0)
			T_FAIL("file byte %lld is wrong (checked from %lld, %zu bytes)",
			       (long long)from + (long long)at + bad, (long long)from, len);
	}
	close(own);
	free(buf);
}

void t_map(struct t_region *r, size_t len)
{
	size_t span = len + 3 * T_PAGE;
	uint8_t *m = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);

	if (m == MAP_FAILED)
		T_FAIL("mmap of %zu: %s", span, strerror(errno));
	/* keeps at least one faulting device page on either side */
	r->map = m;
	r->p = (uint8_t *)(((uintptr_t)m + 2 * T_PAGE - 1) & ~(T_PAGE - 1));
	r->len = len;
	r->device = -1;
	T_EQ(mprotect(r->p, len, PROT_READ | PROT_WRITE), 0);
	if (len <= 256 * T_MIB)
		memset(r->p, T_GUARD, len);
	else
		madvise(r->p, len, MADV_HUGEPAGE); /* it is only quicker */
}

void t_unmap(struct t_region *r)
{
	T_EQ(munmap(r->map, r->len + 3 * T_PAGE), 0);
}

void t_region(struct t_region *r, int device, size_t len)
{
	void *target = NULL;

	T_EQ(phxfs_open(device), 0);
	t_map(r, len);
	T_EQ(phxfs_regmem(device, r->p, len, &target), 0);
	T_CHECK(target == r->p);
	r->device = device;
}

void t_region_free(struct t_region *r)
{
	T_EQ(phxfs_deregmem(r->device, r->p, r->len), 0);
	t_unmap(r);
	T_EQ(phxfs_close(r->device), 0);
}

long t_deregister(void *arg)
{
	struct t_region *r = arg;

	return phxfs_deregmem(r->device, r->p, r->len);
}

long t_reregister(void *arg)
{
	struct t_region *r = arg;

	return phxfs_regmem(r->device, r->p, r->len, NULL);
}

bool t_registered(int fd, int device, const void *buf)
{
	struct phxfs_path_info info = { .size = sizeof(info) };

	return phxfs_path_query(fd, device, buf, 1, 0, &info) != -EFAULT;
}

long t_transfer(void *arg)
{
	struct t_transfer *x = arg;

	if (x->write)
		return phxfs_write(x->fd, x->device, x->buf, 0, (ssize_t)x->len, x->offset);
	return phxfs_read(x->fd, x->device, x->buf, 0, (ssize_t)x->len, x->offset);
}

void t_own_mounts(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		t_skip("no mount namespace: %s", strerror(errno));
}

void t_mount(const char *source, const char *dir, const char *type, const char *options)
{
	if (mkdir(t_name(dir), 0700) && errno != EEXIST)
		T_FAIL("mkdir %s: %s", dir, strerror(errno));
	if (mount(source, t_name(dir), type, MS_NOSUID | MS_NODEV, options))
		t_skip("no mount of %s: %s", type, strerror(errno));
}
