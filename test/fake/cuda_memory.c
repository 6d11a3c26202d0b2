// SPDX-License-Identifier: Apache-2.0
/*
 * The fake driver's memory. An allocation is a run of addresses that the CPU
 * cannot touch, and its bytes lie elsewhere; small ones begin 512 bytes behind
 * a large page, as the real driver packs them.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_fake.h"

#define LARGE_PAGE (2UL << 20)
#define SMALL (1UL << 20)
#define GRANULARITY (2UL << 20)

static struct block *blocks;     /* protected by: fake_lock, as all below */
static struct block *ranges;     /* reserved addresses */
static size_t used[MAX_DEVICES];
static uint64_t next_id = 1;
static unsigned int small_count;

struct block *fake_find(uintptr_t addr)
{
	for (struct block *b = blocks; b; b = b->next) {
		if (addr >= b->base && addr - b->base < b->len)
			return b;
	}
	return NULL;
}

void fake_count_memory(struct fakecuda_state *out)
{
	pthread_mutex_lock(&fake_lock);
	for (struct block *b = blocks; b; b = b->next) {
		out->host_allocations += b->host;
		out->allocations += !b->host;
	}
	pthread_mutex_unlock(&fake_lock);
}

static void *map(size_t len, int protection)
{
	void *at = mmap(NULL, len, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return at == MAP_FAILED ? NULL : at;
}

/* Bytes that can be exported. Only where that is asked for: it costs a descriptor. */
static void *map_file(size_t len, int *fd)
{
	void *at = NULL;

	*fd = memfd_create("fake-cuda", MFD_CLOEXEC);
	if (*fd < 0)
		return NULL;
	if (!ftruncate(*fd, (off_t)len))
		at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *fd, 0);
	return at == MAP_FAILED ? NULL : at;
}

static void add(struct block *b)
{
	b->id = next_id++;
	b->next = blocks;
	blocks = b;
}

static void drop(struct block *b)
{
	struct block **at = &blocks;

	while (*at != b)
		at = &(*at)->next;
	*at = b->next;
	if (!b->host) {
		used[b->device] -= b->len;
		munmap(b->backing, b->len);
	}
	if (b->fd > 0)
		close(b->fd);
	if (b->map)
		munmap(b->map, b->map_len);
	free(b);
}

static int take(int device, size_t len)
{
	if (len > fake_device_memory() - used[device])
		return OUT_OF_MEMORY;
	used[device] += len;
	return 0;
}

static int alloc_on(int device, size_t len, uintptr_t *addr)
{
	struct block *b = calloc(1, sizeof(*b));

	if (!b || take(device, len)) {
		free(b);
		return OUT_OF_MEMORY;
	}
	b->len = len;
	b->device = device;
	b->map_len = len + 2 * LARGE_PAGE;
	b->map = map(b->map_len, PROT_NONE);
	b->backing = getenv("FAKE_CUDA_DMABUF") ? map_file(len, &b->fd) :
						  map(len, PROT_READ | PROT_WRITE);
	if (!b->map || !b->backing) {
		free(b);
		return OUT_OF_MEMORY;
	}
	b->base = ((uintptr_t)b->map + LARGE_PAGE) & ~(LARGE_PAGE - 1);
	if (len < SMALL)
		b->base += 512 * (small_count++ % 3);
	b->range = b->base;
	b->range_len = len;
	add(b);
	*addr = b->base;
	return 0;
}

static int allocate(const char *name, uintptr_t *addr, size_t len)
{
	struct context *context = fake_current();
	int result = fake_unsafe_call(name);

	if (!result)
		result = fake_context_error(context);
	if (!result && !len)
		result = INVALID_VALUE;
	if (result)
		return result;
	pthread_mutex_lock(&fake_lock);
	result = alloc_on(context->device, len, addr);
	pthread_mutex_unlock(&fake_lock);
	return result;
}

static int release(const char *name, uintptr_t addr, bool host)
{
	int result = fake_unsafe_call(name);
	struct block *b;

	if (result)
		return result;
	pthread_mutex_lock(&fake_lock);
	b = fake_find(addr);
	if (!b || b->base != addr || b->host != host || b->piece)
		result = INVALID_VALUE;
	else
		drop(b);
	pthread_mutex_unlock(&fake_lock);
	return result;
}

