// SPDX-License-Identifier: Apache-2.0
/*
 * The measured loops. They take the time once for each I/O (or once for each
 * harvest of completions), allocate nothing and share nothing but the stop
 * flag, so that what is measured is the library.
 */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atomic_bool bench_stopped;

static uint64_t next_random(uint64_t *state)
{
	uint64_t x = (*state += 0x9e3779b97f4a7c15u);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t next_block(struct worker *w)
{
	uint64_t block;

	if (w->b->random)
		return (uint64_t)(((unsigned __int128)next_random(&w->rng) * w->b->blocks) >> 64);
	block = w->first + w->next;
	if (++w->next == w->share)
		w->next = 0;
	return block;
}

static bool may_start(const struct worker *w, uint64_t now)
{
	return w->left && now < w->deadline_ns && !w->error &&
	       !atomic_load_explicit(&bench_stopped, memory_order_relaxed);
}

__attribute__((cold)) static void record_failure(struct worker *w, int error, uint64_t offset,
						 const char *text)
{
	if (w->error)
		return;
	w->error = error;
	snprintf(w->what, sizeof(w->what), "at offset %ju: %s", (uintmax_t)offset, text);
}

/* An I/O did not move a whole block. */
__attribute__((cold)) static void record_result(struct worker *w, ssize_t result, uint64_t offset)
{
	char text[64];

	if (result < 0) {
		record_failure(w, (int)result, offset, phxfs_last_error());
		return;
	}
	snprintf(text, sizeof(text), "%zd of %ju bytes", result, (uintmax_t)w->b->bs);
	record_failure(w, -EIO, offset, text);
}

static void finish_block(struct worker *w)
{
	w->ios++;
	w->bytes += w->b->bs;
	atomic_store_explicit(&w->live, w->bytes, memory_order_relaxed);
}

/* Before a write: the slot gets the pattern of its place. */
static void before_io(struct worker *w, size_t slot, uint64_t block)
{
	const struct bench *b = w->b;
	int rc;

	if (b->op != PHXFS_OP_WRITE)
		return;
	pattern_fill(w->scratch, b->bs, b->seed, block * b->bs);
	rc = buffer_store(&w->buf, slot * w->stride, w->scratch, b->bs);
	if (rc)
		record_failure(w, rc, block * b->bs, phxfs_last_error());
	atomic_fetch_or_explicit(&b->written[block / 64], UINT64_C(1) << (block % 64),
				 memory_order_relaxed);
}

static bool compare_block(struct worker *w, const struct buffer *buf, size_t at, uint64_t offset)
{
	const struct bench *b = w->b;
	char text[64];
	size_t good;
	int rc;

	rc = buffer_load(buf, at, w->scratch, b->bs);
	if (rc) {
		record_failure(w, rc, offset, phxfs_last_error());
		return false;
	}
	good = pattern_check(w->scratch, b->bs, b->seed, offset);
	if (good == b->bs)
		return true;
	snprintf(text, sizeof(text), "the data differs (seed %ju)", (uintmax_t)b->seed);
	record_failure(w, -EILSEQ, offset + good, text);
	return false;
}

/* After a read: the slot must hold the pattern of its place. It is cleared
 * afterwards, so that a next read that moves nothing cannot pass. */
static void after_io(struct worker *w, size_t slot, uint64_t block)
{
	const struct bench *b = w->b;

	if (b->op != PHXFS_OP_READ)
		return;
	if (!compare_block(w, &w->buf, slot * w->stride, block * b->bs))
		return;
	memset(w->scratch, 0, b->bs);
	if (buffer_store(&w->buf, slot * w->stride, w->scratch, b->bs))
		record_failure(w, -EIO, block * b->bs, phxfs_last_error());
}

/* ------------------------------------------------------------ one at a time */

static inline ssize_t transfer(const struct worker *w, int op, uint64_t offset)
{
	void *buf = w->buf.addr;
	ssize_t n = (ssize_t)w->b->bs;

	if (op == PHXFS_OP_WRITE)
		return phxfs_write(w->fd, w->b->device, buf, 0, n, (off_t)offset);
	return phxfs_read(w->fd, w->b->device, buf, 0, n, (off_t)offset);
}

void loop_single(struct worker *w)
{
	const struct bench *b = w->b;
	uint64_t start = now_ns(), now, block;
	ssize_t n;

	while (may_start(w, start)) {
		block = next_block(w);
		w->left--;
		if (b->verify) {
			before_io(w, 0, block);
			start = now_ns();
		}
		n = transfer(w, b->op, block * b->bs);
		now = now_ns();
		if (n != (ssize_t)b->bs) {
			record_result(w, n, block * b->bs);
			return;
		}
		hist_add(&w->hist, now - start);
		finish_block(w);
		start = now;
		if (b->verify) {
			after_io(w, 0, block);
			start = now_ns();
		}
	}
}

/* -------------------------------------------------------- many in flight */

struct slot {
	uint64_t start_ns;
	uint64_t block;
};

struct flight {
	phxfs_queue_t *queue;
	struct slot *slots;
	struct phxfs_completion *done;
	phxfs_io_req_t *reqs;
	void **ids; /* user data: the slot's number */
};

void loop_release(struct worker *w)
{
	struct flight *f = w->flight;

	if (!f)
		return;
	if (f->queue)
		phxfs_queue_destroy(f->queue);
	free(f->slots);
	free(f->done);
	free(f->reqs);
	free(f->ids);
	free(f);
	w->flight = NULL;
}

int loop_prepare(struct worker *w)
{
	const struct bench *b = w->b;
	size_t n = b->batch ? b->batch : b->depth;
	struct flight *f;
	int rc = 0;

	if (n == 1 && !b->batch)
		return 0;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	w->flight = f;
	if (!b->batch)
		rc = phxfs_queue_create((unsigned int)n, &f->queue);
	f->slots = calloc(n, sizeof(*f->slots));
	f->done = calloc(n, sizeof(*f->done));
	f->reqs = calloc(n, sizeof(*f->reqs));
	f->ids = calloc(n, sizeof(*f->ids));
	if (!rc && !(f->slots && f->done && f->reqs && f->ids))
		rc = -ENOMEM;
	if (rc)
		loop_release(w);
	return rc;
}

static void set_request(const struct worker *w, phxfs_io_req_t *req, size_t slot, uint64_t block)
{
	*req = (phxfs_io_req_t){
		.fd = w->fd,
		.device_id = w->b->device,
		.buf = w->buf.addr,
		.buf_offset = (off_t)(slot * w->stride),
		.nbytes = w->b->bs,
		.f_offset = (off_t)(block * w->b->bs),
	};
}

/* Takes the next block for a slot and makes its request the n-th of the next
 * submission. */
static void launch(struct worker *w, struct flight *f, size_t slot, int n, uint64_t now)
{
	uint64_t block = next_block(w);

	w->left--;
	if (w->b->verify) {
		before_io(w, slot, block);
		now = now_ns();
	}
	f->slots[slot] = (struct slot){ .start_ns = now, .block = block };
	set_request(w, &f->reqs[n], slot, block);
	f->ids[n] = (void *)(uintptr_t)slot;
}

/* Returns how many of the n requests are under way. */
static int submit_all(struct worker *w, struct flight *f, int n)
{
	int done = 0, rc;

	while (done < n) {
		rc = phxfs_queue_submit(f->queue, w->b->op, f->reqs + done, f->ids + done,
					n - done);
		if (rc <= 0) {
			record_failure(w, rc ? rc : -EIO, (uint64_t)f->reqs[done].f_offset,
				       phxfs_last_error());
			break;
		}
		done += rc;
	}
	return done;
}

/* Books one completion. True: its slot may be used again. */
static bool land(struct worker *w, struct flight *f, const struct phxfs_completion *c,
		 uint64_t now)
{
	size_t slot = (uintptr_t)c->user_data;
	uint64_t block = f->slots[slot].block;

	if (c->result != (ssize_t)w->b->bs) {
		record_result(w, c->result, block * w->b->bs);
		return false;
	}
	hist_add(&w->hist, now - f->slots[slot].start_ns);
	finish_block(w);
	if (w->b->verify)
		after_io(w, slot, block);
	return true;
}

/* Completions taken at once. Taking all there are would make waves: everything
 * in flight finishes together, and the disk stands still while it is renewed. */
static int harvest_of(int depth)
{
	return depth < 16 ? 1 : depth / 8;
}

void loop_queue(struct worker *w)
{
	int depth = (int)w->b->depth, harvest = harvest_of(depth), flying = 0, n, i, next;
	struct flight *f = w->flight;
	uint64_t now = now_ns();

	for (next = 0; next < depth && may_start(w, now); next++)
		launch(w, f, (size_t)next, next, now);
	flying = submit_all(w, f, next);

	while (flying) {
		n = phxfs_queue_wait(f->queue, f->done, 1, harvest, NULL);
		if (n <= 0) {
			record_failure(w, n ? n : -EIO, 0, phxfs_last_error());
			break;
		}
		now = now_ns();
		flying -= n;
		next = 0;
		for (i = 0; i < n; i++)
			if (land(w, f, &f->done[i], now) && may_start(w, now))
				launch(w, f, (uintptr_t)f->done[i].user_data, next++, now);
		if (next)
			flying += submit_all(w, f, next);
	}
}

/* ----------------------------------------------------------------- batches */

static int run_batch(const struct worker *w, phxfs_io_req_t *reqs, int n)
{
	if (w->b->op == PHXFS_OP_WRITE)
		return phxfs_write_batch(reqs, n);
	return phxfs_read_batch(reqs, n);
}

static void book_batch(struct worker *w, const phxfs_io_req_t *reqs, int n, uint64_t ns)
{
	int i;

	for (i = 0; i < n; i++) {
		if (reqs[i].result != (ssize_t)w->b->bs) {
			record_result(w, reqs[i].result, (uint64_t)reqs[i].f_offset);
			continue;
		}
		hist_add(&w->hist, ns);
		finish_block(w);
		if (w->b->verify)
			after_io(w, (size_t)i, (uint64_t)reqs[i].f_offset / w->b->bs);
	}
}

void loop_batch(struct worker *w)
{
	int batch = (int)w->b->batch, n, rc;
	phxfs_io_req_t *reqs = w->flight->reqs;
	uint64_t start = now_ns(), now, block;

	while (may_start(w, start)) {
		for (n = 0; n < batch && w->left; n++, w->left--) {
			block = next_block(w);
			if (w->b->verify)
				before_io(w, (size_t)n, block);
			set_request(w, &reqs[n], (size_t)n, block);
		}
		start = now_ns();
		rc = run_batch(w, reqs, n);
		now = now_ns();
		if (rc < 0) {
			record_failure(w, rc, (uint64_t)reqs[0].f_offset, phxfs_last_error());
			break;
		}
		book_batch(w, reqs, n, now - start);
		start = now;
	}
}

/* -------------------------------------------------- after a verified write */

void loop_check_written(struct worker *w, uint64_t *verified)
{
	const struct bench *b = w->b;
	uint64_t block;
	ssize_t n;

	for (block = 0; block < b->blocks && !w->error; block++) {
		if (!(atomic_load_explicit(&b->written[block / 64], memory_order_relaxed) >>
			      (block % 64) & 1))
			continue;
		n = transfer(w, PHXFS_OP_READ, block * b->bs);
		if (n != (ssize_t)b->bs)
			record_result(w, n, block * b->bs);
		else if (compare_block(w, &w->buf, 0, block * b->bs))
			(*verified)++;
	}
}
