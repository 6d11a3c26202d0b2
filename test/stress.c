// SPDX-License-Identifier: Apache-2.0
/*
 * stress - everything at once, for a while
 *
 * usage: stress [--seconds N] [--threads N] [CASE ...]
 *
 * What each thread gets is either right in every byte or one of the errors
 * that another thread's call explains.
 */
#include <getopt.h>
#include <sys/wait.h>

#include "t_file.h"

#define BUFFERS 6
#define BUFFER_SIZE (8 * T_PAGE)
#define FILE_SIZE T_MIB

static long seconds = 5;
static int threads = 12;
static uint64_t end_ns;

struct shared {
	struct t_region r[BUFFERS]; /* registered and deregistered by everyone */
	int fd[3];
	_Atomic long done[16];
};

static struct shared s;

struct thread {
	struct t_rand rand;
	int index;
	struct t_region own; /* for data that is checked */
	phxfs_queue_t *q;
	struct t_call call;
};

static bool time_is_up(void)
{
	return t_now_ns() >= end_ns;
}

static void open_and_close(struct thread *t)
{
	int device = (int)t_below(&t->rand, 2), rc = phxfs_open(device);

	T_CHECK(rc == 0 || rc == -EBUSY);
	if (rc == 0) {
		if (t_below(&t->rand, 2))
			sched_yield();
		/* each pairs its own open: it is never the one too many */
		T_EQ(phxfs_close(device), 0);
	}
}

static void register_and_deregister(struct thread *t)
{
	struct t_region *r = &s.r[t_below(&t->rand, BUFFERS)];
	size_t at = t_below(&t->rand, 4) * T_PAGE, len = (1 + t_below(&t->rand, 4)) * T_PAGE;
	int rc = phxfs_regmem(0, r->p + at, len, NULL);

	/* -EINVAL: overlaps another's */
	T_CHECK(rc == 0 || rc == -EINVAL);
	if (rc)
		return;
	if (t_below(&t->rand, 2))
		(void)!phxfs_read(s.fd[0], 0, r->p + at, 0, (ssize_t)len, 0);
	rc = phxfs_deregmem(0, r->p + at, len);
	/* the device is kept open by main */
	T_EQ(rc, 0);
}

/* Into a buffer that others take away: all of it or -EFAULT. */
static void transfer_shared(struct thread *t)
{
	struct t_region *r = &s.r[t_below(&t->rand, BUFFERS)];
	size_t at = t_below(&t->rand, BUFFER_SIZE), n = 1 + t_below(&t->rand, BUFFER_SIZE - at);
	ssize_t got = phxfs_read(s.fd[t_below(&t->rand, 2)], 0, r->p, (off_t)at, (ssize_t)n,
				 (off_t)t_below(&t->rand, FILE_SIZE - n));

	T_CHECK(got == (ssize_t)n || got == -EFAULT);
}

static void transfer_own(struct thread *t)
{
	size_t at = t_below(&t->rand, BUFFER_SIZE), n = 1 + t_below(&t->rand, BUFFER_SIZE - at);
	off_t offset = (off_t)t_below(&t->rand, FILE_SIZE - n);
	int device = t_below(&t->rand, 4) ? 0 : -1;

	memset(t->own.p, T_GUARD, BUFFER_SIZE);
	T_EQ(phxfs_read(s.fd[t_below(&t->rand, 2)], device, t->own.p, (off_t)at, (ssize_t)n,
			offset), n);
	T_PATTERN(t->own.p + at, n, 1, (uint64_t)offset);
	T_ALL(t->own.p, at, T_GUARD);
	T_ALL(t->own.p + at + n, BUFFER_SIZE - at - n, T_GUARD);
}

static void make_reqs(struct thread *t, phxfs_io_req_t *reqs, int n)
{
	size_t slot = BUFFER_SIZE / (size_t)n;

	for (int i = 0; i < n; i++) {
		size_t len = 1 + t_below(&t->rand, slot);

		reqs[i] = (phxfs_io_req_t){ .fd = s.fd[t_below(&t->rand, 2)], .buf = t->own.p,
					    .buf_offset = (off_t)((size_t)i * slot), .nbytes = len,
					    .f_offset = (off_t)t_below(&t->rand, FILE_SIZE - len) };
	}
}

static void check_req(struct thread *t, const phxfs_io_req_t *req)
{
	T_EQ(req->result, req->nbytes);
	T_PATTERN(t->own.p + req->buf_offset, req->nbytes, 1, (uint64_t)req->f_offset);
}

