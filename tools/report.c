// SPDX-License-Identifier: Apache-2.0
/*
 * Words: sizes, times, errors, JSON and the progress line.
 */
#include "tool.h"

#include <phoenix.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_PERIOD_NS 500000000u

const char *size_word(char *buf, uint64_t bytes)
{
	static const char units[] = "KMGTPE";
	double value = (double)bytes;
	int unit = -1;

	if (bytes < 1024) {
		snprintf(buf, WORD_MAX, "%ju B", (uintmax_t)bytes);
		return buf;
	}
	while (value >= 1024) {
		value /= 1024;
		unit++;
	}
	snprintf(buf, WORD_MAX, value == (double)(uint64_t)value ? "%.0f %ciB" : "%.2f %ciB",
		 value, units[unit]);
	return buf;
}

const char *time_word(char *buf, double ns)
{
	if (ns < 1e3)
		snprintf(buf, WORD_MAX, "%.0f ns", ns);
	else if (ns < 1e6)
		snprintf(buf, WORD_MAX, "%.1f us", ns / 1e3);
	else if (ns < 1e9)
		snprintf(buf, WORD_MAX, "%.2f ms", ns / 1e6);
	else
		snprintf(buf, WORD_MAX, "%.2f s", ns / 1e9);
	return buf;
}

const char *errno_name(char *buf, int error)
{
	const char *name = strerrorname_np(error);

	if (name)
		snprintf(buf, WORD_MAX, "%s", name);
	else
		snprintf(buf, WORD_MAX, "errno %d", error);
	return buf;
}

int failed(const struct subcommand *cmd, const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "phx %s: ", cmd->name);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	return EXIT_FAILED;
}

int failed_call(const struct subcommand *cmd, int error, const char *format, ...)
{
	const char *text = phxfs_last_error();
	va_list ap;

	fprintf(stderr, "phx %s: ", cmd->name);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fprintf(stderr, ": %s\n", *text ? text : strerror(error < 0 ? -error : error));
	return EXIT_FAILED;
}

void json_uint(cJSON *object, const char *name, uint64_t value)
{
	char digits[WORD_MAX];

	snprintf(digits, sizeof(digits), "%ju", (uintmax_t)value);
	cJSON_AddRawToObject(object, name, digits);
}

bool json_print(cJSON *object)
{
	char *text = cJSON_PrintUnformatted(object);
	bool ok = text && puts(text) >= 0 && fflush(stdout) == 0;

	free(text);
	cJSON_Delete(object);
	return ok;
}

static const char *name_of(const char *const *names, int n, int value)
{
	return value >= 0 && value < n ? names[value] : "unknown";
}

const char *mode_name(int mode)
{
	static const char *const names[] = {
		[PHXFS_MODE_FULL] = "full",
		[PHXFS_MODE_STAGING] = "staging",
		[PHXFS_MODE_BOUNCE] = "bounce",
		[PHXFS_MODE_HOST] = "host",
	};

	return name_of(names, sizeof(names) / sizeof(*names), mode);
}

const char *path_name(int path)
{
	static const char *const names[PHXFS_PATHS] = {
		[PHXFS_PATH_DIRECT] = "direct",
		[PHXFS_PATH_STAGING] = "staging",
		[PHXFS_PATH_BOUNCE] = "bounce",
		[PHXFS_PATH_EDGE] = "edge",
	};

	return name_of(names, PHXFS_PATHS, path);
}

const char *reason_name(int reason)
{
	static const char *const names[] = {
		[PHXFS_REASON_NONE] = "none",
		[PHXFS_REASON_FORCED] = "forced",
		[PHXFS_REASON_EDGES] = "edges",
		[PHXFS_REASON_INCONGRUENT] = "incongruent",
		[PHXFS_REASON_BUFFERED_FD] = "buffered-fd",
		[PHXFS_REASON_STAGING_MODE] = "staging-mode",
		[PHXFS_REASON_NO_MODULE] = "no-module",
	};

	return name_of(names, sizeof(names) / sizeof(*names), reason);
}

void progress_start(struct progress *p)
{
	*p = (struct progress){ .on = isatty(STDERR_FILENO), .start_ns = now_ns() };
	p->last_ns = p->start_ns;
}

void progress_update(struct progress *p, uint64_t bytes, uint64_t total)
{
	char done[WORD_MAX], all[WORD_MAX] = "";
	uint64_t now;
	double rate;

	if (!p->on)
		return;
	now = now_ns();
	if (now - p->last_ns < PROGRESS_PERIOD_NS)
		return;
	rate = (double)(bytes - p->last_bytes) / (double)(now - p->last_ns) * 1e9 / (1u << 30);
	p->last_ns = now;
	p->last_bytes = bytes;
	p->drawn = true;
	if (total)
		fprintf(stderr, "\r%5.1f %%  %s of %s  %.2f GiB/s  %.0f s\033[K",
			100.0 * (double)bytes / (double)total, size_word(done, bytes),
			size_word(all, total), rate, (double)(now - p->start_ns) / 1e9);
	else
		fprintf(stderr, "\r%s  %.2f GiB/s  %.0f s\033[K", size_word(done, bytes), rate,
			(double)(now - p->start_ns) / 1e9);
}

void progress_end(struct progress *p)
{
	if (p->drawn)
		fputs("\r\033[K", stderr);
	p->drawn = false;
}
