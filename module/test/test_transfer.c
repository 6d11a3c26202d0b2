// SPDX-License-Identifier: GPL-2.0-only
/*
 * Transfers between a file, or a block device, and registered device memory, by every call
 * that takes a buffer. Usage: test_transfer PATH [CASE...]; PATH exists, its contents are
 * overwritten, its size is at least 32 MiB.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SPAN (32 * MIB)

static const char *path;
static int file;	/* O_DIRECT */
static int dev_fd;
static uint64_t seed = 1;

static int open_file(int flags)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | flags);

	CHECK(fd >= 0);
	return fd;
}

/* The file's bytes become pattern @s, by host memory alone. */
static void file_fill(uint64_t offset, uint64_t length, uint64_t s)
{
	void *p = t_aligned(length);

	t_fill_host(p, length, s);
	CHECK_EQ(pwrite(file, p, length, offset), length);
	free(p);
}

static bool file_has(uint64_t offset, uint64_t length, uint64_t s)
{
	void *p = t_aligned(length);
	bool same;

	CHECK_EQ(pread(file, p, length, offset), length);
	same = t_host_has(p, length, s);
	free(p);
	return same;
}

typedef long transfer(int fd, void *p, uint64_t length, uint64_t offset, bool write);

static long by_pread(int fd, void *p, uint64_t length, uint64_t offset, bool write)
{
	return write ? pwrite(fd, p, length, offset) : pread(fd, p, length, offset);
}

static long by_readv(int fd, void *p, uint64_t length, uint64_t offset, bool write)
{
	uint64_t cut = length / 2 & ~4095ull;
	struct iovec iov[2] = {
		{ .iov_base = p, .iov_len = cut },
		{ .iov_base = (char *)p + cut, .iov_len = length - cut },
	};

	return write ? pwritev(fd, iov + !cut, 2 - !cut, offset) :
		       preadv(fd, iov + !cut, 2 - !cut, offset);
}

/*
 * Linux 7.2 ends a task's io-wq workers with its last ring, and forgets a request that the
 * next ring hands over meanwhile (large ones are: NVMe splits them). With a ring that stays
 * they stay too. See docs/troubleshooting.md.
 */
static void keep_a_ring(void)
{
	static struct io_uring ring;

	CHECK_EQ(io_uring_queue_init(4, &ring, 0), 0);
}

static long ring_call(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	long res;

	CHECK_EQ(io_uring_submit(ring), 1);
	CHECK_EQ(io_uring_wait_cqe(ring, &cqe), 0);
	res = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return res;
}

static long by_uring(int fd, void *p, uint64_t length, uint64_t offset, bool write)
{
	struct io_uring ring;
	struct io_uring_sqe *sqe;
	long res;

	CHECK_EQ(io_uring_queue_init(4, &ring, 0), 0);
	sqe = io_uring_get_sqe(&ring);
	if (write)
		io_uring_prep_write(sqe, fd, p, length, offset);
	else
		io_uring_prep_read(sqe, fd, p, length, offset);
	res = ring_call(&ring);
	io_uring_queue_exit(&ring);
	return res;
}

static long by_fixed(int fd, void *p, uint64_t length, uint64_t offset, bool write)
{
	struct iovec iov = { .iov_base = p, .iov_len = length };
	struct io_uring ring;
	struct io_uring_sqe *sqe;
	long res;

	CHECK_EQ(io_uring_queue_init(4, &ring, 0), 0);
	res = io_uring_register_buffers(&ring, &iov, 1);
	if (!res) {
		sqe = io_uring_get_sqe(&ring);
		if (write)
			io_uring_prep_write_fixed(sqe, fd, p, length, offset, 0);
		else
			io_uring_prep_read_fixed(sqe, fd, p, length, offset, 0);
		res = ring_call(&ring);
	}
	io_uring_queue_exit(&ring);
	return res;
}

/*
 * Linux 7.2 ends a bio where the next page belongs to another dev_pagemap, which every
 * contiguous piece of a STAGING registration has. A block device's direct I/O of as many
 * pages as one bio takes is one bio, so it may be short there, and nowhere else.
 */
