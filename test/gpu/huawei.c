// SPDX-License-Identifier: Apache-2.0
/* Huawei's connector over a fake AscendCL with the real one's rules. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "nvidia_fake.h"

static const struct devconn_ops *const ops = &huawei_connector;

static struct {
	int (*init)(const char *config);
	int (*context_create)(void **context, int device);
	int (*context_get)(void **context);
	int (*context_set)(void *context);
	int (*malloc)(void **p, size_t len, int policy);
	int (*stream_create)(void **stream);
	int (*stream_sync)(void *stream);
	int (*subscribe)(uint64_t thread, void *stream);
	int (*process_report)(int ms);
} acl;

static int id; /* the library's first device */

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		gpu_fail(__FILE__, __LINE__, "no %s", name);
	return found;
}

static void load_acl(void)
{
	void *library = dlopen("libascendcl.so", RTLD_NOW | RTLD_LOCAL);

	CHECK(library);
	load();
	*(void **)&acl.init = symbol(library, "aclInit");
	*(void **)&acl.context_create = symbol(library, "aclrtCreateContext");
	*(void **)&acl.context_get = symbol(library, "aclrtGetCurrentContext");
	*(void **)&acl.context_set = symbol(library, "aclrtSetCurrentContext");
	*(void **)&acl.malloc = symbol(library, "aclrtMalloc");
	*(void **)&acl.stream_create = symbol(library, "aclrtCreateStream");
	*(void **)&acl.stream_sync = symbol(library, "aclrtSynchronizeStream");
	*(void **)&acl.subscribe = dlsym(library, "aclrtSubscribeReport");
	*(void **)&acl.process_report = dlsym(library, "aclrtProcessReport");
}

static void start(void)
{
	load_acl();
	id = phxfs_find_device("huawei", 0);
	EQ(id, 0);
	EQ(phxfs_open(id), 0);
}

/* ----------------------------------------------------------------- devices */

static void devices_are_described(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	EQ(phxfs_device_count(), 2);
	EQ(gpu_connector("huawei").status, 0);
	HAS(gpu_connector("huawei").text, "libascendcl.so");
	EQ(phxfs_device_info(1, &info), 0);
	EQ(strcmp(info.bdf, "0000:4b:00.0"), 0);
	HAS(info.name, "Ascend910B3");
	HAS(info.vendor, "huawei");
	EQ(info.mode, PHXFS_MODE_BOUNCE);
}

/* The program's numbers are not the management library's. */
static void addresses_by_the_management_library(void)
{
	devices_are_described();
}

static void no_runtime(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("huawei").status, -ENOENT);
	HAS(gpu_connector("huawei").text, "libascendcl.so not found");
}

static void runtime_lacks_something(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("huawei").status, -ENOSYS);
	HAS(gpu_connector("huawei").text, "libascendcl.so lacks acl");
}

static void no_device_visible(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("huawei").status, -ENODEV);
	HAS(gpu_connector("huawei").text, "ASCEND_RT_VISIBLE_DEVICES");
}

static void no_address(void)
{
	EQ(phxfs_device_count(), 0);
	EQ(gpu_connector("huawei").status, -EOPNOTSUPP);
	HAS(gpu_connector("huawei").text, "PCI address");
}

static void program_has_started_it(void)
{
	load_acl();
	EQ(acl.init(NULL), 0);
	EQ(phxfs_device_count(), 2);
	EQ(gpu_connector("huawei").status, 0);
}

/* ---------------------------------------------------------------- contexts */

static void no_context_without_a_buffer(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	int local;

	start();
	EQ(phxfs_device_info(0, &info), 0);
	EQ(phxfs_pointer_device(&local), -ENOENT);
	EQ(state("aclrtCreateContext", 0).calls, 0);
	alloc(id, PAGE);
	alloc(id, PAGE);
	EQ(state("aclrtCreateContext", 0).calls, 1);
}

static void caller_keeps_its_context(void)
{
	void *mine, *now;

	start();
	EQ(acl.context_create(&mine, 1), 0);
	everything_once(id);
	EQ(acl.context_get(&now), 0);
	CHECK(now == mine);
	EQ(phxfs_open(1), 0);
	everything_once(1);
	EQ(acl.context_get(&now), 0);
	CHECK(now == mine);
	EQ(state(NULL, 0).depth, 1);
	EQ(state(NULL, 0).allocations, 0);
	CHECK(state(NULL, 0).capture_mode_kept);
}

