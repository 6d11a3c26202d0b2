// SPDX-License-Identifier: Apache-2.0
/* What programs expect of cuFile, on HOST devices and on the fake driver. */
#include <phx_cufile.h>
#include <sys/stat.h>

#include "shim.h"

#define FAKE "PHX_CONNECTOR=nvidia"
#define LEN (1UL << 20)

#define T_CUFILE(call, number) T_EQ((call).err, number)

/* A transfer that fails: -1, and errno. */
#define T_ERRNO(call, wanted) \
	do { \
		errno = 0; \
		T_EQ(call, -1); \
		T_EQ(errno, wanted); \
	} while (0)

static void look(void *host, const char *p, size_t len)
{
	if (on_host())
		memcpy(host, p, len);
	else
		T_EQ(phxfs_memcpy_from(0, host, p, len), 0);
}

static void set(char *p, const void *host, size_t len)
{
	if (on_host())
		memcpy(p, host, len);
	else
		T_EQ(phxfs_memcpy_to(0, p, host, len), 0);
}

static void check(const char *p, size_t len, uint64_t seed, uint64_t offset)
{
	char *host = malloc(len);

	T_CHECK(host);
	look(host, p, len);
	T_PATTERN(host, len, seed, offset);
	free(host);
}

static CUfileError_t try_handle(int fd, CUfileHandle_t *fh)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd };

	return cuFileHandleRegister(fh, &descr);
}

static CUfileHandle_t handle(int fd)
{
	CUfileHandle_t fh = NULL;

	T_CUFILE(try_handle(fd, &fh), 0);
	T_CHECK(fh);
	return fh;
}

static void the_driver_is_counted_and_opens_itself(void)
{
	CUfileHandle_t fh;
	CUfileDrvProps_t props;
	int version = 0;

	T_CUFILE(cuFileGetVersion(&version), 0);
	T_EQ(version, 1150);
	T_CUFILE(cuFileGetVersion(NULL), CU_FILE_INVALID_VALUE);
	T_EQ(cuFileUseCount(), 0);
	T_CUFILE(cuFileDriverClose(), CU_FILE_DRIVER_NOT_INITIALIZED);
	T_CUFILE(cuFileDriverClose_v2(), CU_FILE_DRIVER_NOT_INITIALIZED);
	fh = handle(t_file("f", 100, 1, O_RDONLY));
	T_EQ(cuFileUseCount(), 1);
	T_CUFILE(cuFileDriverOpen(), 0);
	T_EQ(cuFileUseCount(), 2);
	T_CUFILE(cuFileDriverGetProperties(&props), 0);
	T_EQ(props.nvfs.major_version, 0);
	T_EQ(props.nvfs.dstatusflags, 0);
	T_EQ(props.nvfs.dcontrolflags, 2);
	T_EQ(props.fflags, 0xf);
	T_EQ(props.nvfs.poll_thresh_size, 4);
	T_EQ(props.max_device_cache_size, 131072);
	T_EQ(props.max_device_pinned_mem_size, 33554432);
	T_EQ(props.max_batch_io_size, 128);
	T_EQ(props.max_batch_io_timeout_msecs, 5);
	T_CUFILE(cuFileDriverGetProperties(NULL), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileDriverClose_v2(), 0);
	T_CUFILE(cuFileDriverClose(), 0);
	T_EQ(cuFileUseCount(), 0);
	T_CUFILE(cuFileBufDeregister(&version), CU_FILE_DRIVER_CLOSING);
	cuFileHandleDeregister(fh); /* went with the driver */
}

