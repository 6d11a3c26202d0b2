// SPDX-License-Identifier: Apache-2.0
/*
 * cuFile's asynchronous transfers between other work of a stream, on the fake
 * driver: fills stand for kernels.
 */
#include <fcntl.h>
#include <phx_cufile.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/memory.h"

#define CASE(fn, ...) { .name = #fn, .run = fn, ##__VA_ARGS__ }
#define LEN (256 * KIB)

struct arguments {
	size_t size;
	off_t file_offset, buf_offset;
	ssize_t bytes;
};

static CUfileHandle_t handle(int fd)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd };
	CUfileHandle_t fh = NULL;

	EQ(cuFileHandleRegister(&fh, &descr).err, 0);
	return fh;
}

static int read_in(CUfileHandle_t fh, char *p, struct arguments *a, void *stream)
{
	a->bytes = 0;
	return cuFileReadAsync(fh, p, &a->size, &a->file_offset, &a->buf_offset, &a->bytes, stream)
		.err;
}

static int write_in(CUfileHandle_t fh, char *p, struct arguments *a, void *stream)
{
	a->bytes = 0;
	return cuFileWriteAsync(fh, p, &a->size, &a->file_offset, &a->buf_offset, &a->bytes,
				stream).err;
}

static void *new_stream(void)
{
	void *stream;

	EQ(cu.stream_create(&stream, DRIVER_STREAM_NON_BLOCKING), 0);
	return stream;
}

static char *device_memory(int id)
{
	void *p;

	EQ(phxfs_mem_alloc(id, LEN, &p), 0);
	return p;
}

/* fill, write, fill, read: each takes its turn, registered or not. */
static void transfers_take_their_turn(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, O_RDWR);
	CUfileHandle_t fh = handle(fd);
	struct arguments w = { LEN, 0, 0, 0 }, r = { LEN, 0, 0, 0 };
	char *p = device_memory(id), *host = malloc(LEN);
	void *stream = new_stream();

	CHECK(host);
	for (int round = 0; round < 8; round++) {
		if (round == 4)
			EQ(cuFileBufRegister(p, LEN, 0).err, 0);
		EQ(cu.fill_async((uintptr_t)p, (unsigned char)(10 + round), LEN, stream), 0);
		EQ(write_in(fh, p, &w, stream), 0);
		EQ(cu.fill_async((uintptr_t)p, 99, LEN, stream), 0);
		EQ(read_in(fh, p, &r, stream), 0);
		EQ(cu.stream_sync(stream), 0);
		EQ(w.bytes, LEN);
		EQ(r.bytes, LEN);
		memory_get(host, p, LEN);
		for (size_t i = 0; i < LEN; i++)
			EQ(host[i], 10 + round);
	}
	free(host);
}

static void set_arguments(char *pinned, struct arguments *to, void *stream)
{
	EQ(cu.copy_async((uintptr_t)to, (uintptr_t)pinned, sizeof(*to), stream), 0);
}

/*
 * Arguments are read when the stream gets there, except those that the stream
 * was registered to have fixed, which may change as soon as the call is back.
 */
static void arguments_are_bound_as_registered(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, O_RDWR);
	CUfileHandle_t fh = handle(fd);
	char *p = device_memory(id), host[8192], want[8192];
	void *late = new_stream(), *fixed = new_stream();
	struct arguments *a, *next;

	EQ(cu.host_alloc((void **)&a, 4096, DRIVER_HOST_PORTABLE), 0);
	next = a + 1;
	*a = (struct arguments){ 1, 1, 1, 0 };
	*next = (struct arguments){ 5000, 77, 3, 0 };
	set_arguments((char *)next, a, late);
	EQ(read_in(fh, p, a, late), 0);
	EQ(cu.stream_sync(late), 0);
	EQ(a->bytes, 5000);
	memory_get(host, p + 3, 5000);
	gpu_pattern(want, 5000, 1, 77);
	CHECK(!memcmp(host, want, 5000));

	EQ(cuFileStreamRegister(fixed, 7).err, 0);
	for (int i = 0; i < 10; i++) {
		*a = (struct arguments){ 4096, 4096 * (i + 1), 16, 0 };
		EQ(read_in(fh, p, a, fixed), 0);
		a->size = 1;
		a->file_offset = a->buf_offset = 0;
		EQ(cu.stream_sync(fixed), 0);
		EQ(a->bytes, 4096);
		memory_get(host, p + 16, 4096);
		gpu_pattern(want, 4096, 1, (uint64_t)(4096 * (i + 1)));
		CHECK(!memcmp(host, want, 4096));
	}
	EQ(cuFileStreamDeregister(fixed).err, 0);
}

static void failures_say_so_and_pass(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, O_RDWR);
	CUfileHandle_t fh = handle(fd);
	struct arguments bad = { LEN, 0, 64, 0 }, good = { 10, 0, 0, 0 };
	char *p = device_memory(id);
	void *stream = new_stream();

	EQ(read_in(fh, p, &bad, stream), 0);
	EQ(read_in(fh, p, &good, stream), 0);
	/* the file may be given back before its turn has come */
	cuFileHandleDeregister(fh);
	EQ(cu.stream_sync(stream), 0);
	EQ(bad.bytes, -CU_FILE_INVALID_MAPPING_RANGE);
	EQ(good.bytes, 10);
}

static void captured_streams_are_refused(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, O_RDWR);
	struct arguments a = { 10, 0, 0, 0 };
	CUfileHandle_t fh = handle(fd);
	char *p = device_memory(id);
	void *stream = new_stream(), *graph;

	EQ(cu.begin_capture(stream, DRIVER_CAPTURE_RELAXED), 0);
	EQ(read_in(fh, p, &a, stream), CU_FILE_ASYNC_NOT_SUPPORTED);
	EQ(cu.end_capture(stream, &graph), 0);
}

static const struct gpu_case cases[] = {
	CASE(transfers_take_their_turn),
	CASE(arguments_are_bound_as_registered),
	CASE(failures_say_so_and_pass),
	CASE(captured_streams_are_refused),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