static bool may_be_short(unsigned int layout, uint64_t length, uint64_t end)
{
	struct utsname name;
	struct stat st;

	CHECK_EQ(uname(&name), 0);
	CHECK_EQ(fstat(file, &st), 0);
	return atoi(name.release) >= 7 && t_is_staging() && S_ISBLK(st.st_mode) &&
	       layout == T_LAYOUT_REVERSED && length <= 1 * MIB && end % (2 * MIB) == 0;
}

static void move_all(transfer *move, const struct t_region *r, unsigned int layout, int fd,
		     uint64_t at, uint64_t length, uint64_t offset, bool write)
{
	uint64_t done = 0, left;

	for (; done < length; done += left) {
		long got = move(fd, (char *)r->p + at + done, length - done, offset + done, write);

		left = length - done;
		if (got > 0 && (uint64_t)got < left &&
		    may_be_short(layout, left, at + done + (uint64_t)got))
			left = (uint64_t)got;
		CHECK_EQ(got, left);
	}
}

/* File to device and back, at an inner offset of the region, with guards on both sides. */
static void round_trip(const struct t_region *r, unsigned int layout, int fd, uint64_t at,
		       uint64_t length, transfer *move)
{
	uint64_t offset = 65536, a = seed++, b = seed++, guard = seed++;

	t_fill_device(r->addr, r->length, guard);
	file_fill(offset, length, a);
	move_all(move, r, layout, fd, at, length, offset, false);
	CHECK(t_device_has(r->addr + at, length, a));
	if (at)
		CHECK(t_device_has(r->addr, at, guard));

	t_fill_device(r->addr + at, length, b);
	file_fill(offset - 65536, 65536, guard);
	file_fill(offset + length, 65536, guard);
	move_all(move, r, layout, fd, at, length, offset, true);
	CHECK(file_has(offset, length, b));
	CHECK(file_has(offset - 65536, 65536, guard));
	CHECK(file_has(offset + length, 65536, guard));
}

static void sizes(transfer *move, int fd, unsigned int layout)
{
	static const uint64_t lengths[] = { 512, 4096, 64 * KIB, 1 * MIB, 4 * MIB + 64 * KIB,
					    16 * MIB };
	uint64_t total = 18 * MIB;
	struct t_region r = t_register(dev_fd, 0, t_alloc(0, total, layout), total);

	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		round_trip(&r, layout, fd, 0, lengths[i], move);
		/* across borders of pages and of 2 MiB blocks */
		round_trip(&r, layout, fd, 2 * MIB - 4096, lengths[i], move);
	}
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

static void direct(void)
{
	sizes(by_pread, file, T_LAYOUT_HUGE);
	if (!t_is_staging())
		sizes(by_pread, file, T_LAYOUT_FRAGMENTED);
}

static void vectors(void)
{
	sizes(by_readv, file, T_LAYOUT_SUBSPANS);
}

static void uring(void)
{
	sizes(by_uring, file, T_LAYOUT_REVERSED);
}

/* What this kernel says to long-term pins of such a mapping; 6.1 refuses all of them. */
static void fixed(void)
{
	struct t_region r = t_register(dev_fd, 0, t_alloc(0, 2 * MIB, T_LAYOUT_HUGE), 2 * MIB);
	long res = by_fixed(file, r.p, 4096, 65536, false);
	bool longterm = t_features(&r) & PHXFS_F_LONGTERM;

	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
	if (res == -EOPNOTSUPP) {
		printf("fixed buffers: not on this kernel\n");
		return;
	}
	CHECK_EQ(longterm, t_parameter("phxfs_sim", "persistent"));
	if (!longterm) {
		CHECK_EQ(res, -EFAULT);
		return;
	}
	sizes(by_fixed, file, T_LAYOUT_HUGE);
}