static void failing_calls_keep_the_context(void)
{
	static const char *const calls[] = {
		"aclrtMalloc",	       "aclrtFree",	   "aclrtCreateStream",
		"copies",	       "aclrtCreateEvent", "aclrtMallocHost",
		"aclrtRecordEvent",    "aclrtQueryEventStatus",
		"aclrtSynchronizeStream", "aclrtSetCurrentContext",
	};
	void *mine, *now, *event = NULL, *host, *other;
	char word[8], *p;

	start();
	EQ(acl.context_create(&mine, 0), 0);
	p = alloc(id, PAGE);
	EQ(ops->host_alloc(id, PAGE, &host), 0);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		gpu_context("%s fails", calls[i]);
		fake.fail(calls[i], 507899, 1, true);
		(void)!phxfs_memcpy_to(id, p, word, sizeof(word));
		(void)!ops->memcpy_htod_async(id, 1, p, host, PAGE);
		if (!ops->event_record(id, 1, &event))
			(void)!ops->event_done(id, event);
		if (!phxfs_mem_alloc(id, PAGE, &other))
			(void)!phxfs_mem_free(id, other);
		fake.fail(calls[i], 0, 0, false);
		EQ(ops->queue_sync(id, 1), 0);
		EQ(acl.context_get(&now), 0);
		CHECK(now == mine);
		CHECK(state(NULL, 0).capture_mode_kept);
		EQ(phxfs_memcpy_to(id, p, word, sizeof(word)), 0);
	}
	ops->event_free(id, event);
}

static void use(void *arg)
{
	everything_once(*(int *)arg);
}

/* A thread that has no context can call all the same. */
static void threads_without_a_context(void)
{
	start();
	gpu_in_thread(use, &id);
	gpu_in_thread(use, &id);
	EQ(state("aclrtCreateContext", 0).calls, 1);
}

/* ------------------------------------------------------------------ memory */

static void allocations_begin_on_device_pages(void)
{
	void *p[64];

	start();
	for (size_t i = 0; i < 64; i++) {
		p[i] = alloc(id, PAGE * (1 + i % 20));
		EQ((uintptr_t)p[i] % PAGE, 0);
	}
	for (size_t i = 0; i < 64; i++)
		EQ(phxfs_mem_free(id, p[i]), 0);
	EQ(state(NULL, 0).allocations, 0);
	fake.fail("aclrtMalloc", 207001, 1, false);
	EQ(phxfs_mem_alloc(id, PAGE, &p[0]), -ENOMEM);
	HAS(phxfs_last_error(), "aclrtMalloc");
}

static void memory_of_other_allocators(void)
{
	struct devconn_pointer a = { .len = 3 * MIB }, b = { .len = 1 };
	void *mine, *own, *pinned;

	start();
	EQ(acl.context_create(&mine, 0), 0);
	EQ(acl.malloc(&own, 3 * MIB, 0), 0);
	EQ(ops->host_alloc(id, MIB, &pinned), 0);
	EQ(phxfs_pointer_device((char *)own + 5), id);
	EQ(phxfs_pointer_device(pinned), -ENOENT);
	EQ(ops->pointer_device(own, &a), 0);
	EQ(a.len, 3 * MIB);
	EQ(ops->pointer_device((char *)own + MIB, &b), 0);
	EQ(b.len, PAGE); /* no more was asked for */
	EQ(phxfs_regmem(id, own, 3 * MIB, NULL), 0);
	EQ(phxfs_deregmem(id, own, 3 * MIB), 0);
	EQ(phxfs_regmem(id, own, 4 * MIB, NULL), -EFAULT); /* past its end */
	pinned = (void *)(((uintptr_t)pinned + PAGE - 1) & ~(PAGE - 1));
	EQ(phxfs_regmem(id, pinned, MIB - PAGE, NULL), -EFAULT);
}

