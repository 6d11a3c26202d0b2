// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of single and vector transfers: results, errors, side effects. */
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "t_fuse.h"

static ssize_t oracle_read(int fd, void *buf, size_t n, off_t at)
{
	ssize_t rc = pread(fd, buf, n, at);

	return rc < 0 ? -errno : rc;
}

static ssize_t oracle_write(int fd, const void *buf, size_t n, off_t at)
{
	ssize_t rc = pwrite(fd, buf, n, at);

	return rc < 0 ? -errno : rc;
}

/* Every kind of call gives the errno that pread(2) or pwrite(2) gives. */
static void compare_calls(const char *what, int fd, size_t n, off_t at)
{
	static uint8_t other[2 * T_PAGE];
	phxfs_io_req_t req;
	struct t_region r, host;
	ssize_t want;

	t_region(&r, 0, 2 * T_PAGE);
	t_map(&host, -1, 2 * T_PAGE);
	for (int device = -1; device <= 0; device++) {
		uint8_t *p = device < 0 ? host.p : r.p;

		t_context("%s, %zu bytes at %lld, device %d", what, n, (long long)at, device);
		req = (phxfs_io_req_t){ .fd = fd, .device_id = device, .buf = p, .nbytes = n,
					.f_offset = at };
		want = oracle_read(fd, other, n, at);
		T_EQ(phxfs_read(fd, device, p, 0, (ssize_t)n, at), want);
		T_EQ(phxfs_readv(fd, device, &(struct phxfs_iov){ p, n }, 1, at), want);
		T_EQ(phxfs_read_batch(&req, 1), want != (ssize_t)n);
		T_EQ(req.result, want);

		want = oracle_write(fd, other, n, at);
		T_EQ(phxfs_write(fd, device, p, 0, (ssize_t)n, at), want);
		T_EQ(phxfs_writev(fd, device, &(struct phxfs_iov){ p, n }, 1, at), want);
		T_EQ(phxfs_write_batch(&req, 1), want != (ssize_t)n);
		T_EQ(req.result, want);
	}
	t_context("%s", "");
	t_unmap(&host);
	t_region_free(&r);
}

static void errors_of_descriptors_are_those_of_pread(void)
{
	enum { CLOSED = 900 };
	static const char byte[200];
	int pipes[2], pair[2], full[2], dir = t_open(".", O_RDONLY | O_DIRECTORY);

	T_EQ(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	T_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	T_EQ(pipe2(full, O_CLOEXEC), 0);
	T_EQ(write(full[1], byte, sizeof(byte)), sizeof(byte));
	t_file("f", 300, 1, O_RDWR);
	for (int i = 1; i >= 0; i--) {
		size_t n = i ? 100 : 0;

		compare_calls("a closed descriptor", CLOSED, n, 0);
		compare_calls("descriptor -1", -1, n, 0);
		compare_calls("a huge descriptor", INT32_MAX, n, 0);
		compare_calls("a read-only file", t_open("f", O_RDONLY), n, 0);
		compare_calls("a write-only file", t_open("f", O_WRONLY), n, 0);
		compare_calls("an O_PATH descriptor", t_open("f", O_PATH), n, 0);
		compare_calls("a folder", dir, n, 0);
		compare_calls("a pipe's reader", pipes[0], n, 0);
		compare_calls("a pipe's writer", pipes[1], n, 0);
		compare_calls("a pipe with data", full[0], n, 0);
		compare_calls("a pipe with room", full[1], n, 0);
		compare_calls("a socket", pair[0], n, 0);
		compare_calls("an eventfd", eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), n, 0);
		compare_calls("/dev/full", t_open("/dev/full", O_RDWR), n, 0);
		compare_calls("/dev/zero", t_open("/dev/zero", O_RDWR), n, 0);
		compare_calls("/dev/null", t_open("/dev/null", O_RDWR), n, 0);
		compare_calls("/proc/version", t_open("/proc/version", O_RDONLY), n, 0);
		compare_calls("the end of a file", t_open("f", O_RDONLY), n, 250);
		compare_calls("past the end", t_open("f", O_RDONLY), n, 1000000);
		compare_calls("the last offset", t_open("f", O_RDONLY), n, INT64_MAX - 100);
	}
}

