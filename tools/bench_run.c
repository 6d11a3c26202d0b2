// SPDX-License-Identifier: Apache-2.0
/*
 * phx bench: the file, the threads, and what is measured around them. The
 * clock and the processor time start when every thread has its buffer and its
 * queue and stop when the last one has done its last I/O.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Each request of a slot starts at a multiple of this, so that O_DIRECT is met
 * by every slot that the block size allows it for. */
#define SLOT_ALIGN 4096u

/* Of a thread's buffer: from here on HOST memory lies in huge pages. */
#define LEAST_BUFFER (2UL << 20)

/* ----------------------------------------------------------------- the file */

static int open_flags(const struct bench *b)
{
	int flags = O_CLOEXEC | (b->op == PHXFS_OP_WRITE ? O_RDWR : O_RDONLY);

	return b->direct_used ? flags | O_DIRECT : flags;
}

static int refuse(const struct bench *b, const char *step, int error)
{
	char name[WORD_MAX];

	return failed(&cmd_bench, "%s: cannot %s: %s (%s)", b->file, step,
		      errno_name(name, error), strerror(error));
}

/* Decides between O_DIRECT and the page cache. */
static int choose_direct(struct bench *b, int fd)
{
	char name[WORD_MAX];
	struct statfs fs;
	int probe;

	if (!strcmp(b->direct, "off"))
		return EXIT_OK;
	if (fstatfs(fd, &fs))
		return refuse(b, "ask for its file system", errno);
	if (is_memory_filesystem((long)fs.f_type)) {
		snprintf(b->direct_why, sizeof(b->direct_why), "%s lives in memory",
			 filesystem_name((long)fs.f_type));
	} else {
		probe = open(b->file, O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (probe >= 0) {
			close(probe);
			b->direct_used = true;
			return EXIT_OK;
		}
		snprintf(b->direct_why, sizeof(b->direct_why), "open with O_DIRECT gives %s",
			 errno_name(name, errno));
	}
	if (!strcmp(b->direct, "on"))
		return failed(&cmd_bench, "%s: no direct I/O: %s; use --direct off or another "
			      "file", b->file, b->direct_why);
	return EXIT_OK;
}

static int64_t length_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISREG(st.st_mode))
		return st.st_size;
	if (S_ISBLK(st.st_mode))
		return lseek(fd, 0, SEEK_END);
	return -EINVAL;
}

static int prepare_read(struct bench *b, int fd)
{
	char word[WORD_MAX], has[WORD_MAX];
	int64_t length = length_of(fd);

	if (length < 0)
		return refuse(b, "find its length (a file or a block device is needed)",
			      (int)-length);
	if (!b->size)
		b->size = (uint64_t)length;
	if (b->size > (uint64_t)length)
		return failed(&cmd_bench, "%s: has only %s of the %s asked for", b->file,
			      size_word(has, (uint64_t)length), size_word(word, b->size));
	return EXIT_OK;
}

/* Blocks are reserved first: extending a file is not what is measured. */
static int prepare_write(struct bench *b, int fd)
{
	int64_t length = length_of(fd);
	struct stat st;

	if (length < 0)
		return refuse(b, "find its length (a file or a block device is needed)",
			      (int)-length);
	if (length > 0 && !b->overwrite)
		return failed(&cmd_bench, "%s: exists and has data; --overwrite allows writing "
			      "into it", b->file);
	if (!b->size)
		b->size = (uint64_t)length;
	if (!b->size)
		return usage_error(&cmd_bench, "%s is empty: --size is needed", b->file);
	if (fstat(fd, &st))
		return refuse(b, "look at it", errno);
	if (!S_ISREG(st.st_mode) || b->size <= (uint64_t)length)
		return EXIT_OK;
	if (fallocate(fd, 0, 0, (off_t)b->size) == 0)
		return EXIT_OK;
	if (errno != EOPNOTSUPP)
		return refuse(b, "reserve its blocks", errno);
	return ftruncate(fd, (off_t)b->size) ? refuse(b, "set its length", errno) : EXIT_OK;
}

static int plan(struct bench *b)
{
	char word[WORD_MAX], block[WORD_MAX];

	b->blocks = b->size / b->bs;
	if (!b->blocks)
		return failed(&cmd_bench, "%s: %s is less than one block of %s", b->file,
			      size_word(word, b->size), size_word(block, b->bs));
	if (!b->random && b->blocks < b->threads)
		return failed(&cmd_bench, "%s: %ju blocks for %ju threads", b->file,
			      (uintmax_t)b->blocks, (uintmax_t)b->threads);
	if (b->verify && b->op == PHXFS_OP_WRITE) {
		b->written = calloc(b->blocks / 64 + 1, sizeof(*b->written));
		if (!b->written)
			return refuse(b, "remember its blocks", ENOMEM);
	}
	return EXIT_OK;
}

