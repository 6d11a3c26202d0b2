// SPDX-License-Identifier: GPL-2.0-only
/*
 * A second vendor (phxfs-testdev.ko) beside the first, on device DEV: its own page sizes,
 * and parts of its BAR that its driver holds with other cache types.
 * Usage: test_second DISK DEV CASE...
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define BASE	0x7e5700000000ull
#define BLOCK	(2 * MIB)

static int fd, disk, dev;

static int try_map(uint64_t offset, uint64_t length)
{
	struct t_region r = { .fd = fd, .dev = dev, .addr = BASE + offset, .length = length };
	int err;

	r.p = t_mmap(fd, length);
	CHECK(r.p);
	err = t_map(&r);
	CHECK_EQ(munmap(r.p, length), 0);
	t_expect_counter(dev, "pinned_bytes", 0);
	return err;
}

static void round_trip(uint64_t offset, uint64_t length)
{
	struct t_region r = t_register(fd, dev, BASE + offset, length);
	char *p = t_aligned(length);

	t_fill_host(p, length, offset + length);
	CHECK_EQ(pwrite(disk, p, length, 0), length);
	CHECK_EQ(pread(disk, r.p, length, 0), length);
	CHECK(t_host_has(r.p, length, offset + length));
	free(p);
	t_unregister(&r);
}

static void page_sizes(void)
{
	static const char *const sizes[] = { "4096", "65536", "2097152" };
	struct phxfs_ioctl_query q = { .size = sizeof(q) };

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	CHECK(!strcmp(q.backend, "testdev"));
	for (int i = 0; i < 3; i++) {
		t_set_parameter("phxfs_testdev", "page_size", sizes[i]);
		round_trip(8 * BLOCK, BLOCK);
		round_trip(8 * BLOCK, 3 * BLOCK);
		if (t_is_staging())
			continue;
		round_trip(0, 64 * KIB);
		round_trip(3 * 64 * KIB, 64 * KIB);
		round_trip(BLOCK - 64 * KIB, 128 * KIB);
	}
	t_set_parameter("phxfs_testdev", "page_size", "65536");
	t_set_parameter("phxfs_testdev", "short_table", "Y");
	CHECK_EQ(try_map(0, BLOCK), -EIO);
	t_set_parameter("phxfs_testdev", "short_table", "N");
	CHECK_EQ(try_map(q.window_size, BLOCK), -EINVAL);
	CHECK_EQ(try_map(q.window_size - BLOCK, BLOCK), 0);
	t_expect_idle(dev);
}

/*
 * The second block is held write-combining, the fourth uncached: that can be mapped, block
 * by block. The sixth is held both ways: that cannot, and the rest does not suffer.
 */
static void conflicts(void)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	long long mapped = t_counter(dev, "mapped_bytes");

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	round_trip(8 * BLOCK, 4 * BLOCK);
	round_trip(BLOCK, BLOCK);
	round_trip(3 * BLOCK, BLOCK);
	CHECK_EQ(try_map(5 * BLOCK, BLOCK), -ENXIO);
	CHECK_EQ(try_map(4 * BLOCK, 4 * BLOCK), -ENXIO);
	if (t_is_staging()) {
		CHECK_EQ(mapped, 0);
		/* one piece over both types cannot be had */
		CHECK_EQ(try_map(0, 4 * BLOCK), -ENXIO);
	} else {
		CHECK_EQ(mapped, q.window_size - BLOCK);
		round_trip(0, 4 * BLOCK);
	}
	round_trip(8 * BLOCK, 4 * BLOCK);
	t_expect_idle(dev);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "page-sizes", page_sizes },
		{ "conflicts", conflicts },
		{ 0 }
	};

	CHECK(argc >= 4);
	disk = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	CHECK(disk >= 0);
	dev = atoi(argv[2]);
	fd = t_open(dev);
	return t_main(argc - 2, argv + 2, cases);
}
