// SPDX-License-Identifier: Apache-2.0
/* Devices of four vendors in one machine, and one library that serves them side by side. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvidia_fake.h"

#define VENDORS 4
#define DEVICES (2 * VENDORS)

/* By PCI address, as the library numbers them. */
static const char *const vendors[VENDORS] = { "nvidia", "metax", "amd", "huawei" };

static void start(void)
{
	load();
	EQ(phxfs_device_count(), DEVICES);
	for (int id = 0; id < DEVICES; id++)
		EQ(phxfs_open(id), 0);
}

static void each_vendor_has_its_devices(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	EQ(phxfs_device_count(), DEVICES);
	for (int v = 0; v < VENDORS; v++) {
		gpu_context("%s", vendors[v]);
		EQ(gpu_connector(vendors[v]).status, 0);
		EQ(gpu_connector(vendors[v]).devices, 2);
		for (int n = 0; n < 2; n++) {
			EQ(phxfs_find_device(vendors[v], n), 2 * v + n);
			EQ(phxfs_device_info(2 * v + n, &info), 0);
			EQ(strcmp(info.vendor, vendors[v]), 0);
			EQ(phxfs_find_device_bdf(info.bdf), 2 * v + n);
		}
	}
}

static void memory_is_its_own_devices(void)
{
	char *p[DEVICES], out[64], in[64];

	start();
	for (int id = 0; id < DEVICES; id++)
		p[id] = alloc(id, 2 * MIB);
	for (int id = 0; id < DEVICES; id++) {
		int other = (id + 3) % DEVICES;

		gpu_context("device %d", id);
		EQ(phxfs_pointer_device(p[id] + MIB), id);
		CHECK(phxfs_regmem(other, p[id], 2 * MIB, NULL) < 0);
		EQ(phxfs_regmem(id, p[id], 2 * MIB, NULL), 0);
		memset(out, id + 1, sizeof(out));
		EQ(phxfs_memcpy_to(id, p[id] + 100, out, sizeof(out)), 0);
	}
	for (int id = 0; id < DEVICES; id++) {
		memset(out, id + 1, sizeof(out));
		EQ(phxfs_memcpy_from(id, in, p[id] + 100, sizeof(in)), 0);
		CHECK(!memcmp(in, out, sizeof(in)));
		EQ(phxfs_deregmem(id, p[id], 2 * MIB), 0);
		EQ(phxfs_mem_free(id, p[id]), 0);
	}
}

static void *transfers(void *arg)
{
	int id = *(int *)arg, fd = gpu_file(3 * MIB, (uint64_t)id, 0);
	char *p = registered(id, 3 * MIB), *want = malloc(2 * MIB), *got = want + MIB;

	CHECK(want);
	gpu_context("device %d", id);
	for (int i = 0; i < 20; i++) {
		EQ(phxfs_read(fd, id, p, 0, 3 * MIB, 0), 3 * MIB);
		for (size_t at = 0; at < 3 * MIB; at += MIB) {
			gpu_pattern(want, MIB, (uint64_t)id, at);
			EQ(phxfs_memcpy_from(id, got, p + at, MIB), 0);
			CHECK(!memcmp(got, want, MIB));
		}
		EQ(phxfs_write(fd, id, p, 0, 3 * MIB, 0), 3 * MIB);
	}
	free(want);
	close(fd);
	return NULL;
}

static void transfers_at_the_same_time(void)
{
	pthread_t threads[DEVICES];
	int ids[DEVICES];

	start();
	for (int id = 0; id < DEVICES; id++) {
		ids[id] = id;
		CHECK(!pthread_create(&threads[id], NULL, transfers, &ids[id]));
	}
	for (int id = 0; id < DEVICES; id++)
		CHECK(!pthread_join(threads[id], NULL));
}

/* One thread, every vendor's current device and context in turn. */
static void one_thread_for_all(void)
{
	void *mine, *now;

	start();
	EQ(cu.primary_retain(&mine, 1), 0);
	EQ(cu.context_set(mine), 0);
	for (int i = 0; i < 3; i++) {
		for (int id = DEVICES - 1; id >= 0; id--)
			everything_once(id);
		EQ(cu.context_current(&now), 0);
		CHECK(now == mine);
	}
}

/* A card that fails is nobody else's failure. */
static void one_fails(void)
{
	int fd;
	char *p;

	start();
	fd = gpu_file(3 * MIB, 1, 0);
	p = registered(0, 4 * MIB);
	fake.fail("copy", 700, 1, true);
	EQ(phxfs_read(fd, 0, p, 0, 3 * MIB, 0), -EIO);
	for (int id = 2; id < DEVICES; id++)
		everything_once(id);
	close(fd);
}

static void one_vendor_is_not_there(void)
{
	EQ(phxfs_device_count(), DEVICES - 2);
	EQ(gpu_connector("nvidia").status, -ENOENT);
	for (int id = 0; id < DEVICES - 2; id++) {
		EQ(phxfs_open(id), 0);
		everything_once(id);
	}
}

static const struct gpu_case cases[] = {
	CASE(each_vendor_has_its_devices),
	CASE(memory_is_its_own_devices),
	CASE(transfers_at_the_same_time),
	CASE(one_thread_for_all),
	CASE(one_fails),
	CASE(one_vendor_is_not_there, .env = "LD_LIBRARY_PATH=@/mixed"),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