API int cuMemAlloc_v2(uintptr_t *addr, size_t len)
{
	return allocate("cuMemAlloc_v2", addr, len);
}

API int cuMemFree_v2(uintptr_t addr)
{
	return release("cuMemFree_v2", addr, false);
}

API int cuMemAllocAsync(uintptr_t *addr, size_t len, struct stream *stream)
{
	return allocate("cuMemAllocAsync", addr, len);
}

API int cuMemFreeAsync(uintptr_t addr, struct stream *stream)
{
	return release("cuMemFreeAsync", addr, false);
}

API int cuMemGetInfo_v2(size_t *available, size_t *total)
{
	struct context *context = fake_current();
	int result = fake_call("cuMemGetInfo_v2");

	if (!result)
		result = fake_context_error(context);
	if (result)
		return result;
	*total = fake_device_memory();
	*available = *total - used[context->device];
	return 0;
}

API int cuMemHostAlloc(void **addr, size_t len, unsigned int flags)
{
	int result = fake_unsafe_call("cuMemHostAlloc");
	struct block *b;

	if (!result)
		result = fake_context_error(fake_current());
	if (result)
		return result;
	b = calloc(1, sizeof(*b));
	if (!b)
		return OUT_OF_MEMORY;
	b->host = true;
	b->len = len;
	b->map_len = len;
	b->map = map(len, PROT_READ | PROT_WRITE);
	if (!b->map) {
		free(b);
		return OUT_OF_MEMORY;
	}
	b->base = b->range = (uintptr_t)b->map;
	b->range_len = len;
	b->backing = b->map;
	pthread_mutex_lock(&fake_lock);
	add(b);
	pthread_mutex_unlock(&fake_lock);
	*addr = b->map;
	return 0;
}

API int cuMemFreeHost(void *addr)
{
	return release("cuMemFreeHost", (uintptr_t)addr, true);
}

API int cuMemHostRegister_v2(void *addr, size_t len, unsigned int flags)
{
	int result = fake_unsafe_call("cuMemHostRegister_v2");
	struct block *b;

	if (!result)
		result = fake_context_error(fake_current());
	if (result)
		return result;
	b = calloc(1, sizeof(*b));
	if (!b)
		return OUT_OF_MEMORY;
	b->host = true;
	b->base = b->range = (uintptr_t)addr;
	b->len = b->range_len = len;
	b->backing = addr;
	pthread_mutex_lock(&fake_lock);
	result = fake_find(b->base) ? ALREADY_REGISTERED : 0;
	if (!result)
		add(b);
	pthread_mutex_unlock(&fake_lock);
	if (result)
		free(b);
	return result;
}

API int cuMemHostUnregister(void *addr)
{
	return release("cuMemHostUnregister", (uintptr_t)addr, true);
}

/* ----------------------------------------------- memory mapped piecemeal */

struct properties {
	int type;
	int handle_types;
	struct {
		int type;
		int id;
	} location;
	void *win32;
	unsigned char flags[8];
};

struct physical {
	int device;
	size_t len;
};

API int cuMemGetAllocationGranularity(size_t *out, const struct properties *p, int option)
{
	*out = GRANULARITY;
	return fake_call("cuMemGetAllocationGranularity");
}

API int cuMemCreate(uint64_t *handle, size_t len, const struct properties *p, uint64_t flags)
{
	struct physical *physical;
	int result = fake_call("cuMemCreate");

	if (result)
		return result;
	if (!len || len % GRANULARITY)
		return INVALID_VALUE;
	physical = calloc(1, sizeof(*physical));
	if (!physical)
		return OUT_OF_MEMORY;
	physical->device = p->location.id;
	physical->len = len;
	*handle = (uintptr_t)physical;
	return 0;
}

API int cuMemRelease(uint64_t handle)
{
	free((void *)(uintptr_t)handle);
	return fake_call("cuMemRelease");
}

