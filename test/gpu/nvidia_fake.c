// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <string.h>

#include "nvidia_fake.h"

struct fake_driver cu;

static const struct {
	const char *name;
	void **slot;
} symbols[] = {
	{ "fakecuda_state", (void **)&cu.state },
	{ "fakecuda_fail", (void **)&cu.fail },
	{ "fakecuda_tear_down", (void **)&cu.tear_down },
	{ "fakecuda_hold", (void **)&cu.hold },
	{ "fakecuda_backing", (void **)&cu.backing },
	{ "cuCtxCreate_v2", (void **)&cu.context_create },
	{ "cuCtxGetCurrent", (void **)&cu.context_current },
	{ "cuMemAlloc_v2", (void **)&cu.mem_alloc },
	{ "cuMemAllocAsync", (void **)&cu.alloc_async },
	{ "cuMemCreate", (void **)&cu.create },
	{ "cuMemAddressReserve", (void **)&cu.reserve },
	{ "cuMemMap", (void **)&cu.map },
	{ "cuMemUnmap", (void **)&cu.unmap },
	{ "cuMemHostAlloc", (void **)&cu.host_alloc },
	{ "cuStreamCreate", (void **)&cu.stream_create },
	{ "cuStreamSynchronize", (void **)&cu.stream_sync },
	{ "cuStreamBeginCapture_v2", (void **)&cu.begin_capture },
	{ "cuStreamEndCapture", (void **)&cu.end_capture },
};

void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*initialize)(unsigned int flags);

	CHECK(library);
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].slot = dlsym(library, symbols[i].name);
		gpu_context("%s", symbols[i].name);
		CHECK(*symbols[i].slot);
	}
	*(void **)&initialize = dlsym(library, "cuInit");
	EQ(initialize(0), 0);
	gpu_context("%s", "");
}

struct fakecuda_state state(const char *call, int device)
{
	struct fakecuda_state s;

	cu.state(call, device, &s);
	return s;
}

int device(int ordinal)
{
	int id = phxfs_find_device("nvidia", ordinal);

	CHECK(id >= 0);
	EQ(phxfs_open(id), 0);
	return id;
}

void *alloc(int id, size_t len)
{
	void *p = NULL;

	EQ(phxfs_mem_alloc(id, len, &p), 0);
	return p;
}

void *registered(int id, size_t len)
{
	void *p = alloc(id, len);

	EQ(phxfs_regmem(id, p, len, NULL), 0);
	return p;
}