static void files_are_checked(void)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_WIN32 };
	int fd = t_file("f", 100, 1, O_RDWR), pipes[2];
	CUfileHandle_t fh = NULL, again = NULL;
	char buf[8];

	T_CUFILE(cuFileHandleRegister(&fh, &descr), CU_FILE_IO_NOT_SUPPORTED);
	T_CUFILE(cuFileHandleRegister(NULL, &descr), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileHandleRegister(&fh, NULL), CU_FILE_INVALID_VALUE);
	T_CUFILE(try_handle(-1, &fh), CU_FILE_INVALID_VALUE);
	T_CUFILE(try_handle(1000, &fh), CU_FILE_INVALID_VALUE);
	T_CUFILE(try_handle(open(".", O_RDONLY), &fh), CU_FILE_INVALID_FILE_TYPE);
	T_EQ(pipe(pipes), 0);
	T_CUFILE(try_handle(pipes[0], &fh), CU_FILE_INVALID_FILE_TYPE);
	T_CUFILE(try_handle(t_open("f", O_RDWR | O_APPEND), &fh), CU_FILE_INVALID_FILE_OPEN_FLAG);
	T_CHECK(!fh);
	fh = handle(fd);
	T_CUFILE(try_handle(fd, &again), CU_FILE_HANDLE_ALREADY_REGISTERED);
	cuFileHandleDeregister(fh);
	T_ERRNO(cuFileRead(fh, buf, 1, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	cuFileHandleDeregister(fh);
	cuFileHandleDeregister(NULL);
	cuFileHandleDeregister((void *)0x12345);
	again = handle(fd); /* the place is taken again, the old handle stays dead */
	T_ERRNO(cuFileRead(fh, buf, 1, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	T_EQ(cuFileRead(again, buf, 1, 0, 0), 1);
	close(fd); /* untold; the number is another file's now */
	T_EQ(t_file("g", 50, 2, O_RDWR), fd);
	fh = handle(fd);
	T_EQ(cuFileRead(fh, buf, 8, 48, 0), 2);
	T_ERRNO(cuFileRead(again, buf, 1, 0, 0), CU_FILE_HANDLE_NOT_REGISTERED);
	descr.type = CU_FILE_HANDLE_TYPE_USERSPACE_FS;
	descr.handle.handle = buf;
	T_CUFILE(cuFileHandleRegister(&fh, &descr), 0);
	T_ERRNO(cuFileRead(fh, buf, 1, 0, 0), CU_FILE_DRIVER_CLOSING);
}

static void bytes_are_exact_registered_or_not(void)
{
	int fd = t_file("f", LEN, 5, O_RDWR | O_DIRECT);
	char *p = memory(LEN), *host = malloc(LEN);
	CUfileHandle_t fh = handle(fd);

	T_CHECK(host);
	for (int registered = 0; registered < 2; registered++) {
		if (registered)
			T_CUFILE(cuFileBufRegister(p, LEN, 0), 0);
		T_EQ(cuFileRead(fh, p, LEN, 0, 0), LEN);
		check(p, LEN, 5, 0);
		T_EQ(cuFileRead(fh, p, 70001, 3, 77), 70001);
		check(p + 77, 70001, 5, 3);
		T_EQ(cuFileRead(fh, p + 4096 + 512, 5000, 9, 1), 5000); /* an inner pointer */
		check(p + 4096 + 513, 5000, 5, 9);
		T_EQ(cuFileRead(fh, p, LEN, LEN - 10, 0), 10);
		T_EQ(cuFileRead(fh, p, LEN, LEN, 0), 0);
		T_EQ(cuFileRead(fh, p, 0, 0, 0), 0);
		t_fill(host, LEN, 6, 0);
		set(p, host, LEN);
		T_EQ(cuFileWrite(fh, p, 10001, 4097, 5), 10001);
		t_file_pattern(fd, 4097, 10001, 6, 5);
		T_EQ(cuFileWrite(fh, p, LEN, 0, 0), LEN);
		t_fill(host, LEN, 5, 0);
		set(p, host, LEN);
		T_EQ(cuFileWrite(fh, p, LEN, 0, 0), LEN);
		t_file_pattern(fd, 0, LEN, 5, 0);
	}
	T_CUFILE(cuFileBufDeregister(p), 0);
	T_CUFILE(cuFileDriverClose(), 0);
	free(host);
}

static void errors_are_minus_1_and_errno(void)
{
	int fd = t_file("f", LEN, 5, O_RDWR);
	CUfileHandle_t fh = handle(fd), reader = handle(t_open("f", O_RDONLY));
	CUfileHandle_t writer = handle(t_open("f", O_WRONLY));
	char *p = memory(LEN);

	T_CUFILE(cuFileBufRegister(p, LEN, 0), 0);
	T_ERRNO(cuFileRead(NULL, p, 1, 0, 0), EINVAL);
	T_ERRNO(cuFileRead(fh, NULL, 1, 0, 0), EINVAL);
	T_ERRNO(cuFileRead(fh, p, 1, -1, 0), CU_FILE_INVALID_VALUE);
	T_ERRNO(cuFileRead(fh, p, 1, 0, -1), CU_FILE_INTERNAL_ERROR);
	T_ERRNO(cuFileRead(fh, p, LEN + 1, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	T_ERRNO(cuFileRead(fh, p, 1, 0, LEN), CU_FILE_INVALID_MAPPING_RANGE);
	T_ERRNO(cuFileWrite(fh, p, LEN, 0, 1), CU_FILE_INVALID_MAPPING_RANGE);
	T_ERRNO(cuFileRead(fh, p, SIZE_MAX, 0, 0), EINVAL);
	T_ERRNO(cuFileWrite(reader, p, 1, 0, 0), EIO);
	T_ERRNO(cuFileRead(writer, p, 1, 0, 0), CU_FILE_INVALID_FILE_OPEN_FLAG);
	T_CUFILE(cuFileBufDeregister(p), 0);
	if (!on_host()) /* past the allocation */
		T_ERRNO(cuFileRead(fh, p, LEN, 0, 64), EIO);
	T_ERRNO(cuFileRead(fh, (void *)4096, 1, 0, 0), EIO);
	t_file_pattern(fd, 0, LEN, 5, 0);
}

static void buffers_are_registered_once(void)
{
	char *p = memory(LEN);

	T_CUFILE(cuFileBufRegister(NULL, LEN, 0), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileBufRegister(p, 0, 0), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileBufRegister(p, SIZE_MAX, 0), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileBufRegister(p, LEN, 0), 0);
	T_CUFILE(cuFileBufRegister(p, LEN, 0), CU_FILE_MEMORY_ALREADY_REGISTERED);
	T_CUFILE(cuFileBufRegister(p + 100, 1000, 0), 0); /* a part, of any size */
	T_CUFILE(cuFileBufDeregister(p + 100), 0);
	T_CUFILE(cuFileBufDeregister(p + 100), CU_FILE_MEMORY_NOT_REGISTERED);
	T_CUFILE(cuFileBufDeregister(p), 0);
	T_CUFILE(cuFileBufDeregister(p), CU_FILE_MEMORY_NOT_REGISTERED);
	T_CUFILE(cuFileBufDeregister(NULL), CU_FILE_INVALID_VALUE);
	if (!on_host())
		T_CUFILE(cuFileBufRegister(p, LEN + 1, 0), CU_FILE_CUDA_POINTER_RANGE_ERROR);
}

/* What libphoenix can register of a range, a transfer uses, wherever it points into it. */
static void registrations_serve_inner_pointers(void)
{
	struct phxfs_stats stats = { .size = sizeof(stats) };
	struct phxfs_path_info info = { .size = sizeof(info) };
	int fd = t_file("f", LEN, 5, O_RDONLY | O_DIRECT);
	char *p = memory(LEN);

	T_CUFILE(cuFileBufRegister(p, LEN, 0), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registrations, 1);
	T_EQ(stats.registered_bytes, LEN);
	T_EQ(phxfs_path_query(fd, PHXFS_DEVICE_ANY, p + 4608, 4096, 0, &info), 0);
	T_CHECK(info.reason != PHXFS_REASON_UNREGISTERED);
	T_CUFILE(cuFileBufDeregister(p), 0);
	T_EQ(phxfs_path_query(fd, PHXFS_DEVICE_ANY, p + 4608, 4096, 0, &info), 0);
	T_EQ(info.reason, PHXFS_REASON_UNREGISTERED);
	/* a range between pages: whole pages of it, and those around it */
	T_CUFILE(cuFileBufRegister(p + 1000, 3 * T_PAGE, 0), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registered_bytes, 4 * T_PAGE);
	T_CUFILE(cuFileBufRegister(p + 3 * T_PAGE + 1000, 2 * T_PAGE, 0), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registered_bytes, 5 * T_PAGE);
	T_CUFILE(cuFileDriverClose(), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registrations, 0);
	T_EQ(phxfs_mem_free(0, p), 0);
}

static void vectors_are_one_transfer(void)
{
	int fd = t_file("f", LEN, 5, O_RDWR);
	CUfileHandle_t fh = handle(fd);
	char *p = memory(LEN);
	CUfileIOVec_t iov[3] = { { p + 5000, 1000 }, { p, 2000 }, { p + 20000, 3000 } };

	T_EQ(cuFileReadv(fh, iov, 3, 7, 0), 6000);
	check(p + 5000, 1000, 5, 7);
	check(p, 2000, 5, 1007);
	check(p + 20000, 3000, 5, 3007);
	T_EQ(cuFileWritev(fh, iov, 3, 7, 0), 6000);
	t_file_pattern(fd, 0, LEN, 5, 0);
	T_EQ(cuFileReadv(fh, iov, 0, 0, 0), 0);
	T_ERRNO(cuFileReadv(fh, iov, 3, 0, 1), EINVAL);
	T_ERRNO(cuFileReadv(fh, NULL, 3, 0, 0), EINVAL);
	T_ERRNO(cuFileReadv(fh, iov, 3, -1, 0), CU_FILE_INVALID_VALUE);
	iov[1].len = SIZE_MAX;
	T_ERRNO(cuFileReadv(fh, iov, 3, 0, 0), EINVAL);
}

static CUfileIOParams_t entry(CUfileHandle_t fh, CUfileOpcode_t op, char *p, size_t at,
			      size_t size, size_t n)
{
	return (CUfileIOParams_t){ .mode = CUFILE_BATCH, .fh = fh, .opcode = op,
				   .cookie = (void *)n,
				   .u.batch = { p, (off_t)at, (off_t)at, size } };
}

/* Takes @n events, by twos and threes; how many were of @status. */
static unsigned int take(CUfileBatchHandle_t batch, unsigned int n, CUfileStatus_t status,
			 int number)
{
	unsigned int taken = 0, count = 0;
	CUfileIOEvents_t events[3];

	while (taken < n) {
		unsigned int nr = 3;

		T_CUFILE(cuFileBatchIOGetStatus(batch, 1, &nr, events, NULL), number);
		T_CHECK(nr >= 1 && nr <= 3);
		for (unsigned int i = 0; i < nr; i++)
			count += events[i].status == status;
		taken += nr;
	}
	T_EQ(taken, n);
	return count;
}

static void batches_complete_each_entry(void)
{
	int fd = t_file("f", LEN, 5, O_RDWR | O_DIRECT);
	CUfileHandle_t fh = handle(fd);
	CUfileIOParams_t params[16];
	CUfileIOEvents_t events[16];
	CUfileBatchHandle_t batch;
	char *p = memory(LEN);
	unsigned int nr = 16;

	T_CUFILE(cuFileBatchIOSetUp(&batch, 0), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileBatchIOSetUp(&batch, 129), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileBatchIOSetUp(NULL, 16), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileBatchIOSetUp(&batch, 16), 0);
	for (size_t i = 0; i < 16; i++)
		params[i] = entry(fh, CUFILE_READ, p, i * 65536, 65536, 100 + i);
	T_CUFILE(cuFileBatchIOSubmit(batch, 16, params, 0), 0);
	T_CUFILE(cuFileBatchIOSubmit(batch, 1, params, 0), CU_FILE_BATCH_FULL);
	T_CUFILE(cuFileBatchIOGetStatus(batch, 16, &nr, events, NULL), 0);
	T_EQ(nr, 16);
	for (size_t i = 0, sum = 0; i < 16; i++) {
		T_EQ(events[i].status, CUFILE_COMPLETE);
		T_EQ(events[i].ret, 65536);
		sum += (size_t)events[i].cookie;
		if (i == 15)
			T_EQ(sum, 16 * 100 + 120);
	}
	check(p, LEN, 5, 0);
	/* both ways in one, and its events in pieces */
	for (size_t i = 0; i < 16; i++)
		params[i].opcode = i % 3 ? CUFILE_READ : CUFILE_WRITE;
	T_CUFILE(cuFileBatchIOSubmit(batch, 16, params, 0), 0);
	T_EQ(take(batch, 16, CUFILE_COMPLETE, 0), 16);
	nr = 4; /* nothing is under way: nothing comes */
	T_CUFILE(cuFileBatchIOGetStatus(batch, 4, &nr, events, NULL), 0);
	T_EQ(nr, 0);
	nr = 4;
	T_CUFILE(cuFileBatchIOGetStatus(batch, 5, &nr, events, NULL), CU_FILE_INVALID_VALUE);
	t_file_pattern(fd, 0, LEN, 5, 0);
	cuFileBatchIODestroy(batch);
	T_CUFILE(cuFileBatchIOGetStatus(batch, 1, &nr, events, NULL),
		 CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR);
	T_CUFILE(cuFileBatchIOSubmit(batch, 1, params, 0), CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
	cuFileBatchIODestroy(batch);
}

static void a_batch_begins_whole_or_not_at_all(void)
{
	CUfileHandle_t fh = handle(t_file("f", LEN, 5, O_RDONLY));
	struct phxfs_stats stats = { .size = sizeof(stats) };
	CUfileIOParams_t good, params[8];
	struct timespec now = { 0 };
	CUfileIOEvents_t events[8];
	CUfileBatchHandle_t batch;
	char *p = memory(LEN);

	T_CUFILE(cuFileBatchIOSetUp(&batch, 8), 0);
	good = entry(fh, CUFILE_READ, p, 0, 4096, 1);
	for (int bad = 0; bad < 6; bad++) {
		unsigned int nr = 8;

		for (int i = 0; i < 8; i++)
			params[i] = good;
		switch (bad) {
		case 0: params[5].fh = (void *)0x77; break;
		case 1: params[5].opcode = 7; break;
		case 2: params[5].mode = 0; break;
		case 3: params[5].u.batch.devPtr_base = NULL; break;
		case 4: params[5].u.batch.file_offset = -1; break;
		default: params[5].opcode = CUFILE_WRITE; /* on a reader */
		}
		t_context("bad entry %d", bad);
		T_CUFILE(cuFileBatchIOSubmit(batch, 8, params, 0),
			 CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR);
		T_CUFILE(cuFileBatchIOGetStatus(batch, 0, &nr, events, &now), 0);
		T_EQ(nr, 0);
	}
	T_EQ(phxfs_stats(on_host() ? -1 : 0, &stats), 0);
	T_EQ(stats.read[0].ops + stats.read[2].ops, 0);
	cuFileBatchIODestroy(batch);
}

/* A failed entry says so in its event, and (unless told otherwise) in the call's result. */
static void failed_entries_are_seen(void)
{
	const char *how = getenv("PHX_CUFILE_BATCH_ERRORS");
	CUfileHandle_t fh = handle(t_file("f", LEN, 5, O_RDONLY));
	CUfileIOParams_t params[2];
	CUfileIOEvents_t events[2];
	CUfileBatchHandle_t batch;
	char *p = memory(LEN);
	unsigned int nr = 2;

	T_CUFILE(cuFileBatchIOSetUp(&batch, 2), 0);
	params[0] = entry(fh, CUFILE_READ, p, 0, 4096, 1);
	params[1] = entry(fh, CUFILE_READ, (char *)4096, 0, 4096, 2); /* nobody's memory */
	T_CUFILE(cuFileBatchIOSubmit(batch, 2, params, 0), 0);
	T_CUFILE(cuFileBatchIOGetStatus(batch, 2, &nr, events, NULL), how ? 0 : CU_FILE_IO_ERROR);
	T_EQ(nr, 2);
	for (int i = 0; i < 2; i++) {
		bool bad = (size_t)events[i].cookie == 2;

		T_EQ(events[i].status, bad ? CUFILE_FAILED : CUFILE_COMPLETE);
		T_EQ((ssize_t)events[i].ret, bad ? -EFAULT : 4096);
	}
	cuFileBatchIODestroy(batch);
}

/* Cancelled, destroyed or left: when the call returns nothing moves any more. */
static void batches_can_be_abandoned(void)
{
	CUfileHandle_t fh = handle(t_file("f", LEN, 5, O_RDONLY));
	char *p = memory(LEN), *host = malloc(LEN);
	CUfileIOParams_t params[16];
	CUfileBatchHandle_t batch;

	T_CHECK(host);
	for (int round = 0; round < 20; round++) {
		T_CUFILE(cuFileBatchIOSetUp(&batch, 16), 0);
		for (size_t i = 0; i < 16; i++)
			params[i] = entry(fh, CUFILE_READ, p, i * 65536, 65536, i);
		T_CUFILE(cuFileBatchIOSubmit(batch, 16, params, 0), 0);
		T_CUFILE(cuFileBatchIOCancel(batch), 0);
		if (round % 2) {
			unsigned int good = take(batch, 16, CUFILE_COMPLETE, 0);

			T_CHECK(good <= 16);
		}
		cuFileBatchIODestroy(batch);
		memset(host, T_GUARD, LEN);
		set(p, host, LEN);
		look(host, p, LEN);
		T_ALL(host, LEN, T_GUARD);
	}
	T_CUFILE(cuFileBatchIOCancel(batch), CU_FILE_INTERNAL_BATCH_CANCEL_ERROR);
	free(host);
}

static void parameters_have_limits_and_an_order(void)
{
	size_t value = 0, min, max, kb[16], count[16];
	char text[64];
	bool flag;

	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value), 0);
	T_EQ(value, 128);
	T_CUFILE(cuFileGetParameterMinMaxValue(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &min, &max),
		 0);
	T_EQ(min, 1);
	T_EQ(max, 256);
	T_CUFILE(cuFileGetParameterMinMaxValue(CUFILE_PARAM_PROFILE_STATS, &min, &max),
		 CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 257),
		 CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileSetParameterSizeT(12, 1), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 200), 0);
	T_CUFILE(cuFileSetParameterBool(CUFILE_PARAM_PREFER_IO_URING, false), 0);
	T_CUFILE(cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, "WARN"), 0);
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value), 0);
	T_EQ(value, 200);
	T_CUFILE(cuFileDriverOpen(), 0);
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value), 0);
	T_EQ(value, 200);
	T_CUFILE(cuFileGetParameterBool(CUFILE_PARAM_PREFER_IO_URING, &flag), 0);
	T_CHECK(!flag);
	T_CUFILE(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)), 0);
	T_CHECK(!strcmp(text, "WARN"));
	T_CUFILE(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, 4),
		 CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileSetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, 100),
		 CU_FILE_DRIVER_ALREADY_OPEN);
	T_CUFILE(cuFileSetParameterBool(CUFILE_PARAM_PREFER_IO_URING, true),
		 CU_FILE_DRIVER_ALREADY_OPEN);
	T_CUFILE(cuFileGetParameterPosixPoolSlabArray(kb, count, 16), 0);
	T_EQ(kb[2], 16384);
	T_EQ(count[0], 128);
	T_CUFILE(cuFileGetParameterPosixPoolSlabArray(kb, count, 2), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileDriverSetMaxDirectIOSize(1024), 0);
	T_CUFILE(cuFileDriverSetMaxDirectIOSize(1), CU_FILE_DRIVER_UNSUPPORTED_LIMIT);
	T_CUFILE(cuFileDriverSetMaxCacheSize(65536), 0);
	T_CUFILE(cuFileDriverSetMaxPinnedMemSize(65536), 0);
	T_CUFILE(cuFileDriverSetPollMode(true, 4), 0);
	T_CUFILE(cuFileDriverClose(), 0);
	/* what was staged is used up */
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value), 0);
	T_EQ(value, 128);
}

