// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "phx_file.h"
#include "phx_init.h"

static char name[] = "/var/tmp/phx-unit-XXXXXX";

static int start(void **state)
{
	int fd = mkstemp(name);

	setenv("PHX_CONNECTOR", "host", 1);
	phx_init();
	if (fd < 0 || ftruncate(fd, 10000))
		return -1;
	return close(fd);
}

static int end(void **state)
{
	return unlink(name);
}

static void what_is_retried(void **state)
{
	for (unsigned int i = 0; i < 5000; i += 500)
		assert_true(phx_file_retry(-EINTR, i));
	assert_true(phx_file_retry(-EAGAIN, 0));
	assert_true(phx_file_retry(-EAGAIN, 15));
	/* at some time it is believed */
	assert_false(phx_file_retry(-EAGAIN, 100000));
	assert_false(phx_file_retry(-EIO, 0));
	assert_false(phx_file_retry(-EINVAL, 0));
	assert_false(phx_file_retry(-ENOSPC, 0));
}

static void reopening_keeps_what_matters(void **state)
{
	static const int flags[] = { O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_APPEND, O_RDWR | O_SYNC,
				     O_RDWR | O_DSYNC };

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		int fd = open(name, flags[i] | O_DIRECT | O_CLOEXEC);
		struct phx_file file = phx_file(fd, -1);
		int again;

		if (fd < 0)
			skip();
		assert_int_equal(phx_file_reopen(&file), 0);
		again = file.buffered;
		/* 0x8000: O_LARGEFILE, which the kernel adds */
		assert_int_equal(fcntl(again, F_GETFL) & ~0x8000, flags[i]);
		assert_true(fcntl(again, F_GETFD) & FD_CLOEXEC);
		assert_int_equal(phx_file_reopen(&file), 0);
		assert_int_equal(file.buffered, again); /* once */
		phx_file_close(&file);
		assert_int_equal(file.buffered, -1);
		close(fd);
	}
}

static void the_end_is_read_off_the_size(void **state)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC), pipes[2];
	struct phx_file file = phx_file(fd, -1), none = phx_file(-1, -1), end_of_pipe;

	assert_false(phx_file_at_end(&file, 9999));
	assert_true(phx_file_at_end(&file, 10000));
	assert_true(phx_file_at_end(&file, 20000));
	assert_false(phx_file_at_end(&none, 0));
	assert_int_equal(pipe(pipes), 0);
	end_of_pipe = phx_file(pipes[0], -1);
	assert_false(phx_file_at_end(&end_of_pipe, 0));
	close(pipes[0]);
	close(pipes[1]);
	close(fd);
}

static void alignments_are_powers_of_two_and_at_least_a_page(void **state)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC), memory = memfd_create("unit", MFD_CLOEXEC);
	struct phx_file file = phx_file(fd, -1), mem = phx_file(memory, -1);
	struct phx_file none = phx_file(-1, -1);

	assert_true(phx_file_align(&file) >= 4096);
	assert_int_equal(phx_file_align(&file) & (phx_file_align(&file) - 1), 0);
	assert_true(phx_file_align(&mem) >= 4096);
	assert_true(phx_file_align(&none) >= 4096);
	assert_true(phx_file_block(&file) >= 512);
	assert_int_equal(phx_file_flags(&none), 0);
	close(fd);
	close(memory);
}

static void loops_end_at_the_end_and_count_on_failure(void **state)
{
	static char buf[20000];
	int fd = open(name, O_RDWR | O_CLOEXEC);
	struct phx_file file = phx_file(fd, -1), none = phx_file(-1, -1);
	size_t moved = 99;

	assert_int_equal(phx_file_read(&file, false, buf, 20000, 100, &moved), 0);
	assert_int_equal(moved, 9900);
	assert_int_equal(phx_file_read(&none, false, buf, 1, 0, &moved), -EBADF);
	assert_int_equal(moved, 0);
	assert_int_equal(phx_file_write(&none, false, buf, 1, 0, &moved), -EBADF);
	assert_int_equal(phx_file_write(&file, false, buf, 20000, 0, &moved), 0);
	assert_int_equal(moved, 20000);
	assert_int_equal(ftruncate(fd, 10000), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_retried),
		cmocka_unit_test(reopening_keeps_what_matters),
		cmocka_unit_test(the_end_is_read_off_the_size),
		cmocka_unit_test(alignments_are_powers_of_two_and_at_least_a_page),
		cmocka_unit_test(loops_end_at_the_end_and_count_on_failure),
	};

	return cmocka_run_group_tests(tests, start, end);
}
