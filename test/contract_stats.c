// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of looking into a running process. */
#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "t_file.h"

struct peer {
	_Atomic int step; /* the parent asks for it, the child has done it when it is negative */
};

static struct peer *peer;
static struct t_region region;
static int file;

static void peer_main(void)
{
	phxfs_io_req_t reqs[8];

	file = t_file("f", T_MIB, 1, O_RDWR);
	t_region(&region, 0, T_MIB);
	for (int i = 0; i < 8; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = file, .buf = region.p, .nbytes = 4096,
					    .buf_offset = i * 4096, .f_offset = i * 4096 };
	for (;;) {
		switch (peer->step) {
		case 1: /* 100 reads of 1,000 bytes */
			for (int i = 0; i < 100; i++)
				T_EQ(phxfs_read(file, 0, region.p, 0, 1000, 0), 1000);
			break;
		case 2:
			T_EQ(phxfs_write_batch(reqs, 8), 0);
			break;
		case 3:
			T_EQ(phxfs_read(-1, 0, region.p, 0, 10, 0), -EBADF);
			break;
		case 4:
			exit(0);
		default:
			t_sleep_ms(1);
			continue;
		}
		peer->step = -peer->step;
	}
}

static pid_t start_peer(void)
{
	pid_t pid;

	peer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	T_CHECK(peer != MAP_FAILED);
	fflush(NULL);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0) {
		peer_main();
		_exit(1);
	}
	return pid;
}

static void ask(int step)
{
	peer->step = step;
	T_WAIT(peer->step == -step);
}

static void a_view_shows_another_processs_counters(void)
{
	struct phxfs_latency lat = { .size = sizeof(lat) };
	struct phxfs_stats s = { .size = sizeof(s) };
	phxfs_stats_view_t *v;
	pid_t pid = start_peer();
	int status;

	ask(1);
	T_EQ(phxfs_stats_view_open(pid, &v), 0);
	T_EQ(phxfs_stats_view_read(v, 0, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].ops, 100);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].bytes, 100000);
	T_EQ(s.registrations, 1);
	T_EQ(s.registered_bytes, T_MIB);
	/* latencies count from the first view on */
	T_EQ(phxfs_stats_view_latency(v, PHXFS_OP_READ, &lat), 0);
	T_EQ(lat.count, 0);
	ask(1);
	ask(2);
	T_EQ(phxfs_stats_view_read(v, 0, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].ops, 200);
	T_EQ(s.write[t_buffered_path(0, true, 4096)].ops, 8);
	T_EQ(s.write[t_buffered_path(0, true, 4096)].bytes, 8 * 4096);
	T_EQ(phxfs_stats_view_latency(v, PHXFS_OP_READ, &lat), 0);
	T_EQ(lat.count, 100);
	T_CHECK(lat.p50_ns > 0 && lat.p50_ns <= lat.p90_ns && lat.p90_ns <= lat.p99_ns &&
		lat.p99_ns <= lat.p999_ns);
	/* a percentile is the upper bound of a bucket 1/16 wide */
	T_CHECK(lat.p999_ns <= lat.max_ns + lat.max_ns / 8 + 16);
	T_CHECK(lat.sum_ns >= lat.max_ns && lat.sum_ns / lat.count <= lat.max_ns);
	T_EQ(phxfs_stats_view_latency(v, PHXFS_OP_WRITE, &lat), 0);
	T_EQ(lat.count, 8);
	T_EQ(phxfs_stats_view_read(v, -1, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].ops, 0);
	T_EQ(phxfs_stats_view_read(v, 5, &s), -ENODEV);
	T_EQ(phxfs_stats_view_latency(v, 2, &lat), -EINVAL);
	T_EQ(phxfs_stats_view_latency(v, PHXFS_OP_READ, NULL), -EINVAL);
	T_EQ(phxfs_stats_view_read(v, 0, NULL), -EINVAL);
	s.size = 4;
	T_EQ(phxfs_stats_view_read(v, 0, &s), -EINVAL);
	s.size = sizeof(s);
	/* the process's end takes nothing from the viewer */
	peer->step = 4;
	T_EQ(waitpid(pid, &status, 0), pid);
	T_EQ(status, 0);
	T_EQ(phxfs_stats_view_read(v, 0, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].ops, 200);
	phxfs_stats_view_close(v);
}

static void a_process_may_view_itself(void)
{
	struct phxfs_stats s = { .size = sizeof(s) };
	phxfs_stats_view_t *v;
	int fds;

	file = t_file("f", T_MIB, 1, O_RDWR);
	t_region(&region, 0, T_MIB);
	T_EQ(phxfs_read(file, 0, region.p, 0, 1000, 0), 1000);
	T_EQ(phxfs_stats_view_open(getpid(), &v), 0);
	fds = t_fd_count();
	T_EQ(phxfs_stats_view_read(v, 0, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].bytes, 1000);
	phxfs_stats_view_close(v);
	phxfs_stats_view_close(NULL);
	for (int i = 0; i < 100; i++) {
		T_EQ(phxfs_stats_view_open(getpid(), &v), 0);
		phxfs_stats_view_close(v);
	}
	T_CHECK(t_fd_count() <= fds);
	t_region_free(&region);
}