static void write_text(const char *name, const char *text)
{
	int fd = t_open(name, O_RDWR | O_CREAT | O_TRUNC);

	t_pwrite(fd, text, strlen(text), 0);
	close(fd);
}

/* Comments, keys that nobody knows, and nonsense where numbers should be. */
static void configuration_is_read_leniently(void)
{
	size_t value;
	char text[4096];
	bool flag;

	write_text("cufile.json",
		   "// a comment\n{ \"properties\": { \"io_batchsize\": 64, /* another */\n"
		   "  \"max_direct_io_size_kb\": \"much\", \"per_buffer_cache_size_kb\": 1,\n"
		   "  \"allow_compat_mode\": false, \"nobody_knows\": [1, 2], // more\n"
		   "  \"posix_pool_slab_size_kb\": [ 8 ], \"posix_pool_slab_count\": [ 9 ] },\n"
		   " \"execution\": 7, \"logging\": { \"level\": \"INFO\" },\n"
		   " \"profile\": { \"cufile_stats\": 3 } }\n");
	setenv("CUFILE_ENV_PATH_JSON", t_name("cufile.json"), 1);
	setenv("CUFILE_ALLOW_COMPAT_MODE", "true", 1);
	setenv("CUFILE_LOGFILE_PATH", t_name("log"), 1);
	T_CUFILE(cuFileDriverOpen(), 0);
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value), 0);
	T_EQ(value, 64);
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_MAX_DIRECT_IO_SIZE_KB, &value), 0);
	T_EQ(value, 16384);
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_PER_BUFFER_CACHE_SIZE_KB, &value),
		 0);
	T_EQ(value, 1024);
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, &value), 0);
	T_EQ(value, 4);
	T_CUFILE(cuFileGetParameterBool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE, &flag), 0);
	T_CHECK(flag); /* the environment's word over the file's */
	T_CUFILE(cuFileGetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text, sizeof(text)), 0);
	T_CHECK(!strcmp(text, "INFO"));
	T_EQ(access(t_name("log"), F_OK), 0);
	T_CUFILE(cuFileDriverClose(), 0);
	write_text("cufile.json", "{ \"properties\": { \"io_batchsize\": 64, ");
	T_CUFILE(cuFileDriverOpen(), 0);
	T_CUFILE(cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &value), 0);
	T_EQ(value, 128);
	T_CHECK(access("cufile.log", F_OK) < 0);
}

