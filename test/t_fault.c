// SPDX-License-Identifier: Apache-2.0
#include "t_fault.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io_engine.h"

const char *const t_fault_names[T_FAULTS] = {
	"memory", "mmap", "thread", "eventfd", "open", "truncate", "stat", "vm", "ring",
	"ring-eventfd", "submit", "wait", "read-eio", "read-short", "read-eintr", "read-eagain",
	"write-enospc", "write-short", "write-eintr", "write-eagain", "cqe-eio", "cqe-short",
	"cqe-eintr", "cqe-eagain",
};

static atomic_int armed = -1;
static _Thread_local bool spared;
static atomic_long calls, hits, first, last;

bool t_fault_is_mended(enum t_fault kind)
{
	switch (kind) {
	case T_FAULT_SUBMIT:
	case T_FAULT_WAIT:
	case T_FAULT_READ_SHORT:
	case T_FAULT_READ_EINTR:
	case T_FAULT_READ_EAGAIN:
	case T_FAULT_WRITE_SHORT:
	case T_FAULT_WRITE_EINTR:
	case T_FAULT_WRITE_EAGAIN:
	case T_FAULT_CQE_SHORT:
	case T_FAULT_CQE_EINTR:
	case T_FAULT_CQE_EAGAIN:
	case T_FAULT_RING:
		return true;
	default:
		return false;
	}
}

static bool strikes(enum t_fault kind)
{
	long n;

	if (spared || atomic_load(&armed) != (int)kind)
		return false;
	n = atomic_fetch_add(&calls, 1) + 1;
	if (n < atomic_load(&first) || n > atomic_load(&last))
		return false;
	atomic_fetch_add(&hits, 1);
	return true;
}

/* Whole blocks, as storage is short by. */
static size_t shorter(size_t n)
{
	size_t half = n / 2 & ~(size_t)511;

	return half ? half : n;
}

static int completion(const struct phx_io *io, int result)
{
	if (strikes(T_FAULT_CQE_EIO))
		return -EIO;
	if (strikes(T_FAULT_CQE_EINTR))
		return -EINTR;
	if (strikes(T_FAULT_CQE_EAGAIN))
		return -EAGAIN;
	if (result > 1023 && strikes(T_FAULT_CQE_SHORT))
		return (int)shorter((size_t)result);
	return result;
}

void t_fault_arm(enum t_fault kind, long nth, long count)
{
	phx_test_completion = completion;
	atomic_store(&calls, 0);
	atomic_store(&hits, 0);
	atomic_store(&first, nth);
	atomic_store(&last, nth + count - 1);
	atomic_store(&armed, (int)kind);
}

void t_fault_spare(bool spare)
{
	spared = spare;
}

long t_fault_disarm(void)
{
	atomic_store(&armed, -1);
	return atomic_load(&hits);
}

#define WRAP(type, name, parameters, arguments, kind, fail) \
	type __real_##name parameters; \
	type __wrap_##name parameters; \
	type __wrap_##name parameters \
	{ \
		if (strikes(kind)) { \
			fail; \
		} \
		return __real_##name arguments; \
	}

#define SET(value, result) \
	errno = value; \
	return result

WRAP(void *, malloc, (size_t n), (n), T_FAULT_MEMORY, SET(ENOMEM, NULL))
WRAP(void *, calloc, (size_t n, size_t size), (n, size), T_FAULT_MEMORY, SET(ENOMEM, NULL))
WRAP(void *, realloc, (void *p, size_t n), (p, n), T_FAULT_MEMORY, SET(ENOMEM, NULL))
WRAP(void *, mmap64, (void *p, size_t n, int prot, int flags, int fd, off64_t off),
     (p, n, prot, flags, fd, off), T_FAULT_MMAP, SET(ENOMEM, MAP_FAILED))
WRAP(int, pthread_create,
     (pthread_t * t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg),
     (t, attr, fn, arg), T_FAULT_THREAD, return EAGAIN)
WRAP(int, eventfd, (unsigned int n, int flags), (n, flags), T_FAULT_EVENTFD, SET(EMFILE, -1))
WRAP(int, memfd_create, (const char *name, unsigned int flags), (name, flags), T_FAULT_OPEN,
     SET(EMFILE, -1))