static void errors_of_files_are_those_of_pwrite(void)
{
	int sealed = t_memfile(T_MIB, 1);

	T_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_GROW), 0);
	compare_calls("a file that may not grow", sealed, 100, T_MIB);
	compare_calls("a file that may not grow", sealed, 4096, 4096);
	T_EQ(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE), 0);
	compare_calls("a sealed file", sealed, 100, 0);
	/* beyond what ext4 and the like can hold */
	compare_calls("a file too large", t_file("f", 0, 0, O_RDWR), 100, INT64_MAX - 200);
}

static void a_file_size_limit_cuts_or_refuses_as_pwrite_does(void)
{
	struct rlimit limit = { 100000, 100000 };
	int fd = t_open("f", O_RDWR | O_CREAT), oracle = t_open("g", O_RDWR | O_CREAT);
	static const struct {
		size_t n;
		off_t at;
	} tries[] = { { 4096, 0 }, { 65536, 65536 }, { 100, 100000 }, { 100, 99950 },
		      { 100, 200000 }, { 100000, 1 }, { 131072, 0 } };
	static uint8_t same[2 * T_PAGE];
	struct t_region r;

	signal(SIGXFSZ, SIG_IGN);
	t_region(&r, 0, 2 * T_PAGE);
	t_fill(r.p, r.len, 1, 0);
	t_fill(same, sizeof(same), 1, 0);
	T_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		ssize_t want = oracle_write(oracle, same, tries[i].n, tries[i].at);

		t_context("%zu bytes at %lld", tries[i].n, (long long)tries[i].at);
		T_EQ(phxfs_write(fd, 0, r.p, 0, (ssize_t)tries[i].n, tries[i].at), want);
		T_EQ(t_size(fd), t_size(oracle));
	}
	t_region_free(&r);
}

/* A host buffer that ends in a hole: as many bytes as pread moves, or its error. */
static void host_buffers_that_fault_give_efault(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDWR);
	struct t_region r;

	t_map(&r, -1, 2 * T_PAGE);
	T_EQ(phxfs_read(fd, -1, NULL, 0, 100, 0), -EFAULT);
	T_EQ(phxfs_write(fd, -1, NULL, 0, 100, 0), -EFAULT);
	T_EQ(phxfs_read(fd, -1, r.p + r.len, 0, 4096, 0), -EFAULT);
	T_EQ(phxfs_write(fd, -1, r.p + r.len, 0, 4096, 0), -EFAULT);
	T_EQ(phxfs_read(fd, -1, r.p, 0, (ssize_t)r.len + 4096, 0),
	     oracle_read(fd, r.p, r.len + 4096, 0));
	T_PATTERN(r.p, r.len, 1, 0);
	T_EQ(t_size(fd), T_MIB);
	t_file_pattern(fd, 0, T_MIB, 1, 0);
}

static void zero_bytes_are_zero_bytes(void)
{
	int fd = t_file("f", 1000, 1, O_RDWR);
	struct t_region r;
	uint8_t host[1];

	t_region(&r, 0, T_PAGE);
	for (int device = -1; device <= 0; device++) {
		uint8_t *p = device < 0 ? host : r.p;

		T_EQ(phxfs_read(fd, device, p, 0, 0, 0), 0);
		T_EQ(phxfs_read(fd, device, p, 0, 0, 5000), 0);
		T_EQ(phxfs_write(fd, device, p, 0, 0, 5000), 0);
		T_EQ(phxfs_readv(fd, device, NULL, 0, 0), 0);
		T_EQ(phxfs_writev(fd, device, NULL, 0, 0), 0);
		T_EQ(phxfs_readv(fd, device, &(struct phxfs_iov){ p, 0 }, 1, 0), 0);
	}
	T_EQ(t_size(fd), 1000);
	T_ALL(r.p, r.len, T_GUARD);
	t_region_free(&r);
}

