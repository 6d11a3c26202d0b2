// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <string.h>

#include "nvidia_fake.h"

struct fake_controls fake;

void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *missing = driver_load();

	gpu_context("%s", missing ? missing : "");
	CHECK(!missing && library);
	*(void **)&fake.state = dlsym(library, "fakecuda_state");
	*(void **)&fake.fail = dlsym(library, "fakecuda_fail");
	*(void **)&fake.tear_down = dlsym(library, "fakecuda_tear_down");
	*(void **)&fake.hold = dlsym(library, "fakecuda_hold");
	CHECK(fake.state && fake.fail && fake.tear_down && fake.hold);
}

struct fakecuda_state state(const char *call, int device)
{
	struct fakecuda_state s;

	fake.state(call, device, &s);
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