API int cuMemAddressReserve(uintptr_t *addr, size_t len, size_t align, uintptr_t hint,
			    uint64_t flags)
{
	struct block *r = calloc(1, sizeof(*r));

	if (!r)
		return OUT_OF_MEMORY;
	r->map_len = len + GRANULARITY;
	r->map = map(r->map_len, PROT_NONE);
	r->base = ((uintptr_t)r->map + GRANULARITY - 1) & ~(GRANULARITY - 1);
	r->len = len;
	pthread_mutex_lock(&fake_lock);
	r->next = ranges;
	ranges = r;
	pthread_mutex_unlock(&fake_lock);
	*addr = r->base;
	return fake_call("cuMemAddressReserve");
}

API int cuMemAddressFree(uintptr_t addr, size_t len)
{
	struct block **at, *r;

	pthread_mutex_lock(&fake_lock);
	for (at = &ranges; *at && (*at)->base != addr; at = &(*at)->next)
		;
	r = *at;
	if (r)
		*at = r->next;
	pthread_mutex_unlock(&fake_lock);
	if (!r)
		return INVALID_VALUE;
	munmap(r->map, r->map_len);
	free(r);
	return fake_call("cuMemAddressFree");
}

static struct block *range_of(uintptr_t addr)
{
	struct block *r = ranges;

	while (r && (addr < r->base || addr - r->base >= r->len))
		r = r->next;
	return r;
}

API int cuMemMap(uintptr_t addr, size_t len, size_t offset, uint64_t handle, uint64_t flags)
{
	struct physical *physical = (void *)(uintptr_t)handle;
	struct block *b = calloc(1, sizeof(*b)), *r;
	int result = b ? 0 : OUT_OF_MEMORY;

	pthread_mutex_lock(&fake_lock);
	r = range_of(addr);
	if (!result && (!r || fake_find(addr)))
		result = INVALID_VALUE;
	if (!result)
		result = take(physical->device, len);
	if (!result) {
		b->piece = true;
		b->base = addr;
		b->len = len;
		b->device = physical->device;
		b->range = r->base;
		b->range_len = r->len;
		b->backing = map(len, PROT_READ | PROT_WRITE);
		add(b);
	} else {
		free(b);
	}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

API int cuMemUnmap(uintptr_t addr, size_t len)
{
	struct block *b;

	pthread_mutex_lock(&fake_lock);
	while ((b = fake_find(addr)) && b->piece && b->base < addr + len) {
		addr = b->base + b->len;
		len -= b->len < len ? b->len : len;
		drop(b);
	}
	pthread_mutex_unlock(&fake_lock);
	return fake_call("cuMemUnmap");
}

API int cuMemSetAccess(uintptr_t addr, size_t len, const void *access, size_t count)
{
	return fake_call("cuMemSetAccess");
}

/* --------------------------------------------------------------- pointers */

/*
 * A file with the bytes stands for the dma-buf. The place of its descriptor, which
 * goes with it, says where the range begins.
 */
API int cuMemGetHandleForAddressRange(void *handle, uintptr_t addr, size_t len, int kind,
				      unsigned long long flags)
{
	int result = fake_call("cuMemGetHandleForAddressRange");
	char path[64];
	struct block *b;
	int fd = -1;

	if (!result)
		result = fake_context_error(fake_current());
	if (result)
		return result;
	if (kind != 1 || flags || (addr | len) & 4095)
		return INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	b = fake_find(addr);
	if (!b || b->host || !b->fd)
		result = b && !b->host ? NOT_SUPPORTED : INVALID_VALUE;
	else if (addr - b->base > b->len || len > b->len - (addr - b->base))
		result = INVALID_VALUE;
	if (!result) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", b->fd);
		fd = open(path, O_RDWR | O_CLOEXEC); /* with a place of its own */
		result = fd < 0 || lseek(fd, (off_t)(addr - b->base), SEEK_SET) < 0 ?
				 OUT_OF_MEMORY :
				 0;
	}
	pthread_mutex_unlock(&fake_lock);
	if (!result)
		*(int *)handle = fd;
	return result;
}