static void vectors_are_checked_before_anything_moves(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDWR);
	struct phxfs_iov iov[3];
	struct t_region r;

	t_region(&r, 0, 4 * T_PAGE);
	iov[0] = (struct phxfs_iov){ r.p, 4096 };
	iov[1] = (struct phxfs_iov){ r.p + 8192, 4096 };
	iov[2] = (struct phxfs_iov){ r.p + r.len - 4095, 4096 };
	T_EQ(phxfs_readv(fd, 0, iov, 3, 0), -EFAULT);
	T_EQ(phxfs_writev(fd, 0, iov, 3, 0), -EFAULT);
	T_EQ(phxfs_readv(fd, 0, iov, -1, 0), -EINVAL);
	T_EQ(phxfs_writev(fd, 0, iov, INT32_MIN, 0), -EINVAL);
	T_ONE_OF(phxfs_readv(fd, 0, NULL, 3, 0), -EFAULT, -EINVAL);
	iov[2].nbytes = SIZE_MAX - 4096;
	T_ONE_OF(phxfs_readv(fd, 0, iov, 3, 0), -EFAULT, -EINVAL);
	iov[1].nbytes = SIZE_MAX / 2;
	iov[2].nbytes = SIZE_MAX / 2;
	T_EQ(phxfs_readv(fd, -1, iov, 3, 0), -EINVAL); /* the sum wraps, as with preadv */
	T_EQ(phxfs_readv(fd, 0, iov, 1, -1), -EINVAL);
	T_EQ(phxfs_readv(fd, 0, iov, 1, INT64_MAX - 100), -EINVAL);
	T_ALL(r.p, r.len, T_GUARD);
	t_file_pattern(fd, 0, T_MIB, 1, 0);
	T_EQ(t_size(fd), T_MIB);
	t_region_free(&r);
}

