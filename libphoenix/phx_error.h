/* SPDX-License-Identifier: Apache-2.0 */
/* What failed, for this thread; and the log. Nothing here changes errno. */
#ifndef PHX_ERROR_H
#define PHX_ERROR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "phoenix.h"

/*
 * Record "STEP: OBJECT: NAME (meaning): CURE" as this thread's last error and
 * return @err (a negative errno). @cure may be NULL.
 */
int phx_fail(int err, const char *step, const char *cure, const char *object, ...)
	__attribute__((format(printf, 4, 5), cold));

/*
 * To keep a lower layer's better text: take a mark, and later ask whether this
 * thread has recorded @err since.
 */
unsigned int phx_error_mark(void);
bool phx_error_since(unsigned int mark, int err);

/* "ENOENT" for ENOENT or -ENOENT. */
const char *phx_errno_name(int err);

bool phx_log_wanted(int level);
void phx_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Log @... once for each @flag, a static atomic_flag: one warning per cause. */
#define phx_log_once(flag, level, ...)                            \
	do {                                                      \
		if (!atomic_flag_test_and_set(flag))              \
			phx_log(level, __VA_ARGS__);              \
	} while (0)

/* Start the log as PHX_LOG asks; called once, from phx_init(). */
void phx_log_init(int level);

void phx_log_fork_prepare(void);
void phx_log_fork_parent(void);
void phx_log_fork_child(void);

#endif
