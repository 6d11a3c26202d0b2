// SPDX-License-Identifier: Apache-2.0
/* The NVIDIA connector's devices, contexts and memory, on a driver with the real one's rules. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvidia_fake.h"

/* ---------------------------------------------------------------- devices */

static void devices_are_described(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	EQ(phxfs_device_count(), 2);
	EQ(gpu_connector("nvidia").status, 0);
	EQ(gpu_connector("nvidia").devices, 2);
	HAS(gpu_connector("nvidia").text, "CUDA 13.0");
	EQ(gpu_connector("host").devices, 0);
	EQ(phxfs_device_info(1, &info), 0);
	HAS(info.bdf, "0000:4b:00.0");
	HAS(info.name, "NVIDIA Fake");
	HAS(info.vendor, "nvidia");
	EQ(info.mode, PHXFS_MODE_BOUNCE);
	EQ(info.memory_bytes, 1UL << 30);
	EQ(phxfs_find_device_bdf("3B:00.0"), 0);
}

/* The numbers of the library follow the bus, whatever the user's order is. */
static void visible_devices_in_any_order(void)
{
	EQ(phxfs_device_count(), 2);
	EQ(phxfs_find_device("nvidia", 0), 1);
	EQ(phxfs_find_device("nvidia", 1), 0);
	EQ(phxfs_find_device_bdf("0000:5b:00.0"), 1);
	EQ(phxfs_find_device_bdf("0000:4b:00.0"), -ENODEV);
}

static void slice_in_the_drivers_words(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	EQ(phxfs_device_info(0, &info), 0);
	EQ(strcmp(info.name, "NVIDIA_H200_MIG_1g.18gb"), 0);
}

static void slice_by_its_name_in_the_environment(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	EQ(phxfs_device_info(0, &info), 0);
	EQ(strcmp(info.name, "NVIDIA Fake MIG"), 0);
}

static void no_driver(void)
{
	EQ(gpu_connector("nvidia").status, -ENOENT);
	HAS(gpu_connector("nvidia").text, "libcuda.so.1 not found");
	EQ(phxfs_device_mode(0), PHXFS_MODE_HOST);
}

static void driver_too_old(void)
{
	EQ(gpu_connector("nvidia").status, -ENOSYS);
	HAS(gpu_connector("nvidia").text, "lacks cu");
	HAS(gpu_connector("nvidia").text, "newer NVIDIA driver");
	EQ(phxfs_device_mode(0), PHXFS_MODE_HOST);
}

static void driver_refuses(void)
{
	EQ(gpu_connector("nvidia").status, -ENOSYS);
	HAS(gpu_connector("nvidia").text, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
	HAS(gpu_connector("nvidia").text, "reboot");
	EQ(phxfs_device_mode(0), PHXFS_MODE_HOST);
}

static void no_device_visible(void)
{
	EQ(gpu_connector("nvidia").status, -ENODEV);
	HAS(gpu_connector("nvidia").text, "CUDA_VISIBLE_DEVICES");
	EQ(phxfs_device_count(), 0); /* PHX_CONNECTOR=nvidia: no stand-in */
}

/* --------------------------------------------------------------- contexts */

static void no_context_without_a_buffer(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	int local;

	load();
	EQ(phxfs_device_count(), 2);
	EQ(phxfs_device_info(0, &info), 0);
	EQ(phxfs_open(0), 0);
	EQ(phxfs_open(1), 0);
	EQ(phxfs_pointer_device(&local), -ENOENT);
	EQ(state(NULL, 0).retained, 0);
	EQ(state(NULL, 1).retained, 0);
	alloc(1, PAGE);
	EQ(state(NULL, 0).retained, 0);
	EQ(state(NULL, 1).retained, 1);
	alloc(1, PAGE);
	EQ(state(NULL, 1).retained, 1);
}

static void caller_keeps_its_context(void)
{
	void *mine, *current;

	load();
	EQ(cu.context_create(&mine, 0, 1), 0);
	everything_once(device(0));
	everything_once(device(1));
	EQ(cu.context_current(&current), 0);
	CHECK(current == mine);
	EQ(state(NULL, 0).depth, 1);
	CHECK(state(NULL, 0).capture_mode_kept);
	EQ(state("cuCtxPushCurrent_v2", 0).calls, state("cuCtxPopCurrent_v2", 0).calls);
	EQ(state(NULL, 0).allocations, 0);
}

/* Also when the calls between push and pop fail. */
static void failing_calls_keep_the_context(void)
{
	static const char *const calls[] = {
		"cuMemAlloc_v2",       "cuMemFree_v2",	      "cuStreamCreate",
		"copies",      "cuEventCreate",	      "cuMemHostRegister_v2",
		"cuStreamQuery",       "cuEventRecord",	      "cuEventSynchronize",
		"cuCtxPushCurrent_v2", "cuStreamSynchronize",
	};
	void *mine, *p, *other;
	char word[8];
	int id;

	load();
	EQ(cu.context_create(&mine, 0, 0), 0);
	id = device(0);
	p = alloc(id, PAGE);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		gpu_context("%s fails", calls[i]);
		fake.fail(calls[i], 999, 1, true);
		(void)!phxfs_memcpy_to(id, p, word, sizeof(word));
		if (!phxfs_mem_alloc(id, PAGE, &other))
			(void)!phxfs_mem_free(id, other);
		fake.fail(calls[i], 0, 0, false);
		EQ(state(NULL, 0).depth, 1);
		CHECK(state(NULL, 0).capture_mode_kept);
		EQ(phxfs_memcpy_to(id, p, word, sizeof(word)), 0);
	}
	EQ(cu.context_current(&other), 0);
	CHECK(other == mine);
}