/* allow_compat_mode=false: what the processor would have to copy is refused. */
static void strict_mode_refuses_copies(void)
{
	CUfileHandle_t fh = handle(t_file("f", LEN, 5, O_RDONLY | O_DIRECT));
	char *p = memory(LEN), host[4096];

	T_ERRNO(cuFileRead(fh, p, 4096, 0, 0), CU_FILE_IO_NOT_SUPPORTED);
	T_EQ(cuFileRead(fh, host, 4096, 0, 0), 4096);
	T_PATTERN(host, 4096, 5, 0);
}

static void statistics_add_up(void)
{
	CUfileHandle_t fh;
	char *p = memory(LEN);
	struct {
		CUfileStatsLevel3_t s;
		char guard[64];
	} out;
	CUfileStatsLevel1_t *basic = &out.s.detailed.basic;
	int level = -1;

	memset(&out, T_GUARD, sizeof(out));
	T_CUFILE(cuFileStatsStart(), CU_FILE_INVALID_VALUE); /* at level 0 */
	T_CUFILE(cuFileGetStatsL1(basic), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileSetStatsLevel(4), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileSetStatsLevel(3), 0);
	T_CUFILE(cuFileGetStatsLevel(&level), 0);
	T_EQ(level, 3);
	T_CUFILE(cuFileStatsStart(), 0);
	fh = handle(t_file("f", LEN, 5, O_RDWR));
	T_CUFILE(cuFileBufRegister(p, LEN, 0), 0);
	T_EQ(cuFileRead(fh, p, LEN, 0, 0), LEN);
	T_EQ(cuFileRead(fh, p, 100, 0, 0), 100);
	T_ERRNO(cuFileRead(fh, p, LEN + 1, 0, 0), CU_FILE_INVALID_MAPPING_RANGE);
	T_EQ(cuFileWrite(fh, p, 5000, 0, 0), 5000);
	T_CUFILE(cuFileGetStatsL3(&out.s), 0);
	T_EQ(basic->read_ops.ok, 2);
	T_EQ(basic->read_ops.err, 1);
	T_EQ(basic->write_ops.ok, 1);
	T_EQ(basic->read_bytes, LEN + 100);
	T_EQ(basic->write_bytes, 5000);
	T_EQ(basic->hdl_register_ops.ok, 1);
	T_EQ(basic->buf_register_ops.ok, 1);
	T_EQ(out.s.detailed.read_size_kb_hist[0], 1);
	T_EQ(out.s.detailed.write_size_kb_hist[1], 1);
	T_CHECK(out.s.num_gpus >= 1);
	if (!on_host()) {
		T_EQ(out.s.per_gpu_stats[0].read_bytes, LEN + 100);
		T_EQ(out.s.per_gpu_stats[0].n_posix_reads, 2);
		T_EQ(out.s.per_gpu_stats[0].reg_bytes, LEN);
	}
	T_ALL(out.guard, sizeof(out.guard), T_GUARD);
	/* no more is written than a level's own size */
	memset(&out, T_GUARD, sizeof(out));
	T_CUFILE(cuFileGetStatsL2(&out.s.detailed), 0);
	T_ALL((char *)&out + 1024, sizeof(out) - 1024, T_GUARD);
	memset(&out, T_GUARD, sizeof(out));
	T_CUFILE(cuFileGetStatsL1(basic), 0);
	T_ALL((char *)&out + 512, sizeof(out) - 512, T_GUARD);
	T_CUFILE(cuFileStatsReset(), 0);
	T_CUFILE(cuFileGetStatsL1(basic), 0);
	T_EQ(basic->read_ops.ok, 0);
	T_CUFILE(cuFileStatsStop(), 0);
}

