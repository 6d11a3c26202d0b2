// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "io_engine.h"
#include "io_poll.h"
#include "phx_init.h"
#include "thread_ring.h"

#define SIZE (256UL << 10)

static char name[4096]; /* on a disk: O_DIRECT */
static char *buf;
static int direct = -1, buffered = -1;
static int completions;    /* of the ring */
static const int *results; /* what the next ones are made to be; 0 ends them */

static int see(const struct phx_io *io, int result)
{
	completions++;
	if (!results || !*results)
		return result;
	/* what the ring did not move is not there */
	if (!io->write && (*results < 0 || *results < result))
		memset((char *)io->addr + io->moved + (*results > 0 ? *results : 0), 0,
		       io->len - io->moved - (size_t)(*results > 0 ? *results : 0));
	return *results++;
}

static char content(off_t off)
{
	return (char)(off * 7 + off / 4096);
}

static int start(void **state)
{
	const char *dir = getenv("TMPDIR");
	int fd;

	snprintf(name, sizeof(name), "%s/phx-unit-XXXXXX", dir ? dir : "/var/tmp");
	fd = mkstemp(name);
	setenv("PHX_CONNECTOR", "host", 1);
	phx_init();
	buf = aligned_alloc(4096, SIZE);
	if (fd < 0 || !buf)
		return -1;
	for (off_t i = 0; i < (off_t)SIZE; i++)
		buf[i] = content(i);
	if (pwrite(fd, buf, SIZE, 0) != (ssize_t)SIZE || fsync(fd))
		return -1;
	buffered = fd;
	direct = open(name, O_RDWR | O_DIRECT | O_CLOEXEC);
	phx_test_completion = see;
	return 0;
}

static int end(void **state)
{
	phx_test_completion = NULL;
	close(direct);
	close(buffered);
	free(buf);
	return unlink(name);
}

/* Nothing moved yet, and up to @kb KiB polled for. */
static void set(long kb)
{
	phx_config.poll_kb = kb;
	completions = 0;
	results = NULL;
	memset(buf, 0, SIZE);
}

static int get(int fd, size_t len, off_t off, size_t *moved)
{
	struct phx_file file = phx_file(fd, -1);

	file.poll = true;
	return phx_poll_read(&file, buf, len, off, moved);
}

static void is_content(size_t len, off_t off)
{
	for (size_t i = 0; i < len; i++)
		assert_int_equal(buf[i], content(off + (off_t)i));
}

static void needs_ring_and_direct(void)
{
	if (direct < 0 || phx_engine() != &phx_engine_io_uring)
		skip();
}

static void only_what_is_small_and_direct_is_polled_for(void **state)
{
	static const struct {
		long kb;
		size_t len;
		int polled;
	} cases[] = { { 0, 4096, 0 },     { 0, 0, 0 },        { 4, 4096, 1 },   { 4, 8192, 0 },
		      { 512, 65536, 1 }, { 512, SIZE, 1 }, { 512, 0, 0 } };
	struct phx_file file;
	size_t moved;

	needs_ring_and_direct();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set(cases[i].kb);
		assert_int_equal(get(direct, cases[i].len, 0, &moved), 0);
		assert_int_equal(moved, cases[i].len);
		is_content(moved, 0);
		assert_int_equal(completions, cases[i].polled);
	}
	set(512);
	assert_int_equal(get(buffered, 4096, 4096, &moved), 0);
	assert_int_equal(completions, 0);
	is_content(4096, 4096);
	file = phx_file(direct, -1); /* a worker's */
	assert_int_equal(phx_poll_read(&file, buf, 4096, 0, &moved), 0);
	assert_int_equal(completions, 0);
}

