// SPDX-License-Identifier: Apache-2.0
/* Choosing the engine. A new engine: its file, and its line here. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "phoenix.h"
#include "io_engine.h"
#include "../phx_config.h"
#include "../phx_error.h"
#include "../phx_init.h"

/* In order of preference; the last always works. */
static const struct phx_engine_ops *const engines[] = { &phx_engine_io_uring, &phx_engine_sync };

#define ENGINES (sizeof(engines) / sizeof(engines[0]))

static const struct phx_engine_ops *chosen; /* written once, in choose() */

static void choose(void)
{
	size_t first = phx_config.engine == PHX_ENGINE_SYNC ? ENGINES - 1 : 0;

	for (size_t i = first; i < ENGINES; i++) {
		int err = engines[i]->probe();

		if (!err) {
			chosen = engines[i];
			return;
		}
		phx_log(PHXFS_LOG_WARN, "I/O engine %s cannot be used (%s): using %s%s",
			engines[i]->name, phx_errno_name(err), engines[i + 1]->name,
			err == -EPERM || err == -ENOSYS ?
				"; seccomp or /proc/sys/kernel/io_uring_disabled forbids it" : "");
	}
	chosen = engines[ENGINES - 1];
}

const struct phx_engine_ops *phx_engine(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	phx_init();
	pthread_once(&once, choose);
	return chosen;
}

int phx_engine_create(unsigned int depth, enum phx_engine_use use,
		      const struct phx_engine_ops **ops, struct phx_engine **out)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	int err;

	*ops = phx_engine();
	err = (*ops)->create(depth, use, out);
	if (err && *ops != engines[ENGINES - 1]) {
		phx_log_once(&warned, PHXFS_LOG_WARN,
			     "an %s ring cannot be made (%s): %s stands in for it", (*ops)->name,
			     phx_errno_name(err), engines[ENGINES - 1]->name);
		*ops = engines[ENGINES - 1];
		err = (*ops)->create(depth, use, out);
	}
	return err;
}

const char *phxfs_io_engine_name(void)
{
	return phx_engine()->name;
}