/* The version decides the layout. */
static void newer_versions_have_longer_statistics(void)
{
	char out[6000];
	uint32_t gpus;
	int version;

	T_CUFILE(cuFileGetVersion(&version), 0);
	T_EQ(version, 1190);
	T_CUFILE(cuFileSetStatsLevel(3), 0);
	memset(out, T_GUARD, sizeof(out));
	T_CUFILE(cuFileGetStatsL3((CUfileStatsLevel3_t *)out), 0);
	T_ALL(out + 5112, sizeof(out) - 5112, T_GUARD);
	T_CHECK(out[5111] != (char)T_GUARD);
	memcpy(&gpus, out + 1136, sizeof(gpus));
	T_EQ(gpus, 1);
}

static void odds_and_ends(void)
{
	CUfileP2PFlags_t flags = 0;
	size_t bar = 7;
	char text[512];
	ssize_t n;
	int fd;

	T_CUFILE(cuFileGetBARSizeInKB(0, &bar), 0);
	T_EQ(bar, 0);
	T_CUFILE(cuFileGetBARSizeInKB(99, &bar), CU_FILE_DEVICE_NOT_FOUND);
	T_CUFILE(cuFileGetBARSizeInKB(0, NULL), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileDriverSetP2PFlags(CU_FILE_NVME_SUPPORTED, 1 << CUFILE_P2PDMA), 0);
	T_CUFILE(cuFileDriverGetP2PFlags(CU_FILE_NVME_SUPPORTED, &flags), 0);
	T_EQ(flags, 1);
	T_CUFILE(cuFileDriverSetP2PFlags(99, 1), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileDriverSetP2PFlags(CU_FILE_NVME_SUPPORTED, 64), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileExportPCIeTopology(NULL), CU_FILE_INVALID_VALUE);
	T_CHECK(cuFileExportPCIeTopology("/nonexistent/x").err != 0);
	T_CUFILE(cuFileExportPCIeTopology(t_name("topology")), 0);
	fd = t_open("topology", O_RDONLY);
	n = read(fd, text, sizeof(text) - 1);
	T_CHECK(n > 0);
	text[n] = 0;
	T_CHECK(strstr(text, "\"gpus\""));
}

