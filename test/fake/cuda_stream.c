// SPDX-License-Identifier: Apache-2.0
/*
 * The fake driver's streams: a thread each, which does what was queued, in
 * order and late. A stream is never freed: its thread runs until exit.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda_fake.h"

static struct stream *streams; /* protected by: fake_lock */
static _Atomic long events;
static _Atomic bool held;

API void fakecuda_hold(bool hold)
{
	held = hold;
}

void fake_count_streams(struct fakecuda_state *out)
{
	pthread_mutex_lock(&fake_lock);
	for (struct stream *s = streams; s; s = s->next)
		out->streams++;
	pthread_mutex_unlock(&fake_lock);
	out->events = events;
}

/* ---------------------------------------------------------------- running */

static unsigned int delay_us(void)
{
	const char *text = getenv("FAKE_CUDA_DELAY_US");

	return text ? (unsigned int)strtoul(text, NULL, 0) : 0;
}

static void await_turn(const struct work *w);
static void pass(const struct work *w);

/* A copy that is not made gives its turn up. */
static void skip(const struct work *w)
{
	await_turn(w);
	pass(w);
}

static void *run_stream(void *arg)
{
	unsigned int delay = delay_us();
	struct stream *s = arg;

	for (;;) {
		struct work *w;
		int result;

		pthread_mutex_lock(&s->lock);
		while (!s->first)
			pthread_cond_wait(&s->changed, &s->lock);
		w = s->first;
		pthread_mutex_unlock(&s->lock);
		if (delay)
			usleep(delay);
		while (held)
			usleep(100);
		result = s->context->broken;
		if (!result)
			result = w->run(w);
		else if (w->channel)
			skip(w);
		pthread_mutex_lock(&s->lock);
		if (result)
			s->context->broken = result;
		s->first = w->next;
		if (!s->first)
			s->last = &s->first;
		s->done++;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->lock);
		free(w);
	}
	return NULL;
}

/* A stream that a call may use: of the current context, which is sound. */
static int check(struct stream *s)
{
	int result = fake_context_error(fake_current());

	if (!result && (!s || s->context != fake_current()))
		result = INVALID_HANDLE;
	return result;
}

