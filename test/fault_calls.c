// SPDX-License-Identifier: Apache-2.0
/*
 * fault_calls - whatever call inside the library fails, nothing is lost
 *
 * Each scenario is a piece of a user's life. It is run with the first call of
 * a kind failing, then with the second, and so on until none is left to fail;
 * each time in a process of its own. Then: no crash, no hang, an error with a
 * text or the right result, the same scenario succeeds the next time, no
 * descriptor stays behind (and no memory: the sanitizers look).
 */
#include <phoenix.h>
#include <signal.h>
#include <sys/wait.h>

#include "t_fault.h"
#include "t_file.h"

enum { NOT_HIT = 42 };

/* The fault may also strike while the library starts. */
static bool cold;

static int fd, direct, out, out_direct;
static struct t_region mem; /* not registered; scenarios do that */

#define SIZE (256 * T_KIB)

static void set_up(void)
{
	fd = t_open("f", O_RDONLY);
	direct = t_open("f", O_RDONLY | O_DIRECT);
	out = t_open("g", O_RDWR | O_CREAT);
	out_direct = t_open("g", O_RDWR | O_DIRECT);
	t_map(&mem, 0, 4 * SIZE);
}

/*
 * A result under test: the error; or, for fewer bytes than asked for, EIO: a
 * transfer that failed on its way.
 */
static int judge(ssize_t got, size_t want)
{
	if (got < 0) {
		T_CHECK(*phxfs_last_error());
		return (int)got;
	}
	T_CHECK(got <= (ssize_t)want);
	return got == (ssize_t)want ? 0 : -EIO;
}

static int enter(void)
{
	int rc = phxfs_open(0);

	if (rc)
		return rc;
	rc = phxfs_regmem(0, mem.p, mem.len, NULL);
	if (rc)
		T_EQ(phxfs_close(0), 0);
	return rc;
}

static int leave(int rc)
{
	T_EQ(phxfs_deregmem(0, mem.p, mem.len), 0);
	T_EQ(phxfs_close(0), 0);
	return rc;
}

static void check_file(int file, off_t from, size_t len, uint64_t seed, uint64_t offset)
{
	t_fault_spare(true);
	t_file_pattern(file, from, len, seed, offset);
	t_fault_spare(false);
}

static int read_one(int from, size_t at, size_t len, off_t offset)
{
	ssize_t got;
	int rc;

	memset(mem.p, T_GUARD, mem.len);
	got = phxfs_read(from, 0, mem.p, (off_t)at, (ssize_t)len, offset);
	rc = judge(got, len);
	T_ALL(mem.p, at, T_GUARD);
	T_ALL(mem.p + at + len, 4096, T_GUARD);
	if (got > 0)
		T_PATTERN(mem.p + at, (size_t)got, 1, (uint64_t)offset);
	return rc == -EOPNOTSUPP ? 0 : rc; /* PHX_PATH=direct */
}

static int reads(void)
{
	int rc = enter();

	if (rc)
		return rc;
	rc = read_one(fd, 5, SIZE, 0) ?: read_one(direct, 0, SIZE, 0) ?:
	     read_one(direct, 1000, 100000, 1000) ?: read_one(direct, 3, 70000, 513);
	return leave(rc);
}

static int write_one(int to, size_t at, size_t len, off_t offset)
{
	static uint64_t seed = 100;
	ssize_t got;

	t_fill(mem.p + at, len, ++seed, 0);
	got = phxfs_write(to, 0, mem.p, (off_t)at, (ssize_t)len, offset);
	if (got > 0)
		check_file(to, offset, (size_t)got, seed, 0);
	got = judge(got, len);
	return got == -EOPNOTSUPP ? 0 : (int)got;
}

static int writes(void)
{
	int rc = enter();

	if (rc)
		return rc;
	rc = write_one(out, 5, SIZE, 0) ?: write_one(out_direct, 0, SIZE, 0) ?:
	     write_one(out_direct, 1000, 100000, 1000) ?: write_one(out_direct, 3, 70000, 513);
	return leave(rc);
}

static int vectors(void)
{
	enum { N = 20, TOTAL = N * 2000 + N * (N - 1) / 2 };
	struct phxfs_iov iov[N];
	ssize_t got;
	int rc = enter();

	if (rc)
		return rc;
	for (size_t i = 0; i < N; i++)
		iov[i] = (struct phxfs_iov){ mem.p + i * 5000, 2000 + i };
	got = phxfs_readv(fd, 0, iov, N, 3);
	rc = judge(got, TOTAL);
	for (size_t i = 0, at = 3; i < N && got > 0; at += iov[i++].nbytes) {
		size_t n = (size_t)got < iov[i].nbytes ? (size_t)got : iov[i].nbytes;

		T_PATTERN(iov[i].buf, n, 1, at);
		got -= (ssize_t)n;
	}
	if (!rc)
		rc = judge(phxfs_writev(out, 0, iov, N, 9), TOTAL);
	if (!rc)
		check_file(out, 9, TOTAL, 1, 3);
	return leave(rc);
}

