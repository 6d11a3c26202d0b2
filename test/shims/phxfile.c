// SPDX-License-Identifier: Apache-2.0
/* What phxfile.h says, on HOST devices and on the fake driver. */
#include <dlfcn.h>
#include <phxfile.h>

#include "shim.h"

#define FAKE "PHX_CONNECTOR=nvidia"
#define LEN (1UL << 20)

struct arguments {
	size_t n;
	int64_t file_off, buf_off, bytes;
};

static void check(const char *p, size_t len, uint64_t seed, uint64_t offset)
{
	char *host = malloc(len);

	T_CHECK(host);
	if (on_host())
		memcpy(host, p, len);
	else
		T_EQ(phxfs_memcpy_from(0, host, p, len), 0);
	T_PATTERN(host, len, seed, offset);
	free(host);
}

static void *stream;

/* A stream of the fake driver; without an accelerator there are none. */
static void make_stream(void)
{
	int (*retain)(void **context, int device);
	int (*set)(void *context);
	int (*create)(void **stream, unsigned int flags);
	void *library, *context;

	if (on_host())
		return;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	T_CHECK(library);
	*(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
	*(void **)&set = dlsym(library, "cuCtxSetCurrent");
	*(void **)&create = dlsym(library, "cuStreamCreate");
	T_CHECK(retain && set && create);
	T_EQ(retain(&context, 0), 0);
	T_EQ(set(context), 0);
	T_EQ(create(&stream, 1), 0);
}

/* The stream has passed it. */
static void wait_for(struct arguments *a)
{
	T_WAIT(__atomic_load_n(&a->bytes, __ATOMIC_ACQUIRE) != INT64_MIN);
}

static int64_t read_now(void *fh, char *p, size_t n, int64_t file_off, int64_t buf_off)
{
	struct arguments a = { n, file_off, buf_off, INT64_MIN };

	T_EQ(phxFileReadAsync(fh, p, &a.n, &a.file_off, &a.buf_off, &a.bytes, stream), 0);
	wait_for(&a);
	return a.bytes;
}

static int64_t write_now(void *fh, char *p, size_t n, int64_t file_off, int64_t buf_off)
{
	struct arguments a = { n, file_off, buf_off, INT64_MIN };

	T_EQ(phxFileWriteAsync(fh, p, &a.n, &a.file_off, &a.buf_off, &a.bytes, stream), 0);
	wait_for(&a);
	return a.bytes;
}

static void transfers_are_exact(void)
{
	int fd = t_file("f", LEN, 5, O_RDWR | O_DIRECT), look = t_open("f", O_RDWR);
	char *p = memory(LEN), first[4096];
	void *fh = NULL;

	t_pread(look, first, sizeof(first), 0);
	make_stream();
	T_EQ(phxFileDriverOpen(), 0);
	T_EQ(phxFileHandleRegister(&fh, fd), 0);
	T_CHECK(fh);
	T_EQ(phxFileStreamRegister(NULL), 0);
	for (int registered = 0; registered < 2; registered++) {
		if (registered)
			T_EQ(phxFileBufRegister(p + 100, LEN - 1000), 0);
		T_EQ(read_now(fh, p, LEN, 0, 0), LEN);
		check(p, LEN, 5, 0);
		T_EQ(read_now(fh, p + 100, 70001, 3, 77), 70001);
		check(p + 177, 70001, 5, 3);
		T_EQ(read_now(fh, p, LEN, LEN - 10, 0), 10);
		T_EQ(write_now(fh, p, 10, 0, 0), 10);
		t_file_pattern(fd, 0, 10, 5, LEN - 10);
		T_EQ(read_now(fh, p, LEN, LEN, 0), 0);
		T_EQ(read_now(fh, p, 1, -1, 0), -EINVAL);
		T_EQ(read_now(fh, (char *)4096, 1, 0, 0), -EFAULT);
		t_pwrite(look, first, sizeof(first), 0);
	}
	T_EQ(phxFileStreamDeregister(NULL), 0);
	T_EQ(phxFileHandleDeregister(fh), 0);
	T_EQ(phxFileDriverClose(), 0);
}

static void arguments_are_checked(void)
{
	struct arguments a = { 1, 0, 0, 0 };
	char *p = memory(LEN);
	void *fh = NULL;

	T_EQ(phxFileHandleRegister(NULL, 0), -EINVAL);
	T_EQ(phxFileHandleRegister(&fh, -1), -EBADF);
	T_EQ(phxFileHandleRegister(&fh, 1000), -EBADF);
	T_CHECK(!fh);
	T_EQ(phxFileHandleRegister(&fh, 0), 0); /* not NULL, though the number is 0 */
	T_CHECK(fh);
	T_EQ(phxFileReadAsync(NULL, p, &a.n, &a.file_off, &a.buf_off, &a.bytes, NULL), -EINVAL);
	T_EQ(phxFileReadAsync(fh, NULL, &a.n, &a.file_off, &a.buf_off, &a.bytes, NULL), -EINVAL);
	T_EQ(phxFileReadAsync(fh, p, NULL, &a.file_off, &a.buf_off, &a.bytes, NULL), -EINVAL);
	T_EQ(phxFileWriteAsync(fh, p, &a.n, NULL, &a.buf_off, &a.bytes, NULL), -EINVAL);
	T_EQ(phxFileWriteAsync(fh, p, &a.n, &a.file_off, NULL, &a.bytes, NULL), -EINVAL);
	T_EQ(phxFileWriteAsync(fh, p, &a.n, &a.file_off, &a.buf_off, NULL, NULL), -EINVAL);
	T_EQ(phxFileBufRegister(NULL, LEN), -EINVAL);
	T_EQ(phxFileBufRegister(p, 0), -EINVAL);
	T_EQ(phxFileBufRegister(p, SIZE_MAX), -EINVAL);
	T_EQ(phxFileBufDeregister(p), 0);
	T_EQ(phxFileBufDeregister(NULL), 0);
}

static void buffers_are_counted_and_go_with_the_driver(void)
{
	struct phxfs_stats stats = { .size = sizeof(stats) };
	char *p = memory(LEN);

	T_EQ(phxFileDriverOpen(), 0);
	T_EQ(phxFileDriverOpen(), 0);
	T_EQ(phxFileBufRegister(p, LEN), 0);
	T_EQ(phxFileBufRegister(p, LEN), 0);
	T_EQ(phxFileBufRegister(p, LEN / 2), -EEXIST);
	T_EQ(phxFileBufRegister(p + 5, 7), 0);
	T_EQ(phxFileBufDeregister(p), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registered_bytes, on_host() ? 0 : LEN);
	if (!on_host())
		T_EQ(phxFileBufRegister(p + 1, LEN), -ERANGE);
	T_EQ(phxFileDriverClose(), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registered_bytes, on_host() ? 0 : LEN);
	T_EQ(phxFileDriverClose(), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registrations, 0);
	/* one that never opens */
	T_EQ(phxFileBufRegister(p, LEN), 0);
	T_EQ(phxFileDriverClose(), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registrations, 0);
	T_EQ(phxFileDriverClose(), 0);
	if (!on_host())
		T_EQ(phxfs_mem_free(0, p), 0);
}

#define BOTH(fn) T_CASE(fn), T_CASE(fn, .env = FAKE)

static const struct t_case cases[] = {
	BOTH(transfers_are_exact),
	BOTH(arguments_are_checked),
	BOTH(buffers_are_counted_and_go_with_the_driver),
};

T_MAIN(cases)
