// SPDX-License-Identifier: Apache-2.0
/* AMD's connector over a fake HIP: what differs from NVIDIA's, whose code it shares. */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "nvidia_fake.h"

static const struct devconn_ops *const ops = &amd_connector;

static struct {
	int (*peek)(void);
	int (*last)(void);
	int (*pointer)(void *out, const void *p);
	int (*get_device)(int *device);
	int (*set_device)(int device);
	long (*urgent)(void);
} hip;

static int id; /* the library's first device */

static void start(void)
{
	void *library;

	load();
	id = phxfs_find_device("amd", 0);
	EQ(id, 0);
	EQ(phxfs_open(id), 0);
	library = dlopen("libamdhip64.so", RTLD_NOW | RTLD_LOCAL);
	CHECK(library);
	*(void **)&hip.peek = dlsym(library, "hipPeekAtLastError");
	*(void **)&hip.last = dlsym(library, "hipGetLastError");
	*(void **)&hip.pointer = dlsym(library, "hipPointerGetAttributes");
	*(void **)&hip.get_device = dlsym(library, "hipGetDevice");
	*(void **)&hip.set_device = dlsym(library, "hipSetDevice");
	*(void **)&hip.urgent = dlsym(library, "fakeruntime_urgent_streams");
	CHECK(hip.peek && hip.last && hip.pointer && hip.get_device && hip.set_device);
}

static void devices_are_described(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	EQ(phxfs_device_count(), 2);
	EQ(gpu_connector("amd").status, 0);
	HAS(gpu_connector("amd").text, "HIP 6.2");
	EQ(phxfs_device_info(1, &info), 0);
	HAS(info.bdf, "0000:4b:00.0");
	HAS(info.vendor, "amd");
	EQ(info.memory_bytes, 1UL << 30);
	EQ(info.mode, PHXFS_MODE_BOUNCE);
}

static void no_runtime(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("amd").status, -ENOENT);
	HAS(gpu_connector("amd").text, "libamdhip64.so not found");
}

static void runtime_lacks_something(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("amd").status, -ENOSYS);
	HAS(gpu_connector("amd").text, "lacks hip");
}

static void no_device_visible(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("amd").status, -ENODEV);
	HAS(gpu_connector("amd").text, "HIP found, but no GPU");
}

/* In either version's numbers; and asking leaves no error behind for the program. */
static void kinds_of_memory(void)
{
	void *pinned, *mine = NULL;
	char *p;
	int local;

	start();
	p = alloc(id, 2 * MIB);
	EQ(cu.host_alloc(&pinned, MIB, 0), 0);
	EQ(phxfs_pointer_device(p + 77), id);
	EQ(phxfs_pointer_device(pinned), -ENOENT);
	EQ(phxfs_pointer_device(&local), -ENOENT);
	EQ(hip.peek(), 0);
	EQ(phxfs_regmem(id, p + MIB, 2 * MIB, NULL), -EFAULT); /* past its end */
	hip.pointer(&(char[64]){ 0 }, &local);
	if (hip.peek()) {
		/* an error of the program's own stays for it to see */
		EQ(phxfs_pointer_device(&local), -ENOENT);
		CHECK(hip.last());
	}
	EQ(phxfs_mem_alloc(id, MIB, &mine), 0);
	EQ(phxfs_mem_free(id, mine), 0);
}

static void kinds_of_memory_in_an_older_runtime(void)
{
	EQ(phxfs_device_count(), 2);
	HAS(gpu_connector("amd").text, "HIP 5.7");
	kinds_of_memory();
}

static void identity_is_the_allocations(void)
{
	struct devconn_pointer a = { .len = 1 }, b = { .len = 1 };
	char *p, *q;

	start();
	p = alloc(id, 2 * MIB);
	q = alloc(id, 2 * MIB);
	EQ(ops->pointer_device(p + MIB, &a), 0);
	EQ(ops->pointer_device(q, &b), 0);
	EQ(a.base, (uintptr_t)p);
	EQ(a.len, 2 * MIB);
	CHECK(a.buffer_id && b.buffer_id && a.buffer_id != b.buffer_id);
}

static void caller_keeps_its_device(void)
{
	int now = -1;

	start();
	EQ(hip.set_device(1), 0);
	everything_once(id);
	EQ(hip.get_device(&now), 0);
	EQ(now, 1);
	fake.fail("cuMemAlloc_v2", 2, 1, false);
	EQ(phxfs_mem_alloc(id, MIB, &(void *){ NULL }), -ENOMEM);
	HAS(phxfs_last_error(), "MemAlloc");
	HAS(phxfs_last_error(), "out of memory");
	EQ(hip.get_device(&now), 0);
	EQ(now, 1);
	CHECK(state(NULL, 0).capture_mode_kept);
}

