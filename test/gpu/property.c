// SPDX-License-Identifier: Apache-2.0
/*
 * property [SECONDS [THREADS [SEED]]] - transfers of device memory are what
 * pread(2) and pwrite(2) would have made
 *
 * Each thread has a buffer with guards, and two equal files of each kind: one
 * for the library, one for pread() and pwrite() on a buffered descriptor with
 * the buffer's shadow in host memory. After each step the counts, the buffer
 * with its guards (read back by the driver) and the files must be alike.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"

#define REGION (12 * MIB)
#define TOTAL (REGION + 2 * PAGE) /* a page of guard on either side */
#define FILE_SIZE (8 * MIB)
#define FILE_LIMIT (64 * MIB)
#define PAIRS 3
#define MANY 32

struct pair {
	int fd;     /* the library's */
	int oracle; /* the same bytes, always buffered */
	int flags;
};

struct op {
	struct pair *pair;
	size_t at;  /* in the buffer */
	size_t len;
	off_t off;
	ssize_t got;
};

struct world {
	uint64_t seed;
	int id;
	char *device;             /* TOTAL bytes, the region begins a page further */
	unsigned char *shadow;    /* of the same */
	unsigned char *seen;
	struct pair pairs[PAIRS];
	struct op ops[MANY];
	int n;
	double end;
	unsigned long steps;
	pthread_t thread;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ------------------------------------------------------------ the oracle */

static ssize_t oracle_read(int fd, unsigned char *to, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, to + done, len - done, off + (off_t)done);

