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

/* Device memory that the CPU cannot reach: where it lies and whose it is. */
#define MAX_AWAY 512
static struct {
	pthread_mutex_t lock;
	int n;
	struct {
		uintptr_t at;
		size_t len;
		int device;
	} list[MAX_AWAY];
} away = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void add_away(const void *p, size_t len, int device)
{
	if (t_on_host() || device < 0)
		return;
	pthread_mutex_lock(&away.lock);
	T_CHECK(away.n < MAX_AWAY);
	away.list[away.n].at = (uintptr_t)p;
	away.list[away.n].len = len;
	away.list[away.n++].device = device;
	pthread_mutex_unlock(&away.lock);
}

static void drop_away(const void *p)
{
	pthread_mutex_lock(&away.lock);
	for (int i = 0; i < away.n; i++)
		if (away.list[i].at == (uintptr_t)p)
			away.list[i--] = away.list[--away.n];
	pthread_mutex_unlock(&away.lock);
}

/* The device, or -1: the CPU reaches it. */
static int device_of(const void *p)
{
	int device = -1;

	if (t_on_host())
		return -1;
	pthread_mutex_lock(&away.lock);
	for (int i = 0; i < away.n; i++)
		if ((uintptr_t)p - away.list[i].at < away.list[i].len)
			device = away.list[i].device;
	pthread_mutex_unlock(&away.lock);
	return device;
}

void t_put(void *buf, const void *host, size_t len)
{
	int device = device_of(buf);

	if (device < 0)
		memcpy(buf, host, len);
	else
		T_EQ(phxfs_memcpy_to(device, buf, host, len), 0);
}

void t_get(void *host, const void *buf, size_t len)
{
	int device = device_of(buf);

	if (device < 0)
		memcpy(host, buf, len);
	else
		T_EQ(phxfs_memcpy_from(device, host, buf, len), 0);
}

struct piece {
	uint64_t seed, offset;
	int value;
};

/* Does step to a copy of buf, piece by piece, up to the first that is >= 0. */
static ssize_t by_pieces(void *buf, size_t len, struct piece p, bool write,
			 ssize_t (*step)(uint8_t *copy, size_t len, const struct piece *p))
{
	size_t room = len < T_MIB ? len : T_MIB;
	uint8_t *copy;
	ssize_t bad = -1;

	if (device_of(buf) < 0)
		return step(buf, len, &p);
	copy = malloc(room + 1);
	T_CHECK(copy);
	for (size_t at = 0, n; at < len && bad < 0; at += n) {
		n = len - at < room ? len - at : room;
		if (!write)
			t_get(copy, (uint8_t *)buf + at, n);
		bad = step(copy, n, &p);
		if (write)
			t_put((uint8_t *)buf + at, copy, n);
		bad = bad < 0 ? bad : bad + (ssize_t)at;
		p.offset += n;
	}
	free(copy);
	return bad;
}

static ssize_t set_piece(uint8_t *copy, size_t len, const struct piece *p)
{
	memset(copy, p->value, len);
	return -1;
}

static ssize_t fill_piece(uint8_t *p, size_t len, const struct piece *of)
{
	uint64_t seed = of->seed, offset = of->offset;
	size_t i = 0;

	for (; i < len && (offset + i) % 8; i++)
		p[i] = byte_at(seed, offset + i);
	for (; i + 8 <= len; i += 8) {
		uint64_t w = word(seed, (offset + i) / 8);

		memcpy(p + i, &w, 8);
	}
	for (; i < len; i++)
		p[i] = byte_at(seed, offset + i);
	return -1;
}

static ssize_t piece_differs(uint8_t *p, size_t len, const struct piece *of)
{
	uint64_t seed = of->seed, offset = of->offset;
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

static ssize_t piece_differs_from(uint8_t *p, size_t len, const struct piece *of)
{
	if (len == 0 || (p[0] == (uint8_t)of->value && memcmp(p, p + 1, len - 1) == 0))
		return -1;
	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)of->value)
			return (ssize_t)i;
	return -1;
}