static void fill_reqs(phxfs_io_req_t *reqs, int n)
{
	for (int i = 0; i < n; i++) {
		size_t at = (size_t)i * 16000;

		reqs[i] = (phxfs_io_req_t){ .fd = i % 2 ? direct : fd, .buf = mem.p,
					    .buf_offset = (off_t)(i * 32768) + (off_t)(at % 4096),
					    .nbytes = 15000 + (size_t)i, .f_offset = (off_t)at };
		if (i % 4 == 1) { /* whole blocks */
			reqs[i].buf_offset = i * 32768;
			reqs[i].f_offset = (off_t)(at / 4096 * 4096);
			reqs[i].nbytes = 16384;
		}
	}
	memset(mem.p, T_GUARD, mem.len);
}

static int check_reqs(const phxfs_io_req_t *reqs, int n, int rc)
{
	int failed = 0;

	if (rc < 0)
		return rc;
	rc = 0;
	for (int i = 0; i < n; i++) {
		int one = judge(reqs[i].result, reqs[i].nbytes);

		if (reqs[i].result > 0)
			T_PATTERN(mem.p + reqs[i].buf_offset, (size_t)reqs[i].result, 1,
				  (uint64_t)reqs[i].f_offset);
		failed += one != 0;
		if (one && one != -EOPNOTSUPP)
			rc = one;
	}
	return rc;
}

static int batches(void)
{
	enum { N = 16 };
	phxfs_io_req_t reqs[N];
	phxfs_batch_t *b;
	int rc = enter();

	if (rc)
		return rc;
	fill_reqs(reqs, N);
	rc = check_reqs(reqs, N, phxfs_read_batch(reqs, N));
	fill_reqs(reqs, N);
	b = phxfs_batch_submit_read(reqs, N);
	if (b)
		rc = check_reqs(reqs, N, phxfs_batch_wait(b)) ?: rc;
	else
		rc = -errno;
	b = phxfs_batch_submit_read(reqs, N);
	if (b)
		T_EQ(phxfs_batch_destroy(b), 0);
	else
		rc = -errno;
	return leave(rc);
}

static int queue_round(phxfs_queue_t *q)
{
	enum { N = 16 };
	struct phxfs_completion done[N];
	phxfs_io_req_t reqs[N];
	void *user[N];
	int n, rc = 0, taken = 0;

	fill_reqs(reqs, N);
	for (int i = 0; i < N; i++)
		user[i] = &reqs[i];
	n = phxfs_queue_submit(q, PHXFS_OP_READ, reqs, user, N);
	if (n < 0)
		return n;
	if (n > 3)
		phxfs_queue_cancel(q, user[3]);
	while (taken < n) {
		int got = phxfs_queue_wait(q, done + taken, 1, N - taken, NULL);

		T_CHECK(got > 0);
		taken += got;
	}
	for (int i = 0; i < n; i++) {
		phxfs_io_req_t *req = done[i].user_data;

		req->result = done[i].result;
		if (req->result == -ECANCELED)
			req->result = (ssize_t)(req->nbytes = 0);
	}
	rc = check_reqs(reqs, n, 0);
	return rc ? rc : n == N ? 0 : -EAGAIN;
}

static int queues(void)
{
	phxfs_queue_t *q = NULL;
	int event, rc = enter();

	if (rc)
		return rc;
	rc = phxfs_queue_create(16, &q);
	if (rc) {
		T_CHECK(!q);
		return leave(rc);
	}
	event = phxfs_queue_eventfd(q);
	if (event < 0)
		rc = event;
	rc = queue_round(q) ?: rc;
	rc = queue_round(q) ?: rc;
	T_EQ(phxfs_queue_destroy(q), 0);
	return leave(rc);
}