API int cuMemGetAddressRange_v2(uintptr_t *base, size_t *len, uintptr_t addr)
{
	int result = fake_call("cuMemGetAddressRange_v2");
	struct block *b;

	if (!result)
		result = fake_context_error(fake_current());
	if (result)
		return result;
	pthread_mutex_lock(&fake_lock);
	b = fake_find(addr);
	if (b) {
		*base = b->base;
		*len = b->len;
	}
	pthread_mutex_unlock(&fake_lock);
	return b ? 0 : INVALID_VALUE;
}

static void answer(int attribute, struct block *b, void *out)
{
	switch (attribute) {
	case 2:
		*(unsigned int *)out = !b ? 0 : b->host ? 1 : 2;
		break;
	case 7:
		*(unsigned long long *)out = b ? b->id : 0;
		break;
	case 8:
		*(unsigned int *)out = 0;
		break;
	case 9:
		*(int *)out = b ? b->device : -2;
		break;
	case 11:
		*(uintptr_t *)out = b ? b->range : 0;
		break;
	case 12:
		*(size_t *)out = b ? b->range_len : 0;
		break;
	case 18: /* small allocations share a large page */
		*(size_t *)out = b ? (b->len < SMALL ? LARGE_PAGE : b->len) : 0;
		break;
	case 19:
		*(uintptr_t *)out = b ? b->base & (b->len < SMALL ? ~(LARGE_PAGE - 1) : ~0UL) : 0;
		break;
	}
}

API int cuPointerGetAttributes(unsigned int n, int *attributes, void **out, uintptr_t addr)
{
	int result = fake_call("cuPointerGetAttributes");
	struct block *b;

	for (unsigned int i = 0; i < n && !result; i++)
		result = attributes[i] > 17 ? fake_chance("new_attributes") : 0;
	if (result)
		return result;
	pthread_mutex_lock(&fake_lock);
	b = fake_find(addr);
	for (unsigned int i = 0; i < n; i++)
		answer(attributes[i], b, out[i]);
	pthread_mutex_unlock(&fake_lock);
	return 0;
}

bool fake_is_pinned(uintptr_t addr, size_t n)
{
	struct block *b;
	bool pinned;

	pthread_mutex_lock(&fake_lock);
	b = fake_find(addr);
	pinned = b && n <= b->len - (addr - b->base);
	pthread_mutex_unlock(&fake_lock);
	return pinned;
}

bool fake_is_device(uintptr_t addr)
{
	struct block *b;
	bool device;

	pthread_mutex_lock(&fake_lock);
	b = fake_find(addr);
	device = b && !b->host;
	pthread_mutex_unlock(&fake_lock);
	return device;
}

/* ------------------------------------------------------------------ bytes */

/* Where the CPU finds @addr and how far on; unknown memory is the program's. */
static char *place(uintptr_t addr, size_t *n)
{
	struct block *b = fake_find(addr);

	if (!b)
		return (char *)addr;
	if (*n > b->len - (addr - b->base))
		*n = b->len - (addr - b->base);
	return b->backing + (addr - b->base);
}

/* One stretch of a copy; 0: an address is none. */
static size_t copy_some(uintptr_t dst, uintptr_t src, size_t n)
{
	char *to, *from;

	pthread_mutex_lock(&fake_lock);
	to = range_of(dst) && !fake_find(dst) ? NULL : place(dst, &n);
	from = range_of(src) && !fake_find(src) ? NULL : place(src, &n);
	pthread_mutex_unlock(&fake_lock);
	if (!to || !from)
		return 0;
	memcpy(to, from, n);
	return n;
}

int fake_copy(uintptr_t dst, uintptr_t src, size_t n)
{
	while (n) {
		size_t some = copy_some(dst, src, n);

		if (!some)
			return ILLEGAL_ADDRESS;
		dst += some;
		src += some;
		n -= some;
	}
	return 0;
}

int fake_fill(uintptr_t dst, int byte, size_t n)
{
	while (n) {
		size_t some = n;
		char *to;

		pthread_mutex_lock(&fake_lock);
		to = fake_find(dst) ? place(dst, &some) : NULL;
		pthread_mutex_unlock(&fake_lock);
		if (!to)
			return ILLEGAL_ADDRESS;
		memset(to, byte, some);
		dst += some;
		n -= some;
	}
	return 0;
}
