// SPDX-License-Identifier: Apache-2.0
/*
 * The software accelerator, through its runtime libphxsim.so: device memory
 * that is no CPU memory, on any machine whose kernel has phxsim.ko.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devconnector.h"

#define DEVICE_PAGE 65536UL
#define MAX_DEVICES 64
#define LAYOUT_DEFAULT 0u

/* The runtime's ABI, as far as it is used here. */
struct pointer {
	void *base;
	size_t size;
	uint64_t id;
	int dev;
};

struct queue;

static struct {
	int (*init)(void);
	int (*device_count)(int *count);
	int (*device_bdf)(int dev, char *bdf, size_t len);
	int (*device_memory)(int dev, uint64_t *total, uint64_t *available);
	int (*mem_alloc)(int dev, size_t size, unsigned int layout, void **ptr);
	int (*mem_free)(void *ptr);
	int (*pointer_query)(const void *ptr, struct pointer *out);
	int (*memcpy_htod)(void *dst, const void *src, size_t n);
	int (*memcpy_dtoh)(void *dst, const void *src, size_t n);
	int (*memcpy_dtod)(void *dst, const void *src, size_t n);
	int (*queue_create)(int dev, struct queue **q);
	int (*queue_sync)(struct queue *q);
	int (*memcpy_htod_async)(struct queue *q, void *dst, const void *src, size_t n);
	int (*memcpy_dtoh_async)(struct queue *q, void *dst, const void *src, size_t n);
	int (*memcpy_dtod_async)(struct queue *q, void *dst, const void *src, size_t n);
	int (*queue_call)(struct queue *q, void (*fn)(void *arg), void *arg);
	int (*queue_signal)(struct queue *q, uint32_t *word, uint32_t value);
} sim;

#define SYMBOL(name) \
	{ \
		"phxsim_" #name, (void **)&sim.name \
	}

static const struct {
	const char *name;
	void **slot;
} symbols[] = {
	SYMBOL(init),
	SYMBOL(device_count),
	SYMBOL(device_bdf),
	SYMBOL(device_memory),
	SYMBOL(mem_alloc),
	SYMBOL(mem_free),
	SYMBOL(pointer_query),
	SYMBOL(memcpy_htod),
	SYMBOL(memcpy_dtoh),
	SYMBOL(memcpy_dtod),
	SYMBOL(queue_create),
	SYMBOL(queue_sync),
	SYMBOL(memcpy_htod_async),
	SYMBOL(memcpy_dtoh_async),
	SYMBOL(memcpy_dtod_async),
	SYMBOL(queue_call),
	SYMBOL(queue_signal),
};

/* queues_lock: the making of queues; a queue that is there stays. */
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue *queues[MAX_DEVICES][DEVCONN_SLOTS];

static int init(char *text, size_t size)
{
	void *library = dlopen("libphxsim.so", RTLD_NOW | RTLD_LOCAL);
	int err;

	if (!library) {
		snprintf(text, size, "libphxsim.so not found");
		return -ENOENT;
	}
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].slot = dlsym(library, symbols[i].name);
		if (!*symbols[i].slot) {
			snprintf(text, size, "libphxsim.so lacks %s", symbols[i].name);
			dlclose(library);
			return -ENOSYS;
		}
	}
	err = sim.init();
	if (err) {
		snprintf(text, size, "libphxsim.so: %s", strerrordesc_np(-err));
		dlclose(library);
		return err;
	}
	snprintf(text, size, "libphxsim.so");
	return 0;
}

static int device_count(void)
{
	int count;

	if (sim.device_count(&count))
		return 0;
	return count < MAX_DEVICES ? count : MAX_DEVICES;
}

static int device_describe(int ordinal, struct devconn_device *out)
{
	*out = (struct devconn_device){ 0 };
	snprintf(out->name, sizeof(out->name), "software accelerator %d", ordinal);
	sim.device_memory(ordinal, &out->memory_bytes, NULL);
	return sim.device_bdf(ordinal, out->bdf, sizeof(out->bdf));
}

static int find_device(int ordinal)
{
	char bdf[16];

	return sim.device_bdf(ordinal, bdf, sizeof(bdf)) ? -1 : devconn_find_bdf(bdf);
}

static int mem_alloc(int device, size_t len, void **addr)
{
	return sim.mem_alloc(devconn_ordinal(device), len, LAYOUT_DEFAULT, addr);
}

static int mem_free(int device, void *addr, size_t len)
{
	return sim.mem_free(addr);
}

static int pointer_device(const void *addr, struct devconn_pointer *out)
{
	struct pointer p;

	if (sim.pointer_query(addr, &p))
		return -ENOENT;
	out->device = find_device(p.dev);
	if (out->device < 0)
		return -ENOENT;
	out->base = (uintptr_t)p.base;
	out->len = p.size;
	out->buffer_id = p.id;
	return 0;
}

