// SPDX-License-Identifier: Apache-2.0
/*
 * Completion queues from every side at once: waits, cancels, deregistrations
 * and submissions that meet, and a kernel or a C library that refuses.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <ucontext.h>
#include <unistd.h>

#include "stress.h"

#define LEN 65536UL

static phxfs_io_req_t request(int fd, void *memory, size_t at, size_t len)
{
	return (phxfs_io_req_t){ .fd = fd, .buf = memory, .buf_offset = (off_t)at, .nbytes = len,
				 .f_offset = (off_t)at };
}

/* The thread that deregisters is the one that would take the completions later. */
static void deregister_before_taking(void)
{
	int fd = stress_file(64 * LEN, O_RDONLY);
	unsigned char *memory = stress_memory(64 * LEN);
	struct phxfs_completion done[64];
	phxfs_queue_t *q;

	EQ(phxfs_queue_create(64, &q), 0);
	for (int i = 0; i < 64; i++) {
		phxfs_io_req_t r = request(fd, memory, (size_t)i * LEN, LEN);

		EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &r, NULL, 1), 1);
	}
	EQ(phxfs_deregmem(0, memory, 64 * LEN), 0);
	for (size_t i = 0; i < 64 * LEN; i++)
		CHECK(memory[i] == stress_byte(i));
	EQ(phxfs_queue_wait(q, done, 64, 64, NULL), 64);
	EQ(phxfs_regmem(0, memory, 64 * LEN, NULL), 0);
	for (int i = 0; i < 64; i++) {
		phxfs_io_req_t r = request(fd, memory, (size_t)i * LEN, LEN);

		EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &r, NULL, 1), 1);
	}
	EQ(phxfs_close(0), 0);
	EQ(phxfs_queue_wait(q, done, 64, 64, NULL), 64);
	for (int i = 0; i < 64; i++)
		EQ(done[i].result, LEN);
	EQ(phxfs_queue_destroy(q), 0);
}

/* ------------------------------------------------- waits that cross others */

static phxfs_queue_t *shared;
static unsigned char *shared_memory;
static int shared_fd;
static atomic_bool stop;
static atomic_long accepted, taken;

static void *wait_thread(void *arg)
{
	int min = (int)(intptr_t)arg;
	struct phxfs_completion done[8];

	for (;;) {
		int n = phxfs_queue_wait(shared, done, min, 8, NULL);

		CHECK(n >= 0);
		atomic_fetch_add(&taken, n);
		if (!n && stop && taken == accepted)
			return NULL;
		if (!n)
			sched_yield();
		for (int i = 0; i < n; i++)
			CHECK(done[i].result == 512 || done[i].result == -ECANCELED);
	}
}

static void *cancel_thread(void *arg)
{
	unsigned long n = 0;

	while (!stop) {
		int err = phxfs_queue_cancel(shared, (void *)(uintptr_t)(n++ % 64));

		CHECK(err == 0 || err == -ENOENT || err == -EALREADY);
	}
	return NULL;
}

/* One request at a time: a lost wake-up leaves everybody asleep. */
static void *submit_thread(void *arg)
{
	uint64_t end = stress_now_ms() + (uint64_t)stress_seconds(3) * 1000;
	unsigned char *mine = shared_memory + (intptr_t)arg * 4096 * 512;

	for (uintptr_t n = 0; stress_now_ms() < end; n++) {
		/* No two requests in flight into the same bytes. */
		phxfs_io_req_t r = request(shared_fd, mine, n % 4096 * 512, 512);
		void *data = (void *)(n % 64);
		int got = phxfs_queue_submit(shared, PHXFS_OP_READ, &r, &data, 1);

		CHECK(got == 1 || got == -EAGAIN);
		atomic_fetch_add(&accepted, got == 1);
		if (got != 1 || n % 3 == 0)
			sched_yield();
		while (n % 16 == 0 && taken != accepted && stress_now_ms() < end)
			sched_yield(); /* nothing in flight helps the waiters along */
	}
	return NULL;
}

