// SPDX-License-Identifier: GPL-2.0-only
/*
 * The deaths: of processes with transfers under way, of devices, and what outlives them.
 * Usage: test_death DISK [CASE...]; uses devices 0 and 1, the disk is read only.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *disk_path;
static uint64_t granule;
static int disk;

/* Registers, keeps a queue of reads going for good, and says so through the pipe. */
static int busy_child(void *arg)
{
	struct t_region r = t_register(t_open(0), 0, t_alloc(0, 8 * MIB, T_LAYOUT_HUGE), 8 * MIB);
	int ready = *(int *)arg, in_flight = 0;
	struct io_uring_cqe *cqe;
	struct io_uring ring;

	CHECK_EQ(io_uring_queue_init(32, &ring, 0), 0);
	for (unsigned int i = 0;; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

		io_uring_prep_read(sqe, disk, (char *)r.p + i % 32 * 256 * KIB, 256 * KIB,
				   (uint64_t)(i % 64) * 256 * KIB);
		CHECK_EQ(io_uring_submit(&ring), 1);
		if (++in_flight < 24)
			continue;
		CHECK_EQ(io_uring_wait_cqe(&ring, &cqe), 0);
		CHECK_EQ(cqe->res, 256 * KIB);
		io_uring_cqe_seen(&ring, cqe);
		in_flight--;
		if (i == 100)
			CHECK_EQ(write(ready, "", 1), 1);
	}
	return 0;
}

static void killed(void)
{
	for (int i = 0; i < 5; i++) {
		int ready[2], status;
		pid_t pid;
		char c;

		CHECK_EQ(pipe(ready), 0);
		pid = fork();
		if (!pid)
			_exit(busy_child(&ready[1]));
		CHECK_EQ(read(ready[0], &c, 1), 1);
		CHECK(t_counter(0, "pinned_bytes") == 8 * MIB);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status));
		close(ready[0]);
		close(ready[1]);
		t_expect_idle(0);
		CHECK_EQ(t_counter(0, "reclaim_timeouts"), 0);
		/* the accelerator has its memory back as well */
		t_free(t_alloc(0, t_available(0), T_LAYOUT_HUGE));
	}
}

static int just_leaves(void *arg)
{
	struct t_region r = t_register(t_open(0), 0, t_alloc(0, granule, T_LAYOUT_HUGE), granule);

	(void)!read(disk, r.p, 4096);
	return *(int *)arg;
}

static void leaves(void)
{
	for (int i = 0; i < 20; i++)
		CHECK_EQ(t_in_child(just_leaves, &i), i);
	t_expect_idle(0);
}

static int forks_and_dies(void *arg)
{
	struct t_region r = t_register(t_open(0), 0, t_alloc(0, 16 * MIB, T_LAYOUT_HUGE), 16 * MIB);

	for (int i = 0; i < 4; i++)
		if (!fork()) {
			CHECK(t_faults(r.p));
			usleep(300000);
			_exit(0);
		}
	raise(SIGKILL);
	return *(int *)arg;
}

/* The children hold the descriptor, not the memory. */
static void parent_killed(void)
{
	int zero = 0;

	CHECK_EQ(t_in_child(forks_and_dies, &zero), -SIGKILL);
	t_expect_idle(0);
	usleep(400000);
}

static int splices(void *arg)
{
	int *pipefd = arg;
	struct t_region r = t_register(t_open(0), 0, t_alloc(0, granule, T_LAYOUT_HUGE), granule);
	struct iovec iov = { .iov_base = r.p, .iov_len = 8192 };

	CHECK_EQ(vmsplice(pipefd[1], &iov, 1, 0), 8192);
	return 0;
}