static void transfer_elsewhere(void *arg)
{
	everything_once(*(int *)arg);
}

/* Our calls must not spoil a graph that another thread is recording. */
static void graph_of_another_thread_survives(void)
{
	void *mine, *stream, *graph;
	int id;

	load();
	EQ(cu.context_create(&mine, 0, 0), 0);
	EQ(cu.stream_create(&stream, 1), 0);
	id = device(0);
	EQ(cu.begin_capture(stream, 0), 0);
	gpu_in_thread(transfer_elsewhere, &id);
	everything_once(id);
	EQ(cu.end_capture(stream, &graph), 0);
}

/* ----------------------------------------------------------------- memory */

static void allocations_begin_on_device_pages(void)
{
	void *p[64];

	load();
	EQ(phxfs_device_count(), 2);
	for (int i = 0; i < 64; i++) {
		p[i] = alloc(1, PAGE * (1 + (size_t)i % 20));
		EQ((uintptr_t)p[i] % PAGE, 0);
		EQ(phxfs_regmem(1, p[i], PAGE * (1 + (size_t)i % 20), NULL), -ENODEV);
	}
	for (int i = 0; i < 64; i++)
		EQ(phxfs_mem_free(1, p[i]), 0);
	EQ(state(NULL, 1).allocations, 0);
}

static void allocation_fails(void)
{
	void *p = &p;

	load();
	EQ(phxfs_mem_alloc(0, 2UL << 30, &p), -ENOMEM);
	CHECK(p == &p);
	HAS(phxfs_last_error(), "CUDA_ERROR_OUT_OF_MEMORY");
	HAS(phxfs_last_error(), "cuMemAlloc");
	fake.fail("cuDevicePrimaryCtxRetain", 2, 1, false);
	EQ(phxfs_mem_alloc(1, PAGE, &p), -ENOMEM);
	HAS(phxfs_last_error(), "cuDevicePrimaryCtxRetain");
	EQ(state(NULL, 1).retained, 0);
	alloc(1, PAGE);
}