static int copy_dtod(int device, void *dst, const void *src, size_t n)
{
	return sim.memcpy_dtod(dst, src, n);
}

static int copy_htod(int device, void *dst, const void *src, size_t n)
{
	return sim.memcpy_htod(dst, src, n);
}

static int copy_dtoh(int device, void *dst, const void *src, size_t n)
{
	return sim.memcpy_dtoh(dst, src, n);
}

static int queue_of(int device, int slot, struct queue **out)
{
	int ordinal = devconn_ordinal(device), err = 0;

	if (ordinal < 0 || ordinal >= MAX_DEVICES || slot < 0 || slot >= DEVCONN_SLOTS)
		return -EINVAL;
	pthread_mutex_lock(&queues_lock);
	if (!queues[ordinal][slot])
		err = sim.queue_create(ordinal, &queues[ordinal][slot]);
	*out = queues[ordinal][slot];
	pthread_mutex_unlock(&queues_lock);
	return err;
}

static int copy_dtod_async(int device, int slot, void *dst, const void *src, size_t n)
{
	struct queue *q;
	int err = queue_of(device, slot, &q);

	return err ? err : sim.memcpy_dtod_async(q, dst, src, n);
}

static int copy_htod_async(int device, int slot, void *dst, const void *src, size_t n)
{
	struct queue *q;
	int err = queue_of(device, slot, &q);

	return err ? err : sim.memcpy_htod_async(q, dst, src, n);
}

static int copy_dtoh_async(int device, int slot, void *dst, const void *src, size_t n)
{
	struct queue *q;
	int err = queue_of(device, slot, &q);

	return err ? err : sim.memcpy_dtoh_async(q, dst, src, n);
}

static int queue_sync(int device, int slot)
{
	struct queue *q;
	int err = queue_of(device, slot, &q);

	return err ? err : sim.queue_sync(q);
}

/*
 * An event is a word that its queue counts up, and the count to wait for. The
 * runtime reports a failed copy at the next sync of its queue only, so the
 * waiter syncs.
 */
struct event {
	int slot;
	uint32_t word, target;
};

static int event_record(int device, int slot, void **event)
{
	struct event *e = *event;
	struct queue *q;
	int err = queue_of(device, slot, &q);

	if (err)
		return err;
	if (!e)
		e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	*event = e;
	e->slot = slot;
	e->target++;
	return sim.queue_signal(q, &e->word, e->target);
}

static int event_wait(int device, void *event)
{
	struct event *e = event;

	return queue_sync(device, e->slot);
}

static int event_done(int device, void *event)
{
	struct event *e = event;

	if (__atomic_load_n(&e->word, __ATOMIC_ACQUIRE) != e->target)
		return -EBUSY;
	return event_wait(device, event);
}

static void event_free(int device, void *event)
{
	free(event);
}

/* NULL is the default stream: a queue of its own, on the first device. */
static int launch_host_func(void *stream, void (*fn)(void *arg), void *arg)
{
	static struct queue *first;
	int err = 0;

	if (!stream) {
		pthread_mutex_lock(&queues_lock);
		if (!first)
			err = sim.queue_create(0, &first);
		stream = first;
		pthread_mutex_unlock(&queues_lock);
	}
	return err ? err : sim.queue_call(stream, fn, arg);
}

const struct devconn_ops sim_connector = {
	.abi = DEVCONN_ABI,
	.name = "sim",
	.page_size = DEVICE_PAGE,
	.held_streams = DEVCONN_HELD_STREAMS,
	.init = init,
	.device_count = device_count,
	.device_describe = device_describe,
	.find_device = find_device,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.pointer_device = pointer_device,
	.host_alloc = devconn_host_alloc,
	.host_free = devconn_host_free,
	.export_dmabuf = devconn_no_export,
	.memcpy_dtod = copy_dtod,
	.memcpy_htod = copy_htod,
	.memcpy_dtoh = copy_dtoh,
	.memcpy_dtod_async = copy_dtod_async,
	.memcpy_htod_async = copy_htod_async,
	.memcpy_dtoh_async = copy_dtoh_async,
	.queue_sync = queue_sync,
	.event_record = event_record,
	.event_done = event_done,
	.event_wait = event_wait,
	.event_free = event_free,
	.launch_host_func = launch_host_func,
	.stream_held = devconn_no_stream_held,
	.stream_wait = devconn_no_stream_word,
	.stream_signal = devconn_no_stream_word,
	.range_push = devconn_no_range_push,
	.range_pop = devconn_no_range_pop,
};