static int queue(struct stream *s, struct work work)
{
	struct work *w = malloc(sizeof(*w));

	if (!w)
		return OUT_OF_MEMORY;
	*w = work;
	w->next = NULL;
	pthread_mutex_lock(&s->lock);
	if (w->channel) {
		pthread_mutex_lock(&fake_lock);
		w->turn = w->channel->queued++;
		pthread_mutex_unlock(&fake_lock);
	}
	*s->last = w;
	s->last = &w->next;
	s->queued++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static void wait_for(struct stream *s, unsigned long target)
{
	pthread_mutex_lock(&s->lock);
	while (s->done < target)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

static bool reached(struct stream *s, unsigned long target)
{
	bool is;

	pthread_mutex_lock(&s->lock);
	is = s->done >= target;
	pthread_mutex_unlock(&s->lock);
	return is;
}

static unsigned long queued(struct stream *s)
{
	unsigned long n;

	pthread_mutex_lock(&s->lock);
	n = s->queued;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* ---------------------------------------------------------------- streams */

API int cuStreamCreate(struct stream **out, unsigned int flags)
{
	int result = fake_call("cuStreamCreate");
	struct stream *s;
	pthread_t thread;

	if (!result)
		result = fake_context_error(fake_current());
	if (result)
		return result;
	s = calloc(1, sizeof(*s));
	if (!s)
		return OUT_OF_MEMORY;
	s->context = fake_current();
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	if (pthread_create(&thread, NULL, run_stream, s)) {
		free(s);
		return OUT_OF_MEMORY;
	}
	pthread_detach(thread);
	pthread_mutex_lock(&fake_lock);
	s->channel = &s->context->channels[s->context->streams++ % CHANNELS];
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&fake_lock);
	*out = s;
	return 0;
}

API int cuStreamDestroy_v2(struct stream *s)
{
	return fake_call("cuStreamDestroy_v2");
}

API int cuStreamSynchronize(struct stream *s)
{
	int result = fake_unsafe_call("cuStreamSynchronize");

	if (!result)
		result = check(s);
	if (result)
		return result;
	wait_for(s, queued(s));
	return s->context->broken;
}

API int cuStreamQuery(struct stream *s)
{
	int result = fake_unsafe_call("cuStreamQuery");

	if (!result)
		result = check(s);
	if (result)
		return result;
	return reached(s, queued(s)) ? s->context->broken : NOT_READY;
}

static bool has_turn(const struct work *w)
{
	bool has;

	pthread_mutex_lock(&fake_lock);
	has = w->channel->passed == w->turn;
	pthread_mutex_unlock(&fake_lock);
	return has;
}

/* What stands before it in the channel may wait for something in its own stream. */
static void await_turn(const struct work *w)
{
	while (!has_turn(w))
		usleep(50);
}

static void pass(const struct work *w)
{
	pthread_mutex_lock(&fake_lock);
	w->channel->passed++;
	pthread_mutex_unlock(&fake_lock);
}

static int run_copy(struct work *w)
{
	int result = fake_chance("copy");

	await_turn(w);
	if (!result)
		result = fake_copy(w->dst, w->src, w->n);
	pass(w);
	return result;
}

/*
 * Memory of the program that is not pinned cannot be reached later: what comes
 * from it is taken at once, what goes to it is waited for.
 */
static int copy_unpinned(struct stream *s, struct work w)
{
	int result = queue(s, w);

	if (!result)
		wait_for(s, queued(s));
	return result;
}

static int copy(const char *name, uintptr_t dst, uintptr_t src, size_t n, struct stream *s)
{
	struct work w = { .run = run_copy, .dst = dst, .src = src, .n = n };
	int result = fake_call(name);

	w.channel = s ? s->channel : NULL;
	if (!result)
		result = fake_call("copies");
	if (!result)
		result = check(s);
	if (!result && (!dst || !src))
		result = INVALID_VALUE;
	if (result)
		return result;
	if ((!fake_is_device(dst) && !fake_is_pinned(dst, n)) ||
	    (!fake_is_device(src) && !fake_is_pinned(src, n)))
		return copy_unpinned(s, w);
	return queue(s, w);
}

API int cuMemcpyAsync(uintptr_t dst, uintptr_t src, size_t n, struct stream *s)
{
	return copy("cuMemcpyAsync", dst, src, n, s);
}

API int cuMemcpyHtoDAsync_v2(uintptr_t dst, uintptr_t src, size_t n, struct stream *s)
{
	return fake_is_device(dst) ? copy("cuMemcpyHtoDAsync_v2", dst, src, n, s) : INVALID_VALUE;
}

API int cuMemcpyDtoHAsync_v2(uintptr_t dst, uintptr_t src, size_t n, struct stream *s)
{
	return fake_is_device(src) ? copy("cuMemcpyDtoHAsync_v2", dst, src, n, s) : INVALID_VALUE;
}

API int cuMemcpyDtoDAsync_v2(uintptr_t dst, uintptr_t src, size_t n, struct stream *s)
{
	return fake_is_device(dst) && fake_is_device(src) ?
		       copy("cuMemcpyDtoDAsync_v2", dst, src, n, s) :
		       INVALID_VALUE;
}

static int run_fill(struct work *w)
{
	return fake_fill(w->dst, w->byte, w->n);
}

API int cuMemsetD8Async(uintptr_t dst, unsigned char byte, size_t n, struct stream *s)
{
	struct work w = { .run = run_fill, .dst = dst, .byte = byte, .n = n };
	int result = fake_call("cuMemsetD8Async");

	if (!result)
		result = check(s);
	return result ? result : queue(s, w);
}

static int run_function(struct work *w)
{
	w->fn(w->arg);
	return 0;
}

API int cuLaunchHostFunc(struct stream *s, void (*fn)(void *arg), void *arg)
{
	struct work w = { .run = run_function, .fn = fn, .arg = arg };
	int result = fake_call("cuLaunchHostFunc");

	if (!result && !s)
		result = INVALID_CONTEXT;
	return result ? result : queue(s, w);
}

static int run_wait(struct work *w)
{
	while ((int64_t)(__atomic_load_n(w->word, __ATOMIC_ACQUIRE) - w->value) < 0)
		usleep(20);
	return 0;
}

static int run_write(struct work *w)
{
	__atomic_store_n(w->word, w->value, __ATOMIC_RELEASE);
	return 0;
}

static int queue_word(const char *name, struct stream *s, uintptr_t word, uint64_t value,
		      int (*run)(struct work *work))
{
	struct work w = { .run = run, .word = (uint64_t *)word, .value = value };
	int result = fake_call(name);

	if (!result && !fake_has_words())
		result = NOT_SUPPORTED;
	if (!result && !s)
		result = INVALID_CONTEXT;
	if (!result && !fake_is_pinned(word, sizeof(uint64_t)))
		result = INVALID_VALUE;
	return result ? result : queue(s, w);
}

API int cuStreamWaitValue64_v2(struct stream *s, uintptr_t word, uint64_t value,
			       unsigned int flags)
{
	return queue_word("cuStreamWaitValue64_v2", s, word, value, run_wait);
}

API int cuStreamWriteValue64_v2(struct stream *s, uintptr_t word, uint64_t value,
				unsigned int flags)
{
	return queue_word("cuStreamWriteValue64_v2", s, word, value, run_write);
}

/* ----------------------------------------------------------------- events */

API int cuEventCreate(struct event **out, unsigned int flags)
{
	int result = fake_call("cuEventCreate");

	if (!result)
		result = fake_context_error(fake_current());
	if (result)
		return result;
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return OUT_OF_MEMORY;
	(*out)->context = fake_current();
	events++;
	return 0;
}

API int cuEventDestroy_v2(struct event *e)
{
	int result = fake_call("cuEventDestroy_v2");

	if (result)
		return result;
	free(e);
	events--;
	return 0;
}

API int cuEventRecord(struct event *e, struct stream *s)
{
	int result = fake_call("cuEventRecord");
	unsigned long target;

	if (!result)
		result = check(s);
	if (!result && e->context != s->context)
		result = INVALID_HANDLE;
	if (result)
		return result;
	target = queued(s);
	pthread_mutex_lock(&fake_lock);
	e->stream = s;
	e->target = target;
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

/* What the event waits for; false: nothing. */
static bool mark_of(struct event *e, struct stream **s, unsigned long *target)
{
	pthread_mutex_lock(&fake_lock);
	*s = e->stream;
	*target = e->target;
	pthread_mutex_unlock(&fake_lock);
	return *s;
}

API int cuEventQuery(struct event *e)
{
	int result = fake_unsafe_call("cuEventQuery");
	unsigned long target;
	struct stream *s;

	if (!result)
		result = fake_context_error(e->context);
	if (result || !mark_of(e, &s, &target))
		return result;
	return reached(s, target) ? e->context->broken : NOT_READY;
}

API int cuEventSynchronize(struct event *e)
{
	int result = fake_unsafe_call("cuEventSynchronize");
	unsigned long target;
	struct stream *s;

	if (!result)
		result = fake_context_error(e->context);
	if (result || !mark_of(e, &s, &target))
		return result;
	wait_for(s, target);
	return e->context->broken;
}
