// SPDX-License-Identifier: Apache-2.0
/*
 * property - random transfers are what pread and pwrite would have made
 *
 * usage: property [--seed N] [--seconds N] [--ops N] [--threads N] [--big]
 *
 * The path, the engine and the pool come from the environment. A failure
 * prints its seed; the same seed repeats the same steps of a thread.
 */
#include <getopt.h>
#include <pthread.h>
#include <time.h>

#include "t_world.h"

struct job {
	struct world w;
	uint64_t seed;
	uint64_t end_ns;
	long max_ops;
	long ops;
	int index;
	bool big;
	pthread_t thread;
};

static phxfs_io_req_t req_of(const struct w_op *op)
{
	return (phxfs_io_req_t){
		.fd = op->pair->fd,
		.device_id = op->mem->device,
		.buf = op->mem->r.p,
		.buf_offset = (off_t)op->at,
		.nbytes = op->len,
		.f_offset = op->offset,
		.result = -EINPROGRESS,
	};
}

/* One request somewhere in [from, from + room) of a memory. */
static void random_op(struct world *w, struct w_op *op, struct w_pair *pair, struct w_mem *mem,
		      size_t from, size_t room, bool write)
{
	op->pair = pair;
	op->mem = mem;
	op->write = write;
	op->offset = w_offset(w, pair);
	op->at = from + w_place(w, pair, op->offset, room);
	op->len = w_length(w, from + room - op->at);
	if (op->len > from + room - op->at)
		op->len = from + room - op->at;
}

static struct w_pair *any_pair(struct world *w)
{
	return &w->pair[t_below(&w->rand, W_PAIRS)];
}

static struct w_mem *any_mem(struct world *w)
{
	return &w->mem[t_below(&w->rand, W_MEMS)];
}

static void finish(struct world *w, const char *call)
{
	for (int i = 0; i < w->n_ops; i++) {
		w_context(w, &w->ops[i], call);
		w_oracle(w, &w->ops[i]);
	}
	for (int i = 0; i < w->n_ops; i++) {
		w_context(w, &w->ops[i], call);
		w_compare(w, &w->ops[i]);
	}
}

static void single(struct world *w)
{
	struct w_op *op = &w->ops[0];
	bool write = t_below(&w->rand, 2);
	uint8_t *buf;
	off_t buf_offset;

	random_op(w, op, any_pair(w), any_mem(w), 0, w->mem_size, write);
	w_context(w, op, "single");
	if (write)
		w_source(w, op);
	/* the buffer may be named from anywhere before the place */
	buf_offset = (off_t)t_below(&w->rand, op->at + 1);
	buf = op->mem->r.p + op->at - buf_offset;
	op->got = write ? phxfs_write(op->pair->fd, op->mem->device, buf, buf_offset,
				      (ssize_t)op->len, op->offset) :
			  phxfs_read(op->pair->fd, op->mem->device, buf, buf_offset,
				     (ssize_t)op->len, op->offset);
	w->n_ops = 1;
	finish(w, "single");
}

/*
 * One range of a file, cut at random places into buffers that lie in random
 * order in the memory. To the oracle it is the range's pieces one after the
 * other, up to where the library's count ends.
 */
