// SPDX-License-Identifier: Apache-2.0
/*
 * What users of storage libraries have suffered, each as a test that it does
 * not happen here: file systems, paths, errors, processes.
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "t_fuse.h"

static int warnings;

static void count_warnings(void *arg, int level, const char *message)
{
	__atomic_fetch_add(&warnings, level <= PHXFS_LOG_WARN, __ATOMIC_RELAXED);
}

/* An overlay over the case's folder; its files appear under "merged". */
static void mount_overlay(void)
{
	char options[2048];

	t_own_mounts();
	T_EQ(mkdir(t_name("lower"), 0700), 0);
	/* an upper layer cannot lie on every file system: tmpfs can */
	t_mount("none", "layers", "tmpfs", NULL);
	T_EQ(mkdir(t_name("layers/upper"), 0700), 0);
	T_EQ(mkdir(t_name("layers/work"), 0700), 0);
	snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s", t_name("lower"),
		 t_name("layers/upper"), t_name("layers/work"));
	t_mount("none", "merged", "overlay", options);
}

static void read_back(const char *name, int flags, size_t size)
{
	struct t_region r;
	int fd = open(t_name(name), flags | O_CLOEXEC);

	if (fd < 0 && flags & O_DIRECT && errno == EINVAL)
		return;
	t_context("%s%s", name, flags & O_DIRECT ? " O_DIRECT" : "");
	T_CHECK(fd >= 0);
	t_region(&r, 0, 2 * T_MIB);
	for (int i = 0; i < 10; i++) {
		memset(r.p, T_GUARD, size + T_PAGE);
		T_EQ(phxfs_read(fd, 0, r.p, i, (ssize_t)size, 0), size);
		T_PATTERN(r.p + i, size, 1, 0);
		T_ALL(r.p + i + size, 4096, T_GUARD);
	}
	close(fd);
	t_region_free(&r);
}

static void S21_every_file_system_reads_alike(void)
{
	static const char *const names[] = { "lower/f", "layers/f", "merged/f", "merged/g" };
	size_t size = 1000003;

	mount_overlay();
	T_EQ(phxfs_set_log(count_warnings, NULL, PHXFS_LOG_WARN), 0);
	close(t_file("lower/f", size, 1, O_RDONLY));
	close(t_file("layers/f", size, 1, O_RDONLY));
	close(t_file("merged/g", size, 1, O_RDONLY)); /* in the upper layer */
	for (int i = 0; i < 4; i++) {
		read_back(names[i], O_RDONLY, size);
		read_back(names[i], O_RDONLY | O_DIRECT, size);
	}
	/* at most one warning for each file system and reason */
	T_CHECK(warnings <= 3);
}

