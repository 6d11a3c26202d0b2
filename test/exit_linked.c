// SPDX-License-Identifier: Apache-2.0
/*
 * A process that ends in one of many ways while the library is in use; run
 * many times by pains_exit. usage: exit_linked MODE FILE
 */
#include <fcntl.h>
#include <phoenix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint8_t *buf;
static int fd;
static phxfs_io_req_t reqs[8];
static phxfs_queue_t *queue;

static void teardown(void)
{
	if (phxfs_queue_destroy(queue) || phxfs_deregmem(0, buf, 8 * PHXFS_DEVICE_PAGE) ||
	    phxfs_mem_free(0, buf) || phxfs_close(0))
		_exit(3);
}

static void use(void)
{
	if (phxfs_open(0) || phxfs_mem_alloc(0, 8 * PHXFS_DEVICE_PAGE, (void **)&buf) ||
	    phxfs_regmem(0, buf, 8 * PHXFS_DEVICE_PAGE, NULL) || phxfs_queue_create(8, &queue))
		exit(2);
	for (int i = 0; i < 8; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = buf, .nbytes = PHXFS_DEVICE_PAGE,
					    .buf_offset = i * (off_t)PHXFS_DEVICE_PAGE,
					    .f_offset = i * (off_t)PHXFS_DEVICE_PAGE };
	if (phxfs_read_batch(reqs, 8) != 0)
		exit(2);
}

/* Leaves I/O in flight. */
static void start_more(void)
{
	phxfs_batch_t *b = phxfs_batch_submit_read(reqs, 4);

	if (!b || phxfs_queue_submit(queue, PHXFS_OP_READ, reqs + 4, NULL, 4) != 4)
		exit(2);
}

/* @arg: which two pages are this thread's. */
static void *forever(void *arg)
{
	size_t first = 2 * (size_t)(uintptr_t)arg;
	phxfs_io_req_t mine[2] = { reqs[first], reqs[first + 1] };

	for (;;)
		if (phxfs_read_batch(mine, 2) < 0 ||
		    phxfs_read(fd, 0, buf, mine[0].buf_offset, PHXFS_DEVICE_PAGE, 0) < 0)
			break;
	return NULL;
}

static void *leave(void *arg)
{
	exit(0);
}

/* What is in flight at the end is known to threads that the sanitizer cannot look into. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static int destructor_wanted;

static __attribute__((destructor)) void late(void)
{
	if (destructor_wanted)
		teardown();
}

int main(int argc, char **argv)
{
	const char *mode = argc == 3 ? argv[1] : "";
	pthread_t t;

	fd = open(argc == 3 ? argv[2] : "", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 2;
	if (!strcmp(mode, "unused"))
		return 0;
	use();
	if (!strcmp(mode, "clean")) {
		teardown();
	} else if (!strcmp(mode, "nothing")) {
		;
	} else if (!strcmp(mode, "in-flight")) {
		start_more();
	} else if (!strcmp(mode, "atexit")) {
		atexit(teardown);
	} else if (!strcmp(mode, "destructor")) {
		destructor_wanted = 1;
	} else if (!strcmp(mode, "threads")) {
		for (uintptr_t i = 0; i < 3; i++)
			if (pthread_create(&t, NULL, forever, (void *)i))
				return 2;
		usleep(500);
	} else if (!strcmp(mode, "other-thread")) {
		start_more();
		if (pthread_create(&t, NULL, leave, NULL))
			return 2;
		pthread_exit(NULL);
	} else {
		fprintf(stderr, "exit_linked: no mode %s\n", mode);
		return 2;
	}
	return 0;
}
