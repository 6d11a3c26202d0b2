// SPDX-License-Identifier: Apache-2.0
/*
 * A process that may open, map or call nothing more, that is interrupted all
 * the time, or that ends in the middle.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

#define LEN 65536UL
#define COUNT 32

static phxfs_io_req_t reqs[COUNT];

static void prepare(int fd, void *memory)
{
	for (int i = 0; i < COUNT; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = memory, .buf_offset = (off_t)(i * LEN),
					    .nbytes = LEN, .f_offset = (off_t)(i * LEN) };
}

static void check(unsigned char *memory)
{
	for (size_t i = 0; i < COUNT * LEN; i++)
		CHECK(memory[i] == stress_byte(i));
	memset(memory, 0, COUNT * LEN);
}

/* Everything, exactly. */
static void use(int fd, unsigned char *memory)
{
	struct phxfs_completion done[COUNT];
	phxfs_queue_t *q;
	int left = COUNT;

	EQ(phxfs_read(fd, 0, memory, 0, COUNT * LEN, 0), COUNT * LEN);
	check(memory);
	prepare(fd, memory);
	EQ(phxfs_read_batch(reqs, COUNT), 0);
	check(memory);
	EQ(phxfs_queue_create(COUNT, &q), 0);
	EQ(phxfs_queue_submit(q, PHXFS_OP_READ, reqs, NULL, COUNT), COUNT);
	while (left) {
		int n = phxfs_queue_wait(q, done, 1, COUNT, NULL);

		CHECK(n > 0);
		for (int i = 0; i < n; i++)
			EQ(done[i].result, LEN);
		left -= n;
	}
	check(memory);
	EQ(phxfs_queue_destroy(q), 0);
}

static void no_more_descriptors(void)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY), next;
	struct rlimit limit;

	CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
	next = dup(0);
	close(next);
	limit.rlim_cur = (rlim_t)next;
	CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
	use(fd, stress_memory(COUNT * LEN));
	_exit(0); /* a leak checker at exit would want a descriptor, too */
}

/* Leaves the process @more bytes of address space. */
static void limit_memory(unsigned long more)
{
	struct rlimit limit = { 0, RLIM_INFINITY };
	char line[256];
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long kib = 0;

	if (stress_sanitized())
		stress_skip("a sanitizer needs all addresses");
	CHECK(status);
	while (fgets(line, sizeof(line), status))
		sscanf(line, "VmSize: %lu", &kib);
	fclose(status);
	limit.rlim_cur = kib * 1024 + more;
	CHECK(!setrlimit(RLIMIT_AS, &limit));
}

static void little_memory(void)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY);
	unsigned char *memory = stress_memory(COUNT * LEN);

	/* Room for a thread's stack or two and a part of the pool. */
	limit_memory(48UL << 20);
	use(fd, memory);
}

/* No stack for a worker, no whole segment of the pool. */
static void hardly_any_memory(void)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY);
	unsigned char *memory = stress_memory(COUNT * LEN);

	limit_memory(4UL << 20);
	EQ(phxfs_read(fd, 0, memory, 0, COUNT * LEN, 0), COUNT * LEN);
	check(memory);
}

static void nothing(int sig)
{
}

static void storm_of_signals(void)
{
	struct itimerval often = { { 0, 200 }, { 0, 200 } };
	int fd = stress_file(COUNT * LEN, O_RDONLY);
	int direct = stress_file(COUNT * LEN, O_RDONLY | O_DIRECT);
	struct sigaction action = { .sa_handler = nothing };
	unsigned char *memory = stress_memory(COUNT * LEN);
	uint64_t end = stress_now_ms() + (uint64_t)stress_seconds(2) * 1000;

	CHECK(!sigaction(SIGVTALRM, &action, NULL));
	CHECK(!sigaction(SIGPROF, &action, NULL));
	CHECK(!sigaction(SIGUSR1, &action, NULL));
	CHECK(!setitimer(ITIMER_PROF, &often, NULL));
	CHECK(!setitimer(ITIMER_VIRTUAL, &often, NULL));
	while (stress_now_ms() < end) {
		kill(getpid(), SIGUSR1);
		use(fd, memory);
		use(direct, memory);
	}
}

/* Ends while all is under way, in every way a process ends. */
static void ends_in_the_middle(void)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY), status;
	unsigned char *memory = stress_memory(COUNT * LEN);

	if (stress_sanitized()) /* it would see requests into one buffer, and leaks */
		stress_skip("not under a sanitizer");
	prepare(fd, memory);
	for (int n = 0; n < 60; n++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			phxfs_queue_t *q;

			EQ(phxfs_queue_create(COUNT, &q), 0);
			for (int i = 0; i < 8; i++)
				CHECK(phxfs_batch_submit_read(reqs, COUNT));
			EQ(phxfs_queue_submit(q, PHXFS_OP_READ, reqs, NULL, COUNT), COUNT);
			if (n % 3 == 0)
				exit(0);
			if (n % 3 == 1)
				_exit(0);
			raise(SIGKILL);
		}
		EQ(waitpid(pid, &status, 0), pid);
		EQ(status, n % 3 == 2 ? SIGKILL : 0);
	}
}

/* @nr fails with EPERM from now on, in every thread to come. */
static void forbid(unsigned int nr)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void without(unsigned int nr)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY);

	forbid(nr);
	use(fd, stress_memory(COUNT * LEN));
	EQ(strcmp(phxfs_io_engine_name(), "sync"), 0);
}

static void without_io_uring_setup(void)
{
	without(SYS_io_uring_setup);
}

static void without_io_uring_enter(void)
{
	without(SYS_io_uring_enter);
}

static void without_memfd(void)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY);

	forbid(SYS_memfd_create);
	use(fd, stress_memory(COUNT * LEN));
}

static const struct stress_case cases[] = {
	{ "no_more_descriptors", no_more_descriptors, NULL, 30 },
	{ "no_more_descriptors_bounce", no_more_descriptors, "PHX_PATH=bounce", 30 },
	{ "little_memory", little_memory, NULL, 30 },
	{ "little_memory_bounce", little_memory, "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1024", 30 },
	{ "hardly_any_memory_bounce", hardly_any_memory, "PHX_PATH=bounce", 30 },
	{ "storm_of_signals", storm_of_signals, NULL, 60 },
	{ "storm_of_signals_sync", storm_of_signals, "PHX_IO_ENGINE=sync", 60 },
	{ "storm_of_signals_bounce", storm_of_signals, "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1",
	  60 },
	{ "ends_in_the_middle", ends_in_the_middle, NULL, 60 },
	{ "ends_in_the_middle_sync", ends_in_the_middle, "PHX_IO_ENGINE=sync", 60 },
	{ "without_io_uring_setup", without_io_uring_setup, NULL, 20 },
	{ "without_io_uring_enter", without_io_uring_enter, NULL, 20 },
	{ "without_memfd", without_memfd, NULL, 20 },
};

STRESS_MAIN(cases)
