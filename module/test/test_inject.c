// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every step of every call that can fail, fails once: the call reports it, nothing stays
 * behind, and the next try works. The module counts the steps (parameter inject).
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t addr, length;
static bool retry;

static void arm(int n)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", n);
	t_set_parameter("phxfs", "inject", text);
}

/* open, mmap, MAP; 0 or the errno of what failed */
static int whole_way(void)
{
	struct t_region r = { .addr = addr, .length = length };
	int err = 0;

	r.fd = open("/dev/" PHXFS_DEV_PREFIX "0", O_RDWR | O_CLOEXEC);
	if (r.fd < 0)
		return -errno;
	r.p = t_mmap(r.fd, length);
	if (!r.p) {
		err = -errno;
	} else {
		err = t_map(&r);
		if (err)
			CHECK_EQ(t_state(&r), PHXFS_REGION_EMPTY);
		/* the same mapping can be tried again */
		if (err && retry) {
			CHECK_EQ(t_map(&r), 0);
			CHECK_EQ(t_unmap(&r), 0);
		}
		CHECK_EQ(munmap(r.p, length), 0);
	}
	close(r.fd);
	return err;
}

static void walk(unsigned int layout, int least)
{
	int n = 0, survived = 0, err;

	addr = t_alloc(0, length, layout);
	do {
		arm(++n);
		err = whole_way();
		if (err)
			CHECK_EQ(err, -ENOMEM);
		else
			survived += t_parameter("phxfs", "inject") == 0;
		t_expect_idle(0);
	} while (t_parameter("phxfs", "inject") == 0);
	arm(0);
	printf("%d steps, %d of them survived\n", n - 1, survived);
	/* that huge pages cannot be pinned is no error, and is asked once only */
	CHECK(survived <= 1);
	CHECK(n > least);
	t_free(addr);
}

static void one_piece(void)
{
	length = 4 * MIB;
	/* nothing succeeds before the last step, so that each is the device's first */
	walk(T_LAYOUT_HUGE, 7);
	retry = true;
	walk(T_LAYOUT_HUGE, 7);
}

static void pieces(void)
{
	length = 8 * MIB;
	retry = true;
	walk(T_LAYOUT_SUBSPANS, 9);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "one-piece", one_piece },
		{ "pieces", pieces },
		{ 0 }
	};

	return t_main(argc, argv, cases);
}
