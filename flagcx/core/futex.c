// SPDX-License-Identifier: Apache-2.0
/* Waiting for a word of memory to change, with a deadline. */
#include "common.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

int p2p_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline_ns / 1000000000ull),
		.tv_nsec = (long)(deadline_ns % 1000000000ull),
	};
	/* WAIT_BITSET takes an absolute time, so that EINTR does not prolong it */
	long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen,
			  deadline_ns ? &ts : NULL, NULL, FUTEX_BITSET_MATCH_ANY);

	return rc < 0 && errno == ETIMEDOUT ? -ETIMEDOUT : 0;
}

void p2p_futex_wake_all(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}