/* A transfer that outlives the process: memory and module stay until it ends. */
static void transfer_outlives(void)
{
	int held[2];

	CHECK_EQ(pipe(held), 0);
	CHECK_EQ(t_in_child(splices, held), 0);
	usleep(200000);
	CHECK_EQ(t_counter(0, "regions"), 0);
	CHECK_EQ(t_counter(0, "zombie_bytes"), granule);
	CHECK(system("rmmod phxfs_sim 2>/dev/null") != 0);
	close(held[0]);
	close(held[1]);
	t_expect_idle(0);
}

static void bdf_of(int fd, char *bdf)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	strcpy(bdf, q.pci_bdf);
}

static void expect_gone(struct t_region *r)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	struct t_region again = *r;

	CHECK_EQ(t_state(r), PHXFS_REGION_RECLAIMED);
	CHECK(t_faults(r->p));
	CHECK(pread(disk, r->p, 4096, 0) < 0 && errno == EFAULT);
	CHECK(!t_mmap(r->fd, granule) && errno == ENODEV);
	CHECK_EQ(t_ioctl(r->fd, PHXFS_IOCTL_QUERY, &q), -ENODEV);
	CHECK_EQ(t_unmap(r), 0);
	/* the last transfer's pages are looked at now and then only */
	for (int i = 0; i < 500 * t_slow() && t_state(r) == PHXFS_REGION_DRAINING; i++)
		usleep(10000);
	CHECK_EQ(t_map(&again), -ENODEV);
	CHECK_EQ(munmap(r->p, r->length), 0);
	CHECK_EQ(close(r->fd), 0);
}

static int unbound_child(void *arg)
{
	bool held = *(bool *)arg;
	struct t_region r = t_register(t_open(1), 1, t_alloc(1, granule, T_LAYOUT_HUGE), granule);
	struct t_region idle = { .fd = r.fd, .dev = 1, .p = t_mmap(r.fd, granule) };
	struct t_held h;
	char bdf[32];

	if (held) {
		h = t_hold(r.p, 4096);
		t_set_parameter("phxfs", "drain_ms", "300");
		t_set_parameter("phxsim", "unbind_wait_ms", "300");
	}
	bdf_of(r.fd, bdf);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/unbind", bdf);
	CHECK(access("/dev/" PHXFS_DEV_PREFIX "1", F_OK) < 0);
	CHECK(access("/sys/class/" PHXFS_CLASS "/" PHXFS_DEV_PREFIX "1", F_OK) < 0);
	CHECK(access("/dev/" PHXFS_DEV_PREFIX "0", F_OK) == 0);
	if (held) {
		CHECK_EQ(t_state(&r), PHXFS_REGION_RECLAIMED);
		t_let_go(&h);
		usleep(300000);
		t_set_parameter("phxfs", "drain_ms", "5000");
		t_set_parameter("phxsim", "unbind_wait_ms", "10000");
	}
	munmap(idle.p, granule);
	expect_gone(&r);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/bind", bdf);
	return 0;
}

static int after_rebind(void *arg)
{
	struct t_region r;

	(void)arg;
	for (int i = 0; i < 100 && access("/dev/" PHXFS_DEV_PREFIX "1", F_OK); i++)
		usleep(20000);
	r = t_register(t_open(1), 1, t_alloc(1, granule, T_LAYOUT_HUGE), granule);
	CHECK_EQ(pread(disk, r.p, 4096, 0), 4096);
	t_unregister(&r);
	t_expect_idle(1);
	return 0;
}