/* Appends through a batch and a queue: what fails must not change the order. */
static int appends(void)
{
	enum { N = 12 };
	struct phxfs_completion done[N];
	phxfs_io_req_t reqs[N];
	phxfs_queue_t *q = NULL;
	int to, taken = 0, n, rc;
	size_t at = 0;

	t_fault_spare(true);
	to = t_open("a", O_RDWR | O_CREAT | O_TRUNC | O_APPEND);
	t_fault_spare(false);
	rc = enter();
	if (rc)
		goto err_close;
	for (size_t i = 0; i < N; i++) {
		memset(mem.p + i * 4096, (int)i + 1, 4096);
		reqs[i] = (phxfs_io_req_t){ .fd = to, .buf = mem.p, .buf_offset = (off_t)(i * 4096),
					    .nbytes = 3000 };
	}
	rc = phxfs_write_batch(reqs, N);
	for (size_t i = 0; i < N && rc >= 0; i++) {
		uint8_t byte[3000];
		size_t len = reqs[i].result > 0 ? (size_t)reqs[i].result : 0;

		t_fault_spare(true);
		t_pread(to, byte, len, (off_t)at);
		t_fault_spare(false);
		T_ALL(byte, len, (int)i + 1);
		at += len;
	}
	rc = rc > 0 ? -EIO : rc;
	n = phxfs_queue_create(N, &q);
	if (!n) {
		n = phxfs_queue_submit(q, PHXFS_OP_WRITE, reqs, NULL, N);
		while (taken < n) {
			int got = phxfs_queue_wait(q, done + taken, 1, N - taken, NULL);

			T_CHECK(got > 0);
			for (int i = taken; i < taken + got; i++)
				rc = judge(done[i].result, 3000) ?: rc;
			taken += got;
		}
		T_EQ(phxfs_queue_destroy(q), 0);
	}
	rc = n < 0 ? n : rc;
	leave(0);
err_close:
	close(to);
	return rc;
}

static int memory(void)
{
	uint8_t host[100] = { 7 };
	void *p = NULL, *q = NULL;
	int rc = phxfs_mem_alloc(0, 3 * T_PAGE, &p);

	if (rc) {
		T_CHECK(!p);
		return rc;
	}
	T_EQ(phxfs_pointer_device(p), 0);
	rc = phxfs_memcpy_to(0, p, host, 100) ?: phxfs_memcpy_from(0, host, p, 100);
	if (!rc)
		T_EQ(host[0], 7);
	rc = phxfs_mem_alloc(0, 1, &q) ?: rc;
	if (q)
		T_EQ(phxfs_mem_free(0, q), 0);
	T_EQ(phxfs_mem_free(0, p), 0);
	return rc;
}

static int keep_going(void *arg, const struct phxfs_setting *s)
{
	return 0;
}

static int questions(void)
{
	struct phxfs_device_info dev = { .size = sizeof(dev) };
	struct phxfs_connector_info con = { .size = sizeof(con) };
	struct phxfs_path_info path = { .size = sizeof(path) };
	struct phxfs_latency lat = { .size = sizeof(lat) };
	struct phxfs_stats s = { .size = sizeof(s) };
	phxfs_stats_view_t *v = NULL;
	int view, rc;

	rc = phxfs_find_device("host", 0);
	if (rc < 0)
		return rc;
	T_EQ(phxfs_device_count(), 1);
	rc = phxfs_device_info(0, &dev);
	for (int i = 0; !phxfs_connector_info(i, &con); i++)
		;
	rc = phxfs_config_each(keep_going, NULL) ?: rc;
	rc = phxfs_stats(0, &s) ?: rc;
	T_CHECK(*phxfs_io_engine_name() && *phxfs_version());
	T_EQ(phxfs_path_query(fd, -1, mem.p, 100, 0, &path), 0);
	view = phxfs_stats_view_open(getpid(), &v);
	/* counters that could not be shared when the library started never are */
	if (view == -ENOENT && cold)
		return rc;
	if (view) {
		T_CHECK(!v);
		return view;
	}
	rc = phxfs_stats_view_read(v, 0, &s) ?: phxfs_stats_view_latency(v, 0, &lat) ?: rc;
	phxfs_stats_view_close(v);
	return rc;
}

static int (*child_scenario)(void);

static void run_in_child(void *arg)
{
	int rc = child_scenario();

	_exit(!rc ? 0 : t_fault_disarm() ? 10 : 1);
}

static int after_fork(void)
{
	int rc = batches(), child;

	child_scenario = batches;
	child = t_in_child(run_in_child, NULL);
	T_CHECK(child == 0 || child == 10);
	return rc;
}