static void identity_is_the_allocations(void)
{
	struct devconn_pointer a = { .len = 1 }, b = { .len = 1 };
	char *p, *q;

	start();
	p = alloc(id, 2 * MIB);
	EQ(ops->pointer_device(p + MIB, &a), 0);
	EQ(a.len, 2 * MIB);
	q = alloc(id, 2 * MIB);
	EQ(ops->pointer_device(q, &b), 0);
	CHECK(a.buffer_id && b.buffer_id && a.buffer_id != b.buffer_id);
}

/* ------------------------------------------------------------------ copies */

/* Each queue keeps its order; a failure is told once, and by whoever waits. */
static void queues_and_their_failures(void)
{
	void *event = NULL, *host;
	char *p, *h;

	start();
	p = alloc(id, 2 * MIB);
	EQ(ops->host_alloc(id, 2 * MIB, &host), 0);
	h = host;
	for (int i = 0; i < 20; i++) {
		memset(h, i + 1, MIB);
		EQ(ops->memcpy_htod_async(id, 2, p, h, MIB), 0);
		EQ(ops->memcpy_dtod_async(id, 2, p + MIB, p, MIB), 0);
		EQ(ops->memcpy_dtoh_async(id, 2, h + MIB, p + MIB, MIB), 0);
		EQ(ops->event_record(id, 2, &event), 0);
		if (i % 2)
			EQ(ops->event_wait(id, event), 0);
		else
			while (ops->event_done(id, event) == -EBUSY)
				usleep(100);
		EQ(h[2 * MIB - 1], i + 1);
	}
	fake.fail("copy", 507035, 1, false);
	EQ(ops->memcpy_dtoh_async(id, 2, h, p, MIB), 0);
	EQ(ops->event_record(id, 2, &event), 0);
	EQ(ops->event_wait(id, event), -EIO);
	EQ(ops->queue_sync(id, 2), 0);
	fake.fail("copy", 507035, 1, false);
	EQ(ops->memcpy_dtoh_async(id, 2, h, p, MIB), 0);
	EQ(ops->event_record(id, 2, &event), 0);
	for (int err = -EBUSY; err == -EBUSY; usleep(100)) {
		err = ops->event_done(id, event);
		CHECK(err == -EBUSY || err == -EIO);
	}
	EQ(ops->memcpy_dtoh_async(id, 2, h, h, MIB), -EFAULT); /* no device memory */
	EQ(ops->memcpy_htod_async(id, DEVCONN_SLOTS, p, h, MIB), -EINVAL);
	ops->event_free(id, event);
	EQ(state(NULL, 0).events, 0);
}

static void failed_copies_fail_transfers(void)
{
	int fd;
	char *p, word[8] = "";

	start();
	fd = gpu_file(MIB, 1, 0);
	p = registered(id, MIB);
	fake.fail("copy", 507035, 1, true);
	EQ(phxfs_read(fd, id, p, 0, MIB, 0), -EIO);
	EQ(phxfs_memcpy_to(id, p, word, sizeof(word)), -EIO);
	fake.fail("copy", 0, 0, false);
	EQ(phxfs_read(fd, id, p, 0, MIB, 0), MIB);
	close(fd);
}

/* ----------------------------------------------------------------- streams */

static void note(void *arg)
{
	*(pthread_t *)arg = pthread_self();
}

/* In turn, in each of several streams; not by the caller. */
static void functions_in_streams(void)
{
	pthread_t by[4] = { 0 };
	void *mine, *streams[2], *p;
	size_t len = MIB;
	off_t zero = 0;
	ssize_t done = -1;
	int fd;

	start();
	EQ(acl.context_create(&mine, 0), 0);
	for (int i = 0; i < 4; i++) {
		if (i < 2)
			EQ(acl.stream_create(&streams[i]), 0);
		EQ(ops->launch_host_func(streams[i % 2], note, &by[i]), 0);
	}
	EQ(acl.stream_sync(streams[0]), 0);
	EQ(acl.stream_sync(streams[1]), 0);
	for (int i = 0; i < 4; i++)
		CHECK(by[i] && by[i] != pthread_self());
	p = registered(id, MIB);
	fd = gpu_file(MIB, 3, 0);
	EQ(phxfs_read_stream(fd, p, &len, &zero, &zero, &done, streams[0]), 0);
	EQ(acl.stream_sync(streams[0]), 0);
	EQ(done, MIB);
	close(fd);
}