/* Bound again while a transfer into the old binding's memory is still under way. */
static int rebound_child(void *arg)
{
	struct t_region r = t_register(t_open(1), 1, t_alloc(1, granule, T_LAYOUT_HUGE), granule);
	struct t_held h = t_hold(r.p, 4096);
	char bdf[32], status[256] = "";
	struct t_region again = { .dev = 1, .length = granule };
	FILE *f;

	(void)arg;
	t_set_parameter("phxfs", "drain_ms", "200");
	t_set_parameter("phxsim", "unbind_wait_ms", "200");
	bdf_of(r.fd, bdf);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/unbind", bdf);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/bind", bdf);
	t_set_parameter("phxfs", "drain_ms", "5000");
	t_set_parameter("phxsim", "unbind_wait_ms", "10000");
	f = fopen("/sys/class/" PHXFS_CLASS "/" PHXFS_DEV_PREFIX "1/status", "r");
	CHECK(f && fgets(status, sizeof(status), f));
	fclose(f);
	/* this process's runtime knows the old binding only: any address will do */
	again.fd = t_open(1);
	again.p = t_mmap(again.fd, granule);
	again.addr = r.addr;
	if (t_is_staging()) {
		CHECK(!strcmp(status, "ok\n"));
	} else {
		CHECK(strcmp(status, "ok\n") != 0);
		CHECK_EQ(t_map(&again), -EOPNOTSUPP);
		CHECK_EQ(t_counter(1, "mapped_bytes"), 0);
	}
	t_let_go(&h);
	usleep(300000);
	expect_gone(&r);
	close(again.fd);
	munmap(again.p, granule);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/unbind", bdf);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/bind", bdf);
	return 0;
}

static void rebound_under_transfer(void)
{
	CHECK_EQ(t_in_child(rebound_child, NULL), 0);
	CHECK_EQ(t_in_child(after_rebind, NULL), 0);
}

static void unbound(void)
{
	bool held = false;

	CHECK_EQ(t_in_child(unbound_child, &held), 0);
	CHECK_EQ(t_in_child(after_rebind, NULL), 0);
}

static void unbound_under_transfer(void)
{
	bool held = true;

	CHECK_EQ(t_in_child(unbound_child, &held), 0);
	CHECK_EQ(t_in_child(after_rebind, NULL), 0);
}

/* Two processes, two devices, at the same time. */
static int both_devices(void *arg)
{
	uint64_t seed = (uintptr_t)arg;
	struct t_region r[2];
	char *p = t_aligned(granule);

	for (int d = 0; d < 2; d++) {
		r[d] = t_register(t_open(d), d, t_alloc(d, granule, T_LAYOUT_HUGE), granule);
		t_fill_device(r[d].addr, granule, seed + d);
	}
	CHECK_EQ(pread(disk, p, 64 * KIB, seed * MIB), 64 * KIB);
	for (int i = 0; i < 100; i++) {
		struct t_region *one = &r[i % 2], *other = &r[!(i % 2)];

		CHECK_EQ(pread(disk, one->p, 64 * KIB, seed * MIB), 64 * KIB);
		CHECK(!memcmp(one->p, p, 4096));
		CHECK(i || t_device_has(other->addr, granule, seed + !(i % 2)));
	}
	/* a device's number guards against the other's descriptor */
	CHECK_EQ(t_unmap(&r[0]), 0);
	r[0].dev = 1;
	CHECK_EQ(t_map(&r[0]), -EINVAL);
	/* and the address against the other's memory */
	r[0].dev = 0;
	r[0].addr = r[1].addr;
	CHECK_EQ(t_map(&r[0]), -ENXIO);
	t_unregister(&r[1]);
	free(p);
	return 0;
}

static void two_by_two(void)
{
	pid_t pids[2];
	int status;

	for (long i = 0; i < 2; i++) {
		pids[i] = fork();
		if (!pids[i])
			_exit(both_devices((void *)(i + 1)));
	}
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
	t_expect_idle(0);
	t_expect_idle(1);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "leaves", leaves },
		{ "killed", killed },
		{ "parent-killed", parent_killed },
		{ "transfer-outlives", transfer_outlives },
		{ "unbound", unbound },
		{ "unbound-under-transfer", unbound_under_transfer },
		{ "rebound-under-transfer", rebound_under_transfer },
		{ "two-by-two", two_by_two },
		{ 0 }
	};

	CHECK(argc >= 2);
	disk_path = argv[1];
	disk = open(disk_path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	CHECK(disk >= 0);
	granule = t_granule();
	return t_main(argc - 1, argv + 1, cases);
}