/* HOST devices have no streams: a transfer's turn is at once. */
static void streams_without_a_runtime(void)
{
	CUfileHandle_t fh = handle(t_file("f", LEN, 5, O_RDWR));
	CUfileHandle_t reader = handle(t_open("f", O_RDONLY));
	off_t at = 11, from = 3;
	char *p = memory(LEN);
	size_t size = 5000;
	ssize_t done = 0;

	T_CUFILE(cuFileStreamRegister(NULL, 16), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileStreamRegister(NULL, 7), 0);
	T_CUFILE(cuFileStreamRegister(NULL, 7), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileReadAsync(fh, p, &size, &at, &from, &done, NULL), 0);
	T_EQ(done, 5000);
	check(p + 3, 5000, 5, 11);
	T_CUFILE(cuFileWriteAsync(fh, p, &size, &at, &from, &done, NULL), 0);
	T_EQ(done, 5000);
	at = LEN - 5;
	T_CUFILE(cuFileReadAsync(fh, p, &size, &at, &from, &done, NULL), 0);
	T_EQ(done, 5);
	at = -1;
	T_CUFILE(cuFileReadAsync(fh, p, &size, &at, &from, &done, NULL), 0);
	T_EQ(done, -CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileWriteAsync(reader, p, &size, &at, &from, &done, NULL),
		 CU_FILE_INVALID_FILE_OPEN_FLAG);
	T_CUFILE(cuFileReadAsync(NULL, p, &size, &at, &from, &done, NULL), CU_FILE_INVALID_VALUE);
	T_CUFILE(cuFileReadAsync(fh, p, &size, &at, &from, NULL, NULL), CU_FILE_INVALID_VALUE);
	cuFileHandleDeregister(fh);
	T_CUFILE(cuFileReadAsync(fh, p, &size, &at, &from, &done, NULL),
		 CU_FILE_HANDLE_NOT_REGISTERED);
	T_CUFILE(cuFileStreamDeregister(NULL), 0);
	T_CUFILE(cuFileStreamDeregister(NULL), CU_FILE_INVALID_VALUE);
}

