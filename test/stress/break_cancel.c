// SPDX-License-Identifier: Apache-2.0
/*
 * A request that the ring tried and failed may have moved bytes: the kernel
 * finds out about alignment extent by extent. It is no longer "unstarted", and
 * cancelling it would say that nothing was moved.
 */
#include <fcntl.h>

#include "stress.h"
#include "io_engine.h"

#define LEN 65536UL

/* What the kernel says after it has moved the first extents. */
static int fail_late(const struct phx_io *io, int result)
{
	return -EINVAL;
}

static void cancel_after_the_ring(void)
{
	int fd = stress_file(LEN, O_RDONLY), user;
	unsigned char *memory = stress_memory(LEN);
	phxfs_io_req_t r = { .fd = fd, .buf = memory, .nbytes = LEN };
	struct phxfs_completion done;
	void *data = &user;
	phxfs_queue_t *q;

	if (strcmp(phxfs_io_engine_name(), "io_uring") != 0)
		stress_skip("no io_uring");
	phx_test_completion = fail_late;
	EQ(phxfs_queue_create(1, &q), 0);
	for (int n = 0; n < 300; n++) {
		int err;

		memset(memory, 0, LEN);
		EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &r, &data, 1), 1);
		stress_sleep_ms(1);
		err = phxfs_queue_cancel(q, data);
		CHECK(err == 0 || err == -EALREADY || err == -ENOENT);
		EQ(phxfs_queue_wait(q, &done, 1, 1, NULL), 1);
		EQ(done.result, err ? (ssize_t)LEN : -ECANCELED);
		for (size_t i = 0; i < LEN; i++)
			CHECK(memory[i] == (err ? stress_byte(i) : 0));
	}
	EQ(phxfs_queue_destroy(q), 0);
}

static const struct stress_case cases[] = {
	{ "cancel_after_the_ring", cancel_after_the_ring, NULL, 60 },
};

STRESS_MAIN(cases)
