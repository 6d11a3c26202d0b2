// SPDX-License-Identifier: Apache-2.0
/*
 * The driver's calls that the connector makes, by HIP, AMD's runtime. It tells an
 * allocation's extent and identity; how it numbers kinds of memory depends on its
 * version.
 *
 * Our streams have the greatest priority: streams of one priority share the few hardware
 * queues that it has, and a copy of ours must not stand behind a stream of the program's
 * that waits for it.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "amd_names.h"
#include "runtime_calls.h"

#define FALLBACK "/opt/rocm/lib/libamdhip64.so"
#define VERSION_6 60000000 /* from here on memory kinds are CUDA's numbers */
#define WAIT_GEQ 0U

/* What a pointer is, as the runtime says it. */
struct runtime_pointer {
	int type;
	int device;
	void *device_address, *host_address;
	int managed;
	unsigned int flags;
};

static struct {
	int (*version)(int *version);
	int (*device_name)(char *name, int len, int device);
	int (*device_memory)(size_t *bytes, int device);
	int (*range)(void **base, size_t *len, void *p);
	int (*attribute)(void *out, int attribute, void *p);
	/* NULL in older ones: */
	int (*priorities)(int *least, int *greatest);
	int (*stream_create)(struct cu_stream **stream, unsigned int flags, int priority);
	int (*wait_value)(struct cu_stream *stream, void *word, uint64_t value,
			  unsigned int flags, uint64_t mask);
	int (*write_value)(struct cu_stream *stream, void *word, uint64_t value,
			   unsigned int flags);
} hip;

static const struct runtime_symbol symbols[] = {
	{ "RuntimeGetVersion", (void **)&hip.version, 0 },
	{ "DeviceGetName", (void **)&hip.device_name, 0 },
	{ "DeviceTotalMem", (void **)&hip.device_memory, 0 },
	{ "MemGetAddressRange", (void **)&hip.range, 0 },
	{ "PointerGetAttribute", (void **)&hip.attribute, 0 },
	{ "DeviceGetStreamPriorityRange", (void **)&hip.priorities, 1 },
	{ "StreamCreateWithPriority", (void **)&hip.stream_create, 1 },
	{ "StreamWaitValue64", (void **)&hip.wait_value, 1 },
	{ "StreamWriteValue64", (void **)&hip.write_value, 1 },
	{ 0 },
};

static int version;

static int device_name(char *name, int len, int device)
{
	return hip.device_name(name, len, device);
}

static int device_memory(size_t *bytes, int device)
{
	return hip.device_memory(bytes, device);
}

/* ------------------------------------------------------------------ memory */

static int mem_alloc(uintptr_t *addr, size_t len)
{
	void *p;
	int result = rt.malloc(&p, len);

	if (!result)
		*addr = (uintptr_t)p;
	return result;
}

static int mem_free(uintptr_t addr)
{
	return rt.free((void *)addr);
}

static int mem_range(uintptr_t *base, size_t *len, uintptr_t addr)
{
	void *start;
	int result = hip.range(&start, len, (void *)addr);

	if (!result)
		*base = (uintptr_t)start;
	return result;
}

/* The driver's number for the kind of memory; 0: not the runtime's. */
static unsigned int memory_type(const struct runtime_pointer *p)
{
	if (p->managed)
		return 2;
	if (version >= VERSION_6)
		return p->type == 3 ? 2 : p->type > 3 ? 0 : (unsigned int)p->type;
	return p->type == 0 ? CU_MEMORY_HOST : p->type == 1 ? 2 : 0;
}

static void answer(int attribute, const struct runtime_pointer *p, uintptr_t addr, void *out)
{
	uintptr_t base = 0;
	size_t len = 0;
	bool ours = memory_type(p);

	switch (attribute) {
	case CU_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)out = memory_type(p);
		break;
	case CU_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)out = p->managed || (version >= VERSION_6 && p->type == 3);
		break;
	case CU_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = ours ? p->device : -1;
		break;
	case CU_ATTRIBUTE_BUFFER_ID:
	case CU_ATTRIBUTE_RANGE_START:
	case CU_ATTRIBUTE_RANGE_SIZE: /* each of 64 bits */
		if (!ours || hip.attribute(out, attribute, (void *)addr))
			*(uint64_t *)out = 0;
		break;
	case CU_ATTRIBUTE_MAPPING_BASE:
		*(uintptr_t *)out = ours && !mem_range(&base, &len, addr) ? base : 0;
		break;
	case CU_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)out = ours && !mem_range(&base, &len, addr) ? len : 0;
		break;
	}
}

static int pointer_attributes(unsigned int n, int *attributes, void **out, uintptr_t addr)
{
	struct runtime_pointer p = { 0 };
	int result = pointer_query(&p, addr);

	if (result)
		return result;
	for (unsigned int i = 0; i < n; i++)
		answer(attributes[i], &p, addr, out[i]);
	return 0;
}

/* ----------------------------------------------------------------- streams */

static int stream_create(struct cu_stream **stream, unsigned int flags)
{
	int least, greatest;

	if (!hip.priorities || !hip.stream_create || hip.priorities(&least, &greatest))
		return rt.stream_create(stream, flags);
	return hip.stream_create(stream, flags, greatest);
}

static int wait_value(struct cu_stream *stream, uintptr_t word, uint64_t value,
		      unsigned int flags)
{
	return hip.wait_value ? hip.wait_value(stream, (void *)word, value, WAIT_GEQ, UINT64_MAX) :
				CU_NOT_SUPPORTED;
}

static int write_value(struct cu_stream *stream, uintptr_t word, uint64_t value,
		       unsigned int flags)
{
	return hip.write_value ? hip.write_value(stream, (void *)word, value, 0) :
				 CU_NOT_SUPPORTED;
}

/* -------------------------------------------------------------------- load */

/* The one that the program has loaded, if it has: two would not share memory. */
static void *open_library(const char **file)
{
	static const char *const files[] = { "libamdhip64.so.7", "libamdhip64.so.6",
					     "libamdhip64.so.5", "libamdhip64.so", FALLBACK };
	static const int flags[] = { RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL };

	for (size_t f = 0; f < sizeof(flags) / sizeof(flags[0]); f++) {
		for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
			void *library = dlopen(files[i], flags[f]);

			*file = files[i];
			if (library)
				return library;
		}
	}
	return NULL;
}

int nvidia_driver_load(char *text, size_t size)
{
	const char *file;
	void *library = open_library(&file);
	int err;

	if (!library) {
		snprintf(text, size, "libamdhip64.so not found: install ROCm's HIP runtime");
		return -ENOENT;
	}
	err = runtime_resolve(library, file, runtime_symbols, "hip", NULL, text, size);
	if (!err)
		err = runtime_resolve(library, file, symbols, "hip", NULL, text, size);
	if (err) {
		dlclose(library);
		return err;
	}
	/* it fails where there is no device: that is found out next */
	(void)hip.version(&version);
	runtime_fill(&nvidia_driver);
	nvidia_driver.stream_create = stream_create;
	nvidia_driver.wait_value = wait_value;
	nvidia_driver.write_value = write_value;
	snprintf(text, size, "%s, HIP %d.%d", file, version / 10000000, version / 100000 % 100);
	return 0;
}