static void vector(struct world *w)
{
	struct phxfs_iov iov[W_MAX_OPS];
	struct w_op whole;
	bool write = t_below(&w->rand, 2);
	struct w_mem *mem = any_mem(w);
	int n = 1 + (int)t_below(&w->rand, W_MAX_OPS);
	size_t slot = w->mem_size / (size_t)n, done = 0, room;
	ssize_t got, left;
	bool may_refuse = false;

	random_op(w, &whole, any_pair(w), mem, 0, slot, write);
	for (int i = 0; i < n; i++) {
		struct w_op *op = &w->ops[i];
		int place = (i * 7 + 3) % n;

		*op = whole;
		op->at = (size_t)place * slot +
			 w_place(w, op->pair, whole.offset + (off_t)done, slot);
		room = (size_t)(place + 1) * slot - op->at;
		/* two places may fall together: one of them is then empty */
		op->len = n % 7 == 0 && place != i ? 0 : w_length(w, room);
		if (op->len > room)
			op->len = room;
		op->offset = whole.offset + (off_t)done;
		done += op->len;
		iov[i] = (struct phxfs_iov){ mem->r.p + op->at, op->len };
		if (write)
			w_source(w, op);
	}
	whole.len = done;
	w_context(w, &whole, "vector");
	got = write ? phxfs_writev(whole.pair->fd, mem->device, iov, n, whole.offset) :
		      phxfs_readv(whole.pair->fd, mem->device, iov, n, whole.offset);
	w->n_ops = n;
	left = got;
	for (int i = 0; i < n; i++) {
		struct w_op *op = &w->ops[i];

		op->got = got < 0 ? got : left < (ssize_t)op->len ? left : (ssize_t)op->len;
		left -= got < 0 ? 0 : op->got;
		may_refuse |= w_may_refuse(op);
	}
	if (got >= 0)
		T_EQ(left, 0);
	if (!w->strict || got != -EOPNOTSUPP) {
		finish(w, "vector");
		return;
	}
	T_CHECK(may_refuse);
	for (int i = 0; i < n; i++)
		w_compare(w, &w->ops[i]);
}

/*
 * Many requests at once: buffers disjoint; writes of one file disjoint, in
 * ascending ranges that may touch in the middle of a block.
 */
static int make_ops(struct world *w, bool write)
{
	int n = 1 + (int)t_below(&w->rand, W_MAX_OPS);
	size_t slot = w->mem_size / W_MAX_OPS;
	off_t next[W_PAIRS];

	for (int i = 0; i < W_PAIRS; i++)
		next[i] = w_offset(w, &w->pair[i]);
	for (int i = 0; i < n; i++) {
		struct w_op *op = &w->ops[i];
		int p = (int)t_below(&w->rand, W_PAIRS);

		random_op(w, op, &w->pair[p], any_mem(w), (size_t)i * slot, slot, write);
		if (!write)
			continue;
		op->offset = next[p];
		next[p] += (off_t)op->len;
		if (t_below(&w->rand, 2))
			next[p] += (off_t)t_below(&w->rand, 9000);
		w_source(w, op);
	}
	w->n_ops = n;
	return n;
}

static void batch(struct world *w)
{
	phxfs_io_req_t reqs[W_MAX_OPS];
	bool write = t_below(&w->rand, 2), async = t_below(&w->rand, 2);
	int n = make_ops(w, write), rc, failed = 0;

	for (int i = 0; i < n; i++)
		reqs[i] = req_of(&w->ops[i]);
	w_context(w, &w->ops[0], async ? "asynchronous batch" : "batch");
	if (async) {
		phxfs_batch_t *b = write ? phxfs_batch_submit_write(reqs, n) :
					   phxfs_batch_submit_read(reqs, n);
		T_CHECK(b);
		rc = phxfs_batch_wait(b);
	} else {
		rc = write ? phxfs_write_batch(reqs, n) : phxfs_read_batch(reqs, n);
	}
	for (int i = 0; i < n; i++) {
		w->ops[i].got = reqs[i].result;
		failed += reqs[i].result != (ssize_t)reqs[i].nbytes;
	}
	T_EQ(rc, failed);
	finish(w, async ? "asynchronous batch" : "batch");
}

static void take(struct world *w, phxfs_queue_t *q, int *left)
{
	struct phxfs_completion out[W_MAX_OPS];
	struct timespec second = { 30, 0 };
	int max = 1 + (int)t_below(&w->rand, W_MAX_OPS);
	int min = (int)t_below(&w->rand, (uint64_t)max + 1);
	int n = phxfs_queue_wait(q, out, min, max, &second);

	T_CHECK(n >= (min < *left ? min : *left) && n <= max && n <= *left);
	for (int i = 0; i < n; i++) {
		struct w_op *op = out[i].user_data;

		T_CHECK(op >= w->ops && op < w->ops + w->n_ops);
		T_EQ(op->got, -EINPROGRESS); /* each completes once */
		op->got = out[i].result;
	}
	*left -= n;
}

