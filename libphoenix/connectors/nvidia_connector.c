// SPDX-License-Identifier: Apache-2.0
/*
 * NVIDIA GPUs, through the driver API.
 *
 * Everything happens in the device's primary context, which the CUDA runtime
 * uses too. It is retained when a buffer first needs it and kept: a GPU that no
 * buffer uses gets no context. Each call makes it current and then puts back
 * what the caller had. Copies: nvidia_copy.c; users' streams: nvidia_stream.c.
 *
 * A thread that records a graph, or any other thread while it does, may not
 * make calls such as allocating or asking about an event; calls made here are
 * exempted (nvidia_enter()), since none concerns a stream being recorded.
 *
 * CUDA does not survive fork(): in a child every call fails with -ENODEV.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "nvidia_card.h"
#include "../phx_init.h"

#define DEVICE_PAGE 65536UL
#define HUGE_PAGE (2UL << 20)
#define HOST_PAGE 4096UL
#define MAX_CARDS 64

static struct nvidia_card cards[MAX_CARDS];
static int card_count;            /* written by init() only */
static unsigned int generation;   /* the process that loaded the driver */

/* ----------------------------------------------------------- the devices */

/* "0000:3B:00.0", or with a domain of 8 digits -> "0000:3b:00.0". */
static void set_bdf(struct nvidia_card *card, const char *text)
{
	unsigned int domain, bus, slot, function = 0;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3)
		return;
	snprintf(card->bdf, sizeof(card->bdf), "%04x:%02x:%02x.%x", domain & 0xffff, bus & 0xff,
		 slot & 0x1f, function & 7);
}

static int find_cards(char *text, size_t size)
{
	char bdf[32] = "";
	int count = 0, result;

	result = nvidia_driver.device_count(&count);
	if (result || count <= 0) {
		snprintf(text, size, NVIDIA_RUNTIME " found, but no GPU is visible");
		return -ENODEV;
	}
	card_count = count < MAX_CARDS ? count : MAX_CARDS;
	for (int i = 0; i < card_count; i++) {
		struct nvidia_card *card = &cards[i];

		pthread_mutex_init(&card->lock, NULL);
		result = nvidia_driver.device_get(&card->handle, i);
		if (!result)
			result = nvidia_driver.device_bdf(bdf, sizeof(bdf), card->handle);
		if (result) {
			snprintf(text, size, "GPU %d does not answer", i);
			return nvidia_fail(result, "cuDeviceGetPCIBusId");
		}
		set_bdf(card, bdf);
	}
	return 0;
}

static int init(char *text, size_t size)
{
	int err = nvidia_driver_load(text, size);

	if (!err)
		err = find_cards(text, size);
	generation = phx_fork_generation();
	return err;
}

static int device_count(void)
{
	return card_count;
}

/* A slice of a GPU (MIG), which is a device of its own, whose name does not say so. */
static bool unmarked_slice(const char *name)
{
	const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");

	return !strstr(name, "MIG") && visible && !strncmp(visible, "MIG-", 4);
}

static int device_describe(int ordinal, struct devconn_device *out)
{
	size_t bytes = 0, len;
	int result;

	*out = (struct devconn_device){ 0 };
	result = nvidia_driver.device_name(out->name, sizeof(out->name), cards[ordinal].handle);
	if (!result)
		result = nvidia_driver.device_memory(&bytes, cards[ordinal].handle);
	if (result)
		return nvidia_fail(result, "cuDeviceGetName");
	len = strlen(out->name);
	if (unmarked_slice(out->name))
		snprintf(out->name + len, sizeof(out->name) - len, " MIG");
	memcpy(out->bdf, cards[ordinal].bdf, sizeof(out->bdf));
	out->memory_bytes = bytes;
	return 0;
}

static int find_device(int ordinal)
{
	return ordinal >= 0 && ordinal < card_count ? devconn_find_bdf(cards[ordinal].bdf) : -1;
}

