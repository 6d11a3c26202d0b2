// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "thread_ring.h"

static const char *release; /* of the kernel that this program is told of */

int __wrap_uname(struct utsname *name);
int __wrap_uname(struct utsname *name)
{
	memset(name, 0, sizeof(*name));
	snprintf(name->release, sizeof(name->release), "%s", release);
	return 0;
}

static int rings(void)
{
	DIR *dir = opendir("/proc/self/fd");
	char path[300], to[64];
	struct dirent *entry;
	int n = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		ssize_t length;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		length = readlink(path, to, sizeof(to) - 1);
		if (length < 0)
			continue;
		to[length] = 0;
		n += strstr(to, "io_uring") != NULL;
	}
	closedir(dir);
	return n;
}

/* The version is asked for once in a process, so each gets one of its own. */
static int rings_kept_on(const char *version)
{
	int status;
	pid_t child;

	child = fork();
	assert_true(child >= 0);
	if (!child) {
		release = version;
		phx_thread_ring_keep();
		phx_thread_ring_keep();
		_exit(rings());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void kept_where_the_kernel_loses_requests(void **state)
{
	(void)state;
	if (phx_engine() != &phx_engine_io_uring)
		skip();
	assert_int_equal(rings_kept_on("6.1.0-18-amd64"), 0);
	assert_int_equal(rings_kept_on("6.12.95+deb12-amd64"), 0);
	assert_int_equal(rings_kept_on("6.17.0"), 0);
	assert_int_equal(rings_kept_on("6.18.11-generic"), 1);
	assert_int_equal(rings_kept_on("7.2.13+deb14-amd64"), 1);
	assert_int_equal(rings_kept_on("10.0.0"), 1);
}

static void *keep(void *arg)
{
	int *held = arg;

	phx_thread_ring_keep();
	*held = rings();
	return NULL;
}

static void a_thread_that_ends_takes_its_ring_along(void **state)
{
	pthread_t thread;
	int held, before;

	(void)state;
	if (phx_engine() != &phx_engine_io_uring)
		skip();
	release = "7.2.13";
	before = rings();
	assert_int_equal(pthread_create(&thread, NULL, keep, &held), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(held, before + 1);
	assert_int_equal(rings(), before);
}

static void one_that_is_taken_is_not_had_twice(void **state)
{
	struct phx_engine *ring;

	(void)state;
	if (phx_engine() != &phx_engine_io_uring)
		skip();
	phx_thread_ring_keep();
	ring = phx_thread_ring_take();
	assert_non_null(ring);
	assert_null(phx_thread_ring_take());
	phx_thread_ring_keep();
	phx_thread_ring_give();
	assert_ptr_equal(phx_thread_ring_take(), ring);
	phx_thread_ring_drop();
	phx_thread_ring_keep();
	assert_null(phx_thread_ring_take());
}

static void *be_short_of_descriptors(void *arg)
{
	struct rlimit before, none;

	(void)arg;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_null(phx_thread_ring_take());
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_non_null(phx_thread_ring_take());
	phx_thread_ring_give();
	return NULL;
}

static void a_shortage_that_passes_is_no_refusal(void **state)
{
	pthread_t thread;

	(void)state;
	if (phx_engine() != &phx_engine_io_uring)
		skip();
	assert_int_equal(pthread_create(&thread, NULL, be_short_of_descriptors, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static sem_t kept, done;

static void *keep_until_done(void *arg)
{
	(void)arg;
	phx_thread_ring_keep();
	sem_post(&kept);
	sem_wait(&done);
	return NULL;
}

static void a_child_has_none_of_its_parents(void **state)
{
	pthread_t thread;
	int status;
	pid_t child;

	(void)state;
	if (phx_engine() != &phx_engine_io_uring)
		skip();
	sem_init(&kept, 0, 0);
	sem_init(&done, 0, 0);
	phx_thread_ring_keep();
	assert_int_equal(pthread_create(&thread, NULL, keep_until_done, NULL), 0);
	sem_wait(&kept);
	assert_true(rings() >= 2);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		if (rings())
			_exit(1);
		_exit(phx_thread_ring_take() && rings() == 1 ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_true(rings() >= 2);
	sem_post(&done);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kept_where_the_kernel_loses_requests),
		cmocka_unit_test(a_thread_that_ends_takes_its_ring_along),
		cmocka_unit_test(a_shortage_that_passes_is_no_refusal),
		cmocka_unit_test(a_child_has_none_of_its_parents),
		cmocka_unit_test(one_that_is_taken_is_not_had_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