WRAP(DIR *, opendir, (const char *name), (name), T_FAULT_OPEN, SET(EMFILE, NULL))
WRAP(int, ftruncate64, (int fd, off64_t n), (fd, n), T_FAULT_TRUNCATE, SET(ENOSPC, -1))
WRAP(int, fstat64, (int fd, struct stat64 *st), (fd, st), T_FAULT_STAT, SET(EIO, -1))
WRAP(int, fstatfs64, (int fd, struct statfs64 *st), (fd, st), T_FAULT_STAT, SET(EIO, -1))
WRAP(ssize_t, process_vm_readv,
     (pid_t pid, const struct iovec *l, unsigned long nl, const struct iovec *r, unsigned long nr,
      unsigned long flags),
     (pid, l, nl, r, nr, flags), T_FAULT_VM, SET(EPERM, -1))
WRAP(ssize_t, process_vm_writev,
     (pid_t pid, const struct iovec *l, unsigned long nl, const struct iovec *r, unsigned long nr,
      unsigned long flags),
     (pid, l, nl, r, nr, flags), T_FAULT_VM, SET(EPERM, -1))
WRAP(int, io_uring_queue_init_params,
     (unsigned int n, struct io_uring *ring, struct io_uring_params *p), (n, ring, p), T_FAULT_RING,
     return -ENOMEM)
WRAP(int, io_uring_register_eventfd, (struct io_uring * ring, int fd), (ring, fd),
     T_FAULT_RING_EVENTFD, return -EBUSY)
WRAP(int, io_uring_submit, (struct io_uring * ring), (ring), T_FAULT_SUBMIT, return -EAGAIN)
WRAP(int, io_uring_submit_and_wait, (struct io_uring * ring, unsigned int n), (ring, n),
     T_FAULT_WAIT, return -EINTR)

int __real_open64(const char *name, int flags, mode_t mode);
int __wrap_open64(const char *name, int flags, mode_t mode);
int __wrap_open64(const char *name, int flags, mode_t mode)
{
	if (strikes(T_FAULT_OPEN)) {
		SET(EMFILE, -1);
	}
	return __real_open64(name, flags, mode);
}

int __real_openat64(int dir, const char *name, int flags, mode_t mode);
int __wrap_openat64(int dir, const char *name, int flags, mode_t mode);
int __wrap_openat64(int dir, const char *name, int flags, mode_t mode)
{
	if (strikes(T_FAULT_OPEN)) {
		SET(EMFILE, -1);
	}
	return __real_openat64(dir, name, flags, mode);
}

/* What strikes reads (base T_FAULT_READ_EIO) and writes (T_FAULT_WRITE_ENOSPC) alike. */
static int data_error(enum t_fault base)
{
	if (strikes(base))
		return base == T_FAULT_READ_EIO ? EIO : ENOSPC;
	if (strikes(base + 2))
		return EINTR;
	return strikes(base + 3) ? EAGAIN : 0;
}

#define WRAP_DATA(name, buffer, base) \
	ssize_t __real_##name(int fd, buffer p, size_t n, off64_t off); \
	ssize_t __wrap_##name(int fd, buffer p, size_t n, off64_t off); \
	ssize_t __wrap_##name(int fd, buffer p, size_t n, off64_t off) \
	{ \
		int err = data_error(base); \
		if (err) { \
			SET(err, -1); \
		} \
		if (n > 1023 && strikes((base) + 1)) \
			n = shorter(n); \
		return __real_##name(fd, p, n, off); \
	}

WRAP_DATA(pread64, void *, T_FAULT_READ_EIO)
WRAP_DATA(pwrite64, const void *, T_FAULT_WRITE_ENOSPC)

/* Short: the first buffer only. */
#define WRAP_VECTOR(name, base) \
	ssize_t __real_##name(int fd, const struct iovec *iov, int n, off64_t off); \
	ssize_t __wrap_##name(int fd, const struct iovec *iov, int n, off64_t off); \
	ssize_t __wrap_##name(int fd, const struct iovec *iov, int n, off64_t off) \
	{ \
		int err = data_error(base); \
		if (err) { \
			SET(err, -1); \
		} \
		if (n > 1 && strikes((base) + 1)) \
			n = 1; \
		return __real_##name(fd, iov, n, off); \
	}

WRAP_VECTOR(preadv64, T_FAULT_READ_EIO)
WRAP_VECTOR(pwritev64, T_FAULT_WRITE_ENOSPC)