static void queue(struct world *w)
{
	phxfs_io_req_t reqs[W_MAX_OPS];
	void *user[W_MAX_OPS];
	bool write = t_below(&w->rand, 2);
	int n = make_ops(w, write), sent = 0, left = 0, kept = 0;
	int cancelled = 0;
	unsigned int depth = 1 + (unsigned int)t_below(&w->rand, W_MAX_OPS);
	phxfs_queue_t *q = NULL;

	for (int i = 0; i < n; i++) {
		reqs[i] = req_of(&w->ops[i]);
		user[i] = &w->ops[i];
		w->ops[i].got = -EINPROGRESS;
	}
	w_context(w, &w->ops[0], "queue");
	T_EQ(phxfs_queue_create(depth, &q), 0);
	while (sent < n || left) {
		int rc = 0;

		if (sent < n)
			rc = phxfs_queue_submit(q, write ? PHXFS_OP_WRITE : PHXFS_OP_READ,
						reqs + sent, user + sent, n - sent);
		if (rc == -EAGAIN)
			rc = 0;
		T_CHECK(rc >= 0 && rc <= n - sent && left + rc <= (int)depth);
		sent += rc;
		left += rc;
		if (sent && t_below(&w->rand, 4) == 0) {
			rc = phxfs_queue_cancel(q, user[t_below(&w->rand, (uint64_t)sent)]);
			if (rc)
				T_ONE_OF(rc, -EALREADY, -ENOENT);
			cancelled += rc == 0;
		}
		take(w, q, &left);
	}
	T_EQ(phxfs_queue_destroy(q), 0);
	/* the cancelled moved nothing: the oracle does not do them */
	for (int i = 0; i < n; i++)
		if (w->ops[i].got != -ECANCELED)
			w->ops[kept++] = w->ops[i];
	T_EQ(n - kept, cancelled);
	w->n_ops = kept;
	finish(w, "queue");
}

/* What cannot be resolved or is out of range; nothing may change. */
static void refused(struct world *w)
{
	struct w_op *op = &w->ops[0];
	bool write = t_below(&w->rand, 2);
	int kind = (int)t_below(&w->rand, 6);
	ssize_t len, got, want = -EFAULT;
	off_t offset, buf_offset = 0;

	random_op(w, op, any_pair(w), &w->mem[t_below(&w->rand, W_MEMS - 1)], 0, w->mem_size,
		  write);
	len = (ssize_t)op->len + 1;
	offset = op->offset;
	if (kind == 0) /* one byte too long */
		len = (ssize_t)(w->mem_size - op->at + 1);
	else if (kind == 1)
		buf_offset = (off_t)(w->mem_size - op->at);
	else if (kind == 2)
		len = -len;
	else if (kind == 3)
		offset = -1 - offset;
	else if (kind == 4)
		buf_offset = -1 - (off_t)op->at;
	else
		offset = INT64_MAX - len + 1 + (off_t)t_below(&w->rand, (uint64_t)len);
	if (kind >= 2)
		want = -EINVAL;
	if (kind == 5 && op->at + (size_t)len > w->mem_size)
		return;
	w_context(w, op, "refused");
	got = write ? phxfs_write(op->pair->fd, op->mem->device, op->mem->r.p + op->at, buf_offset,
				  len, offset) :
		      phxfs_read(op->pair->fd, op->mem->device, op->mem->r.p + op->at, buf_offset,
				 len, offset);
	/* on the wrong kind of descriptor either answer is right */
	if (got != -EBADF || (op->pair->flags & O_ACCMODE) == O_RDWR)
		T_EQ(got, want);
	T_CHECK(*phxfs_last_error());
	w_compare(w, op);
}

static void step(struct world *w)
{
	switch (t_below(&w->rand, 16)) {
	case 0:
	case 1:
	case 2:
		vector(w);
		break;
	case 3:
	case 4:
		batch(w);
		break;
	case 5:
	case 6:
		queue(w);
		break;
	case 7:
		refused(w);
		break;
	case 8:
		w_reopen(w, any_pair(w));
		break;
	default:
		single(w);
	}
}