static void memory_of_other_allocators(void)
{
	void *mine, *pinned;
	uintptr_t own, pool;
	int id;

	load();
	EQ(cu.context_create(&mine, 0, 1), 0);
	EQ(cu.mem_alloc(&own, 2 * MIB), 0);
	EQ(cu.alloc_async(&pool, 2 * MIB, NULL), 0);
	EQ(cu.host_alloc(&pinned, 2 * MIB, 0), 0);
	id = device(1);
	EQ(phxfs_pointer_device((void *)(own + 5)), id);
	EQ(phxfs_pointer_device((void *)pool), id);
	EQ(phxfs_pointer_device(pinned), -ENOENT);
	EQ(phxfs_regmem(id, (void *)own, 2 * MIB, NULL), 0);
	EQ(phxfs_regmem(id, (void *)pool, 2 * MIB, NULL), 0);
	EQ(phxfs_regmem(id, (void *)(pool + MIB), 2 * MIB, NULL), -EINVAL); /* overlaps */
	EQ(phxfs_deregmem(id, (void *)pool, 2 * MIB), 0);
	EQ(phxfs_regmem(id, (void *)(pool + MIB), 2 * MIB, NULL), -EFAULT); /* past its end */
	EQ(phxfs_regmem(id, pinned, 2 * MIB, NULL), -EFAULT);
	EQ(phxfs_regmem(device(0), (void *)pool, 2 * MIB, NULL), -EFAULT); /* another's */
}

/* Three pieces of 2 MiB, a hole, one piece. */
static uintptr_t map_pieces(int ordinal)
{
	uintptr_t base;
	size_t size;

	EQ(driver_map_pieces(ordinal, 5, 3, &size, &base), 0);
	EQ(size, 2 * MIB);
	return base;
}

static void memory_mapped_in_pieces(void)
{
	int fd = gpu_file(6 * MIB, 3, 0), id;
	static char expected[6 * MIB], got[6 * MIB];
	uintptr_t base;
	void *p;

	load();
	id = device(0);
	base = map_pieces(0);
	p = (void *)base;
	EQ(phxfs_regmem(id, p, 10 * MIB, NULL), -EFAULT);
	EQ(phxfs_regmem(id, p, 8 * MIB, NULL), -EFAULT);
	EQ(phxfs_regmem(id, (void *)(base + 6 * MIB), PAGE, NULL), -EFAULT);
	EQ(phxfs_regmem(id, (void *)(base + 8 * MIB), 2 * MIB, NULL), 0);
	EQ(phxfs_regmem(id, p, 6 * MIB, NULL), 0);
	EQ(phxfs_read(fd, id, p, 0, 6 * MIB, 0), 6 * MIB);
	EQ(phxfs_memcpy_from(id, got, p, 6 * MIB), 0);
	gpu_pattern(expected, 6 * MIB, 3, 0);
	CHECK(!memcmp(expected, got, 6 * MIB));
	close(fd);
}

static void memory_mapped_in_pieces_on_an_old_driver(void)
{
	memory_mapped_in_pieces();
}

/* A piece exchanged for another, or memory allocated anew, has another id. */
static void identity_changes_with_the_memory(void)
{
	struct driver_physical p = { .type = 1, .location_type = 1 };
	struct devconn_pointer before = { .len = 6 * MIB }, after = { 0 };
	uintptr_t base;
	uint64_t handle;

	load();
	EQ(phxfs_device_count(), 2);
	base = map_pieces(0);
	EQ(nvidia_connector.pointer_device((void *)base, &before), 0);
	EQ(before.base, base);
	EQ(before.len, 6 * MIB);
	EQ(before.device, 0);
	EQ(nvidia_connector.pointer_device((void *)base, &after), 0);
	CHECK(before.buffer_id && before.buffer_id != after.buffer_id); /* asked about less */
	after.len = 6 * MIB;
	EQ(nvidia_connector.pointer_device((void *)base, &after), 0);
	EQ(before.buffer_id, after.buffer_id);
	EQ(cu.unmap(base + 2 * MIB, 2 * MIB), 0);
	EQ(cu.create(&handle, 2 * MIB, &p, 0), 0);
	EQ(cu.map(base + 2 * MIB, 2 * MIB, 0, handle, 0), 0);
	EQ(cu.release(handle), 0); /* the mapping keeps the memory */
	after.len = 6 * MIB;
	EQ(nvidia_connector.pointer_device((void *)base, &after), 0);
	EQ(after.len, 6 * MIB);
	CHECK(before.buffer_id != after.buffer_id);
}

static const struct devconn_ops *const ops = &nvidia_connector;