static void views_refuse_what_cannot_be_viewed(void)
{
	phxfs_stats_view_t *v = (void *)1;
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	T_EQ(phxfs_stats_view_open(pid, &v), -ENOENT); /* does not use the library */
	T_CHECK(strstr(phxfs_last_error(), "ENOENT"));
	kill(pid, SIGKILL);
	T_EQ(waitpid(pid, NULL, 0), pid);
	T_EQ(phxfs_stats_view_open(pid, &v), -ESRCH);
	T_EQ(phxfs_stats_view_open(0x7ffffff0, &v), -ESRCH);
	T_CHECK(phxfs_stats_view_open(-1, &v) < 0);
	T_CHECK(phxfs_stats_view_open(0, &v) < 0);
	T_EQ(phxfs_stats_view_open(getpid(), NULL), -EINVAL);
	T_CHECK(v == (void *)1);
	T_EQ(phxfs_stats_view_read(NULL, 0, &(struct phxfs_stats){
		.size = sizeof(struct phxfs_stats) }), -EINVAL);
}

static void switched_off_there_is_nothing_to_view(void)
{
	phxfs_stats_view_t *v = (void *)1;
	struct phxfs_stats s = { .size = sizeof(s) };
	int fds;

	file = t_file("f", T_MIB, 1, O_RDWR);
	fds = t_fd_count();
	t_region(&region, 0, T_MIB);
	if (!t_on_host()) /* the device's own */
		fds = t_fd_count();
	T_EQ(phxfs_read(file, 0, region.p, 0, 1000, 0), 1000);
	T_EQ(phxfs_stats_view_open(getpid(), &v), -ENOENT);
	T_CHECK(v == (void *)1);
	T_EQ(t_fd_count(), fds); /* no memfd either */
	/* the process's own counters are there all the same */
	T_EQ(phxfs_stats(0, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].bytes, 1000);
	t_region_free(&region);
}

struct other_user {
	pid_t pid;
};

static void view_as_nobody(void *arg)
{
	struct other_user *o = arg;
	phxfs_stats_view_t *v = NULL;

	T_EQ(setgid(65534), 0);
	T_EQ(setuid(65534), 0);
	T_EQ(phxfs_stats_view_open(o->pid, &v), -EACCES);
	T_CHECK(!v);
}

static void another_users_process_is_eacces(void)
{
	struct other_user o;

	t_need_root();
	o.pid = start_peer();
	ask(1);
	T_EQ(t_in_child(view_as_nobody, &o), 0);
	kill(o.pid, SIGKILL);
	waitpid(o.pid, NULL, 0);
}

static void a_child_has_counters_of_its_own(void)
{
	struct phxfs_stats s = { .size = sizeof(s) };
	phxfs_stats_view_t *v;
	int ready[2], go[2];
	char c = 0;
	pid_t pid;

	file = t_file("f", T_MIB, 1, O_RDWR);
	t_region(&region, 0, T_MIB);
	T_EQ(phxfs_read(file, 0, region.p, 0, 1000, 0), 1000);
	T_EQ(pipe2(ready, O_CLOEXEC), 0);
	T_EQ(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		T_EQ(phxfs_read(file, 0, region.p, 0, 500, 0), 500);
		T_EQ(write(ready[1], &c, 1), 1);
		T_EQ(read(go[0], &c, 1), 1);
		_exit(0);
	}
	T_EQ(read(ready[0], &c, 1), 1);
	/* the parent's are not the child's */
	T_EQ(phxfs_stats(0, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].bytes, 1000);
	T_EQ(phxfs_stats_view_open(getpid(), &v), 0);
	T_EQ(phxfs_stats_view_read(v, 0, &s), 0);
	T_EQ(s.read[t_buffered_path(0, false, 1000)].bytes, 1000);
	phxfs_stats_view_close(v);
	T_EQ(phxfs_stats_view_open(pid, &v), 0);
	T_EQ(phxfs_stats_view_read(v, 0, &s), 0);
	T_ONE_OF((int)s.read[t_buffered_path(0, false, 1000)].bytes, 500, 1500);
	phxfs_stats_view_close(v);
	T_EQ(write(go[1], &c, 1), 1);
	T_EQ(waitpid(pid, NULL, 0), pid);
	t_region_free(&region);
}

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = 0;

	T_CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 2;
}

static void no_files_are_left_behind(void)
{
	/* a runtime's library may lie below /tmp itself */
	if (!t_on_host())
		T_CHECK(phxfs_device_count() > 0);
	t_own_mounts();
	t_mount("none", "/dev/shm", "tmpfs", NULL);
	t_mount("none", "/tmp", "tmpfs", NULL);
	a_process_may_view_itself();
	T_EQ(entries("/dev/shm"), 0);
	T_EQ(entries("/tmp"), 0);
}

static const struct t_case cases[] = {
	T_CASE(a_view_shows_another_processs_counters, .flags = T_PATHS),
	T_CASE(a_process_may_view_itself, .flags = T_PATHS),
	T_CASE(views_refuse_what_cannot_be_viewed),
	T_CASE(switched_off_there_is_nothing_to_view, .env = "PHX_STATS=off"),
	T_CASE(another_users_process_is_eacces),
	T_CASE(a_child_has_counters_of_its_own, .host = "a child reads into inherited memory"),
	T_CASE(no_files_are_left_behind),
};

T_MAIN(cases)