struct thread {
	CUfileHandle_t fh;
	char *p;
	int index;
};

static long use(void *arg)
{
	struct thread *t = arg;
	char *p = t->p + (size_t)t->index * 65536;

	for (int i = 0; i < 100; i++) {
		CUfileBatchHandle_t batch;
		CUfileIOParams_t params = entry(t->fh, CUFILE_READ, p, 0, 4096, 1);
		CUfileHandle_t mine = handle(dup(t_open("f", O_RDONLY)));
		CUfileIOEvents_t event;
		unsigned int nr = 1;

		T_CUFILE(cuFileBufRegister(p, 65536, 0), 0);
		T_EQ(cuFileRead(mine, p, 65536, 0, 0), 65536);
		T_EQ(cuFileRead(t->fh, p, 65536, 0, 0), 65536);
		T_CUFILE(cuFileBatchIOSetUp(&batch, 1), 0);
		T_CUFILE(cuFileBatchIOSubmit(batch, 1, &params, 0), 0);
		T_CUFILE(cuFileBatchIOGetStatus(batch, 1, &nr, &event, NULL), 0);
		cuFileBatchIODestroy(batch);
		T_CUFILE(cuFileBufDeregister(p), 0);
		cuFileHandleDeregister(mine);
	}
	return 0;
}

