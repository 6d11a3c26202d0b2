// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

#define WINDOW (1UL << 20)

const char *const memory_names[] = { "the library's", "the driver's", "a pool's",
				     "mapped in pieces", "the runtime's" };

static void *primary;

const char *memory_vendor(void)
{
	const char *name = getenv("PHX_CONNECTOR");

	return name && strcmp(name, "auto") ? name : "nvidia";
}

void memory_need_contexts(void)
{
	if (!strcmp(memory_vendor(), "metax") || !strcmp(memory_vendor(), "amd"))
		gpu_skip("no contexts in this runtime");
}

int memory_device(void)
{
	const char *missing = driver_load();
	int id, device;

	if (missing)
		gpu_skip("no GPU: %s", missing);
	id = phxfs_find_device(memory_vendor(), 0);
	CHECK(id >= 0);
	EQ(phxfs_open(id), 0);
	EQ(cu.device_get(&device, 0), 0);
	EQ(cu.primary_retain(&primary, device), 0);
	memory_thread();
	return id;
}

void memory_thread(void)
{
	EQ(cu.context_set(primary), 0);
}

/* cudaMalloc() and cudaFree() of whichever runtime is installed. */
static void *runtime(const char *name)
{
	static const char *const files[] = { "libcudart.so", "libcudart.so.13", "libcudart.so.12",
					     "/usr/local/cuda/lib64/libcudart.so" };
	static void *library;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]) && !library; i++)
		library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
	return library ? dlsym(library, name) : NULL;
}

/* What small memory's alignment takes: all are made a page longer and cut. */
struct made {
	uintptr_t base;
	char *p;
};

static pthread_mutex_t made_lock = PTHREAD_MUTEX_INITIALIZER;
static struct made made[64]; /* protected by: made_lock */

static char *aligned(uintptr_t base)
{
	char *p = (char *)((base + PAGE - 1) & ~(PAGE - 1));
	int i = 0;

	pthread_mutex_lock(&made_lock);
	while (made[i].p)
		CHECK(++i < 64);
	made[i] = (struct made){ base, p };
	pthread_mutex_unlock(&made_lock);
	return p;
}

static uintptr_t forget(const char *p)
{
	uintptr_t base;
	int i = 0;

	pthread_mutex_lock(&made_lock);
	while (made[i].p != p)
		CHECK(++i < 64);
	base = made[i].base;
	made[i].p = NULL;
	pthread_mutex_unlock(&made_lock);
	return base;
}

static char *map_pieces(size_t len)
{
	uintptr_t base;
	size_t size = 2 * MIB;
	int device;

	EQ(cu.device_get(&device, 0), 0);
	EQ(driver_map_pieces(device, (int)((len + size - 1) / size), -1, &size, &base), 0);
	return (char *)base;
}

bool memory_alloc(enum memory_kind kind, size_t len, char **out)
{
	int (*cuda_malloc)(uintptr_t * p, size_t len);
	uintptr_t base = 0;
	void *p;

	switch (kind) {
	case MEMORY_LIBRARY:
		EQ(phxfs_mem_alloc(phxfs_find_device(memory_vendor(), 0), len, &p), 0);
		*out = p;
		return true;
	case MEMORY_DRIVER:
		EQ(cu.mem_alloc(&base, len + PAGE), 0);
		break;
	case MEMORY_POOL:
		EQ(cu.alloc_async(&base, len + PAGE, NULL), 0);
		EQ(cu.context_sync(), 0);
		break;
	case MEMORY_PIECES:
		*out = map_pieces(len);
		return true;
	default:
		*(void **)&cuda_malloc = runtime("cudaMalloc");
		if (!cuda_malloc || !cu.launch) /* it would not take the fake driver */
			return false;
		EQ(cuda_malloc(&base, len + PAGE), 0);
	}
	*out = aligned(base);
	return true;
}

void memory_free(enum memory_kind kind, char *p)
{
	int (*cuda_free)(uintptr_t p);

	switch (kind) {
	case MEMORY_LIBRARY:
		EQ(phxfs_mem_free(phxfs_find_device(memory_vendor(), 0), p), 0);
		break;
	case MEMORY_DRIVER:
		EQ(cu.mem_free(forget(p)), 0);
		break;
	case MEMORY_POOL:
		EQ(cu.free_async(forget(p), NULL), 0);
		break;
	case MEMORY_RUNTIME:
		*(void **)&cuda_free = runtime("cudaFree");
		EQ(cuda_free(forget(p)), 0);
		break;
	default: /* pieces stay until exit */
		break;
	}
}