static void functions_in_streams_of_an_older_runtime(void)
{
	functions_in_streams();
	CHECK(state("aclrtSubscribeReport", 0).calls >= 4);
}

static void *serve(void *arg)
{
	while (!*(_Atomic bool *)arg)
		acl.process_report(100);
	return NULL;
}

/* The program's own thread serves its stream: the functions run there. */
static void stream_with_a_thread_of_the_programs(void)
{
	static _Atomic bool stop;
	pthread_t thread, by = 0;
	void *mine, *stream;

	start();
	EQ(acl.context_create(&mine, 0), 0);
	EQ(acl.stream_create(&stream), 0);
	CHECK(!pthread_create(&thread, NULL, serve, &stop));
	EQ(acl.subscribe((uint64_t)thread, stream), 0);
	EQ(ops->launch_host_func(stream, note, &by), 0);
	EQ(acl.stream_sync(stream), 0);
	CHECK(pthread_equal(by, thread));
	stop = true;
	pthread_join(thread, NULL);
}

static void stream_being_captured(void)
{
	void *mine, *stream, *graph;
	pthread_t by = 0;

	start();
	EQ(acl.context_create(&mine, 0), 0);
	EQ(acl.stream_create(&stream), 0);
	EQ(cu.begin_capture(stream, 0), 0);
	EQ(ops->launch_host_func(stream, note, &by), -EOPNOTSUPP);
	everything_once(id);
	EQ(cu.end_capture(stream, &graph), 0);
	CHECK(!by);
}

/* -------------------------------------------------------------------- ends */

static char *buffer;

static void in_child(void)
{
	void *p;

	EQ(phxfs_mem_alloc(id, PAGE, &p), -ENODEV);
	EQ(ops->pointer_device(buffer, &(struct devconn_pointer){ .len = 1 }), -ENOENT);
	CHECK(phxfs_memcpy_to(id, buffer, &p, sizeof(p)) < 0);
}

static void child_gets_errors_not_hangs(void)
{
	start();
	buffer = registered(id, MIB);
	EQ(gpu_in_child(in_child), 0);
	everything_once(id);
}

static void runtime_gone_before_the_library(void)
{
	void *host;
	char *p;

	start();
	p = registered(id, MIB);
	EQ(ops->host_alloc(id, PAGE, &host), 0);
	fake.tear_down(true);
	EQ(ops->host_free(id, host, PAGE), 0);
	EQ(phxfs_deregmem(id, p, MIB), 0);
	EQ(phxfs_mem_free(id, p), 0);
	CHECK(phxfs_mem_alloc(id, PAGE, (void **)&p) < 0);
}

static const struct gpu_case cases[] = {
	CASE(devices_are_described),
	CASE(addresses_by_the_management_library, .env = "LD_LIBRARY_PATH=@/huawei-old"),
	CASE(no_runtime, .env = "LD_LIBRARY_PATH=/nowhere"),
	CASE(runtime_lacks_something, .env = "LD_LIBRARY_PATH=@/huawei-poor"),
	CASE(no_device_visible, .env = "CUDA_VISIBLE_DEVICES="),
	CASE(no_address, .env = "FAKE_CUDA_FAIL=aclrtDeviceGetPCIBusId=207000@1+"),
	CASE(program_has_started_it),
	CASE(no_context_without_a_buffer),
	CASE(caller_keeps_its_context),
	CASE(failing_calls_keep_the_context),
	CASE(threads_without_a_context),
	CASE(allocations_begin_on_device_pages),
	CASE(memory_of_other_allocators),
	CASE(identity_is_the_allocations),
	CASE(queues_and_their_failures),
	CASE(failed_copies_fail_transfers),
	CASE(functions_in_streams),
	CASE(functions_in_streams_of_an_older_runtime, .env = "LD_LIBRARY_PATH=@/huawei-old"),
	CASE(stream_with_a_thread_of_the_programs, .env = "LD_LIBRARY_PATH=@/huawei-old"),
	CASE(stream_being_captured),
	CASE(child_gets_errors_not_hangs),
	CASE(runtime_gone_before_the_library),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