/* ----------------------------------------------------------------- ranges */

static const char *ranges(void)
{
	void *library = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW | RTLD_LOCAL);
	const char *(*text)(void);

	CHECK(library);
	*(void **)&text = dlsym(library, "fakenvtx_log");
	return text();
}

static void ranges_reach_the_profiler(void)
{
	EQ(phxfs_device_count(), 2);
	ops->range_push("a");
	ops->range_push("b");
	ops->range_pop();
	ops->range_pop();
	EQ(strcmp(ranges(), "<a<b>>"), 0);
}

static void ranges_surround_transfers(void)
{
	int id = device(0), fd = gpu_file(MIB, 1, 0);
	char *p = registered(id, MIB);
	phxfs_io_req_t request = { .fd = fd, .device_id = id, .buf = p, .nbytes = MIB };
	struct phxfs_completion done;
	phxfs_batch_t *batch;
	phxfs_queue_t *q;

	EQ(phxfs_read(fd, id, p, 0, MIB, 0), MIB);
	EQ(phxfs_write(fd, id, p, 0, MIB, 0), MIB);
	EQ(strcmp(ranges(), "<phxfs_read><phxfs_write>"), 0);
	batch = phxfs_batch_submit_read(&request, 1);
	EQ(phxfs_batch_wait(batch), 0);
	EQ(phxfs_queue_create(4, &q), 0);
	EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &request, NULL, 1), 1);
	EQ(phxfs_queue_wait(q, &done, 1, 1, NULL), 1);
	EQ(phxfs_queue_destroy(q), 0);
	EQ(strcmp(ranges(), "<phxfs_read><phxfs_write><phxfs_batch_wait><phxfs_queue_wait>"), 0);
	close(fd);
}

static void ranges_are_off_by_default(void)
{
	EQ(phxfs_device_count(), 2);
	ops->range_push("a");
	ops->range_pop();
	EQ(strlen(ranges()), 0);
}

static void ranges_without_a_profiler(void)
{
	EQ(phxfs_device_count(), 2);
	ops->range_push("a");
	ops->range_pop();
}

static const struct gpu_case cases[] = {
	CASE(devices_are_described),
	CASE(visible_devices_in_any_order, .env = "FAKE_CUDA_DEVICES=4 CUDA_VISIBLE_DEVICES=2,0"),
	CASE(slice_in_the_drivers_words, .env = "FAKE_CUDA_NAME=NVIDIA_H200_MIG_1g.18gb"),
	CASE(slice_by_its_name_in_the_environment, .env = "CUDA_VISIBLE_DEVICES=MIG-1234"),
	CASE(no_driver, .env = "LD_LIBRARY_PATH=/nowhere"),
	CASE(driver_too_old, .env = "LD_LIBRARY_PATH=@/old"),
	CASE(driver_refuses, .env = "FAKE_CUDA_FAIL=cuInit=803@1+"),
	CASE(no_device_visible, .env = "PHX_CONNECTOR=nvidia CUDA_VISIBLE_DEVICES="),
	CASE(no_context_without_a_buffer),
	CASE(caller_keeps_its_context),
	CASE(failing_calls_keep_the_context),
	CASE(graph_of_another_thread_survives),
	CASE(allocations_begin_on_device_pages),
	CASE(allocation_fails),
	CASE(memory_of_other_allocators),
	CASE(memory_mapped_in_pieces),
	CASE(memory_mapped_in_pieces_on_an_old_driver,
	     .env = "FAKE_CUDA_FAIL=new_attributes=1@1+"),
	CASE(identity_changes_with_the_memory),
	CASE(ranges_reach_the_profiler,
	     .env = "PHX_NVTX=1 NVTX_INJECTION64_PATH=@/libfake_nvtx.so"),
	CASE(ranges_surround_transfers,
	     .env = "PHX_NVTX=1 NVTX_INJECTION64_PATH=@/libfake_nvtx.so"),
	CASE(ranges_are_off_by_default, .env = "NVTX_INJECTION64_PATH=@/libfake_nvtx.so"),
	CASE(ranges_without_a_profiler, .env = "PHX_NVTX=1"),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