/* More pieces than one system call takes, of every small size, some empty. */
static void vectors_have_no_limit(void)
{
	size_t n = t_on_host() ? 5000 : 1500; /* one call takes 1024 */
	struct phxfs_iov *iov = calloc(n, sizeof(*iov));
	size_t total = 0, at = 0;
	struct t_region r;
	int direct, fd;

	T_CHECK(iov);
	t_region(&r, 0, 8 * T_MIB);
	for (size_t i = 0; i < n; i++) {
		iov[i] = (struct phxfs_iov){ r.p + at, i % 700 };
		total += i % 700;
		at += i % 700 + 3;
	}
	fd = t_file("f", total + 500, 1, O_RDONLY);
	direct = open(t_name("f"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	for (int i = 0; i < 2 && fd >= 0; i++, fd = direct) {
		ssize_t got;

		t_set(r.p, T_GUARD, r.len);
		got = phxfs_readv(fd, 0, iov, (int)n, 77);
		if (t_path_is("direct") && fd == direct && got == -EOPNOTSUPP)
			continue;
		T_EQ(got, total);
		at = 0;
		for (size_t k = 0; k < n; k++) {
			T_PATTERN(iov[k].buf, iov[k].nbytes, 1, 77 + at);
			T_ALL((uint8_t *)iov[k].buf + iov[k].nbytes, 3, T_GUARD);
			at += iov[k].nbytes;
		}
		T_ALL((uint8_t *)iov[n - 1].buf + iov[n - 1].nbytes, 100, T_GUARD);
	}
	for (size_t k = 0, sum = 0; k < n; sum += iov[k++].nbytes)
		t_fill(iov[k].buf, iov[k].nbytes, 1, 77 + sum);
	fd = t_open("g", O_RDWR | O_CREAT);
	T_EQ(phxfs_writev(fd, 0, iov, (int)n, 13), total);
	T_EQ(t_size(fd), total + 13);
	t_file_pattern(fd, 13, total, 1, 77);
	t_region_free(&r);
	free(iov);
}

static void descriptors_are_left_as_they_were(void)
{
	static const int kinds[] = { 0, O_DIRECT, O_APPEND, O_DIRECT | O_APPEND, O_SYNC,
				     O_NONBLOCK };
	struct t_region r;

	t_region(&r, 0, 2 * T_PAGE);
	t_need_direct();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		int fd = t_file("f", 100000, 1, O_RDWR | kinds[i]);
		int flags = fcntl(fd, F_GETFL), fds = t_fd_count();
		struct phxfs_path_info info = { .size = sizeof(info) };
		ssize_t got;

		T_EQ(lseek(fd, 777, SEEK_SET), 777);
		for (int k = 0; k < 40; k++) {
			got = phxfs_read(fd, 0, r.p, k, 1000 + k, k * 7);
			T_CHECK(got == 1000 + k || got == -EOPNOTSUPP);
			got = phxfs_write(fd, 0, r.p, k, 1000 + k, k * 7);
			T_CHECK(got == 1000 + k || got == -EOPNOTSUPP);
			phxfs_path_query(fd, 0, r.p + k, 1000, k, &info);
		}
		T_EQ(fcntl(fd, F_GETFL), flags);
		T_EQ(lseek(fd, 0, SEEK_CUR), 777);
		/* a descriptor or two of the library's own (io_uring, stats) come once */
		T_CHECK(i == 0 || t_fd_count() == fds);
		close(fd);
	}
	t_region_free(&r);
}

static void last_error_names_step_object_errno_and_cure(void)
{
	int wr = t_file("f", T_MIB, 1, O_WRONLY);
	struct t_region r;
	char copy[512];

	T_CHECK(!strcmp(phxfs_last_error(), ""));
	t_region(&r, 0, T_PAGE);
	T_CHECK(!strcmp(phxfs_last_error(), ""));
	T_EQ(phxfs_read(wr, 0, r.p, 0, 4096, 0), -EBADF);
	T_CHECK(strstr(phxfs_last_error(), "EBADF"));
	T_CHECK(strstr(phxfs_last_error(), "descriptor")); /* the object */
	snprintf(copy, sizeof(copy), "%s", phxfs_last_error());
	/* "STEP: OBJECT: ERRNO-NAME (what it means): CURE" */
	T_CHECK(strchr(copy, ':') && strchr(copy, '(') && strchr(copy, ')'));
	T_CHECK(strchr(strchr(copy, ')'), ':'));
	/* a success leaves it */
	T_EQ(phxfs_write(wr, 0, r.p, 0, 4096, 0), 4096);
	T_CHECK(!strcmp(phxfs_last_error(), copy));
	T_EQ(phxfs_read(wr, 0, r.p, 0, T_PAGE + 1, 0), -EFAULT);
	T_CHECK(strstr(phxfs_last_error(), "EFAULT"));
	t_region_free(&r);
}

static long fail_in_thread(void *arg)
{
	if (strcmp(phxfs_last_error(), ""))
		return -1;
	if (phxfs_open(55) != -ENODEV)
		return -2;
	return strstr(phxfs_last_error(), "55") ? 0 : -3;
}

static void last_error_is_each_threads_own(void)
{
	struct t_call c;

	T_EQ(phxfs_open(44), -ENODEV);
	for (int i = 0; i < 50; i++) {
		t_call(&c, fail_in_thread, NULL);
		T_EQ(t_join(&c), 0);
	}
	T_CHECK(strstr(phxfs_last_error(), "44"));
}

/* Files under /proc/self/fd only: no name to open again. */
static void edges_work_on_files_without_a_name(void)
{
	int unlinked, nameless, fds[2];
	struct t_region r;

	t_need_direct();
	t_region(&r, 0, 2 * T_PAGE);
	unlinked = t_open("gone", O_RDWR | O_CREAT | O_DIRECT);
	T_EQ(unlink(t_name("gone")), 0);
	nameless = t_open(".", O_TMPFILE | O_RDWR | O_DIRECT);
	fds[0] = unlinked;
	fds[1] = nameless;
	for (int i = 0; i < 2; i++) {
		ssize_t got;

		t_fill(r.p, r.len, 5, 0);
		got = phxfs_write(fds[i], 0, r.p, 300, 50001, 300);
		if (got == -EOPNOTSUPP && t_path_is("direct"))
			continue;
		T_EQ(got, 50001);
		T_EQ(t_size(fds[i]), 50301);
		t_file_pattern(fds[i], 300, 50001, 5, 300);
		t_set(r.p, T_GUARD, r.len);
		T_EQ(phxfs_read(fds[i], 0, r.p, 301, 50000, 301), 50000);
		T_PATTERN(r.p + 301, 50000, 5, 301);
		T_ALL(r.p, 301, T_GUARD);
		T_ALL(r.p + 50301, 1000, T_GUARD);
	}
	t_region_free(&r);
}

static void edges_follow_the_file_and_not_its_name(void)
{
	int fd, other;
	struct t_region r;
	ssize_t got;

	t_need_direct();
	t_region(&r, 0, 2 * T_PAGE);
	fd = t_file("f", 100000, 1, O_RDWR | O_DIRECT);
	T_EQ(rename(t_name("f"), t_name("moved")), 0);
	other = t_file("f", 100000, 2, O_RDWR);
	t_fill(r.p, r.len, 9, 0);
	got = phxfs_write(fd, 0, r.p, 1, 60000, 1);
	T_CHECK(got == 60000 || (got == -EOPNOTSUPP && t_path_is("direct")));
	t_file_pattern(other, 0, 100000, 2, 0);
	if (got > 0)
		t_file_pattern(fd, 1, 60000, 9, 1);
	t_region_free(&r);
}

/* The file may not be opened a second time: said so, and nothing half-done in silence. */
static void write_without_permission(void *arg)
{
	struct t_region r;
	int fd = *(int *)arg;
	ssize_t got;

	/* a runtime's library may lie where only its owner comes */
	T_CHECK(phxfs_device_count() > 0);
	T_EQ(setgid(65534), 0);
	T_EQ(setuid(65534), 0);
	t_region(&r, 0, 2 * T_PAGE);
	t_fill(r.p, r.len, 5, 0);
	/* whole blocks need no second descriptor */
	if (!t_path_is("staging") && !t_path_is("bounce")) {
		T_EQ(phxfs_write(fd, 0, r.p, 0, 8192, 0), 8192);
		t_context("first edge");
		T_EQ(phxfs_write(fd, 0, r.p, 100, 8192, 100),
		     t_path_is("direct") ? -EOPNOTSUPP : -EACCES);
	} else {
		got = phxfs_write(fd, 0, r.p, 100, 8192, 100);
		T_EQ(got, -EACCES);
	}
	T_CHECK(strstr(phxfs_last_error(), t_path_is("direct") ? "EOPNOTSUPP" : "EACCES"));
	/* the last edge: what went before it may count, what follows may not */
	got = phxfs_write(fd, 0, r.p, 0, 8192 + 100, 0);
	T_CHECK(got == 8192 || got == -EACCES || (got == -EOPNOTSUPP && t_path_is("direct")));
}

static void an_edge_that_may_not_be_written_is_eacces(void)
{
	uint8_t byte[100];
	int fd;

	t_need_root();
	t_need_direct();
	fd = t_file("f", 16384, 1, O_RDWR | O_DIRECT);
	T_EQ(fchmod(fd, 0), 0);
	T_EQ(t_in_child(write_without_permission, &fd), 0);
	T_EQ(t_size(fd), 16384);
	t_file_pattern(fd, 8192 + 100, 16384 - 8192 - 100, 1, 8192 + 100);
	t_pread(t_open("f", O_RDONLY), byte, sizeof(byte), 8192);
	T_PATTERN(byte, sizeof(byte), 1, 8192);
}

struct neighbour {
	int fd;
	_Atomic bool stop;
};

/* Writes its own bytes on both sides of the library's range; they must stay. */
static long neighbour(void *arg)
{
	struct neighbour *n = arg;
	uint8_t value = 0, got;
	long rounds = 0;

	while (!n->stop) {
		static const off_t at[] = { 99, 100 + 20000 };

		value++;
		for (int i = 0; i < 2; i++) {
			t_pwrite(n->fd, &value, 1, at[i]);
			t_pread(n->fd, &got, 1, at[i]);
			if (got != value)
				return -1;
		}
		rounds++;
	}
	return rounds;
}

static void edges_never_write_a_neighbour_back(void)
{
	struct neighbour n = { 0 };
	struct t_region r;
	struct t_call c;
	int fd;

	t_need_direct();
	if (t_path_is("direct"))
		t_skip("edges are refused");
	fd = t_file("f", 40000, 1, O_RDWR | O_DIRECT);
	n.fd = t_open("f", O_RDWR);
	t_region(&r, 0, T_PAGE);
	t_call(&c, neighbour, &n);
	for (long i = t_scale(2000); i > 0; i--) {
		t_fill(r.p, 30000, (uint64_t)i, 0);
		T_EQ(phxfs_write(fd, 0, r.p, 100, 20000, 100), 20000);
	}
	n.stop = true;
	T_CHECK(t_join(&c) > 0);
	t_file_pattern(n.fd, 100, 20000, 1, 100);
	t_file_pattern(n.fd, 20101, 40000 - 20101, 1, 20101);
	t_region_free(&r);
}

/* One append after another, from one thread, in each kind of call. */
static void appends_go_to_the_end_whatever_the_offset(void)
{
	static const int kinds[] = { 0, O_DIRECT };
	struct t_region r;

	t_need_direct();
	t_region(&r, 0, T_MIB);
	t_fill(r.p, r.len, 4, 0);
	for (int k = 0; k < 2; k++) {
		int fd = t_file("f", 0, 0, O_RDWR | O_APPEND | kinds[k]);
		size_t end = 0;

		for (size_t i = 1; i < 60; i++) {
			size_t n = i * 331 % 9000 + (i % 4 ? 0 : 4096 - i * 331 % 9000 % 4096);
			ssize_t got = phxfs_write(fd, 0, r.p, (off_t)end, (ssize_t)n, 7);

			if (got == -EOPNOTSUPP && t_path_is("direct"))
				continue;
			T_EQ(got, n);
			end += n;
			T_EQ(t_size(fd), end);
		}
		t_file_pattern(fd, 0, end, 4, 0);
	}
	t_region_free(&r);
}

/* PHXFS_DEVICE_ANY: a registration is found and counted as that, other memory is the host's. */
static void any_device_is_found(void)
{
	size_t len = 3 * T_PAGE;
	int fd = t_file("f", len, 3, O_RDWR | (t_path_is("direct") ? 0 : O_DIRECT));
	struct phxfs_stats before = { .size = sizeof(before) }, after = before;
	char *host = malloc(len);
	struct t_region r;
	phxfs_io_req_t req;

	T_CHECK(host);
	t_region(&r, 0, len);
	T_EQ(phxfs_stats(0, &before), 0);
	T_EQ(phxfs_read(fd, PHXFS_DEVICE_ANY, r.p, 0, (ssize_t)len, 0), len);
	T_PATTERN(r.p, len, 3, 0);
	T_EQ(phxfs_stats(0, &after), 0);
	T_CHECK(after.read[0].ops + after.read[1].ops + after.read[2].ops ==
		before.read[0].ops + before.read[1].ops + before.read[2].ops + 1);

	T_EQ(phxfs_read(fd, PHXFS_DEVICE_ANY, host, 0, 1000, 7), 1000);
	T_PATTERN(host, 1000, 3, 7);
	req = (phxfs_io_req_t){ fd, PHXFS_DEVICE_ANY, r.p, 5, 100, 9, 0 };
	T_EQ(phxfs_read_batch(&req, 1), 0);
	T_PATTERN(r.p + 5, 100, 3, 9);
	T_EQ(phxfs_read(fd, PHXFS_DEVICE_ANY, NULL, 0, 0, 0), 0);
	T_EQ(phxfs_read(fd, PHXFS_DEVICE_ANY, (void *)T_PAGE, 0, 1, 0), -EFAULT);
	T_EQ(phxfs_read(fd, PHXFS_DEVICE_ANY, host, -1, 1, 0), -EINVAL);
	t_region_free(&r);
	free(host);
}

static void count_end(void *arg, ssize_t result)
{
	ssize_t *end = arg;

	end[1] = result;
	__atomic_add_fetch(&end[0], 1, __ATOMIC_RELEASE);
}

#define ENDED(n) (__atomic_load_n(&end[0], __ATOMIC_ACQUIRE) == (n))

static void a_stream_transfer_tells_its_end(void)
{
	size_t n = 5000;
	off_t zero = 0, at = 77;
	ssize_t end[2] = { 0 };
	char host[5000];
	struct phxfs_stream_io io = { .size = sizeof(io), .op = PHXFS_OP_READ,
				      .fd = t_file("f", 6000, 3, O_RDWR),
				      .device_id = PHXFS_DEVICE_ANY, .buf = host, .nbytes = &n,
				      .buf_offset = &zero, .f_offset = &at, .done = count_end,
				      .arg = end };

	T_EQ(phxfs_io_stream(&io), 0);
	T_WAIT(ENDED(1));
	T_EQ(end[1], n);
	T_PATTERN(host, n, 3, 77);
	at = 5999;
	T_EQ(phxfs_io_stream(&io), 0);
	T_WAIT(ENDED(2));
	T_EQ(end[1], 1);
	io.device_id = 0; /* in no registration */
	T_EQ(phxfs_io_stream(&io), 0);
	T_WAIT(ENDED(3));
	T_EQ(end[1], -EFAULT);
	io.device_id = 63;
	T_EQ(phxfs_io_stream(&io), -ENODEV);
	io.device_id = -1;
	io.op = 2;
	T_EQ(phxfs_io_stream(&io), -EINVAL);
	io.op = PHXFS_OP_WRITE;
	io.done = NULL;
	T_EQ(phxfs_io_stream(&io), -EINVAL);
	io.size = 8;
	T_EQ(phxfs_io_stream(&io), -EINVAL);
	T_EQ(phxfs_io_stream(NULL), -EINVAL);
	T_EQ(end[0], 3);
}

static const struct t_case cases[] = {
	T_CASE(errors_of_descriptors_are_those_of_pread, .flags = T_PATHS | T_ENGINES),
	T_CASE(errors_of_files_are_those_of_pwrite, .flags = T_PATHS | T_ENGINES),
	T_CASE(a_file_size_limit_cuts_or_refuses_as_pwrite_does, .flags = T_PATHS),
	T_CASE(host_buffers_that_fault_give_efault, .flags = T_PATHS),
	T_CASE(zero_bytes_are_zero_bytes, .flags = T_PATHS),
	T_CASE(vectors_are_checked_before_anything_moves, .flags = T_PATHS),
	T_CASE(vectors_have_no_limit, .flags = T_PATHS),
	T_CASE(descriptors_are_left_as_they_were, .flags = T_PATHS),
	T_CASE(last_error_names_step_object_errno_and_cure),
	T_CASE(last_error_is_each_threads_own),
	T_CASE(edges_work_on_files_without_a_name, .flags = T_PATHS),
	T_CASE(edges_follow_the_file_and_not_its_name, .flags = T_PATHS),
	T_CASE(an_edge_that_may_not_be_written_is_eacces, .flags = T_PATHS),
	T_CASE(edges_never_write_a_neighbour_back, .flags = T_PATHS),
	T_CASE(any_device_is_found, .flags = T_PATHS | T_ENGINES),
	T_CASE(a_stream_transfer_tells_its_end),
	T_CASE(appends_go_to_the_end_whatever_the_offset, .flags = T_PATHS),
};

T_MAIN(cases)