int bench_prepare(struct bench *b)
{
	int write = b->op == PHXFS_OP_WRITE;
	int fd, rc;

	/* before it is made */
	if (write && !b->size && access(b->file, F_OK) && errno == ENOENT)
		return usage_error(&cmd_bench, "%s is new: --size is needed", b->file);
	/* a pipe without a writer must not be waited for, only refused */
	fd = open(b->file, O_CLOEXEC | O_NONBLOCK | (write ? O_RDWR | O_CREAT : O_RDONLY), 0666);
	if (fd < 0)
		return refuse(b, write ? "open it for writing" : "open it for reading", errno);
	rc = write ? prepare_write(b, fd) : prepare_read(b, fd);
	if (!rc)
		rc = choose_direct(b, fd);
	if (!rc)
		rc = plan(b);
	close(fd);
	return rc;
}

/* -------------------------------------------------------------- the threads */

/*
 * Locks: gate.lock protects ready, running and open. A worker counts itself
 * ready, waits for the gate to open, runs, counts itself out, and waits for
 * the gate to close before it frees what it holds.
 */
struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t ready;
	uint64_t running;
	bool open;
	bool closed;
};

struct thread {
	pthread_t id;
	struct worker w;
	struct gate *gate;
};

void bench_stop(void)
{
	atomic_store_explicit(&bench_stopped, true, memory_order_relaxed);
}

static size_t slots_of(const struct bench *b)
{
	return b->batch ? b->batch : b->depth;
}

static void setup_failed(struct worker *w, int error, const char *step, const char *text)
{
	w->error = error;
	snprintf(w->what, sizeof(w->what), "cannot %s: %s", step, text);
}

static void worker_setup(struct worker *w)
{
	const struct bench *b = w->b;
	const char *step = "";
	size_t need;
	int rc;

	w->stride = (b->bs + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
	w->rng = b->seed * 1000003u + w->index;
	w->share = b->blocks / b->threads;
	w->first = w->share * w->index;
	if (w->index == b->threads - 1)
		w->share = b->blocks - w->first;
	w->left = b->count ? b->count : b->runtime > 0 ? UINT64_MAX : w->share;
	w->fd = open(b->file, open_flags(b));
	if (w->fd < 0) {
		rc = errno;
		setup_failed(w, -rc, "open the file", strerror(rc));
		return;
	}
	need = w->stride * slots_of(b);
	rc = buffer_get(&w->buf, b->device, need < LEAST_BUFFER ? LEAST_BUFFER : need, &step);
	if (rc) {
		setup_failed(w, rc, step, phxfs_last_error());
		return;
	}
	rc = loop_prepare(w);
	if (rc) {
		setup_failed(w, rc, "make a queue", rc == -ENOMEM ? strerror(ENOMEM) :
								   phxfs_last_error());
		return;
	}
	if (b->verify) {
		w->scratch = malloc(b->bs);
		if (!w->scratch)
			setup_failed(w, -ENOMEM, "allocate a block", strerror(ENOMEM));
	}
}

static void worker_teardown(struct worker *w)
{
	loop_release(w);
	buffer_put(&w->buf);
	free(w->scratch);
	if (w->fd >= 0)
		close(w->fd);
}

static void worker_run(struct worker *w)
{
	const struct bench *b = w->b;

	w->deadline_ns = b->runtime > 0 ? now_ns() + (uint64_t)(b->runtime * 1e9) : UINT64_MAX;
	if (b->batch)
		loop_batch(w);
	else if (b->depth > 1)
		loop_queue(w);
	else
		loop_single(w);
	if (b->sync && !w->error && fdatasync(w->fd)) {
		w->error = -errno;
		snprintf(w->what, sizeof(w->what), "fdatasync: %s", strerror(errno));
	}
	w->ended_ns = now_ns();
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;
	struct gate *g = t->gate;

	worker_setup(&t->w);
	pthread_mutex_lock(&g->lock);
	g->ready++;
	pthread_cond_broadcast(&g->changed);
	while (!g->open)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);

	if (!t->w.error)
		worker_run(&t->w);

	pthread_mutex_lock(&g->lock);
	g->running--;
	pthread_cond_broadcast(&g->changed);
	while (!g->closed)
		pthread_cond_wait(&g->changed, &g->lock);
	pthread_mutex_unlock(&g->lock);
	return NULL;
}

static uint64_t live_bytes(struct thread *threads, uint64_t n)
{
	uint64_t i, sum = 0;

	for (i = 0; i < n; i++)
		sum += atomic_load_explicit(&threads[i].w.live, memory_order_relaxed);
	return sum;
}

static uint64_t planned_bytes(const struct bench *b)
{
	if (b->count)
		return b->count * b->threads * b->bs;
	return b->runtime > 0 ? 0 : b->blocks * b->bs;
}

/* Waits for the last worker. Called with g->lock held. */
static void watch(const struct bench *b, struct gate *g, struct thread *threads)
{
	struct progress progress;
	struct timespec until;

	progress_start(&progress);
	while (g->running) {
		if (!progress.on) {
			pthread_cond_wait(&g->changed, &g->lock);
			continue;
		}
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_sec++;
		pthread_cond_timedwait(&g->changed, &g->lock, &until);
		progress_update(&progress, live_bytes(threads, b->threads), planned_bytes(b));
	}
	progress_end(&progress);
}