static void crossing_waits(void)
{
	pthread_t waiters[4], cancellers[2], submitters[2];

	shared_fd = stress_file(32 * LEN, O_RDONLY);
	shared_memory = stress_memory(64 * LEN);
	EQ(phxfs_queue_create(64, &shared), 0);
	for (intptr_t i = 0; i < 4; i++)
		EQ(pthread_create(&waiters[i], NULL, wait_thread, (void *)(i ? i : 1)), 0);
	for (int i = 0; i < 2; i++)
		EQ(pthread_create(&cancellers[i], NULL, cancel_thread, NULL), 0);
	for (intptr_t i = 0; i < 2; i++)
		EQ(pthread_create(&submitters[i], NULL, submit_thread, (void *)i), 0);
	for (int i = 0; i < 2; i++)
		EQ(pthread_join(submitters[i], NULL), 0);
	stop = true;
	for (int i = 0; i < 2; i++)
		EQ(pthread_join(cancellers[i], NULL), 0);
	for (int i = 0; i < 4; i++)
		EQ(pthread_join(waiters[i], NULL), 0);
	EQ(taken, accepted);
	EQ(phxfs_queue_destroy(shared), 0);
}

/* ------------------------------------------------------------- exhaustion */

static void no_more_threads(void)
{
	struct rlimit none = { 0, 0 };

	/* Root is never refused a thread. */
	if (!getuid())
		CHECK(!setresuid(65534, 65534, 65534));
	CHECK(!setrlimit(RLIMIT_NPROC, &none));
	if (!pthread_create(&(pthread_t){ 0 }, NULL, cancel_thread, NULL))
		stress_skip("RLIMIT_NPROC does not stop threads here");
}

static void *append_thread(void *arg)
{
	static const char line[64] = "a line of sixty-four bytes";
	struct phxfs_completion done;
	int fd = *(int *)arg;

	while (!stop)
		sched_yield();
	for (int i = 0; i < 500; i++) {
		phxfs_io_req_t r = { .fd = fd, .device_id = -1, .buf = (void *)line, .nbytes = 64 };

		while (phxfs_queue_submit(shared, PHXFS_OP_WRITE, &r, NULL, 1) != 1)
			sched_yield();
		EQ(phxfs_queue_wait(shared, &done, 1, 1, NULL) <= 1, 1);
	}
	return NULL;
}

/* Everything still works when no worker can be started; only slower. */
static void without_workers(void)
{
	int fd = stress_file(0, O_RDWR | O_APPEND), data = stress_file(64 * LEN, O_RDONLY);
	unsigned char *memory = stress_memory(64 * LEN);
	struct phxfs_completion rest[64];
	phxfs_io_req_t reqs[64];
	pthread_t threads[4];
	phxfs_batch_t *batch;

	EQ(phxfs_queue_create(64, &shared), 0);
	for (int i = 0; i < 4; i++)
		EQ(pthread_create(&threads[i], NULL, append_thread, &fd), 0);
	no_more_threads();
	stop = true;
	for (int i = 0; i < 4; i++)
		EQ(pthread_join(threads[i], NULL), 0);
	while (phxfs_queue_wait(shared, rest, 0, 64, NULL) > 0)
		;
	EQ(lseek(fd, 0, SEEK_END), 4 * 500 * 64);

	for (int i = 0; i < 64; i++)
		reqs[i] = request(data, memory, (size_t)i * LEN, LEN);
	EQ(phxfs_read_batch(reqs, 64), 0);
	batch = phxfs_batch_submit_read(reqs, 64);
	CHECK(batch);
	EQ(phxfs_batch_wait(batch), 0);
	EQ(phxfs_read(data, 0, memory, 0, 64 * LEN, 0), 64 * LEN);
	for (size_t i = 0; i < 64 * LEN; i++)
		CHECK(memory[i] == stress_byte(i));
	_exit(0); /* a leak checker at exit would want a thread, too */
}

static void longest_timeout(void)
{
	struct timespec forever = { INT64_MAX, 999999999 }, moment = { 0, 1000000 };
	int fd = stress_file(LEN, O_RDONLY);
	void *memory = stress_memory(LEN);
	struct phxfs_completion done;
	phxfs_io_req_t r = request(fd, memory, 0, LEN);
	phxfs_queue_t *q;

	EQ(phxfs_queue_create(1, &q), 0);
	for (int i = 0; i < 100; i++) {
		EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &r, NULL, 1), 1);
		EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &r, NULL, 1), -EAGAIN);
		EQ(phxfs_queue_wait(q, &done, 1, 1, &forever), 1);
		EQ(phxfs_queue_wait(q, &done, 1, 1, &forever), 0);
		EQ(phxfs_queue_wait(q, &done, 0, 1, &moment), 0);
	}
	EQ(phxfs_queue_destroy(q), 0);
}