static void *work(void *arg)
{
	struct job *job = arg;
	char prefix[16];

	snprintf(prefix, sizeof(prefix), "t%d", job->index);
	w_start(&job->w, job->seed, prefix, job->big ? T_GIB + T_GIB / 4 : 6 * T_MIB);
	while (t_now_ns() < job->end_ns && job->ops < job->max_ops) {
		step(&job->w);
		if (++job->ops % 256 == 0 && !job->w.big)
			w_check_all(&job->w);
	}
	w_end(&job->w);
	return NULL;
}

/* The counters account for every byte, and none went where it must not. */
static void check_stats(struct job *jobs, int n)
{
	uint64_t moved[2][2] = { { 0 } };

	t_context("the counters");
	for (int i = 0; i < n; i++)
		for (int host = 0; host < 2; host++)
			for (int write = 0; write < 2; write++)
				moved[host][write] += jobs[i].w.moved[host][write];
	for (int host = 0; host < 2; host++) {
		struct phxfs_stats s = { .size = sizeof(s) };
		uint64_t sum[2] = { 0, 0 };

		T_EQ(phxfs_stats(host ? -1 : 0, &s), 0);
		for (int p = 0; p < PHXFS_PATHS; p++) {
			sum[0] += s.read[p].bytes;
			sum[1] += s.write[p].bytes;
		}
		T_EQ(sum[0], moved[host][0]);
		T_EQ(sum[1], moved[host][1]);
		if (jobs[0].w.strict)
			for (int p = PHXFS_PATH_STAGING; p <= PHXFS_PATH_BOUNCE; p++)
				T_EQ(s.read[p].ops + s.write[p].ops, 0);
		T_EQ(s.registrations, 0);
		T_EQ(s.registered_bytes, 0);
	}
}

static int run(struct job *jobs, int threads)
{
	for (int i = 1; i < threads; i++)
		T_EQ(pthread_create(&jobs[i].thread, NULL, work, &jobs[i]), 0);
	work(&jobs[0]);
	for (int i = 1; i < threads; i++)
		pthread_join(jobs[i].thread, NULL);
	check_stats(jobs, threads);
	return 0;
}

static struct {
	uint64_t seed;
	long seconds, ops;
	int threads;
	bool big;
} option = { .seconds = 5, .ops = INT32_MAX, .threads = 1 };

static void property(void)
{
	struct job *jobs = calloc((size_t)option.threads, sizeof(*jobs));
	long ops = 0;

	T_CHECK(jobs);
	for (int i = 0; i < option.threads; i++) {
		jobs[i].seed = option.seed + (uint64_t)i * 1000003;
		jobs[i].end_ns = t_now_ns() + (uint64_t)option.seconds * 1000000000ULL;
		jobs[i].max_ops = option.ops;
		jobs[i].index = i;
		jobs[i].big = option.big;
	}
	run(jobs, option.threads);
	for (int i = 0; i < option.threads; i++)
		ops += jobs[i].ops;
	printf("  %ld steps\n", ops);
	free(jobs);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "seconds", required_argument, NULL, 't' },
		{ "ops", required_argument, NULL, 'n' },
		{ "threads", required_argument, NULL, 'j' },
		{ "big", no_argument, NULL, 'b' },
		{ 0 },
	};
	int c;

	option.seed = (uint64_t)time(NULL) * 1000 + (uint64_t)getpid();
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			option.seed = strtoull(optarg, NULL, 0);
			break;
		case 't':
			option.seconds = strtol(optarg, NULL, 0);
			break;
		case 'n':
			option.ops = strtol(optarg, NULL, 0);
			break;
		case 'j':
			option.threads = (int)strtol(optarg, NULL, 0);
			break;
		case 'b':
			option.big = true;
			break;
		default:
			fprintf(stderr, "usage: property [--seed N] [--seconds N] [--ops N] "
				"[--threads N] [--big]\n");
			return 2;
		}
	}
	printf("property --seed %llu --threads %d%s PHX_PATH=%s\n",
	       (unsigned long long)option.seed, option.threads, option.big ? " --big" : "",
	       t_path());
	fflush(stdout);
	return t_alone(property, (int)option.seconds * 4 + 60);
}