static uint64_t micros(const struct timeval *end, const struct timeval *start)
{
	return (uint64_t)(end->tv_sec - start->tv_sec) * 1000000u + (uint64_t)end->tv_usec -
	       (uint64_t)start->tv_usec;
}

static void read_stats(const struct bench *b, struct phxfs_stats *stats)
{
	*stats = (struct phxfs_stats){ .size = sizeof(*stats) };
	if (phxfs_stats(b->device, stats))
		*stats = (struct phxfs_stats){ .size = sizeof(*stats) };
}

/* When the last worker had done its last I/O. */
static uint64_t ended(const struct thread *threads, uint64_t n)
{
	uint64_t last = 0;

	for (uint64_t i = 0; i < n; i++)
		if (threads[i].w.ended_ns > last)
			last = threads[i].w.ended_ns;
	return last;
}

/* Opens the gate, waits for the work, takes the figures, closes the gate. */
static void measure(const struct bench *b, struct gate *g, struct thread *threads,
		    struct bench_result *r)
{
	struct rusage before, after;
	uint64_t start, last;

	pthread_mutex_lock(&g->lock);
	while (g->ready < b->threads)
		pthread_cond_wait(&g->changed, &g->lock);
	read_stats(b, &r->before);
	getrusage(RUSAGE_SELF, &before);
	start = now_ns();
	g->running = b->threads;
	g->open = true;
	pthread_cond_broadcast(&g->changed);
	watch(b, g, threads);
	getrusage(RUSAGE_SELF, &after);
	last = ended(threads, b->threads);
	r->elapsed_ns = last > start ? last - start : 0;
	read_stats(b, &r->after);
	g->closed = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
	r->user_us = micros(&after.ru_utime, &before.ru_utime);
	r->sys_us = micros(&after.ru_stime, &before.ru_stime);
}

static void collect(const struct bench *b, struct thread *threads, struct bench_result *r)
{
	struct worker *w;
	uint64_t i;

	for (i = 0; i < b->threads; i++) {
		w = &threads[i].w;
		hist_merge(&r->hist, &w->hist);
		r->ios += w->ios;
		r->bytes += w->bytes;
		if (w->error && !r->error) {
			r->error = w->error;
			memcpy(r->what, w->what, sizeof(r->what));
		}
	}
}

/* With a thread's own buffer and descriptor, while it still has them. */
static void after_run(const struct bench *b, struct thread *threads, struct bench_result *r)
{
	struct worker *w = &threads[0].w;

	r->path = (struct phxfs_path_info){ .size = sizeof(r->path) };
	r->path_rc = -ENODATA;
	if (w->fd >= 0 && w->buf.addr)
		r->path_rc = phxfs_path_query(w->fd, b->device, w->buf.addr, b->bs, 0, &r->path);
	if (!b->written || r->error || atomic_load(&bench_stopped))
		return;
	loop_check_written(w, &r->verified);
	if (w->error) {
		r->error = w->error;
		memcpy(r->what, w->what, sizeof(r->what));
	}
}

static int start_threads(const struct bench *b, struct gate *g, struct thread *threads)
{
	uint64_t i;
	int rc;

	for (i = 0; i < b->threads; i++) {
		threads[i].gate = g;
		threads[i].w.b = b;
		threads[i].w.index = (unsigned int)i;
		threads[i].w.fd = -1;
		rc = pthread_create(&threads[i].id, NULL, thread_main, &threads[i]);
		if (rc)
			break;
	}
	if (i == b->threads)
		return 0;
	/* those that started must not run: let them through an open, stopped gate */
	bench_stop();
	pthread_mutex_lock(&g->lock);
	g->running = i;
	g->open = g->closed = true;
	pthread_cond_broadcast(&g->changed);
	pthread_mutex_unlock(&g->lock);
	while (i-- > 0) {
		pthread_join(threads[i].id, NULL);
		worker_teardown(&threads[i].w);
	}
	return rc;
}

int bench_run(struct bench *b, struct bench_result *r)
{
	struct gate gate = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct thread *threads = calloc(b->threads, sizeof(*threads));
	pthread_condattr_t attr;
	uint64_t i;
	int rc;

	if (!threads)
		return failed(&cmd_bench, "no memory for %ju threads", (uintmax_t)b->threads);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&gate.changed, &attr);
	pthread_condattr_destroy(&attr);

	rc = start_threads(b, &gate, threads);
	if (rc) {
		rc = failed(&cmd_bench, "cannot start %ju threads: %s", (uintmax_t)b->threads,
			    strerror(rc));
		goto out;
	}
	measure(b, &gate, threads, r);
	for (i = 0; i < b->threads; i++)
		pthread_join(threads[i].id, NULL);
	collect(b, threads, r);
	after_run(b, threads, r);
	if (b->op == PHXFS_OP_READ && b->verify)
		r->verified = r->ios;
	for (i = 0; i < b->threads; i++)
		worker_teardown(&threads[i].w);
out:
	pthread_cond_destroy(&gate.changed);
	free(threads);
	return rc;
}
