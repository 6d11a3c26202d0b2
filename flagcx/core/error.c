// SPDX-License-Identifier: Apache-2.0
/*
 * Last error of each thread, and the log. Both are silent by default; the log
 * goes to the caller's function, or to standard error where FLAGCX_DEBUG asks.
 *
 * Lock: log_lock guards the sink. It is held while the sink runs, so that
 * flagcxP2pSetLog() returning means that the old one is not running any more.
 */
#include "common.h"
#include "flagcx_p2p.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static _Thread_local char last_error[512];

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*log_fn)(void *arg, int level, const char *line); /* log_lock */
static void *log_arg;                                          /* log_lock */
static _Atomic int log_level = -1; /* -1: FLAGCX_DEBUG not looked at yet */

const char *flagcxP2pLastError(void)
{
	return last_error;
}

const char *p2p_errno_name(int err)
{
	const char *name = strerrorname_np(err < 0 ? -err : err);

	return name ? name : "E?";
}

int p2p_fail(int err, const char *fmt, ...)
{
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(last_error, sizeof(last_error), "%s: %s (%s)", text, p2p_errno_name(err),
		 strerrordesc_np(-err) ? strerrordesc_np(-err) : "unknown error");
	return err;
}

static void log_to_stderr(void *arg, int level, const char *line)
{
	fprintf(stderr, "flagcx %s: %s\n", level == P2P_LOG_WARN ? "warn" : "info", line);
}

static void log_init(void)
{
	const char *env = getenv("FLAGCX_DEBUG");
	int level = 0;

	if (env && !strcasecmp(env, "WARN"))
		level = P2P_LOG_WARN;
	else if (env && (!strcasecmp(env, "INFO") || !strcasecmp(env, "TRACE")))
		level = P2P_LOG_INFO;
	pthread_mutex_lock(&log_lock);
	if (atomic_load(&log_level) < 0) {
		if (level)
			log_fn = log_to_stderr;
		atomic_store(&log_level, level);
	}
	pthread_mutex_unlock(&log_lock);
}

void flagcxP2pSetLog(void (*fn)(void *arg, int level, const char *line), void *arg, int level)
{
	pthread_mutex_lock(&log_lock);
	log_fn = fn;
	log_arg = arg;
	atomic_store(&log_level, fn ? level : 0);
	pthread_mutex_unlock(&log_lock);
}

bool p2p_log_wanted(int level)
{
	if (atomic_load_explicit(&log_level, memory_order_relaxed) < 0)
		log_init();
	return level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void p2p_log_write(int level, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&log_lock);
	if (log_fn)
		log_fn(log_arg, level, line);
	pthread_mutex_unlock(&log_lock);
}