static void failing_calls_keep_the_device(void)
{
	static const char *const calls[] = {
		"cuMemAlloc_v2", "cuMemFree_v2",  "cuStreamCreate",	  "copies",
		"cuEventCreate", "cuEventRecord", "cuEventSynchronize",	  "cuStreamQuery",
		"cuEventQuery",  "cuStreamSynchronize", "cuMemHostRegister_v2",
	};
	void *event = NULL, *host, *other;
	char word[8], *p;
	int now = -1;

	start();
	EQ(hip.set_device(1), 0);
	p = alloc(id, PAGE);
	EQ(ops->host_alloc(id, PAGE, &host), 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		gpu_context("%s fails", calls[i]);
		fake.fail(calls[i], 999, 1, true);
		(void)!phxfs_memcpy_to(id, p, word, sizeof(word));
		(void)!ops->memcpy_htod_async(id, 1, p, host, PAGE);
		if (!ops->event_record(id, 1, &event))
			(void)!ops->event_done(id, event);
		if (!phxfs_mem_alloc(id, PAGE, &other))
			(void)!phxfs_mem_free(id, other);
		fake.fail(calls[i], 0, 0, false);
		EQ(ops->queue_sync(id, 1), 0);
		EQ(hip.get_device(&now), 0);
		EQ(now, 1);
		CHECK(state(NULL, 0).capture_mode_kept);
		EQ(phxfs_memcpy_to(id, p, word, sizeof(word)), 0);
	}
	ops->event_free(id, event);
}

/* Each queue keeps its order, and none waits for another. */
static void queues_keep_their_order(void)
{
	unsigned char *host, *back;
	void *memory, *events[2] = { NULL, NULL };
	char *p;

	start();
	p = alloc(id, 2 * MIB);
	EQ(ops->host_alloc(id, 4 * MIB, &memory), 0);
	host = memory;
	back = host + 2 * MIB;
	for (int i = 0; i < 20; i++) {
		for (int slot = 0; slot < 2; slot++) {
			size_t at = slot * MIB;

			memset(host + at, 2 * i + slot, MIB);
			EQ(ops->memcpy_htod_async(id, slot, p + at, host + at, MIB), 0);
			EQ(ops->memcpy_dtoh_async(id, slot, back + at, p + at, MIB), 0);
			EQ(ops->event_record(id, slot, &events[slot]), 0);
		}
		EQ(ops->event_wait(id, events[1]), 0);
		EQ(back[MIB], (unsigned char)(2 * i + 1));
		EQ(back[2 * MIB - 1], (unsigned char)(2 * i + 1));
		EQ(ops->queue_sync(id, 0), 0);
		EQ(ops->event_done(id, events[0]), 0);
		EQ(back[0], (unsigned char)(2 * i));
		EQ(back[MIB - 1], (unsigned char)(2 * i));
	}
	ops->event_free(id, events[0]);
	ops->event_free(id, events[1]);
}

/* The program's streams, of ordinary priority, share no hardware queue with ours. */
static void our_streams_come_first(void)
{
	start();
	everything_once(id);
	CHECK(hip.urgent() > 0);
	EQ(hip.urgent(), state(NULL, 0).streams);
}

static void failed_copies_are_reported(void)
{
	void *event = NULL, *host;
	char *p;

	start();
	p = alloc(id, MIB);
	EQ(ops->host_alloc(id, MIB, &host), 0);
	EQ(ops->memcpy_htod_async(id, 3, p, host, MIB), 0);
	EQ(ops->event_record(id, 3, &event), 0);
	EQ(ops->event_wait(id, event), 0);
	fake.fail("copy", 700, 1, false);
	fake.hold(true); /* else it may fail before its event is recorded */
	EQ(ops->memcpy_dtoh_async(id, 3, host, p, MIB), 0);
	EQ(ops->event_record(id, 3, &event), 0);
	fake.hold(false);
	EQ(ops->event_wait(id, event), -EIO);
	HAS(devconn_detail(-EIO), ": copying: ");
	ops->event_free(id, event);
}

static void streams_wait_and_signal(void)
{
	uint64_t *words;
	void *memory, *stream;

	start();
	alloc(id, PAGE);
	EQ(hip.set_device(0), 0);
	EQ(ops->host_alloc(id, PAGE, &memory), 0);
	EQ(cu.stream_create(&stream, 1), 0);
	words = memory;
	EQ(ops->stream_wait(stream, &words[0], 5), 0);
	EQ(ops->stream_signal(stream, &words[1], 9), 0);
	usleep(20000);
	EQ(__atomic_load_n(&words[1], __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(&words[0], 5, __ATOMIC_RELEASE);
	EQ(cu.stream_sync(stream), 0);
	EQ(words[1], 9);
}

static const struct gpu_case cases[] = {
	CASE(devices_are_described),
	CASE(no_runtime, .env = "LD_LIBRARY_PATH=/nowhere"),
	CASE(runtime_lacks_something, .env = "LD_LIBRARY_PATH=@/amd-poor"),
	CASE(no_device_visible, .env = "CUDA_VISIBLE_DEVICES="),
	CASE(kinds_of_memory),
	CASE(kinds_of_memory_in_an_older_runtime, .env = "FAKE_RUNTIME_VERSION=5"),
	CASE(identity_is_the_allocations),
	CASE(caller_keeps_its_device),
	CASE(failing_calls_keep_the_device),
	CASE(queues_keep_their_order),
	CASE(our_streams_come_first),
	CASE(failed_copies_are_reported),
	CASE(streams_wait_and_signal),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