static void batch(struct thread *t)
{
	phxfs_io_req_t reqs[24];
	int n = 1 + (int)t_below(&t->rand, 24);

	make_reqs(t, reqs, n);
	T_EQ(phxfs_read_batch(reqs, n), 0);
	for (int i = 0; i < n; i++)
		check_req(t, &reqs[i]);
}

static void async_batch(struct thread *t)
{
	phxfs_io_req_t reqs[24];
	int n = 1 + (int)t_below(&t->rand, 24);
	phxfs_batch_t *b;

	make_reqs(t, reqs, n);
	b = phxfs_batch_submit_read(reqs, n);
	if (!b) {
		T_EQ(errno, EBUSY);
		return;
	}
	if (t_below(&t->rand, 3) == 0) {
		T_EQ(phxfs_batch_destroy(b), 0);
		return;
	}
	T_EQ(phxfs_batch_wait(b), 0);
	for (int i = 0; i < n; i++)
		check_req(t, &reqs[i]);
}

static void queue(struct thread *t)
{
	struct phxfs_completion out[16];
	phxfs_io_req_t reqs[16];
	void *user[16];
	int n = 1 + (int)t_below(&t->rand, 16), taken = 0;

	if (!t->q)
		T_EQ(phxfs_queue_create(16, &t->q), 0);
	make_reqs(t, reqs, n);
	for (int i = 0; i < n; i++)
		user[i] = &reqs[i];
	T_EQ(phxfs_queue_submit(t->q, PHXFS_OP_READ, reqs, user, n), n);
	if (t_below(&t->rand, 2))
		phxfs_queue_cancel(t->q, user[t_below(&t->rand, (uint64_t)n)]);
	if (t_below(&t->rand, 8) == 0) {
		T_EQ(phxfs_queue_destroy(t->q), 0); /* with what is in flight */
		t->q = NULL;
		return;
	}
	while (taken < n) {
		int got = phxfs_queue_wait(t->q, out, 1, 16, NULL);

		T_CHECK(got > 0);
		for (int i = 0; i < got; i++) {
			phxfs_io_req_t *req = out[i].user_data;

			req->result = out[i].result;
			if (req->result != -ECANCELED)
				check_req(t, req);
		}
		taken += got;
	}
}

static void write_and_read_back(struct thread *t)
{
	off_t base = t->index * (off_t)BUFFER_SIZE; /* its own stripe of the third file */
	size_t at = t_below(&t->rand, 5000), n = 1 + t_below(&t->rand, BUFFER_SIZE - 5000);
	uint64_t seed = t_rand(&t->rand);

	t_fill(t->own.p + at, n, seed, 0);
	T_EQ(phxfs_write(s.fd[2], 0, t->own.p, (off_t)at, (ssize_t)n, base + (off_t)at), n);
	memset(t->own.p, 0, BUFFER_SIZE);
	T_EQ(phxfs_read(s.fd[2], 0, t->own.p, (off_t)at, (ssize_t)n, base + (off_t)at), n);
	T_PATTERN(t->own.p + at, n, seed, 0);
}

static void device_memory(struct thread *t)
{
	void *p;

	T_EQ(phxfs_mem_alloc((int)t_below(&t->rand, 2), 1 + t_below(&t->rand, 300000), &p), 0);
	T_CHECK(phxfs_pointer_device(p) >= 0);
	/* main and this thread keep device 0 open; 1 need not be */
	T_EQ(phxfs_mem_free(phxfs_pointer_device(p), p), 0);
}

static void questions(struct thread *t)
{
	struct phxfs_stats st = { .size = sizeof(st) };
	struct phxfs_device_info info = { .size = sizeof(info) };
	struct phxfs_path_info path = { .size = sizeof(path) };
	phxfs_stats_view_t *v;
	int rc;

	T_EQ(phxfs_stats(0, &st), 0);
	T_EQ(phxfs_device_info(0, &info), 0);
	rc = phxfs_path_query(s.fd[0], 0, s.r[0].p, 4096, 0, &path);
	T_CHECK(rc == 0 || rc == -EFAULT);
	phxfs_pointer_device(s.r[t_below(&t->rand, BUFFERS)].p);
	T_CHECK(*phxfs_io_engine_name());
	if (t_below(&t->rand, 20) == 0) {
		T_EQ(phxfs_stats_view_open(getpid(), &v), 0);
		T_EQ(phxfs_stats_view_read(v, 0, &st), 0);
		phxfs_stats_view_close(v);
	}
}