/* ------------------------------------------------- the context of a call */

static bool forked(void)
{
	return phx_fork_generation() != generation;
}

static int retain(struct nvidia_card *card, struct cu_context **out)
{
	struct cu_context *context;
	int result = 0;

	pthread_mutex_lock(&card->lock);
	context = atomic_load_explicit(&card->context, memory_order_relaxed);
	if (!context)
		result = nvidia_driver.context_retain(&context, card->handle);
	if (!result)
		/* release: pairs with the acquire in nvidia_enter() */
		atomic_store_explicit(&card->context, context, memory_order_release);
	pthread_mutex_unlock(&card->lock);
	*out = context;
	return result ? nvidia_fail(result, "cuDevicePrimaryCtxRetain") : 0;
}

struct nvidia_card *nvidia_card(int device)
{
	int ordinal = devconn_ordinal(device);

	return ordinal >= 0 && ordinal < card_count ? &cards[ordinal] : NULL;
}

/* @own: our context instead, if it is there. */
static int enter(int device, struct nvidia_visit *visit, bool own)
{
	struct cu_context *context;
	int result, err;

	visit->gone = false;
	if (forked())
		return devconn_fail(-ENODEV, NVIDIA_RUNTIME " does not survive fork()");
	visit->card = nvidia_card(device);
	if (!visit->card)
		return devconn_fail(-ENODEV, "device %d is no " NVIDIA_VENDOR " GPU", device);
	context = atomic_load_explicit(&visit->card->context, memory_order_acquire);
	if (!context) {
		err = retain(visit->card, &context);
		if (err)
			return err;
	}
	visit->own = own && visit->card->own;
	result = nvidia_driver.context_push(visit->own ? visit->card->own : context);
	visit->gone = result == CU_DEINITIALIZED;
	if (result)
		return nvidia_fail(result, "cuCtxPushCurrent");
	visit->capture_mode = CU_CAPTURE_MODE_RELAXED;
	nvidia_driver.capture_mode(&visit->capture_mode);
	return 0;
}

int nvidia_enter(int device, struct nvidia_visit *visit)
{
	return enter(device, visit, false);
}

int nvidia_enter_own(int device, struct nvidia_visit *visit)
{
	return enter(device, visit, true);
}

void nvidia_leave(struct nvidia_visit *visit)
{
	struct cu_context *context;

	nvidia_driver.capture_mode(&visit->capture_mode);
	nvidia_driver.context_pop(&context);
}

/* ----------------------------------------------------------------- memory */

/* The driver cuts small allocations anywhere: ask for more if it must be. */
static int alloc_aligned(size_t len, void **addr)
{
	uintptr_t at;
	int result;

	result = nvidia_driver.mem_alloc(&at, len);
	if (!result && at % DEVICE_PAGE) {
		nvidia_driver.mem_free(at);
		result = nvidia_driver.mem_alloc(&at, len + DEVICE_PAGE);
	}
	if (result)
		return nvidia_fail(result, "cuMemAlloc");
	*addr = (void *)((at + DEVICE_PAGE - 1) & ~(DEVICE_PAGE - 1));
	return 0;
}

static int mem_alloc(int device, size_t len, void **addr)
{
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit);

	if (err)
		return err;
	err = alloc_aligned(len, addr);
	nvidia_leave(&visit);
	return err;
}

static int mem_free(int device, void *addr, size_t len)
{
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit), result;
	uintptr_t base;
	size_t size;

	if (err)
		return visit.gone ? 0 : err;
	result = nvidia_driver.mem_range(&base, &size, (uintptr_t)addr);
	if (!result)
		result = nvidia_driver.mem_free(base);
	nvidia_leave(&visit);
	return result ? nvidia_fail(result, "cuMemFree") : 0;
}

struct pointer {
	unsigned int type; /* 0: unknown to the driver */
	unsigned int managed;
	int ordinal;
	unsigned long long buffer_id;
	uintptr_t start;   /* of the addresses allocated or reserved together */
	size_t len;
	uintptr_t mapping; /* what backs the address: of them all, or a piece, or more */
	size_t mapping_len;
};