static void writes_are_polled_for_too(void **state)
{
	struct phx_file file = phx_file(direct, -1);
	size_t moved;

	needs_ring_and_direct();
	file.poll = true;
	set(64);
	memset(buf, 'w', 8192);
	assert_int_equal(phx_poll_write(&file, buf, 8192, 8192, &moved), 0);
	assert_int_equal(moved, 8192);
	assert_int_equal(completions, 1);
	memset(buf, 0, SIZE);
	assert_int_equal(pread(buffered, buf, 16384, 4096), 16384);
	assert_int_equal(buf[4095], content(8191));
	for (int i = 4096; i < 12288; i++)
		assert_int_equal(buf[i], 'w');
	assert_int_equal(buf[12288], content(16384));
	for (off_t i = 8192; i < 16384; i++)
		buf[i - 8192] = content(i);
	assert_int_equal(phx_poll_write(&file, buf, 8192, 8192, &moved), 0);
}

/* Whatever the ring says is wrong: the system call has the last word. */
static void what_the_ring_does_not_do_the_call_does(void **state)
{
	static const int refused[] = { -EINVAL, 0 }, lost[] = { -EIO, 0 };
	static const int later[] = { 4096, -EINVAL, 0 };
	static const int *const cases[] = { refused, lost, later };
	size_t moved;

	needs_ring_and_direct();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		set(64);
		results = cases[i];
		assert_int_equal(get(direct, 8192, 4096, &moved), 0);
		assert_int_equal(moved, 8192);
		assert_int_equal(completions, 1 + (cases[i] == later));
		is_content(8192, 4096);
	}
}

static void the_ring_goes_on_by_itself(void **state)
{
	static const int again[] = { -EAGAIN, -EINTR, 0 }, little[] = { 4096, 0 };
	size_t moved;

	needs_ring_and_direct();
	set(64);
	results = again;
	assert_int_equal(get(direct, 4096, 4096, &moved), 0);
	assert_int_equal(completions, 3);
	is_content(4096, 4096);
	set(64);
	results = little;
	assert_int_equal(get(direct, 8192, 0, &moved), 0);
	assert_int_equal(moved, 8192);
	assert_int_equal(completions, 2);
	is_content(8192, 0);
	set(64);
	assert_int_equal(get(direct, 4096, SIZE, &moved), 0);
	assert_int_equal(moved, 0); /* the end of the file */
}

static void a_thread_without_a_ring_calls(void **state)
{
	size_t moved;

	needs_ring_and_direct();
	set(64);
	assert_non_null(phx_thread_ring_take());
	phx_thread_ring_drop();
	assert_null(phx_thread_ring_take());
	assert_int_equal(get(direct, 4096, 0, &moved), 0);
	assert_int_equal(completions, 0);
	is_content(4096, 0);
}

static void a_ring_in_use_is_left_alone(void **state)
{
	size_t moved;

	needs_ring_and_direct();
	set(64);
	assert_non_null(phx_thread_ring_take());
	assert_null(phx_thread_ring_take());
	assert_int_equal(get(direct, 4096, 0, &moved), 0);
	assert_int_equal(completions, 0);
	is_content(4096, 0);
	phx_thread_ring_give();
	assert_int_equal(get(direct, 4096, 0, &moved), 0);
	assert_int_equal(completions, 1);
}

static void whole_transfers_use_it(void **state)
{
	needs_ring_and_direct();
	set(8);
	assert_int_equal(phxfs_read(direct, -1, buf, 0, 8192, 4096), 8192);
	assert_int_equal(completions, 1);
	is_content(8192, 4096);
	set(8);
	assert_int_equal(phxfs_read(direct, -1, buf, 0, 16384, 0), 16384);
	assert_int_equal(completions, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_what_is_small_and_direct_is_polled_for),
		cmocka_unit_test(writes_are_polled_for_too),
		cmocka_unit_test(what_the_ring_does_not_do_the_call_does),
		cmocka_unit_test(the_ring_goes_on_by_itself),
		cmocka_unit_test(a_ring_in_use_is_left_alone),
		cmocka_unit_test(whole_transfers_use_it),
		cmocka_unit_test(a_thread_without_a_ring_calls), /* last: it is so from then on */
	};

	return cmocka_run_group_tests(tests, start, end);
}
