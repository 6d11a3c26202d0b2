/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_fault.h - the n-th call of a kind fails
 *
 * The test program is linked with the library's objects and with the linker's
 * --wrap for every call below (T_FAULT_WRAPS in CMakeLists.txt), so that each
 * call the library makes passes through here, and no other's does.
 */
#ifndef T_FAULT_H
#define T_FAULT_H

#include <stdbool.h>

enum t_fault {
	T_FAULT_MEMORY,        /* malloc, calloc, realloc: ENOMEM */
	T_FAULT_MMAP,          /* ENOMEM */
	T_FAULT_THREAD,        /* pthread_create: EAGAIN */
	T_FAULT_EVENTFD,       /* EMFILE */
	T_FAULT_OPEN,          /* open, openat, opendir, memfd_create: EMFILE */
	T_FAULT_TRUNCATE,      /* ftruncate: ENOSPC */
	T_FAULT_STAT,          /* fstat, fstatfs: EIO */
	T_FAULT_VM,            /* process_vm_readv, process_vm_writev: EPERM */
	T_FAULT_RING,          /* io_uring_queue_init_params: -ENOMEM */
	T_FAULT_RING_EVENTFD,  /* io_uring_register_eventfd: -EBUSY */
	T_FAULT_SUBMIT,        /* io_uring_submit: -EAGAIN */
	T_FAULT_WAIT,          /* io_uring_submit_and_wait: -EINTR */
	T_FAULT_READ_EIO,      /* pread, preadv */
	T_FAULT_READ_SHORT,
	T_FAULT_READ_EINTR,
	T_FAULT_READ_EAGAIN,
	T_FAULT_WRITE_ENOSPC,  /* pwrite, pwritev */
	T_FAULT_WRITE_SHORT,
	T_FAULT_WRITE_EINTR,
	T_FAULT_WRITE_EAGAIN,
	T_FAULT_CQE_EIO,       /* completions of io_uring */
	T_FAULT_CQE_SHORT,
	T_FAULT_CQE_EINTR,
	T_FAULT_CQE_EAGAIN,
	T_FAULTS,
};

extern const char *const t_fault_names[T_FAULTS];

/* Faults that the library must make nothing of. */
bool t_fault_is_mended(enum t_fault kind);

/* From now on the calls number nth .. nth + count - 1 of this kind fail. */
void t_fault_arm(enum t_fault kind, long nth, long count);
/* This thread's calls are the test's own, until told otherwise. */
void t_fault_spare(bool spare);
/* How many failed. */
long t_fault_disarm(void);

#endif