/*
 * Whether @addr is a device's. Works without a current context, as what asks
 * for one mapping (cuMemGetAddressRange) does not.
 */
static bool ask(uintptr_t addr, struct pointer *p)
{
	int attributes[] = { CU_ATTRIBUTE_MEMORY_TYPE,	  CU_ATTRIBUTE_IS_MANAGED,
			     CU_ATTRIBUTE_DEVICE_ORDINAL, CU_ATTRIBUTE_BUFFER_ID,
			     CU_ATTRIBUTE_RANGE_START,	  CU_ATTRIBUTE_RANGE_SIZE,
			     CU_ATTRIBUTE_MAPPING_BASE,	  CU_ATTRIBUTE_MAPPING_SIZE };
	void *out[] = { &p->type,  &p->managed, &p->ordinal, &p->buffer_id,
			&p->start, &p->len,	&p->mapping, &p->mapping_len };
	unsigned int n = sizeof(attributes) / sizeof(attributes[0]);

	*p = (struct pointer){ .ordinal = -1 };
	/* An older driver does not know the last two. */
	if (nvidia_driver.pointer_attributes(n, attributes, out, addr) &&
	    nvidia_driver.pointer_attributes(n - 2, attributes, out, addr))
		return false;
	return p->type && (p->type != CU_MEMORY_HOST || p->managed) && p->ordinal >= 0;
}

/* The part of what was allocated together that one mapping holds. */
static void intersect(const struct pointer *p, uintptr_t *base, size_t *len)
{
	uintptr_t from = p->start, to = p->start + p->len;

	if (p->mapping_len) {
		from = p->mapping > from ? p->mapping : from;
		to = p->mapping + p->mapping_len < to ? p->mapping + p->mapping_len : to;
	}
	*base = from;
	*len = to - from;
}

/* A driver that does not tell mappings apart tells them to a context. */
static bool find_pointer(uintptr_t addr, struct pointer *p)
{
	struct nvidia_visit visit;

	if (!ask(addr, p))
		return false;
	if (!p->mapping_len && !nvidia_enter(find_device(p->ordinal), &visit)) {
		if (nvidia_driver.mem_range(&p->mapping, &p->mapping_len, addr))
			p->mapping_len = 0;
		nvidia_leave(&visit);
	}
	return true;
}

/*
 * Memory mapped piece by piece into a reserved range counts as one, as far as
 * @wanted asks and it goes without a hole on one device.
 */
static void extend(const struct pointer *p, uintptr_t wanted, struct devconn_pointer *out)
{
	while (out->base + out->len < wanted && out->base + out->len < p->start + p->len) {
		uintptr_t next = out->base + out->len, base;
		struct pointer piece;
		size_t len;

		if (!find_pointer(next, &piece) || piece.ordinal != p->ordinal ||
		    piece.start != p->start)
			return;
		intersect(&piece, &base, &len);
		if (base != next || !len)
			return;
		out->len += len;
		/* FNV-1a: one piece exchanged for another changes the whole */
		out->buffer_id = (out->buffer_id ^ piece.buffer_id) * 0x100000001b3ULL;
	}
}

static int pointer_device(const void *addr, struct devconn_pointer *out)
{
	uintptr_t wanted = (uintptr_t)addr + out->len;
	struct pointer p;

	if (forked() || !find_pointer((uintptr_t)addr, &p))
		return -ENOENT;
	out->device = find_device(p.ordinal);
	intersect(&p, &out->base, &out->len);
	out->buffer_id = p.buffer_id;
	extend(&p, wanted, out);
	return 0;
}

/*
 * Memory of our own that the driver pins, in large pages where the kernel has
 * them: it is had in half the time of the driver's own, and stays ours when
 * the driver goes. Not for children, whose writing would part the CPU's page
 * from the device's.
 */
