// SPDX-License-Identifier: Apache-2.0
/*
 * The driver's calls that the connector makes, by MetaX's runtime, which has CUDA's
 * functions under its own names (mcMalloc) or CUDA's (cudaMalloc).
 * PHX_METAX_RUNTIME names its library.
 *
 * It cannot tell the extent of an allocation: of those made here it is kept, and
 * other memory is looked at page by page, as far as a caller asks.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "metax_names.h"
#include "allocations.h"
#include "runtime_calls.h"

#define LIBRARY "libmcruntime.so"
#define DEVICE_PAGE 65536UL

/* What a pointer is, as the runtime says it. */
struct runtime_pointer {
	int type; /* 0: not known, 1: host, 2: device, 3: managed */
	int device;
	void *device_address, *host_address;
	long reserved[8]; /* from CUDA 13 on */
};

/* What tells them has a layout that changes with the runtime's version. */
static int device_name(char *name, int len, int device)
{
	snprintf(name, (size_t)len, "MetaX GPU");
	return 0;
}

static int device_memory(size_t *bytes, int device)
{
	*bytes = 0;
	return 0;
}

/* ------------------------------------------------------------------ memory */

static struct allocations allocations = ALLOCATIONS_INIT;

static int mem_alloc(uintptr_t *addr, size_t len)
{
	struct allocation *a = malloc(sizeof(*a));
	void *p;
	int result;

	if (!a)
		return CU_OUT_OF_MEMORY;
	result = rt.malloc(&p, len);
	if (result) {
		free(a);
		return result;
	}
	*addr = (uintptr_t)p;
	*a = (struct allocation){ .base = *addr, .len = len };
	allocations_add(&allocations, a);
	return 0;
}

static int mem_free(uintptr_t addr)
{
	struct allocation a;

	allocations_take(&allocations, addr, &a);
	return rt.free((void *)addr);
}

static int mem_range(uintptr_t *base, size_t *len, uintptr_t addr)
{
	struct allocation a;

	if (!allocations_find(&allocations, addr, &a))
		return RUNTIME_INVALID_VALUE;
	*base = a.base;
	*len = a.len;
	return 0;
}

/* The attributes that the connector asks for. */
static void answer(int attribute, const struct runtime_pointer *p, bool known, uintptr_t start,
		   size_t len, void *out)
{
	switch (attribute) {
	case CU_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)out = (unsigned int)(p->type == 3 ? 2 : p->type);
		break;
	case CU_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)out = p->type == 3;
		break;
	case CU_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = p->type ? p->device : -1;
		break;
	case CU_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)out = 0;
		break;
	case CU_ATTRIBUTE_RANGE_START:
		*(uintptr_t *)out = known ? start : 0;
		break;
	case CU_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = known ? len : SIZE_MAX;
		break;
	case CU_ATTRIBUTE_MAPPING_BASE:
		*(uintptr_t *)out = start;
		break;
	case CU_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)out = len;
		break;
	}
}

static int pointer_attributes(unsigned int n, int *attributes, void **out, uintptr_t addr)
{
	struct runtime_pointer p = { 0 };
	uintptr_t start;
	size_t len;
	bool known;
	int result = pointer_query(&p, addr);

	if (result)
		return result;
	known = !mem_range(&start, &len, addr);
	if (!known) {
		start = addr & ~(DEVICE_PAGE - 1);
		len = DEVICE_PAGE;
	}
	for (unsigned int i = 0; i < n; i++)
		answer(attributes[i], &p, known, start, len, out[i]);
	return 0;
}

/* -------------------------------------------------------------------- load */

int nvidia_driver_load(char *text, size_t size)
{
	const char *file = secure_getenv("PHX_METAX_RUNTIME");
	void *library;
	int err;

	if (!file || !*file)
		file = LIBRARY;
	library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(text, size, "%s not found: install MetaX's runtime, or name it in "
			 "PHX_METAX_RUNTIME", file);
		return -ENOENT;
	}
	err = runtime_resolve(library, file, runtime_symbols, "mc", "cuda", text, size);
	if (err) {
		dlclose(library);
		return err;
	}
	runtime_fill(&nvidia_driver);
	snprintf(text, size, "%s", file);
	return 0;
}