void t_set(void *buf, int value, size_t len)
{
	by_pieces(buf, len, (struct piece){ .value = value }, true, set_piece);
}

void t_fill(void *buf, size_t len, uint64_t seed, uint64_t offset)
{
	by_pieces(buf, len, (struct piece){ seed, offset, 0 }, true, fill_piece);
}

ssize_t t_differs(const void *buf, size_t len, uint64_t seed, uint64_t offset)
{
	return by_pieces((void *)buf, len, (struct piece){ seed, offset, 0 }, false,
			 piece_differs);
}

ssize_t t_differs_from(const void *buf, size_t len, int value)
{
	return by_pieces((void *)buf, len, (struct piece){ .value = value }, false,
			 piece_differs_from);
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

static void map_host(struct t_region *r, size_t len)
{
	size_t span = len + 3 * T_PAGE;
	uint8_t *m = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			  -1, 0);

	if (m == MAP_FAILED)
		T_FAIL("mmap of %zu: %s", span, strerror(errno));
	/* keeps at least one faulting device page on either side */
	r->map = m;
	r->p = (uint8_t *)(((uintptr_t)m + 2 * T_PAGE - 1) & ~(T_PAGE - 1));
	T_EQ(mprotect(r->p, len, PROT_READ | PROT_WRITE), 0);
}

void t_map(struct t_region *r, int device, size_t len)
{
	r->len = len;
	r->device = device;
	r->map = NULL;
	if (device < 0 || t_on_host())
		map_host(r, len);
	else /* what follows it is no one's registration */
		r->p = t_alloc(device, len + T_PAGE);
	if (len <= 256 * T_MIB)
		t_set(r->p, T_GUARD, len);
	else
		madvise(r->p, len, MADV_HUGEPAGE); /* it is only quicker */
}

void t_unmap(struct t_region *r)
{
	if (r->map)
		T_EQ(munmap(r->map, r->len + 3 * T_PAGE), 0);
	else
		t_free(r->device, r->p);
}

void *t_alloc(int device, size_t len)
{
	void *p = NULL;

	T_EQ(phxfs_mem_alloc(device, len, &p), 0);
	add_away(p, (len + T_PAGE - 1) & ~(T_PAGE - 1), device);
	return p;
}

void t_free(int device, void *p)
{
	drop_away(p);
	T_EQ(phxfs_mem_free(device, p), 0);
}

void t_target(const struct t_region *r, const void *target)
{
	if (t_on_host()) {
		T_CHECK(target == r->p);
		return;
	}
	T_CHECK(target && target != r->p);
	/* in FULL it is the device memory itself, for the CPU too */
	if (phxfs_device_mode(r->device) == PHXFS_MODE_FULL)
		T_EQ(t_differs_from(target, 64, T_GUARD), -1);
}

void t_region(struct t_region *r, int device, size_t len)
{
	void *target = NULL;

	T_EQ(phxfs_open(device), 0);
	t_map(r, device, len);
	T_EQ(phxfs_regmem(device, r->p, len, &target), 0);
	t_target(r, target);
}

void t_region_free(struct t_region *r)
{
	T_EQ(phxfs_deregmem(r->device, r->p, r->len), 0);
	t_unmap(r);
	T_EQ(phxfs_close(r->device), 0);
}

int t_buffered_path(int device, bool write, size_t len)
{
	int mode = phxfs_device_mode(device);

	if (t_path_is("staging"))
		return PHXFS_PATH_STAGING;
	if (t_path_is("bounce"))
		return PHXFS_PATH_BOUNCE;
	if (mode == PHXFS_MODE_STAGING)
		return PHXFS_PATH_STAGING;
	/* the CPU may fill a BAR with little, and should not read it */
	if (mode == PHXFS_MODE_FULL && (write || len >= 512 * T_KIB))
		return PHXFS_PATH_BOUNCE;
	return mode == PHXFS_MODE_BOUNCE ? PHXFS_PATH_BOUNCE : PHXFS_PATH_DIRECT;
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