/* ---------------------------------------------------------------- looking */

struct look {
	void *stream;
	char *pinned;
};

static struct look *look(void)
{
	static _Thread_local struct look mine;

	if (!mine.stream) {
		EQ(cu.stream_create(&mine.stream, DRIVER_STREAM_NON_BLOCKING), 0);
		EQ(cu.host_alloc((void **)&mine.pinned, WINDOW, DRIVER_HOST_PORTABLE), 0);
	}
	return &mine;
}

void memory_get(void *host, const char *p, size_t len)
{
	struct look *l = look();

	for (size_t at = 0; at < len; at += WINDOW) {
		size_t n = len - at < WINDOW ? len - at : WINDOW;

		EQ(cu.copy_async((uintptr_t)l->pinned, (uintptr_t)p + at, n, l->stream), 0);
		EQ(cu.stream_sync(l->stream), 0);
		memcpy((char *)host + at, l->pinned, n);
	}
}

void memory_put(char *p, const void *host, size_t len)
{
	struct look *l = look();

	for (size_t at = 0; at < len; at += WINDOW) {
		size_t n = len - at < WINDOW ? len - at : WINDOW;

		memcpy(l->pinned, (const char *)host + at, n);
		EQ(cu.copy_async((uintptr_t)p + at, (uintptr_t)l->pinned, n, l->stream), 0);
		EQ(cu.stream_sync(l->stream), 0);
	}
}

/* ---------------------------------------------------------------- kernels */

/* 64 blocks of 256 threads, each of which takes every 16384th word. */
#define BLOCKS 64
#define THREADS 256

#define EVERY_WORD(body) \
	"	.reg .pred %p<2>;\n" \
	"	.reg .b32 %r<4>;\n" \
	"	.reg .b64 %q<9>;\n" \
	"	ld.param.u64 %q0, [p];\n" \
	"	ld.param.u64 %q1, [words];\n" \
	"	ld.param.u64 %q2, [value];\n" \
	"	mov.u32 %r0, %tid.x;\n" \
	"	mov.u32 %r1, %ctaid.x;\n" \
	"	mov.u32 %r2, %ntid.x;\n" \
	"	mad.lo.u32 %r3, %r1, %r2, %r0;\n" \
	"	cvt.u64.u32 %q3, %r3;\n" \
	"	mov.u64 %q5, 0;\n" \
	"next:\n" \
	"	setp.ge.u64 %p1, %q3, %q1;\n" \
	"	@%p1 bra done;\n" \
	"	shl.b64 %q4, %q3, 3;\n" \
	"	add.u64 %q4, %q0, %q4;\n" body \
	"	add.u64 %q3, %q3, 16384;\n" \
	"	bra next;\n" \
	"done:\n"

#define ENTRY(name) \
	".visible .entry " name "(.param .u64 p, .param .u64 words, .param .u64 value)\n{\n"

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
	ENTRY("count")
	EVERY_WORD("	add.u64 %q6, %q2, %q3;\n"
		   "	st.global.u64 [%q4], %q6;\n")
	"	ret;\n}\n"
	ENTRY("sum")
	EVERY_WORD("	ld.global.u64 %q6, [%q4];\n"
		   "	add.u64 %q5, %q5, %q6;\n")
	"	atom.global.add.u64 %q7, [%q2], %q5;\n"
	"	ret;\n}\n";

static bool launch(const char *name, const char *p, size_t len, uint64_t value, void *stream)
{
	uint64_t words = len / 8;
	void *parameters[] = { &p, &words, &value }, *function;
	static void *module;

	if (!cu.module_load || !cu.launch)
		return false;
	if (!module)
		EQ(cu.module_load(&module, ptx), 0);
	EQ(cu.module_function(&function, module, name), 0);
	EQ(cu.launch(function, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL), 0);
	return true;
}

bool kernel_count(char *p, size_t len, uint64_t seed, void *stream)
{
	return launch("count", p, len, seed, stream);
}

bool kernel_sum(const char *p, size_t len, void *stream, uint64_t *sum)
{
	uint64_t zero = 0;
	uintptr_t result;

	EQ(cu.mem_alloc(&result, sizeof(*sum)), 0);
	memory_put((char *)result, &zero, sizeof(zero));
	if (!launch("sum", p, len, result, stream))
		return false;
	EQ(cu.stream_sync(stream), 0);
	memory_get(sum, (char *)result, sizeof(*sum));
	EQ(cu.mem_free(result), 0);
	return true;
}
