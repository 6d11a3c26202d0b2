// SPDX-License-Identifier: Apache-2.0
/*
 * fork() at the worst moments: inside the library's start, and while every
 * lock, list and worker of it is in use. The child must be able to do all that
 * the parent can, at once, and so must its own child.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

#define LEN 65536UL
#define COUNT 16

static void check(const unsigned char *memory, size_t len)
{
	for (size_t i = 0; i < len; i++)
		CHECK(memory[i] == stress_byte(i));
}

static phxfs_io_req_t request(int fd, void *memory, size_t at)
{
	return (phxfs_io_req_t){ .fd = fd, .buf = memory, .buf_offset = (off_t)at, .nbytes = LEN,
				 .f_offset = (off_t)at };
}

/* Every kind of call, from the start. */
static void use_everything(int fd)
{
	struct phxfs_completion done[COUNT];
	phxfs_io_req_t reqs[COUNT];
	phxfs_batch_t *batch;
	phxfs_queue_t *q;
	void *memory;

	EQ(phxfs_device_count(), 1);
	EQ(phxfs_open(0), 0);
	EQ(phxfs_mem_alloc(0, COUNT * LEN, &memory), 0);
	EQ(phxfs_regmem(0, memory, COUNT * LEN, NULL), 0);
	for (int i = 0; i < COUNT; i++)
		reqs[i] = request(fd, memory, (size_t)i * LEN);
	EQ(phxfs_read(fd, 0, memory, 0, COUNT * LEN, 0), COUNT * LEN);
	check(memory, COUNT * LEN);
	memset(memory, 0, COUNT * LEN);
	EQ(phxfs_read_batch(reqs, COUNT), 0);
	check(memory, COUNT * LEN);
	memset(memory, 0, COUNT * LEN);
	batch = phxfs_batch_submit_read(reqs, COUNT);
	CHECK(batch);
	EQ(phxfs_batch_wait(batch), 0);
	check(memory, COUNT * LEN);
	memset(memory, 0, COUNT * LEN);
	EQ(phxfs_queue_create(COUNT, &q), 0);
	EQ(phxfs_queue_submit(q, PHXFS_OP_READ, reqs, NULL, COUNT), COUNT);
	EQ(phxfs_queue_wait(q, done, COUNT, COUNT, NULL), COUNT);
	check(memory, COUNT * LEN);
	EQ(phxfs_queue_destroy(q), 0);
	EQ(phxfs_deregmem(0, memory, COUNT * LEN), 0);
	EQ(phxfs_mem_free(0, memory), 0);
	EQ(phxfs_close(0), 0);
}

static void child(int fd, bool parent_too)
{
	pid_t pid;
	int status;

	alarm(20);
	use_everything(fd);
	if (parent_too) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid) {
			EQ(waitpid(pid, &status, 0), pid);
			EQ(status, 0);
		}
		use_everything(fd);
	}
	_exit(0);
}

static void *first_call(void *arg)
{
	use_everything(*(int *)arg);
	return NULL;
}

/* One fresh process: a thread starts the library while this one forks. */
static void race_the_start(int fd, unsigned int delay)
{
	pthread_t thread;
	pid_t pids[4];
	int status;

	alarm(20);
	EQ(pthread_create(&thread, NULL, first_call, &fd), 0);
	for (int i = 0; i < 4; i++) {
		for (volatile unsigned int spin = 0; spin < delay; spin++)
			;
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (!pids[i])
			child(fd, false);
	}
	for (int i = 0; i < 4; i++) {
		EQ(waitpid(pids[i], &status, 0), pids[i]);
		EQ(status, 0);
	}
	EQ(pthread_join(thread, NULL), 0);
	_exit(0);
}

/* A sanitizer's own locks are not made anew in the child of a threaded process. */
static void need_a_plain_child(void)
{
	if (stress_sanitized())
		stress_skip("no threads in a forked child under this sanitizer");
}

static void fork_during_the_start(void)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY), status;
	uint64_t end = stress_now_ms() + (uint64_t)stress_seconds(4) * 1000;

	need_a_plain_child();
	for (unsigned int n = 0; stress_now_ms() < end; n++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid)
			race_the_start(fd, n % 64 * 1500);
		EQ(waitpid(pid, &status, 0), pid);
		EQ(status, 0);
	}
}

/* --------------------------------------------------------- under full load */

static atomic_bool stop;
static int data_fd;