static void threads_do_not_disturb_each_other(void)
{
	CUfileHandle_t fh = handle(t_file("f", LEN, 5, O_RDONLY));
	struct t_call calls[4] = { 0 };
	struct thread threads[4];
	char *p = memory(LEN);

	for (int i = 0; i < 4; i++) {
		threads[i] = (struct thread){ fh, p, i };
		t_call(&calls[i], use, &threads[i]);
	}
	for (int i = 0; i < 4; i++)
		t_join(&calls[i]);
	for (int i = 0; i < 4; i++)
		check(p + i * 65536, 65536, 5, 0);
}

#define BOTH(fn) T_CASE(fn), T_CASE(fn, .env = FAKE)

static const struct t_case cases[] = {
	BOTH(the_driver_is_counted_and_opens_itself),
	T_CASE(files_are_checked),
	BOTH(bytes_are_exact_registered_or_not),
	BOTH(errors_are_minus_1_and_errno),
	BOTH(buffers_are_registered_once),
	T_CASE(registrations_serve_inner_pointers, .env = FAKE),
	BOTH(vectors_are_one_transfer),
	BOTH(batches_complete_each_entry),
	BOTH(a_batch_begins_whole_or_not_at_all),
	BOTH(failed_entries_are_seen),
	T_CASE(failed_entries_are_seen, .env = "PHX_CUFILE_BATCH_ERRORS=event"),
	BOTH(batches_can_be_abandoned),
	T_CASE(parameters_have_limits_and_an_order),
	T_CASE(configuration_is_read_leniently),
	T_CASE(strict_mode_refuses_copies, .env = FAKE " CUFILE_ALLOW_COMPAT_MODE=0"),
	BOTH(statistics_add_up),
	T_CASE(newer_versions_have_longer_statistics, .env = "PHX_CUFILE_VERSION=1190"),
	T_CASE(odds_and_ends),
	T_CASE(streams_without_a_runtime),
	BOTH(threads_do_not_disturb_each_other),
};

T_MAIN(cases)
