// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

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

void everything_once(int id)
{
	int fd = gpu_file(3 * MIB, 7, 0);
	char *p = registered(id, 4 * MIB), word[8];

	EQ(phxfs_read(fd, id, p, 0, 3 * MIB, 0), 3 * MIB);
	EQ(phxfs_write(fd, id, p, 100, 12345, 5), 12345);
	EQ(phxfs_memcpy_from(id, word, p, sizeof(word)), 0);
	EQ(phxfs_memcpy_to(id, p, word, sizeof(word)), 0);
	EQ(phxfs_pointer_device(p), id);
	EQ(phxfs_deregmem(id, p, 4 * MIB), 0);
	EQ(phxfs_mem_free(id, p), 0);
	close(fd);
}
