// SPDX-License-Identifier: Apache-2.0
/* MetaX's connector over a fake runtime: what differs from NVIDIA's, whose code it shares. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "nvidia_fake.h"

static const struct devconn_ops *const ops = &metax_connector;

static int id; /* the library's first device */

static void start(void)
{
	load();
	id = phxfs_find_device("metax", 0);
	EQ(id, 0);
	EQ(phxfs_open(id), 0);
}

static void works(void)
{
	EQ(phxfs_device_count(), 2);
	EQ(gpu_connector("metax").status, 0);
	start();
	everything_once(id);
}

static void named_runtime(void)
{
	works();
	HAS(gpu_connector("metax").text, "/metax/libmcruntime.so");
}

/* Its functions have CUDA's names there. */
static void runtime_with_cudas_names(void)
{
	works();
}

static void no_runtime(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("metax").status, -ENOENT);
	HAS(gpu_connector("metax").text, "libmcruntime.so not found");
	HAS(gpu_connector("metax").text, "PHX_METAX_RUNTIME");
}

static void runtime_lacks_something(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("metax").status, -ENOSYS);
	HAS(gpu_connector("metax").text, "lacks mc");
	HAS(gpu_connector("metax").text, " and cuda");
}

static void no_device_visible(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("metax").status, -ENODEV);
	HAS(gpu_connector("metax").text, "found, but no GPU");
}

/* The runtime does not tell an allocation's extent: ours are known, others looked at. */
static void memory_of_other_allocators(void)
{
	struct devconn_pointer mine = { .len = 1 }, other = { .len = 2 * MIB };
	int (*allocate)(void **p, size_t len);
	void *library, *theirs;
	char *p;

	start();
	library = dlopen("libmcruntime.so", RTLD_NOW | RTLD_LOCAL);
	CHECK(library);
	*(void **)&allocate = dlsym(library, "mcMalloc");
	CHECK(allocate);
	p = alloc(id, 2 * MIB);
	EQ(ops->pointer_device(p + MIB, &mine), 0);
	EQ(mine.base, (uintptr_t)p);
	EQ(mine.len, 2 * MIB);
	EQ(allocate(&theirs, 4 * MIB), 0);
	EQ(ops->pointer_device(theirs, &other), 0);
	EQ(other.device, id);
	EQ(other.base, (uintptr_t)theirs);
	CHECK(other.len >= 2 * MIB);
	EQ(phxfs_regmem(id, theirs, 4 * MIB, NULL), 0);
	EQ(phxfs_deregmem(id, theirs, 4 * MIB), 0);
	EQ(phxfs_regmem(id, theirs, 8 * MIB, NULL), -EFAULT); /* past its end */
	EQ(phxfs_regmem(id, p, 4 * MIB, NULL), -EFAULT);
}

static void caller_keeps_its_device(void)
{
	int (*get_device)(int *device), (*set_device)(int device), now = -1;
	void *library;

	start();
	library = dlopen("libmcruntime.so", RTLD_NOW | RTLD_LOCAL);
	CHECK(library);
	*(void **)&get_device = dlsym(library, "mcGetDevice");
	*(void **)&set_device = dlsym(library, "mcSetDevice");
	CHECK(get_device && set_device);
	EQ(set_device(1), 0);
	everything_once(id);
	EQ(get_device(&now), 0);
	EQ(now, 1);
	fake.fail("cuMemAlloc_v2", 2, 1, false);
	EQ(phxfs_mem_alloc(id, MIB, &(void *){ NULL }), -ENOMEM);
	EQ(get_device(&now), 0);
	EQ(now, 1);
}

static const struct gpu_case cases[] = {
	CASE(works),
	CASE(named_runtime,
	     .env = "LD_LIBRARY_PATH=@ PHX_METAX_RUNTIME=@/metax/libmcruntime.so"),
	CASE(runtime_with_cudas_names, .env = "PHX_METAX_RUNTIME=@/metax-cuda/libmcruntime.so"),
	CASE(no_runtime, .env = "LD_LIBRARY_PATH=/nowhere"),
	CASE(runtime_lacks_something, .env = "PHX_METAX_RUNTIME=@/amd-poor/libamdhip64.so"),
	CASE(no_device_visible, .env = "CUDA_VISIBLE_DEVICES="),
	CASE(memory_of_other_allocators),
	CASE(caller_keeps_its_device),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