static int map_host(size_t len, void **addr)
{
	char *map, *base;
	size_t head;

	if (len > SIZE_MAX - HUGE_PAGE)
		return -ENOMEM;
	map = mmap(NULL, len + HUGE_PAGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return devconn_fail(-ENOMEM, "%zu bytes of host memory", len);
	head = -(uintptr_t)map & (HUGE_PAGE - 1);
	base = map + head;
	if (head)
		munmap(map, head);
	munmap(base + len, HUGE_PAGE - head);
	if (len >= HUGE_PAGE)
		madvise(base, len, MADV_HUGEPAGE);
	madvise(base, len, MADV_DONTFORK);
	*addr = base;
	return 0;
}

int nvidia_pin(size_t len, void **addr)
{
	void *memory = NULL;
	int err = map_host(len, &memory), result;

	if (err)
		return err;
	result = nvidia_driver.host_register(memory, len, CU_HOST_PORTABLE);
	if (result) {
		munmap(memory, len);
		return nvidia_fail(result, "cuMemHostRegister");
	}
	*addr = memory;
	return 0;
}

/* The driver exports whole pages of the host's size. */
static int export_dmabuf(int device, const void *addr, size_t len, int *fd, uint64_t *offset)
{
	uintptr_t first = (uintptr_t)addr & ~(HOST_PAGE - 1);
	uintptr_t end = ((uintptr_t)addr + len + HOST_PAGE - 1) & ~(HOST_PAGE - 1);
	struct nvidia_visit visit;
	int err, result;

	if (!nvidia_driver.mem_export)
		return -EOPNOTSUPP;
	err = nvidia_enter(device, &visit);
	if (err)
		return err;
	result = nvidia_driver.mem_export(fd, first, end - first, CU_RANGE_DMA_BUF_FD, 0);
	nvidia_leave(&visit);
	*offset = (uintptr_t)addr - first;
	return result ? nvidia_fail(result, "cuMemGetHandleForAddressRange") : 0;
}

static int host_alloc(int device, size_t len, void **addr)
{
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit);

	if (err)
		return err;
	err = nvidia_pin(len, addr);
	nvidia_leave(&visit);
	return err;
}

static int host_free(int device, void *addr, size_t len)
{
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit), result = 0;

	if (!err) {
		result = nvidia_driver.host_unregister(addr);
		nvidia_leave(&visit);
	}
	if (result)
		return nvidia_fail(result, "cuMemHostUnregister");
	if (err && !visit.gone)
		return err;
	munmap(addr, len);
	return 0;
}

const struct devconn_ops nvidia_connector = {
	.abi = DEVCONN_ABI,
	.name = NVIDIA_NAME,
	.page_size = DEVICE_PAGE,
	.held_streams = NVIDIA_HELD_STREAMS,
	.init = init,
	.device_count = device_count,
	.device_describe = device_describe,
	.find_device = find_device,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.pointer_device = pointer_device,
	.host_alloc = host_alloc,
	.host_free = host_free,
	.export_dmabuf = export_dmabuf,
	.memcpy_dtod = nvidia_copy_dtod,
	.memcpy_htod = nvidia_copy_htod,
	.memcpy_dtoh = nvidia_copy_dtoh,
	.memcpy_dtod_async = nvidia_copy_dtod_async,
	.memcpy_htod_async = nvidia_copy_htod_async,
	.memcpy_dtoh_async = nvidia_copy_dtoh_async,
	.queue_sync = nvidia_queue_sync,
	.event_record = nvidia_event_record,
	.event_done = nvidia_event_done,
	.event_wait = nvidia_event_wait,
	.event_free = nvidia_event_free,
	.launch_host_func = nvidia_launch_host_func,
	.stream_held = nvidia_stream_held,
	.stream_wait = nvidia_stream_wait,
	.stream_signal = nvidia_stream_signal,
	.range_push = nvidia_range_push,
	.range_pop = nvidia_range_pop,
};