/* Refused under PHX_PATH=direct: the API's own text says all there is to know. */
static void S24_a_refusal_names_file_system_step_and_errno(void)
{
	struct phxfs_path_info info = { .size = sizeof(info) };
	struct t_region r;
	int fd;

	mount_overlay();
	close(t_file("lower/f", T_MIB, 1, O_RDONLY));
	fd = open(t_name("merged/f"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		t_skip("no O_DIRECT on overlay: %s", strerror(errno));
	t_region(&r, 0, T_MIB);
	T_EQ(phxfs_read(fd, 0, r.p, 1, 1000, 0), -EOPNOTSUPP);
	T_CHECK(strstr(phxfs_last_error(), "EOPNOTSUPP"));
	T_CHECK(strstr(phxfs_last_error(), "read"));
	T_CHECK(strstr(phxfs_last_error(), "PHX_PATH"));
	T_EQ(phxfs_path_query(fd, 0, r.p + 1, 1000, 0, &info), -EOPNOTSUPP);
	T_CHECK(strstr(info.text, "overlay"));
	T_CHECK(strstr(phxfs_last_error(), "overlay"));
	t_region_free(&r);
}

/* The edges of a write need the file opened again: its errno reaches the user. */
static void S25_the_errno_of_opening_again_is_not_swallowed(void)
{
	static const int errors[] = { EACCES, EPERM, EMFILE, EIO, EROFS };
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	struct t_region r;
	char name[16];

	t_region(&r, 0, T_MIB);
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		int fd = t_fuse_open(fs, O_RDWR | O_DIRECT);
		ssize_t got;

		/* FUSE itself takes unaligned direct I/O: as block devices refuse it */
		t_fuse_fail(fs, EINVAL, -1);
		fs->open_error = errors[i];
		fs->open_skip = 0;
		got = phxfs_write(fd, 0, r.p, 0, 1000, 1);
		fs->open_error = 0;
		t_fuse_fail(fs, 0, 0);
		t_context("%s", strerror(errors[i]));
		T_EQ(got, -errors[i]);
		snprintf(name, sizeof(name), "%s", strerrorname_np(errors[i]));
		T_CHECK(strstr(phxfs_last_error(), name));
		close(fd);
	}
	T_PATTERN(fs->data, T_MIB, 7, 0);
	t_region_free(&r);
}

struct user {
	int fd;
	struct t_region r;
	size_t size;
	struct t_call call;
};

static long write_and_read(void *arg)
{
	struct user *u = arg;

	for (long i = t_scale(6); i > 0; i--) {
		t_fill(u->r.p, u->size, (uint64_t)i, 0);
		T_EQ(phxfs_write(u->fd, 0, u->r.p, 0, (ssize_t)u->size, 0), u->size);
		memset(u->r.p, 0, u->size);
		T_EQ(phxfs_read(u->fd, 0, u->r.p, 0, (ssize_t)u->size, 0), u->size);
		T_PATTERN(u->r.p, u->size, (uint64_t)i, 0);
	}
	return 0;
}

/* Sixteen users of a pool that is too small for one of them. */
static void S26_a_full_pool_waits_and_drops_nothing(void)
{
	struct user users[16];
	char name[16];

	for (int i = 0; i < 16; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		users[i].fd = t_open(name, O_RDWR | O_CREAT);
		users[i].size = 1000003 + (size_t)i * 300000;
		t_region(&users[i].r, 0, 6 * T_MIB);
		t_call(&users[i].call, write_and_read, &users[i]);
	}
	for (int i = 0; i < 16; i++)
		T_EQ(t_join(&users[i].call), 0);
}

/* Is a mapping of this file in the process? */
static bool mapped(const char *name)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[1024];
	bool found = false;

	T_CHECK(f);
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, name) != NULL;
	fclose(f);
	return found;
}

static void S27_fuse_files_are_exact_and_never_mapped(void)
{
	struct t_fuse *fs = t_fuse_start(2 * T_MIB, 7);
	struct t_transfer x;
	struct t_call c;
	struct t_region r;
	int fd = t_fuse_open(fs, O_RDWR);

	t_region(&r, 0, 2 * T_MIB);
	t_fill(r.p, 1000003, 3, 0);
	T_EQ(phxfs_write(fd, 0, r.p, 0, 1000003, 11), 1000003);
	T_PATTERN(fs->data + 11, 1000003, 3, 0);
	T_PATTERN(fs->data, 11, 7, 0);
	T_PATTERN(fs->data + 1000014, 1000, 7, 1000014);
	memset(r.p, T_GUARD, r.len);
	/* looked at in the middle of the read */
	x = (struct t_transfer){ .fd = fd, .buf = r.p + 5, .len = 1000003, .offset = 11 };
	t_fuse_hold(fs);
	t_call(&c, t_transfer, &x);
	t_fuse_held(fs, 1);
	T_CHECK(!mapped("fuse/f"));
	t_fuse_release(fs);
	T_EQ(t_join(&c), 1000003);
	T_PATTERN(r.p + 5, 1000003, 3, 0);
	T_ALL(r.p, 5, T_GUARD);
	T_ALL(r.p + 1000008, 1000, T_GUARD);
	t_region_free(&r);
}

/* How many pages of the file the page cache holds. */
static size_t resident(int fd)
{
	size_t size = (size_t)t_size(fd), pages = (size + 4095) / 4096, n = 0;
	unsigned char *vec = malloc(pages);
	void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

	T_CHECK(vec && p != MAP_FAILED);
	T_EQ(mincore(p, size, vec), 0);
	for (size_t i = 0; i < pages; i++)
		n += vec[i] & 1;
	munmap(p, size);
	free(vec);
	return n;
}