static void late_eventfd(void)
{
	int fd = stress_file(LEN, O_RDONLY);
	void *memory = stress_memory(LEN);
	struct phxfs_completion done;
	phxfs_io_req_t r = request(fd, memory, 0, LEN);
	struct pollfd poller = { .events = POLLIN };
	phxfs_queue_t *q;

	EQ(phxfs_queue_create(4, &q), 0);
	EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &r, NULL, 1), 1);
	stress_sleep_ms(50);
	poller.fd = phxfs_queue_eventfd(q);
	CHECK(poller.fd >= 0);
	EQ(poll(&poller, 1, 5000), 1);
	EQ(phxfs_queue_wait(q, &done, 0, 1, NULL), 1);
	EQ(phxfs_queue_destroy(q), 0);
}

/* ---------------------------------------------------- strange submitters */

static void *submit_and_exit(void *arg)
{
	for (size_t i = 0; i < 32; i++) {
		phxfs_io_req_t r = request(shared_fd, arg, i * 16 * LEN, 16 * LEN);

		EQ(phxfs_queue_submit(shared, PHXFS_OP_READ, &r, NULL, 1), 1);
	}
	return NULL;
}

/* What a thread has submitted is not its own: it may end before that does. */
static void exiting_submitters(void)
{
	unsigned char *memory = stress_memory(512 * LEN);
	struct phxfs_completion done[32];
	pthread_t thread;

	shared_fd = stress_file(512 * LEN, O_RDONLY);
	EQ(phxfs_queue_create(64, &shared), 0);
	for (int round = 0; round < 5; round++) {
		CHECK(!fsync(shared_fd));
		EQ(posix_fadvise(shared_fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		EQ(pthread_create(&thread, NULL, submit_and_exit, memory), 0);
		EQ(pthread_join(thread, NULL), 0);
		EQ(phxfs_queue_wait(shared, done, 32, 32, NULL), 32);
		for (int i = 0; i < 32; i++)
			EQ(done[i].result, 16 * LEN);
	}
	for (size_t i = 0; i < 512 * LEN; i++)
		CHECK(memory[i] == stress_byte(i));
	EQ(phxfs_queue_destroy(shared), 0);
}

/* One request on a descriptor of the wrong kind, by a batch and by a queue. */
static void refused(int fd, void *memory)
{
	struct phxfs_completion done;
	char byte;

	for (int device = -1; device <= 0; device++) {
		for (int op = PHXFS_OP_READ; op <= PHXFS_OP_WRITE; op++) {
			ssize_t want = op == PHXFS_OP_READ ? pread(fd, &byte, 1, 0) :
							     pwrite(fd, &byte, 1, 0);
			phxfs_io_req_t r = { .fd = fd, .device_id = device, .buf = memory,
					     .nbytes = 1 };

			want = want < 0 ? -errno : want;
			EQ(op == PHXFS_OP_READ ? phxfs_read_batch(&r, 1) :
						 phxfs_write_batch(&r, 1),
			   want != 1);
			EQ(r.result, want);
			EQ(phxfs_queue_submit(shared, op, &r, NULL, 1), 1);
			EQ(phxfs_queue_wait(shared, &done, 1, 1, NULL), 1);
			EQ(done.result, want);
		}
	}
}

static void descriptors_without_offsets(void)
{
	void *memory = stress_memory(LEN);
	int fds[2];

	EQ(phxfs_queue_create(4, &shared), 0);
	CHECK(!pipe(fds));
	refused(fds[0], memory);
	refused(fds[1], memory);
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	refused(fds[0], memory);
	refused(eventfd(1, 0), memory);
	refused(timerfd_create(CLOCK_MONOTONIC, 0), memory);
	refused(inotify_init(), memory);
	refused(epoll_create1(0), memory);
	refused(memfd_create("m", 0), memory);
	refused(open(".", O_RDONLY), memory);
	refused(open(".", O_PATH), memory);
	refused(open("/dev/null", O_RDWR), memory);
	refused(open("/dev/zero", O_RDWR), memory);
	refused(open("/proc/self/stat", O_RDONLY), memory);
	refused(open("/proc/self/mem", O_RDWR), memory);
	refused(stress_file(10, O_RDONLY), memory);
	refused(stress_file(10, O_WRONLY), memory);
	refused(stress_file(10, O_RDWR | O_NONBLOCK), memory);
	refused(1000000, memory);
	refused(INT32_MAX, memory);
	refused(-1, memory);
	refused(INT32_MIN, memory);
	EQ(phxfs_queue_destroy(shared), 0);
}

/* --------------------------------------------- a kernel without memory */

#define MARK 0x5a5a
static volatile sig_atomic_t refusals;

/* The kernel's answer to a submission: -EAGAIN some times, then the real one. */
static void answer(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	int saved = errno;

	if (refusals > 0) {
		refusals--;
		regs[REG_RAX] = -EAGAIN;
		return;
	}
	regs[REG_RAX] = syscall(SYS_io_uring_enter, regs[REG_RDI], regs[REG_RSI], regs[REG_RDX],
				regs[REG_R10], regs[REG_R8], MARK);
	if (regs[REG_RAX] < 0)
		regs[REG_RAX] = -errno;
	errno = saved;
}

/* From now on this thread's submissions come to answer(). */
static void intercept_submissions(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_enter, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MARK, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	struct sigaction action = { .sa_sigaction = answer, .sa_flags = SA_SIGINFO };

	CHECK(!sigaction(SIGSYS, &action, NULL));
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* An accepted request is handed over as soon as the kernel can take it. */
static void refused_submissions(void)
{
	int fd = stress_file(64 * LEN, O_RDONLY);
	unsigned char *memory = stress_memory(64 * LEN);
	struct phxfs_completion done[64];
	struct pollfd poller = { .events = POLLIN };
	phxfs_queue_t *q;

	EQ(phxfs_queue_create(64, &q), 0);
	intercept_submissions();
	for (int round = 0; round < 64; round++) {
		phxfs_io_req_t r = request(fd, memory, (size_t)round * LEN, LEN);

		refusals = round % 6;
		if (round == 32)
			poller.fd = phxfs_queue_eventfd(q);
		EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &r, NULL, 1), 1);
		if (round < 32) {
			EQ(phxfs_queue_wait(q, done, 1, 1, NULL), 1);
			EQ(done[0].result, LEN);
			continue;
		}
		for (int n = 0; n != 1;) {
			uint64_t count;

			EQ(poll(&poller, 1, 5000), 1);
			EQ(read(poller.fd, &count, sizeof(count)), sizeof(count));
			n = phxfs_queue_wait(q, done, 0, 1, NULL);
		}
		EQ(done[0].result, LEN);
	}
	for (size_t i = 0; i < 64 * LEN; i++)
		CHECK(memory[i] == stress_byte(i));
	EQ(phxfs_queue_destroy(q), 0);
}

static const struct stress_case cases[] = {
	{ "deregister_before_taking", deregister_before_taking, NULL, 20 },
	{ "deregister_before_taking_sync", deregister_before_taking, "PHX_IO_ENGINE=sync", 20 },
	{ "deregister_before_taking_bounce", deregister_before_taking, "PHX_PATH=bounce", 20 },
	{ "crossing_waits", crossing_waits, NULL, 40 },
	{ "crossing_waits_sync", crossing_waits, "PHX_IO_ENGINE=sync", 40 },
	{ "crossing_waits_bounce", crossing_waits, "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1", 40 },
	{ "without_workers", without_workers, NULL, 40 },
	{ "without_workers_sync", without_workers, "PHX_IO_ENGINE=sync", 40 },
	{ "without_workers_bounce", without_workers, "PHX_PATH=bounce", 40 },
	{ "longest_timeout", longest_timeout, NULL, 20 },
	{ "longest_timeout_sync", longest_timeout, "PHX_IO_ENGINE=sync", 20 },
	{ "late_eventfd", late_eventfd, NULL, 20 },
	{ "late_eventfd_sync", late_eventfd, "PHX_IO_ENGINE=sync", 20 },
	{ "exiting_submitters", exiting_submitters, NULL, 60 },
	{ "exiting_submitters_bounce", exiting_submitters, "PHX_PATH=bounce", 60 },
	{ "descriptors_without_offsets", descriptors_without_offsets, NULL, 20 },
	{ "descriptors_without_offsets_sync", descriptors_without_offsets, "PHX_IO_ENGINE=sync",
	  20 },
	{ "descriptors_without_offsets_bounce", descriptors_without_offsets, "PHX_PATH=bounce",
	  20 },
	{ "refused_submissions", refused_submissions, "PHX_IO_ENGINE=io_uring", 40 },
};

STRESS_MAIN(cases)
