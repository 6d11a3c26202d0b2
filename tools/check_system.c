// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of the system: kernel, I/O engine, limits.
 */
#include "findings.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Fewer descriptors than this are soon used up by checkpoints of many files. */
#define NOFILE_ENOUGH 1024u

static void check_kernel(struct findings *f)
{
	struct utsname name;

	if (uname(&name))
		return;
	find_add(f, VERDICT_INFO, "system", "kernel", "%s %s %s, %ld processors, page %ld bytes",
		 name.sysname, name.release, name.machine, sysconf(_SC_NPROCESSORS_ONLN),
		 sysconf(_SC_PAGESIZE));
	find_add(f, VERDICT_INFO, "system", "libphoenix", "version %s", phxfs_version());
}

/* Asks the kernel itself. Returns 0, or the errno of making a ring. */
static int try_io_uring(void)
{
	struct io_uring_params params = { 0 };
	long fd = syscall(__NR_io_uring_setup, 1, &params);

	if (fd < 0)
		return errno;
	close((int)fd);
	return 0;
}

static int seccomp_mode(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	int mode = -1;

	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Seccomp: %d", &mode) == 1)
			break;
	fclose(file);
	return mode;
}

/* io_uring cannot be had: say which of its gates is shut. */
static void explain_no_io_uring(struct findings *f, enum verdict verdict, int error)
{
	char name[WORD_MAX], value[16];
	struct finding *x;

	errno_name(name, error);
	if (read_line(value, sizeof(value), "/proc/sys/kernel/io_uring_disabled") &&
	    atoi(value) > 0 && error == EPERM) {
		x = find_add(f, verdict, "engine", "io_uring",
			     "%s: forbidden by kernel.io_uring_disabled = %s", name, value);
		find_cure(x, "sysctl kernel.io_uring_disabled=0%s",
			  value[0] == '1' ? ", or join the group of kernel.io_uring_group" : "");
	} else if (seccomp_mode() > 0) {
		x = find_add(f, verdict, "engine", "io_uring",
			     "%s: forbidden, probably by the seccomp filter in force", name);
		find_cure(x, "allow io_uring_setup, io_uring_enter and io_uring_register in "
			     "the container's seccomp profile");
	} else {
		x = find_add(f, verdict, "engine", "io_uring", "%s: this kernel has none", name);
		find_cure(x, "a kernel of 5.6 or later with CONFIG_IO_URING");
	}
}

static void check_engine(struct findings *f)
{
	const char *engine = phxfs_io_engine_name();
	const char *asked = getenv("PHX_IO_ENGINE");
	bool chosen;
	int error;

	if (!asked)
		asked = getenv("PHXFS_IO_ENGINE");
	chosen = asked && !strcmp(asked, "sync");
	error = try_io_uring();
	if (error)
		explain_no_io_uring(f, chosen ? VERDICT_INFO : VERDICT_WARN, error);
	else
		find_add(f, VERDICT_PASS, "engine", "io_uring", "the kernel offers it");
	if (!strcmp(engine, "io_uring") || chosen)
		find_add(f, VERDICT_PASS, "engine", "in use", "%s", engine);
	else
		find_cure(find_add(f, VERDICT_WARN, "engine", "in use",
				   "%s: one request at a time for each worker", engine),
			  "see the line on io_uring");
}

static const char *limit_word(char *buf, rlim_t limit, bool bytes)
{
	if (limit == RLIM_INFINITY)
		snprintf(buf, WORD_MAX, "unlimited");
	else if (bytes)
		size_word(buf, limit);
	else
		snprintf(buf, WORD_MAX, "%ju", (uintmax_t)limit);
	return buf;
}

/* The chunk pool a device wants, in bytes. */
static uint64_t staging_pool(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	uint64_t most = 0;
	int i, n = phxfs_device_count();

	for (i = 0; i < n; i++)
		if (phxfs_device_info(i, &info) == 0 && info.staging_bytes > most)
			most = info.staging_bytes;
	return most;
}

static void check_memlock(struct findings *f)
{
	char soft[WORD_MAX], need[WORD_MAX];
	uint64_t pool = staging_pool();
	struct rlimit limit;
	struct finding *x;
	bool enough;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	limit_word(soft, limit.rlim_cur, true);
	/* CAP_IPC_LOCK lifts the limit, and root has it */
	enough = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= pool || geteuid() == 0;
	if (enough) {
		x = find_add(f, VERDICT_PASS, "limit", "RLIMIT_MEMLOCK", "%s%s", soft,
			     geteuid() == 0 ? ", does not bind root" : "");
	} else {
		x = find_add(f, VERDICT_WARN, "limit", "RLIMIT_MEMLOCK",
			     "%s, less than the chunk pool of %s: pinning may fail with ENOMEM",
			     soft, size_word(need, pool));
		find_cure(x, "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit");
	}
	json_uint(find_data(x), "soft", limit.rlim_cur);
	json_uint(find_data(x), "hard", limit.rlim_max);
}

static void check_nofile(struct findings *f)
{
	char soft[WORD_MAX], hard[WORD_MAX];
	struct rlimit limit;
	struct finding *x;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit_word(soft, limit.rlim_cur, false);
	limit_word(hard, limit.rlim_max, false);
	if (limit.rlim_cur >= NOFILE_ENOUGH) {
		x = find_add(f, VERDICT_PASS, "limit", "RLIMIT_NOFILE", "%s", soft);
	} else {
		x = find_add(f, VERDICT_WARN, "limit", "RLIMIT_NOFILE",
			     "%s (hard limit %s): files, rings and queues share them", soft, hard);
		find_cure(x, "ulimit -n %u", NOFILE_ENOUGH);
	}
	json_uint(find_data(x), "soft", limit.rlim_cur);
	json_uint(find_data(x), "hard", limit.rlim_max);
}

static void check_seccomp(struct findings *f)
{
	int mode = seccomp_mode();

	if (mode < 0)
		find_add(f, VERDICT_INFO, "limit", "seccomp", "not known");
	else
		find_add(f, VERDICT_INFO, "limit", "seccomp", "%s",
			 mode == 0 ? "no filter" : "a filter is in force");
}

static void check_sysctl(struct findings *f)
{
	char value[16];

	if (read_line(value, sizeof(value), "/proc/sys/kernel/io_uring_disabled"))
		find_add(f, VERDICT_INFO, "limit", "kernel.io_uring_disabled", "%s", value);
	else
		find_add(f, VERDICT_INFO, "limit", "kernel.io_uring_disabled",
			 "this kernel has no such setting");
}

void check_system(struct findings *f)
{
	check_kernel(f);
	check_engine(f);
	check_memlock(f);
	check_nofile(f);
	check_seccomp(f);
	check_sysctl(f);
}