		if (n < 0)
			return done ? (ssize_t)done : -errno;
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static ssize_t oracle_write(int fd, const unsigned char *from, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pwrite(fd, from + done, len - done, off + (off_t)done);

		if (n <= 0)
			return done ? (ssize_t)done : -errno;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static void same_memory(struct world *w, size_t from, size_t to)
{
	from = from > PAGE ? from - PAGE : 0;
	to = to + PAGE < TOTAL ? to + PAGE : TOTAL;
	memory_get(w->seen, w->device + from, to - from);
	if (!memcmp(w->seen, w->shadow + from, to - from))
		return;
	while (w->seen[0] == w->shadow[from]) {
		w->seen++;
		from++;
	}
	gpu_fail(__FILE__, __LINE__, "byte %zu of the buffer is %#x, not %#x", from - PAGE,
		 w->seen[0], w->shadow[from]);
}

static void same_file(struct world *w, const struct pair *p, off_t from, size_t len)
{
	unsigned char *mine = w->seen, *other = w->seen + len;
	char name[64];
	ssize_t n;
	int fd;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", p->fd);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	EQ(lseek(fd, 0, SEEK_END), lseek(p->oracle, 0, SEEK_END));
	n = oracle_read(fd, mine, len, from);
	EQ(n, oracle_read(p->oracle, other, len, from));
	CHECK(n >= 0 && !memcmp(mine, other, (size_t)n));
	close(fd);
}

static void describe(const struct world *w, const struct op *op, const char *call, bool write)
{
	gpu_context("step %lu: %s: %s %zu bytes at %zu, offset %lld, flags %#x", w->steps, call,
		    write ? "write" : "read", op->len, op->at, (long long)op->off,
		    (unsigned int)op->pair->flags);
}

/* Lets the oracle do what the library did, and compares. */
static void compare(struct world *w, const char *call, bool write)
{
	for (int i = 0; i < w->n; i++) {
		struct op *op = &w->ops[i];
		unsigned char *at = w->shadow + PAGE + op->at;

		describe(w, op, call, write);
		EQ(op->got, write ? oracle_write(op->pair->oracle, at, op->len, op->off) :
				    oracle_read(op->pair->oracle, at, op->len, op->off));
	}
	for (int i = 0; i < w->n; i++) {
		struct op *op = &w->ops[i];
		off_t from = op->off > 4096 ? op->off - 4096 : 0;

		describe(w, op, call, write);
		if (write)
			same_file(w, op->pair, from, op->len + 8192);
		else
			same_memory(w, PAGE + op->at, PAGE + op->at + op->len);
	}
}

/* ------------------------------------------------------------- the steps */

/* Short, around the borders of blocks, pages and chunks, and anything. */
static size_t length(struct world *w, size_t max)
{
	static const size_t borders[] = { 512, 4096, 65536, 131072, 1048576, 4194304 };
	size_t border = borders[gpu_below(&w->seed, 6)], len;

	switch (gpu_below(&w->seed, 4)) {
	case 0:
		len = 1 + gpu_below(&w->seed, 600);
		break;
	case 1:
		len = border + gpu_below(&w->seed, 5) - 2;
		break;
	case 2:
		len = border * (1 + gpu_below(&w->seed, 3));
		break;
	default:
		len = 1 + gpu_below(&w->seed, max);
	}
	return len < max ? len : max;
}

static size_t place(struct world *w, size_t max)
{
	static const size_t steps[] = { 1, 8, 512, 4096, 65536 };
	size_t step = steps[gpu_below(&w->seed, 5)];

	return max ? gpu_below(&w->seed, max) / step * step : 0;
}

static struct pair *any_pair(struct world *w)
{
	return &w->pairs[gpu_below(&w->seed, PAIRS)];
}

/* Somewhere in @room bytes of the buffer from @from on. */
static void random_op(struct world *w, struct op *op, size_t from, size_t room)
{
	op->pair = any_pair(w);
	op->len = length(w, room);
	op->at = from + place(w, room - op->len + 1);
	op->off = (off_t)place(w, FILE_SIZE + FILE_SIZE / 8);
}

/* New bytes, so that an old write cannot pass for a new one. */
static void fill_source(struct world *w, const struct op *op)
{
	unsigned char *at = w->shadow + PAGE + op->at;

	gpu_pattern(at, op->len, gpu_random(&w->seed), 0);
	memory_put(w->device + PAGE + op->at, at, op->len);
}

static void single(struct world *w, bool write)
{
	struct op *op = &w->ops[0];
	off_t back;
	char *p;

	random_op(w, op, 0, REGION);
	if (write)
		fill_source(w, op);
	describe(w, op, "single", write);
	back = (off_t)gpu_below(&w->seed, op->at + 1);
	p = w->device + PAGE + op->at - back;
	op->got = write ? phxfs_write(op->pair->fd, w->id, p, back, (ssize_t)op->len, op->off) :
			  phxfs_read(op->pair->fd, w->id, p, back, (ssize_t)op->len, op->off);
	w->n = 1;
	compare(w, "single", write);
}

/* Buffers apart; writes to one file apart too, for their order is not kept. */
static void random_ops(struct world *w, bool write)
{
	size_t slot = REGION / MANY;
	off_t next[PAIRS];

	w->n = 1 + (int)gpu_below(&w->seed, MANY);
	for (int i = 0; i < PAIRS; i++)
		next[i] = (off_t)place(w, FILE_SIZE);
	for (int i = 0; i < w->n; i++) {
		struct op *op = &w->ops[i];

		random_op(w, op, (size_t)i * slot, slot);
		op->got = -EINPROGRESS;
		if (!write)
			continue;
		op->off = next[op->pair - w->pairs];
		next[op->pair - w->pairs] += (off_t)(op->len + place(w, 9000));
		fill_source(w, op);
	}
}

static phxfs_io_req_t request(const struct world *w, const struct op *op)
{
	return (phxfs_io_req_t){ .fd = op->pair->fd,
				 .device_id = w->id,
				 .buf = w->device + PAGE,
				 .buf_offset = (off_t)op->at,
				 .nbytes = op->len,
				 .f_offset = op->off };
}

static void batch(struct world *w, bool write)
{
	bool async = gpu_below(&w->seed, 2);
	phxfs_io_req_t reqs[MANY];
	phxfs_batch_t *handle;
	int failed = 0, rc;

	random_ops(w, write);
	for (int i = 0; i < w->n; i++)
		reqs[i] = request(w, &w->ops[i]);
	describe(w, &w->ops[0], "batch", write);
	if (async) {
		handle = write ? phxfs_batch_submit_write(reqs, w->n) :
				 phxfs_batch_submit_read(reqs, w->n);
		CHECK(handle);
		rc = phxfs_batch_wait(handle);
	} else {
		rc = write ? phxfs_write_batch(reqs, w->n) : phxfs_read_batch(reqs, w->n);
	}
	for (int i = 0; i < w->n; i++) {
		w->ops[i].got = reqs[i].result;
		failed += reqs[i].result != (ssize_t)reqs[i].nbytes;
	}
	EQ(rc, failed);
	compare(w, async ? "asynchronous batch" : "batch", write);
}

static void queue(struct world *w, bool write)
{
	struct phxfs_completion done[MANY];
	phxfs_io_req_t reqs[MANY];
	phxfs_queue_t *q;
	void *user[MANY];
	int left;

	random_ops(w, write);
	for (int i = 0; i < w->n; i++) {
		reqs[i] = request(w, &w->ops[i]);
		user[i] = &w->ops[i];
	}
	describe(w, &w->ops[0], "queue", write);
	EQ(phxfs_queue_create(MANY, &q), 0);
	EQ(phxfs_queue_submit(q, write ? PHXFS_OP_WRITE : PHXFS_OP_READ, reqs, user, w->n), w->n);
	for (left = w->n; left;) {
		int n = phxfs_queue_wait(q, done, 1, MANY, NULL);

		CHECK(n > 0 && n <= left);
		for (int i = 0; i < n; i++) {
			struct op *op = done[i].user_data;

			EQ(op->got, -EINPROGRESS); /* once each */
			op->got = done[i].result;
		}
		left -= n;
	}
	EQ(phxfs_queue_destroy(q), 0);
	compare(w, "queue", write);
}

/* One range of a file into pieces of the buffer that lie in mixed order. */
static void vector(struct world *w, bool write)
{
	struct phxfs_iov iov[MANY];
	size_t slot = REGION / MANY, done = 0;
	struct pair *pair = any_pair(w);
	off_t off = (off_t)place(w, FILE_SIZE);
	ssize_t got, left;

	w->n = 1 + (int)gpu_below(&w->seed, MANY);
	for (int i = 0; i < w->n; i++) {
		struct op *op = &w->ops[i];

		random_op(w, op, (size_t)((i * 7 + 3) % MANY) * slot, slot);
		op->pair = pair;
		op->off = off + (off_t)done;
		done += op->len;
		iov[i] = (struct phxfs_iov){ w->device + PAGE + op->at, op->len };
		if (write)
			fill_source(w, op);
	}
	describe(w, &w->ops[0], "vector", write);
	got = write ? phxfs_writev(pair->fd, w->id, iov, w->n, off) :
		      phxfs_readv(pair->fd, w->id, iov, w->n, off);
	CHECK(got >= 0);
	left = got;
	for (int i = 0; i < w->n; i++) {
		struct op *op = &w->ops[i];

		op->got = left < (ssize_t)op->len ? left : (ssize_t)op->len;
		left -= op->got;
	}
	EQ(left, 0);
	compare(w, "vector", write);
}

/* Beyond the region by a byte, on either side: nothing moves. */
static void refused(struct world *w)
{
	struct op *op = &w->ops[0];
	char *p = w->device + PAGE;

	random_op(w, op, 0, REGION);
	describe(w, op, "refused", false);
	EQ(phxfs_read(op->pair->fd, w->id, p, (off_t)op->at, (ssize_t)(REGION - op->at + 1),
		      op->off),
	   -EFAULT);
	EQ(phxfs_read(op->pair->fd, w->id, p - 1, 0, (ssize_t)op->len, op->off), -EFAULT);
	EQ(phxfs_write(op->pair->fd, w->id, p + REGION, 0, 1, op->off), -EFAULT);
	same_memory(w, 0, TOTAL);
}

/* ------------------------------------------------------------- the world */

static void open_pair(struct world *w, struct pair *p)
{
	static const int flags[] = { O_DIRECT, 0, O_APPEND, O_DIRECT };
	uint64_t seed = gpu_random(&w->seed);

	p->flags = flags[gpu_below(&w->seed, 4)];
	p->fd = gpu_file(FILE_SIZE, seed, p->flags);
	p->oracle = gpu_file(FILE_SIZE, seed, p->flags & O_APPEND);
}

static void renew_pair(struct world *w)
{
	struct pair *p = any_pair(w);

	if (gpu_below(&w->seed, 8) && lseek(p->oracle, 0, SEEK_END) < (off_t)FILE_LIMIT)
		return;
	same_file(w, p, 0, FILE_SIZE);
	close(p->fd);
	close(p->oracle);
	open_pair(w, p);
}

static void step(struct world *w)
{
	bool write = gpu_below(&w->seed, 2);

	switch (gpu_below(&w->seed, 12)) {
	case 0:
	case 1:
		batch(w, write);
		break;
	case 2:
	case 3:
		queue(w, write);
		break;
	case 4:
	case 5:
		vector(w, write);
		break;
	case 6:
		refused(w);
		break;
	case 7:
		renew_pair(w);
		break;
	default:
		single(w, write);
	}
}

static void *run(void *arg)
{
	struct world *w = arg;
	enum memory_kind kind = gpu_below(&w->seed, MEMORY_KINDS);

	memory_thread();
	while (!memory_alloc(kind, TOTAL, &w->device))
		kind = MEMORY_LIBRARY;
	w->shadow = malloc(TOTAL);
	w->seen = malloc(2 * TOTAL);
	CHECK(w->shadow && w->seen);
	gpu_pattern(w->shadow, TOTAL, w->seed, 0);
	memory_put(w->device, w->shadow, TOTAL);
	EQ(phxfs_regmem(w->id, w->device + PAGE, REGION, NULL), 0);
	for (int i = 0; i < PAIRS; i++)
		open_pair(w, &w->pairs[i]);
	for (; now() < w->end; w->steps++) {
		step(w);
		if (w->steps % 64 == 63)
			same_memory(w, 0, TOTAL);
	}
	gpu_context("at the end");
	same_memory(w, 0, TOTAL);
	for (int i = 0; i < PAIRS; i++)
		same_file(w, &w->pairs[i], 0, FILE_SIZE);
	EQ(phxfs_deregmem(w->id, w->device + PAGE, REGION), 0);
	memory_free(kind, w->device);
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? strtod(argv[1], NULL) : 5;
	int threads = argc > 2 ? atoi(argv[2]) : 1, id = memory_device();
	uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
	struct world *worlds = calloc((size_t)threads, sizeof(*worlds));
	unsigned long steps = 0;

	CHECK(worlds && threads > 0);
	printf("gpu_property %g %d %llu: ", seconds, threads, (unsigned long long)seed);
	fflush(stdout);
	for (int i = 0; i < threads; i++) {
		worlds[i].seed = seed + (uint64_t)i * 1000003;
		worlds[i].id = id;
		worlds[i].end = now() + seconds;
		CHECK(!pthread_create(&worlds[i].thread, NULL, run, &worlds[i]));
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(worlds[i].thread, NULL);
		steps += worlds[i].steps;
	}
	printf("%lu steps\n", steps);
	return 0;
}