static void buffered(void)
{
	int fd = open_file(0);
	struct t_region r = t_register(dev_fd, 0, t_alloc(0, 4 * MIB, T_LAYOUT_HUGE), 4 * MIB);
	uint64_t s = seed++;

	/* the page cache must see what went past it */
	file_fill(0, 4 * MIB, s);
	CHECK_EQ(fsync(file), 0);
	CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	CHECK_EQ(pread(fd, r.p, 4 * MIB, 0), 4 * MIB);
	CHECK(t_device_has(r.addr, 4 * MIB, s));
	/* odd sizes and offsets are fine for a buffered descriptor */
	CHECK_EQ(pread(fd, (char *)r.p + 13, 4099, 8), 4099);
	t_fill_device(r.addr, 4 * MIB, ++s);
	CHECK_EQ(pwrite(fd, r.p, 4 * MIB, 0), 4 * MIB);
	CHECK_EQ(fsync(fd), 0);
	CHECK(file_has(0, 4 * MIB, s));
	seed = s + 1;
	close(fd);
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

static uint64_t file_size(void)
{
	struct stat st;
	uint64_t size;

	CHECK_EQ(fstat(file, &st), 0);
	size = st.st_size;
	if (S_ISBLK(st.st_mode))
		CHECK_EQ(ioctl(file, BLKGETSIZE64, &size), 0);
	return size;
}

/* From the smallest registration to everything the device has. */
static void registrations(void)
{
	uint64_t all, length;

	for (length = t_granule(); length <= 32 * MIB; length *= 4) {
		struct t_region r =
			t_register(dev_fd, 0, t_alloc(0, length, T_LAYOUT_HUGE), length);

		round_trip(&r, T_LAYOUT_HUGE, file, length - 4096, 4096, by_pread);
		t_unregister(&r);
		t_free(r.addr);
	}
	all = t_available(0);
	CHECK(all >= 64 * MIB);

	struct t_region r = t_register(dev_fd, 0, t_alloc(0, all, T_LAYOUT_HUGE), all);
	uint64_t half = file_size() / 2 & ~(MIB - 1), got = half < all / 2 ? half : all / 2;

	CHECK_EQ(t_available(0), 0);
	CHECK_EQ(t_counter(0, "pinned_bytes"), all);
	round_trip(&r, T_LAYOUT_HUGE, file, 0, 1 * MIB, by_pread);
	t_fill_device(r.addr + all - got, got, 77);
	CHECK_EQ(pwrite(file, (char *)r.p + all - got, got, 0), got);
	CHECK_EQ(pread(file, r.p, got, 0), got);
	CHECK(t_device_has(r.addr, got, 77));
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

/* Transfers of a region's edges: what lies past it is -EFAULT or short, never corrupt. */
static void edges(void)
{
	uint64_t g = t_granule(), s = seed++;
	struct t_region r = { .fd = dev_fd, .length = g };
	char *end, *room;
	long got;

	/* what follows the mapping is nobody's */
	room = mmap(NULL, g + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(room != MAP_FAILED);
	r.p = mmap(room, g, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, dev_fd, 0);
	CHECK(r.p == room);
	r.addr = t_alloc(0, g, T_LAYOUT_HUGE);
	CHECK_EQ(t_map(&r), 0);
	end = room + g;
	file_fill(0, 64 * KIB, s);
	got = pread(file, end - 4096, 8192, 0);
	CHECK(got == 4096 || got == -1);
	if (got < 0)
		CHECK_EQ(errno, EFAULT);
	CHECK_EQ(pread(file, end - 4096, 4096, 0), 4096);
	CHECK(t_device_has(r.addr + g - 4096, 4096, s));
	CHECK_EQ(t_unmap(&r), 0);
	CHECK(pread(file, r.p, 4096, 0) < 0 && errno == EFAULT);
	CHECK(pwrite(file, r.p, 4096, 0) < 0 && errno == EFAULT);
	munmap(room, g + 4096);
	t_free(r.addr);
	t_expect_idle(0);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "direct", direct },
		{ "vectors", vectors },
		{ "uring", uring },
		{ "fixed", fixed },
		{ "buffered", buffered },
		{ "edges", edges },
		{ "registrations", registrations },
		{ 0 }
	};

	CHECK(argc >= 2);
	keep_a_ring();
	path = argv[1];
	file = open_file(O_DIRECT);
	dev_fd = t_open(0);
	CHECK(file_size() >= SPAN);
	return t_main(argc - 1, argv + 1, cases);
}