static void S31_o_direct_reads_leave_the_page_cache_alone(void)
{
	phxfs_io_req_t req;
	struct t_region r;
	int fd, look;

	t_need_direct();
	t_region(&r, 0, 4 * T_MIB);
	fd = t_file("f", 4 * T_MIB, 1, O_RDONLY | O_DIRECT);
	look = t_open("f", O_RDONLY);
	T_EQ(posix_fadvise(look, 0, 0, POSIX_FADV_DONTNEED), 0);
	if (resident(look))
		t_skip("this file system keeps its pages");
	T_EQ(phxfs_read(fd, 0, r.p, 0, 4 * T_MIB, 0), 4 * T_MIB);
	T_PATTERN(r.p, 4 * T_MIB, 1, 0);
	req = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = 2 * T_MIB, .f_offset = T_MIB };
	T_EQ(phxfs_read_batch(&req, 1), 0);
	T_EQ(resident(look), 0);
	if (t_path_is("direct"))
		return;
	/* the edges neither */
	T_EQ(phxfs_read(fd, 0, r.p, 3, T_MIB + 7, 1001), T_MIB + 7);
	T_EQ(phxfs_read(fd, 0, r.p, 3, 100, 1001), 100);
	T_EQ(resident(look), 0);
	t_region_free(&r);
}

static void small_user(void *arg)
{
	int fd = *(int *)arg;
	long before = t_rss_kib(), after;
	phxfs_io_req_t req;
	struct t_region r;

	t_region(&r, 0, 2 * T_PAGE);
	req = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = T_PAGE };
	for (int i = 0; i < 50; i++) {
		T_EQ(phxfs_read(fd, 0, r.p, i, T_PAGE, 0), T_PAGE);
		T_EQ(phxfs_read_batch(&req, 1), 0);
	}
	T_PATTERN(r.p, T_PAGE, 1, 0);
	after = t_rss_kib();
	if (after - before > 16 * 1024 && !t_sanitized())
		T_FAIL("%ld KiB more", after - before);
	t_region_free(&r);
}

static void S35_sixty_four_processes_stay_small(void)
{
	int fd = t_file("f", T_PAGE, 1, O_RDONLY);
	pid_t pids[64];

	for (int i = 0; i < 64; i++) {
		pids[i] = fork();
		T_CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			small_user(&fd);
			exit(0);
		}
	}
	for (int i = 0; i < 64; i++) {
		int status;

		T_EQ(waitpid(pids[i], &status, 0), pids[i]);
		T_EQ(status, 0);
	}
}

/* A hash is enough: where it differs the property test tells more. */
static uint64_t hash(const uint8_t *p, size_t n, uint64_t h)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ULL;
	return h;
}

static uint64_t mixed_hash;

static void mixed_work(void)
{
	enum { OPS = 1000, SIZE = 1 << 20 };
	int fd = t_file("f", SIZE, 1, O_RDWR);
	struct t_rand rand = { 99 };
	phxfs_io_req_t reqs[10];
	struct t_region r;

	t_region(&r, 0, 4 * T_MIB);
	for (int i = 0; i < OPS; i += 10) {
		bool write = t_below(&rand, 2);

		for (size_t k = 0; k < 10; k++) {
			size_t len = 1 + t_below(&rand, 30000), slot = SIZE / 10;
			size_t at = k * 400000 + t_below(&rand, 4096);
			size_t offset = k * slot + t_below(&rand, slot - len);

			reqs[k] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = len,
						    .buf_offset = (off_t)at,
						    .f_offset = (off_t)offset };
		}
		T_EQ(write ? phxfs_write_batch(reqs, 10) : phxfs_read_batch(reqs, 10), 0);
	}
	mixed_hash = hash(r.p, r.len, 7);
	T_EQ(phxfs_read(fd, 0, r.p, 0, SIZE, 0), SIZE);
	mixed_hash = hash(r.p, SIZE, mixed_hash);
	t_region_free(&r);
}