/* One fault, in a process of its own. */
static void run(int (*scenario)(void), enum t_fault kind, long nth, long count)
{
	const char *name = t_fault_names[kind], *more = count > 1 ? " and all after" : "";
	bool rests = false;
	long hits;
	int rc, fds;

	alarm(t_sanitized() ? 120 : 30);
	set_up();
	if (!cold)
		T_EQ(phxfs_device_count(), 1);
	t_context("%s fails, number %ld%s", name, nth, more);
	t_fault_arm(kind, nth, count);
	rc = scenario();
	hits = t_fault_disarm();
	if (rc) {
		T_CHECK(hits);
		T_CHECK(rc == -EIO || *phxfs_last_error());
		if (count == 1 && t_fault_is_mended(kind))
			T_FAIL("%s must be mended, but the result is %d", name, rc);
	}
	t_context("after %s failed, number %ld%s", name, nth, more);
	T_EQ(scenario(), 0);
	/* workers open their rings when they first run: it must come to rest */
	for (int i = 0; i < 20 && !rests; i++) {
		fds = t_fd_count();
		T_EQ(scenario(), 0);
		rests = t_fd_count() == fds;
	}
	T_CHECK(rests);
	t_unmap(&mem);
	exit(hits ? 0 : NOT_HIT);
}

static int forked(int (*scenario)(void), enum t_fault kind, long nth, long count)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	T_CHECK(pid >= 0);
	if (pid == 0)
		run(scenario, kind, nth, count);
	T_EQ(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		T_FAIL("%s number %ld%s: %s", t_fault_names[kind], nth,
		       count > 1 ? " and all after" : "", strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status);
}

static void every_fault(int (*scenario)(void), long each_of_first)
{
	long faults = 0;

	t_need_direct();
	/* once, and on the disk: direct reads then need not wait for it */
	close(t_file("f", SIZE, 1, O_RDONLY | O_DIRECT));
	for (int kind = 0; kind < T_FAULTS; kind++) {
		int rc = 0;

		/* each of the first, then fewer the more there are; PHX_TEST_SCALE asks for more */
		for (long nth = 1; rc == 0 && nth < 2000; nth += 1 + nth / t_scale(each_of_first)) {
			rc = forked(scenario, kind, nth, 1);
			faults += rc == 0;
			if (rc && rc != NOT_HIT)
				exit(1);
		}
		/*
		 * The resource is gone, and stays away until the scenario's end;
		 * but what asks to be tried again may be tried for ever.
		 */
		if (t_fault_is_mended(kind) && kind != T_FAULT_RING)
			continue;
		for (long nth = 1; nth < 20; nth += 6) {
			rc = forked(scenario, kind, nth, INT32_MAX);
			if (rc == NOT_HIT)
				break;
			if (rc)
				exit(1);
			faults++;
		}
	}
	printf("  %ld faults\n", faults);
}

#define CASE(scenario) \
	static void scenario##_survive_every_fault(void) \
	{ \
		every_fault(scenario, 6); \
	}

CASE(reads)
CASE(writes)
CASE(vectors)
CASE(batches)
CASE(queues)
CASE(appends)
CASE(memory)
CASE(questions)

/* Slow: each scenario has a child. */
static void after_fork_survive_every_fault(void)
{
	every_fault(after_fork, 2);
}

static void a_cold_start_survives_every_fault(void)
{
	cold = true;
	every_fault(reads, 6);
	every_fault(questions, 6);
}

#define ON_EACH(scenario) \
	T_CASE(scenario, .flags = T_ENGINES, .timeout = 600), \
	T_CASE(scenario, .flags = T_ENGINES, .timeout = 600, \
	       .env = "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1")

static const struct t_case cases[] = {
	T_CASE(reads_survive_every_fault),
	T_CASE(reads_survive_every_fault, .env = "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1"),
	T_CASE(reads_survive_every_fault, .env = "PHX_PATH=direct"),
	T_CASE(reads_survive_every_fault, .env = "PHX_POLL_KB=512"),
	T_CASE(writes_survive_every_fault, .env = "PHX_POLL_KB=512"),
	T_CASE(writes_survive_every_fault),
	T_CASE(writes_survive_every_fault, .env = "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1"),
	T_CASE(writes_survive_every_fault, .env = "PHX_PATH=direct"),
	T_CASE(vectors_survive_every_fault),
	T_CASE(vectors_survive_every_fault, .env = "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1"),
	ON_EACH(batches_survive_every_fault),
	ON_EACH(queues_survive_every_fault),
	ON_EACH(appends_survive_every_fault),
	T_CASE(memory_survive_every_fault),
	T_CASE(questions_survive_every_fault),
	T_CASE(after_fork_survive_every_fault, .timeout = 300),
	T_CASE(a_cold_start_survives_every_fault, .timeout = 300),
};

T_MAIN(cases)
