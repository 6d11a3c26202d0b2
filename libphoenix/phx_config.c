// SPDX-License-Identifier: Apache-2.0
/*
 * Settings: one table says each one's name, kind, range, default and help.
 * A value that cannot be understood is not fatal: the default holds, and
 * phxfs_config_each() (so `phx check`) says so.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "phoenix.h"
#include "phx_config.h"
#include "phx_error.h"
#include "phx_init.h"

struct phx_config phx_config;

const char *const phx_connector_names[] = { "nvidia", "metax", "amd", "huawei", "sim", "host",
					    NULL };

static const char *const path_names[] = { "auto", "direct", "staging", "bounce", NULL };
static const char *const engine_names[] = { "auto", "io_uring", "sync", NULL };
static const char *const connector_choices[] = { "auto", "nvidia", "metax", "amd",
						 "huawei", "sim", "host", NULL };
static const char *const log_names[] = { "off", "error", "warn", "info", "debug", NULL };
static const char *const switch_names[] = { "off", "on", NULL };

struct setting {
	const char *name;
	const char *alias;            /* another spelling, or NULL */
	const char *const *choices;   /* NULL: a number */
	int *choice;                  /* where the index into choices goes */
	long *number;                 /* where the number goes */
	long low, high, fallback;     /* of the number, or of the index */
	const char *help;
};

static const struct setting settings[] = {
	{ "PHX_PATH", NULL, path_names, &phx_config.path, NULL, 0, 3, PHX_PATH_AUTO,
	  "force a path: auto, direct (never falls back), staging, bounce" },
	{ "PHX_STAGING_SIZE_MB", NULL, NULL, NULL, &phx_config.staging_size_mb, 1, 65536, 256,
	  "chunk pool of each device, MiB, 1 to 65536" },
	{ "PHX_IO_ENGINE", "PHXFS_IO_ENGINE", engine_names, &phx_config.engine, NULL, 0, 2,
	  PHX_ENGINE_AUTO, "I/O engine: auto, io_uring, sync" },
	{ "PHX_IO_WORKERS", NULL, NULL, NULL, &phx_config.workers, 0, 256, 0,
	  "worker threads, 1 to 256; 0: one for each processor, 2 to 16" },
	{ "PHX_POLL_KB", NULL, NULL, NULL, &phx_config.poll_kb, 0, 512, 0,
	  "look for the end of O_DIRECT transfers of up to that many KiB, 0 to 512, "
	  "which costs a processor; 0: sleep" },
	{ "PHX_CONNECTOR", NULL, connector_choices, &phx_config.connector, NULL, 0, 6, 0,
	  "accelerator runtime: auto, nvidia, metax, amd, huawei, sim, host" },
	{ "PHX_HOST_DEVICES", NULL, NULL, NULL, &phx_config.host_devices, 0, 64, 1,
	  "number of HOST devices, 0 to 64" },
	{ "PHX_STATS", NULL, switch_names, &phx_config.stats, NULL, 0, 1, 1,
	  "live counters for phx stat: on, off" },
	{ "PHX_NVTX", NULL, NULL, NULL, &phx_config.nvtx, 0, 1, 0,
	  "ranges for NVIDIA's profilers: 1 on, 0 off" },
	{ "PHX_LOG", NULL, log_names, &phx_config.log, NULL, 0, 4, PHXFS_LOG_OFF,
	  "log on standard error: off, error, warn, info, debug" },
};

#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

enum source { FROM_DEFAULT, FROM_ENVIRONMENT, INVALID };

static enum source sources[SETTINGS]; /* written once, by phx_config_init() */

static const char *environment(const struct setting *s)
{
	const char *text = secure_getenv(s->name);

	if ((!text || !*text) && s->alias)
		text = secure_getenv(s->alias);
	return text && *text ? text : NULL;
}

static int parse(const struct setting *s, const char *text, long *value)
{
	char *end;

	if (s->choices) {
		for (long i = 0; s->choices[i]; i++) {
			if (!strcasecmp(s->choices[i], text)) {
				*value = i;
				return 0;
			}
		}
		return -EINVAL;
	}
	errno = 0;
	*value = strtol(text, &end, 10);
	if (errno || *end || end == text || *value < s->low || *value > s->high)
		return -EINVAL;
	return 0;
}

static long default_workers(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 2 ? 2 : n > 16 ? 16 : n;
}

void phx_config_init(void)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		const struct setting *s = &settings[i];
		const char *text = environment(s);
		long value = s->fallback;

		sources[i] = FROM_DEFAULT;
		if (text) {
			sources[i] = FROM_ENVIRONMENT;
			if (parse(s, text, &value)) {
				sources[i] = INVALID;
				value = s->fallback;
			}
		}
		if (s->choices)
			*s->choice = (int)value;
		else
			*s->number = value;
	}
	if (phx_config.workers == 0)
		phx_config.workers = default_workers();
}

int phxfs_config_each(int (*fn)(void *arg, const struct phxfs_setting *setting), void *arg)
{
	static const char *const source_names[] = {
		[FROM_DEFAULT] = "default",
		[FROM_ENVIRONMENT] = "environment",
		[INVALID] = "environment, invalid: default used",
	};

	if (!fn)
		return phx_fail(-EINVAL, "config_each", "pass a function", "NULL function");
	phx_init();
	for (size_t i = 0; i < SETTINGS; i++) {
		const struct setting *s = &settings[i];
		struct phxfs_setting out = { .name = s->name, .help = s->help };
		char number[32];
		int stop;

		if (s->choices) {
			out.value = s->choices[*s->choice];
		} else {
			snprintf(number, sizeof(number), "%ld", *s->number);
			out.value = number;
		}
		out.source = source_names[sources[i]];
		stop = fn(arg, &out);
		if (stop)
			return stop;
	}
	return 0;
}
