/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the software accelerator share. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "phxsim-client.h"
#include "phxsim-uapi.h"
#include "runtime/phxsim.h"

#define KIB	1024ull
#define MIB	(1024 * KIB)
#define PAGE	((uint64_t)PHXSIM_PAGE_SIZE)
#define HUGE	((uint64_t)PHXSIM_HUGE_SIZE)

#define SUM0	0xcbf29ce484222325ull

/* A value of /sys/class/misc/phxsimN/. */
static inline long long sim_sysfs(int dev, const char *name)
{
	long long value = -1;
	char path[96];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/misc/phxsim%d/%s", dev, name);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lld", &value), 1);
	fclose(f);
	return value;
}

static inline void *sim_alloc(int dev, size_t size, unsigned int layout)
{
	void *p = NULL;

	assert_int_equal(phxsim_mem_alloc(dev, size, layout, &p), 0);
	return p;
}

/* --- the pin API, through phxsim-client.ko ----------------------------------- */

static inline int client_open(void)
{
	int fd = open("/dev/phxsim-client", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static inline int client_pin(int fd, const void *p, uint64_t len, uint32_t flags,
			     struct phxsim_client_pin *out)
{
	*out = (struct phxsim_client_pin){ .len = len, .flags = flags };
	out->va = (uintptr_t)p;
	return ioctl(fd, PHXSIM_CLIENT_PIN, out) < 0 ? -errno : 0;
}

static inline int client_unpin(int fd, uint32_t handle)
{
	return ioctl(fd, PHXSIM_CLIENT_UNPIN, &handle) < 0 ? -errno : 0;
}

static inline struct phxsim_client_state client_state(int fd, uint32_t handle, uint32_t index)
{
	struct phxsim_client_state s = { .handle = handle, .index = index };

	assert_int_equal(ioctl(fd, PHXSIM_CLIENT_STATE, &s), 0);
	return s;
}

/* Runs fn in a child and returns its exit status. */
static inline int in_child(int (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(fn(arg));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