static void *load_transfers(void *arg)
{
	unsigned char *memory = arg;

	while (!stop)
		EQ(phxfs_read(data_fd, 0, memory, 0, COUNT * LEN, 0), COUNT * LEN);
	return NULL;
}

static void *load_batches(void *arg)
{
	phxfs_io_req_t reqs[COUNT];

	for (int i = 0; i < COUNT; i++)
		reqs[i] = request(data_fd, arg, (size_t)i * LEN);
	while (!stop) {
		phxfs_batch_t *a = phxfs_batch_submit_read(reqs, COUNT);

		CHECK(a);
		EQ(phxfs_read_batch(reqs, COUNT), 0);
		EQ(phxfs_batch_destroy(a), 0);
	}
	return NULL;
}

static void *load_queue(void *arg)
{
	struct phxfs_completion done[COUNT];
	phxfs_io_req_t reqs[COUNT];
	phxfs_queue_t *q;

	for (int i = 0; i < COUNT; i++)
		reqs[i] = request(data_fd, arg, (size_t)i * LEN);
	while (!stop) {
		EQ(phxfs_queue_create(COUNT, &q), 0);
		for (int n = 0; n < 20; n++) {
			EQ(phxfs_queue_submit(q, PHXFS_OP_READ, reqs, NULL, COUNT), COUNT);
			EQ(phxfs_queue_wait(q, done, COUNT, COUNT, NULL), COUNT);
		}
		EQ(phxfs_queue_destroy(q), 0);
	}
	return NULL;
}

static void *load_registrations(void *arg)
{
	while (!stop) {
		void *memory;

		EQ(phxfs_mem_alloc(0, 4 * LEN, &memory), 0);
		EQ(phxfs_regmem(0, memory, 4 * LEN, NULL), 0);
		EQ(phxfs_read(data_fd, 0, memory, 5, LEN, 0), LEN);
		EQ(phxfs_deregmem(0, memory, 4 * LEN), 0);
		EQ(phxfs_mem_free(0, memory), 0);
	}
	return NULL;
}

static void *load_opens(void *arg)
{
	while (!stop) {
		EQ(phxfs_open(0), 0);
		EQ(phxfs_close(0), 0);
	}
	return NULL;
}

static void fork_under_load(void)
{
	static void *(*const loads[])(void *) = { load_transfers, load_batches, load_queue,
						  load_registrations, load_opens };
	enum { LOADS = sizeof(loads) / sizeof(loads[0]) };
	uint64_t end = stress_now_ms() + (uint64_t)stress_seconds(4) * 1000;
	unsigned char *memory = stress_memory(2 * LOADS * COUNT * LEN);
	pthread_t threads[2 * LOADS];
	phxfs_queue_t *mine;
	int status;

	need_a_plain_child();
	data_fd = stress_file(COUNT * LEN, O_RDONLY);
	EQ(phxfs_queue_create(4, &mine), 0);
	for (size_t i = 0; i < 2 * LOADS; i++)
		EQ(pthread_create(&threads[i], NULL, loads[i / 2], memory + i * COUNT * LEN), 0);
	for (int n = 0; stress_now_ms() < end; n++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			alarm(20);
			/* What the parent has registered is here, too, and nobody holds it. */
			EQ(phxfs_read(data_fd, 0, memory, 0, LEN, 0), LEN);
			EQ(phxfs_queue_wait(mine, &(struct phxfs_completion){ 0 }, 0, 1, NULL),
			   -ECHILD);
			EQ(phxfs_queue_destroy(mine), -ECHILD);
			EQ(phxfs_deregmem(0, memory, 2 * LOADS * COUNT * LEN), 0);
			child(data_fd, n % 2);
		}
		EQ(waitpid(pid, &status, 0), pid);
		EQ(status, 0);
	}
	stop = true;
	for (size_t i = 0; i < 2 * LOADS; i++)
		EQ(pthread_join(threads[i], NULL), 0);
	EQ(phxfs_queue_destroy(mine), 0);
	EQ(phxfs_close(0), 0);
}

static const struct stress_case cases[] = {
	{ "fork_during_the_start", fork_during_the_start, NULL, 90 },
	{ "fork_under_load", fork_under_load, NULL, 90 },
	{ "fork_under_load_sync", fork_under_load, "PHX_IO_ENGINE=sync", 90 },
	{ "fork_under_load_bounce", fork_under_load, "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1", 90 },
};

STRESS_MAIN(cases)
