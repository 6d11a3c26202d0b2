// SPDX-License-Identifier: Apache-2.0
/*
 * The last error of each thread, and the log.
 *
 * The log has one sink: a function and its argument, changed together under
 * sink_lock and called outside of it, so that a sink may take its time. The
 * level is read without the lock: a message may still reach a sink that is
 * being replaced, as documented at phxfs_set_log().
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "phx_error.h"

static _Thread_local char last_error[640];
static _Thread_local unsigned int errors; /* recorded by this thread */
static _Thread_local int last_err;

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static phxfs_log_fn sink;  /* protected by: sink_lock */
static void *sink_arg;     /* protected by: sink_lock */
static bool sink_chosen;   /* by phxfs_set_log(); protected by: sink_lock */
static atomic_int sink_level;

const char *phx_errno_name(int err)
{
	const char *name = strerrorname_np(err < 0 ? -err : err);

	return name ? name : "unknown error";
}

int phx_fail(int err, const char *step, const char *cure, const char *object, ...)
{
	const char *meaning = strerrordesc_np(-err);
	int saved = errno;
	char what[256];
	va_list args;

	va_start(args, object);
	vsnprintf(what, sizeof(what), object, args);
	va_end(args);
	snprintf(last_error, sizeof(last_error), "%s: %s: %s (%s)%s%s", step, what,
		 phx_errno_name(err), meaning ? meaning : "?", cure ? ": " : "", cure ? cure : "");
	errors++;
	last_err = err;
	if (phx_log_wanted(PHXFS_LOG_DEBUG))
		phx_log(PHXFS_LOG_DEBUG, "%s", last_error);
	errno = saved;
	return err;
}

unsigned int phx_error_mark(void)
{
	return errors;
}

bool phx_error_since(unsigned int mark, int err)
{
	return errors != mark && last_err == err;
}

const char *phxfs_last_error(void)
{
	return last_error;
}

bool phx_log_wanted(int level)
{
	return level <= atomic_load_explicit(&sink_level, memory_order_relaxed);
}

void phx_log(int level, const char *format, ...)
{
	int saved = errno;
	char message[768];
	phxfs_log_fn fn;
	va_list args;
	void *arg;

	if (!phx_log_wanted(level))
		return;
	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);

	pthread_mutex_lock(&sink_lock);
	fn = sink;
	arg = sink_arg;
	pthread_mutex_unlock(&sink_lock);
	if (fn)
		fn(arg, level, message);
	errno = saved;
}

int phxfs_set_log(phxfs_log_fn fn, void *arg, int level)
{
	if (level < PHXFS_LOG_OFF || level > PHXFS_LOG_DEBUG)
		return phx_fail(-EINVAL, "set_log", "use a value of enum phxfs_log_level",
				"level %d", level);
	pthread_mutex_lock(&sink_lock);
	sink = fn;
	sink_arg = arg;
	sink_chosen = true;
	atomic_store(&sink_level, fn ? level : PHXFS_LOG_OFF);
	pthread_mutex_unlock(&sink_lock);
	return 0;
}

/* The sink of PHX_LOG: the user asked for it, so it may print. */
static void print_line(void *arg, int level, const char *message)
{
	static const char *const names[] = { "off", "error", "warning", "info", "debug" };

	fprintf(stderr, "phoenix %s: %s\n", names[level], message);
}

void phx_log_init(int level)
{
	pthread_mutex_lock(&sink_lock);
	if (!sink_chosen && level > PHXFS_LOG_OFF) {
		sink = print_line;
		atomic_store(&sink_level, level);
	}
	pthread_mutex_unlock(&sink_lock);
}

void phx_log_fork_prepare(void)
{
	pthread_mutex_lock(&sink_lock);
}

void phx_log_fork_parent(void)
{
	pthread_mutex_unlock(&sink_lock);
}

void phx_log_fork_child(void)
{
	pthread_mutex_unlock(&sink_lock);
}