struct engine_run {
	const char *engine, *workers, *path;
	uint64_t *out;
};

static void run_engine(void *arg)
{
	const struct engine_run *e = arg;

	setenv("PHX_IO_ENGINE", e->engine, 1);
	setenv("PHX_IO_WORKERS", e->workers, 1);
	setenv("PHX_PATH", e->path, 1);
	mixed_work();
	*e->out = mixed_hash;
}

static void S36_every_engine_gives_the_same_bytes(void)
{
	struct engine_run runs[] = {
		{ "sync", "1", "auto", NULL },	  { "sync", "4", "bounce", NULL },
		{ "io_uring", "1", "auto", NULL }, { "io_uring", "4", "staging", NULL },
	};
	uint64_t *out = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	T_CHECK(out != MAP_FAILED);
	for (int i = 0; i < 4; i++) {
		runs[i].out = &out[i];
		T_EQ(t_in_child(run_engine, &runs[i]), 0);
		T_EQ(out[i], out[0]);
	}
}

/* Nothing can be opened: every call fails cleanly and keeps nothing. */
static void K12_failing_calls_leak_no_descriptors(void)
{
	struct rlimit old, none;
	struct t_region r;
	phxfs_stats_view_t *v;
	phxfs_io_req_t req;
	phxfs_queue_t *q;
	int fd, before, lowest, rc;
	long rss = 0;

	fd = t_file("f", T_PAGE, 1, O_RDWR);
	T_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
	before = t_fd_count();
	lowest = dup(0); /* the first number that is free */
	T_EQ(close(lowest), 0);
	none = (struct rlimit){ (rlim_t)lowest, old.rlim_max };
	T_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	t_map(&r, 0, T_PAGE);
	req = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = 4096 };
	for (long i = 0; i < t_scale(10000); i++) {
		if (i == 500) {
			T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
			rss = t_rss_kib();
			T_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
		}
		rc = phxfs_open(0);
		if (rc == 0) {
			T_EQ(phxfs_regmem(0, r.p, r.len, NULL), 0);
			T_EQ(phxfs_read(fd, 0, r.p, 0, 4096, 0), 4096);
			T_EQ(phxfs_read_batch(&req, 1), 0);
		} else {
			T_CHECK(rc < 0 && *phxfs_last_error());
		}
		if (phxfs_queue_create(4, &q) == 0)
			T_EQ(phxfs_queue_destroy(q), 0);
		if (phxfs_stats_view_open(getpid(), &v) == 0)
			phxfs_stats_view_close(v);
		if (rc == 0)
			T_EQ(phxfs_close(0), 0);
	}
	T_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
	T_EQ(t_fd_count(), before);
	T_CHECK(t_sanitized() || t_rss_kib() - rss <= 1024);
	/* and then all works */
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_queue_create(4, &q), 0);
	T_EQ(phxfs_queue_destroy(q), 0);
	T_EQ(phxfs_close(0), 0);
}

static const struct t_case cases[] = {
	T_CASE(S21_every_file_system_reads_alike),
	T_CASE(S24_a_refusal_names_file_system_step_and_errno, .env = "PHX_PATH=direct"),
	T_CASE(S25_the_errno_of_opening_again_is_not_swallowed),
	T_CASE(S26_a_full_pool_waits_and_drops_nothing,
	       .env = "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1"),
	T_CASE(S26_a_full_pool_waits_and_drops_nothing,
	       .env = "PHX_PATH=staging PHX_STAGING_SIZE_MB=1 PHX_IO_ENGINE=sync"),
	T_CASE(S27_fuse_files_are_exact_and_never_mapped, .flags = T_PATHS),
	T_CASE(S31_o_direct_reads_leave_the_page_cache_alone, .flags = T_PATHS),
	T_CASE(S35_sixty_four_processes_stay_small, .flags = T_PATHS),
	T_CASE(S36_every_engine_gives_the_same_bytes),
	T_CASE(K12_failing_calls_leak_no_descriptors),
};

T_MAIN(cases)
