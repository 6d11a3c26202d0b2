// SPDX-License-Identifier: Apache-2.0
/* How transfers are cut into slices, and what their results add up to. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "phx_init.h"
#include "phx_job.h"

static int start(void **state)
{
	setenv("PHX_CONNECTOR", "host", 1);
	setenv("PHX_STAGING_SIZE_MB", "8", 1);
	phx_init();
	return 0;
}

static struct phx_xfer transfer(int path, size_t len, off_t off)
{
	static char place[1];

	return (struct phx_xfer){ .fd = -1, .device_id = -1, .path = path, .flags = 0,
				  .addr = place, .io = place, .len = len, .off = off,
				  .stop_at = SIZE_MAX };
}

static void done(struct phx_job *job)
{
}

static void slices_cover_each_transfer_without_a_gap(void **state)
{
	static const size_t lens[] = { 0, 1, 65536, 1 << 20, (4 << 20) + 1, 50 << 20 };
	static const off_t offs[] = { 0, 1, 4095, 65536, (4 << 20) - 1 };

	for (int path = 0; path < 3; path++) {
		for (size_t i = 0; i < 6 * 5; i++) {
			struct phx_xfer x = transfer(path, lens[i / 5], offs[i % 5]);
			ssize_t result = 0;
			struct phx_job job;
			size_t at = 0;

			assert_int_equal(phx_job_init(&job, &x, &result, 1, done), 0);
			for (size_t k = 0; k < job.slice_count; k++) {
				struct phx_slice *s = &job.slices[k];

				assert_int_equal(s->at, at);
				at += s->len;
				/* all but the first begin on a block of the file */
				if (k)
					assert_int_equal((x.off + (off_t)s->at) % 4096, 0);
				if (path != PHXFS_PATH_DIRECT)
					assert_true(s->len <= PHX_CHUNK_MAX + PHX_CHUNK_MAX / 2);
			}
			assert_int_equal(at, x.len);
			phx_job_free(&job);
		}
	}
}

static void a_length_beyond_reason_needs_no_memory_beyond_reason(void **state)
{
	struct phx_xfer x = transfer(PHXFS_PATH_BOUNCE, (size_t)1 << 60, 0);
	ssize_t result = 0;
	struct phx_job job;

	assert_int_equal(phx_job_init(&job, &x, &result, 1, done), 0);
	assert_true(job.slice_count < 1000000);
	phx_job_free(&job);
}

static void what_was_not_resolved_is_left_out(void **state)
{
	struct phx_xfer x[3];
	ssize_t results[3] = { 0, -EFAULT, 0 };
	struct phx_job job;

	for (int i = 0; i < 3; i++)
		x[i] = transfer(PHXFS_PATH_DIRECT, 1000, i * 1000);
	assert_int_equal(phx_job_init(&job, x, results, 3, done), 0);
	assert_int_equal(job.slice_count, 2);
	assert_ptr_equal(job.slices[0].x, &x[0]);
	assert_ptr_equal(job.slices[1].x, &x[2]);
	phx_job_free(&job);
}

static void appends_come_last_and_in_order(void **state)
{
	struct phx_xfer x[6];
	ssize_t results[6] = { 0 };
	struct phx_job job;

	for (int i = 0; i < 6; i++) {
		x[i] = transfer(PHXFS_PATH_DIRECT, 1 << 20, 0);
		x[i].write = true;
		x[i].fd = 100 + i; /* not asked: the flags are given */
		x[i].flags = i % 2 ? O_WRONLY | O_APPEND : O_WRONLY;
	}
	assert_int_equal(phx_job_init(&job, x, results, 6, done), 0);
	assert_int_equal(job.slice_count - job.ordered, 3);
	for (size_t k = 0; k < 3; k++) {
		assert_ptr_equal(job.slices[job.ordered + k].x, &x[2 * k + 1]);
		assert_int_equal(job.slices[job.ordered + k].len, 1 << 20);
	}
	phx_job_free(&job);
}

/* Each slice's moved and err in turn; what the transfer's result must be. */
static ssize_t outcome(const size_t *moved, const int *err, size_t n)
{
	struct phx_xfer x = transfer(PHXFS_PATH_BOUNCE, n << 20, 0);
	ssize_t result = 0;
	struct phx_job job;

	assert_int_equal(phx_job_init(&job, &x, &result, 1, done), 0);
	assert_int_equal(job.slice_count, n);
	for (size_t k = 0; k < n; k++) {
		assert_int_equal(job.slices[k].len, 1 << 20);
		job.slices[k].moved = moved[k];
		job.slices[k].err = err[k];
	}
	phx_job_finish(&job, n);
	phx_job_free(&job);
	return result;
}

static void a_result_is_what_moved_without_a_gap(void **state)
{
	enum { M = 1 << 20, N = 8 };
	static const size_t all[N] = { M, M, M, M, M, M, M, M };
	static const size_t end[N] = { M, M, 5, 0, 0, 0, 0, 0 };
	static const size_t hole[N] = { M, 7, M, M, M, M, M, M };
	static const size_t none[N] = { 0, M, M, M, M, M, M, M };
	static const int fine[N] = { 0 }, second[N] = { 0, -EIO, 0 };
	static const int first[N] = { -EIO, 0, -ENOSPC };

	assert_int_equal(outcome(all, fine, N), N * M);
	assert_int_equal(outcome(end, fine, N), 2 * M + 5);
	assert_int_equal(outcome(hole, second, N), M + 7);
	assert_int_equal(outcome(none, first, N), -EIO);
	assert_int_equal(outcome(none, fine, N), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_cover_each_transfer_without_a_gap),
		cmocka_unit_test(a_length_beyond_reason_needs_no_memory_beyond_reason),
		cmocka_unit_test(what_was_not_resolved_is_left_out),
		cmocka_unit_test(appends_come_last_and_in_order),
		cmocka_unit_test(a_result_is_what_moved_without_a_gap),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