typedef void (*action)(struct thread *t);

static const action actions[] = {
	open_and_close, register_and_deregister, transfer_shared, transfer_own, batch,
	async_batch,	queue,			 write_and_read_back, device_memory, questions,
};

#define ACTIONS (sizeof(actions) / sizeof(actions[0]))

static long work(void *arg)
{
	struct thread *t = arg;

	t_region(&t->own, 0, BUFFER_SIZE);
	while (!time_is_up()) {
		size_t i = t_below(&t->rand, ACTIONS);

		t_context("action %zu", i);
		actions[i](t);
		s.done[i]++;
	}
	T_EQ(phxfs_queue_destroy(t->q), 0);
	t_region_free(&t->own);
	return 0;
}

static void set_up(void)
{
	struct phxfs_stats st = { .size = sizeof(st) };

	end_ns = t_now_ns() + (uint64_t)seconds * 1000000000ULL;
	T_EQ(phxfs_open(0), 0);
	for (int i = 0; i < BUFFERS; i++)
		t_map(&s.r[i], 0, BUFFER_SIZE);
	s.fd[0] = t_file("f", FILE_SIZE, 1, O_RDONLY);
	s.fd[1] = open(t_name("f"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (s.fd[1] < 0)
		s.fd[1] = s.fd[0];
	s.fd[2] = t_open("g", O_RDWR | O_CREAT);
	T_EQ(phxfs_stats(0, &st), 0);
}

static void everything_at_once(void)
{
	struct phxfs_stats st = { .size = sizeof(st) };
	struct thread *t = calloc((size_t)threads, sizeof(*t));
	long sum = 0;

	T_CHECK(t);
	set_up();
	for (int i = 0; i < threads; i++) {
		t[i].rand.state = t_now_ns() + (uint64_t)i * 77;
		t[i].index = i;
		t_call(&t[i].call, work, &t[i]);
	}
	for (int i = 0; i < threads; i++)
		T_EQ(t_join(&t[i].call), 0);
	for (size_t i = 0; i < ACTIONS; i++) {
		T_CHECK(s.done[i] > 0);
		sum += s.done[i];
	}
	T_EQ(phxfs_stats(0, &st), 0);
	T_EQ(st.registrations, 0);
	T_EQ(phxfs_close(0), 0);
	T_EQ(phxfs_close(0), -ENODEV);
	printf("  %ld actions\n", sum);
	free(t);
}

/* The last close races with opens, registrations and transfers: no one keeps the device. */
static long come_and_go(void *arg)
{
	struct thread *t = arg;
	off_t at = t->index % (BUFFER_SIZE / 4096) * 4096; /* a place of its own */
	long opened = 0;

	while (!time_is_up()) {
		struct t_region *r = &s.r[t_below(&t->rand, BUFFERS)];
		ssize_t got;
		int rc = phxfs_open(0);

		if (rc == -EBUSY)
			continue;
		T_EQ(rc, 0);
		opened++;
		rc = phxfs_regmem(0, r->p, BUFFER_SIZE, NULL);
		T_EQ(rc, 0); /* the same range for all: counted, or waited for */
		got = phxfs_read(s.fd[0], 0, r->p, at, 4096, 0);
		T_EQ(got, 4096);
		if (t_below(&t->rand, 2))
			T_EQ(phxfs_deregmem(0, r->p, BUFFER_SIZE), 0);
		/* else the last close removes it */
		T_EQ(phxfs_close(0), 0);
	}
	return opened ? 0 : -1;
}

static void opens_race_with_the_last_close(void)
{
	struct thread *t = calloc((size_t)threads, sizeof(*t));

	T_CHECK(t);
	set_up();
	T_EQ(phxfs_close(0), 0);
	for (int i = 0; i < threads; i++) {
		t[i].rand.state = (uint64_t)i + 1;
		t[i].index = i;
		t_call(&t[i].call, come_and_go, &t[i]);
	}
	for (int i = 0; i < threads; i++)
		T_EQ(t_join(&t[i].call), 0);
	T_EQ(phxfs_close(0), -ENODEV);
	free(t);
}

struct registrar {
	struct t_region all; /* 10,000 pages, this thread's */
	size_t n;
	struct t_rand rand;
	struct t_call call;
};

static long many_registrations(void *arg)
{
	struct registrar *g = arg;

	T_EQ(phxfs_open(0), 0);
	for (size_t i = 0; i < g->n; i++)
		T_EQ(phxfs_regmem(0, g->all.p + i * T_PAGE, T_PAGE, NULL), 0);
	for (int k = 0; k < 20000; k++) {
		uint8_t *p = g->all.p + t_below(&g->rand, g->n) * T_PAGE;

		T_EQ(phxfs_read(s.fd[0], 0, p, 17, 64, 100), 64);
		if (k % 64 == 0) { /* the table changes under the lookups */
			T_EQ(phxfs_deregmem(0, p, T_PAGE), 0);
			T_EQ(phxfs_read(s.fd[0], 0, p, 17, 64, 100), -EFAULT);
			T_EQ(phxfs_regmem(0, p, T_PAGE, NULL), 0);
		}
	}
	for (size_t i = 0; i < g->n; i++)
		T_EQ(phxfs_deregmem(0, g->all.p + i * T_PAGE, T_PAGE), 0);
	T_EQ(phxfs_close(0), 0);
	return 0;
}

static void ten_thousand_registrations_under_lookups(void)
{
	struct registrar g[4];

	set_up();
	for (int i = 0; i < 4; i++) {
		g[i].n = t_sanitized() ? 500 : 2500;
		g[i].rand.state = (uint64_t)i;
		t_map(&g[i].all, 0, g[i].n * T_PAGE);
		t_call(&g[i].call, many_registrations, &g[i]);
	}
	for (int i = 0; i < 4; i++)
		T_EQ(t_join(&g[i].call), 0);
	T_EQ(phxfs_close(0), 0);
}

static void one_process(void)
{
	struct thread t = { .rand = { t_now_ns() + (uint64_t)getpid() } };

	t_region(&t.own, 0, BUFFER_SIZE);
	for (int i = 0; i < 20; i++) {
		transfer_own(&t);
		batch(&t);
		queue(&t);
		async_batch(&t);
	}
	T_EQ(phxfs_queue_destroy(t.q), 0);
	t_region_free(&t.own);
}

static void sixty_four_processes(void)
{
	pid_t pids[64];

	s.fd[0] = t_file("f", FILE_SIZE, 1, O_RDONLY);
	s.fd[1] = s.fd[0];
	for (int i = 0; i < 64; i++) {
		pids[i] = fork();
		T_CHECK(pids[i] >= 0);
		if (pids[i] == 0) {
			one_process();
			exit(0);
		}
	}
	for (int i = 0; i < 64; i++) {
		int status;

		T_EQ(waitpid(pids[i], &status, 0), pids[i]);
		T_EQ(status, 0);
	}
}

#define TWO_DEVICES "PHX_HOST_DEVICES=2 PHX_STAGING_SIZE_MB=1"

static const struct t_case cases[] = {
	T_CASE(everything_at_once, .env = TWO_DEVICES, .flags = T_ENGINES, .timeout = 3600),
	T_CASE(everything_at_once, .env = TWO_DEVICES " PHX_PATH=bounce", .flags = T_ENGINES,
	       .timeout = 3600),
	T_CASE(opens_race_with_the_last_close, .timeout = 3600),
	T_CASE(ten_thousand_registrations_under_lookups, .timeout = 300),
	T_CASE(sixty_four_processes, .flags = T_PATHS, .timeout = 300),
};

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "seconds", required_argument, NULL, 's' },
					       { "threads", required_argument, NULL, 'j' },
					       { 0 } };
	bool is_case = argc > 1 && !strcmp(argv[1], "--case");
	const char *set;
	int c;

	/* a case's process is told through the environment */
	set = getenv("T_SECONDS");
	seconds = set ? strtol(set, NULL, 0) : t_scale(5);
	set = getenv("T_THREADS");
	threads = set ? (int)strtol(set, NULL, 0) : threads;
	while (!is_case && (c = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		if (c == 's') {
			setenv("T_SECONDS", optarg, 1);
		} else if (c == 'j') {
			setenv("T_THREADS", optarg, 1);
		} else {
			fprintf(stderr, "usage: stress [--seconds N] [--threads N] [CASE ...]\n");
			return 2;
		}
	}
	if (!is_case && optind > 1) {
		argv[optind - 1] = argv[0];
		argc -= optind - 1;
		argv += optind - 1;
	}
	return t_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
