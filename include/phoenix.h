/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: phoenix.h
 *
 * libphoenix moves data straight between files and accelerator memory.
 *
 * The life of a transfer: open a device, register a buffer on it, transfer,
 * deregister, close. A buffer is always named by its device address, the one
 * that the vendor's allocator (or phxfs_mem_alloc()) returned.
 *
 * Results. Every call returns 0 or a negative errno value; a transfer returns
 * the bytes moved or a negative errno value; what errno holds after a call
 * means nothing unless the call says so. After a failure phxfs_last_error()
 * tells this thread the step, the object, the errno name and a cure. The
 * library never prints, exits or aborts.
 *
 * Exactness. A transfer yields what a loop of pread(2) or pwrite(2) on a
 * buffered descriptor of the same file would: the same bytes, the same count
 * and the same errno, for any size, offset and alignment, on every path. A
 * read that meets the end of the file returns the bytes before it. A transfer
 * that fails after some bytes returns the count of the bytes before the
 * failure (of a write through chunks, or in a batch, some bytes behind them
 * may have been written too). Bytes outside the request are never touched. (One liberty is the
 * kernel's: where an aligned read on an O_DIRECT descriptor passes the end of
 * the file, it may clear the rest of the request's bytes, behind the count.)
 *
 * Numbers. device_id is the N of /dev/phxfs_devN where the kernel module is
 * loaded, else the index in PCI bus order over the accelerators found; with
 * none (or with PHX_CONNECTOR=host) there are HOST devices, whose memory is
 * ordinary memory of this process. In transfers a negative device_id says
 * that the buffer is a plain host address.
 *
 * Threads. Every call may be made from any thread at any time unless its
 * description says otherwise.
 *
 * fork. A child starts with working locks, its own (empty) worker pool and
 * the registrations of HOST devices; those of other devices are the parent's
 * alone and give -EFAULT in the child, queues and batches of the parent give
 * -ECHILD.
 *
 * Environment (effective values: phxfs_config_each(), `phx check`):
 *
 *   PHX_PATH=auto|direct|staging|bounce  force a path; direct never falls back
 *   PHX_STAGING_SIZE_MB=256              chunk pool of each device, MiB
 *   PHX_IO_ENGINE=auto|io_uring|sync     (also PHXFS_IO_ENGINE)
 *   PHX_IO_WORKERS=0                     worker threads; 0: one per processor,
 *                                        at least 2 and at most 16
 *   PHX_POLL_KB=0                        look for the end of phxfs_read() and
 *                                        phxfs_write() of up to that many KiB, with
 *                                        O_DIRECT, instead of sleeping: sooner, for
 *                                        a processor's whole time
 *   PHX_CONNECTOR=auto|nvidia|metax|amd|huawei|sim|host
 *   PHX_HOST_DEVICES=1                   number of HOST devices
 *   PHX_STATS=on|off                     live counters for `phx stat`
 *   PHX_NVTX=0|1                         ranges for NVIDIA's profilers
 *   PHX_LOG=off|error|warn|info|debug    send the log to standard error
 */
#ifndef PHOENIX_H
#define PHOENIX_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define PHXFS_VERSION_MAJOR 0
#define PHXFS_VERSION_MINOR 1
#define PHXFS_VERSION_PATCH 0

/* Registrations start and end on multiples of this (a device page, bytes). */
#define PHXFS_DEVICE_PAGE 65536UL
/* The most bytes one system call is asked to move; larger requests are cut. */
#define PHXFS_IO_CHUNK (1UL << 30)
/* Asynchronous batches that may be waiting or running at once. */
#define PHXFS_BATCH_FIFO 16
/* In place of a device number: whoever's memory the buffer is (phxfs_read()). */
#define PHXFS_DEVICE_ANY (-2147483647 - 1)

#define PHXFS_MUST_CHECK __attribute__((warn_unused_result))

/* How a device's memory is reached. Values 0 and 1 are the module's map_mode. */
enum phxfs_mode {
	PHXFS_MODE_FULL = 0,    /* the whole BAR is mapped: storage DMAs into the buffer */
	PHXFS_MODE_STAGING = 1, /* storage DMAs into a pool on the device, the device copies on */
	PHXFS_MODE_BOUNCE = 2,  /* no module: pinned host chunks, the device copies */
	PHXFS_MODE_HOST = 3,    /* no accelerator: device memory is host memory */
};

/* The way a transfer takes. Also the index of the per-path counters. */
enum phxfs_path {
	PHXFS_PATH_DIRECT = 0,  /* file <-> buffer, no copy by this library */
	PHXFS_PATH_STAGING = 1, /* through chunks of the device's staging pool */
	PHXFS_PATH_BOUNCE = 2,  /* through chunks in host memory */
	PHXFS_PATH_EDGE = 3,    /* counters only: unaligned edges of a direct transfer */
	PHXFS_PATHS = 4,
};

/* Why a transfer takes the path it takes. */
enum phxfs_reason {
	PHXFS_REASON_NONE = 0,        /* the best path there is */
	PHXFS_REASON_FORCED = 1,      /* PHX_PATH asked for it */
	PHXFS_REASON_EDGES = 2,       /* O_DIRECT, unaligned: the edges go through a chunk */
	PHXFS_REASON_INCONGRUENT = 3, /* O_DIRECT, buffer and file offset differ modulo the block */
	PHXFS_REASON_BUFFERED_FD = 4, /* no O_DIRECT: the page cache is copied by the engine */
	PHXFS_REASON_STAGING_MODE = 5,/* the module maps only the staging pool */
	PHXFS_REASON_NO_MODULE = 6,   /* phxfs.ko is not loaded, or does not serve this device */
	PHXFS_REASON_UNREGISTERED = 7,/* device memory in no registration (PHXFS_DEVICE_ANY) */
};

/* ------------------------------------------------------------ the library */

/**
 * phxfs_version - version of the library in use
 *
 * Return: a constant string, "MAJOR.MINOR.PATCH".
 */
const char *phxfs_version(void);

/**
 * phxfs_last_error - why the last failed call of this thread failed
 *
 * The text has the form "STEP: OBJECT: ERRNO-NAME (what it means): CURE". It
 * describes the last call of the calling thread that returned a negative
 * value; a successful call leaves it as it is. For a batch or a queue the
 * text of a failed request is that of phxfs_batch_wait() or
 * phxfs_queue_wait() returning it.
 *
 * Return: a string, never NULL, "" when nothing has failed. It belongs to the
 * library and is valid until the thread's next failing call.
 */
const char *phxfs_last_error(void);

enum phxfs_log_level {
	PHXFS_LOG_OFF = 0,
	PHXFS_LOG_ERROR = 1,
	PHXFS_LOG_WARN = 2, /* once for each cause, e.g. a fallback of the engine */
	PHXFS_LOG_INFO = 3,
	PHXFS_LOG_DEBUG = 4,
};

typedef void (*phxfs_log_fn)(void *arg, int level, const char *message);

/**
 * phxfs_set_log - receive the library's log
 * @fn: called with one line, without newline, for each message; NULL: none
 * @arg: passed to @fn
 * @level: the highest enum phxfs_log_level wanted
 *
 * Without this call the log is discarded, unless PHX_LOG asks for it on
 * standard error. @fn may be called from any thread, also from several at
 * once, and must not call this library. A message that was on its way may
 * still reach the function that was replaced: keep its @arg.
 *
 * Return: 0, or -EINVAL for an unknown level.
 */
int phxfs_set_log(phxfs_log_fn fn, void *arg, int level);

struct phxfs_setting {
	const char *name;   /* the environment variable */
	const char *value;  /* the value in force */
	const char *source; /* "default", "environment", or "environment, invalid: default used" */
	const char *help;   /* what it does, with range or choices */
};

/**
 * phxfs_config_each - visit every setting in force
 * @fn: called for each setting; a non-zero return ends the walk
 * @arg: passed to @fn
 *
 * The strings are valid during the call of @fn.
 *
 * Return: 0, or what @fn returned.
 */
int phxfs_config_each(int (*fn)(void *arg, const struct phxfs_setting *setting), void *arg);

/**
 * phxfs_io_engine_name - the I/O engine in use
 *
 * Return: "io_uring", or "sync" where it was asked for or io_uring cannot be
 * had (forbidden by seccomp or sysctl, or too old).
 */
const char *phxfs_io_engine_name(void);

/* ---------------------------------------------------------------- devices */

/**
 * phxfs_device_count - how many devices there are
 *
 * Return: their number, at least 0; device ids are 0 .. count-1 unless
 * /dev/phxfs_devN skips numbers, when phxfs_device_mode() says -ENODEV.
 */
int phxfs_device_count(void);

/**
 * phxfs_device_mode - how a device's memory is reached
 * @device_id: the device
 *
 * Return: an enum phxfs_mode, or -ENODEV.
 */
int phxfs_device_mode(int device_id);

/**
 * phxfs_get_map_mode - the mode of the loaded kernel module
 *
 * Return: PHXFS_MODE_FULL or PHXFS_MODE_STAGING; without the module
 * PHXFS_MODE_BOUNCE where there is an accelerator, else PHXFS_MODE_HOST.
 */
int phxfs_get_map_mode(void);

/**
 * phxfs_find_device - device id of a vendor's n-th device
 * @vendor: "nvidia", "metax", "amd", "huawei", "sim" or "host"
 * @ordinal: the number the vendor's runtime uses in this process
 *
 * Return: a device id; -EINVAL for a NULL vendor or a negative ordinal,
 * -ENODEV when there is no such device.
 */
int phxfs_find_device(const char *vendor, int ordinal);

/**
 * phxfs_find_device_bdf - device id of a PCI address
 * @bdf: "0000:3b:00.0"; the domain may be left out; case does not matter
 *
 * Return: a device id; -EINVAL when @bdf is NULL or not a PCI address,
 * -ENODEV when no device has it.
 */
int phxfs_find_device_bdf(const char *bdf);

/**
 * phxfs_pointer_device - whose memory an address is
 * @addr: any address
 *
 * Return: a device id; -ENOENT: plain host memory (on HOST devices: memory
 * that neither phxfs_mem_alloc() made nor a live registration covers).
 */
int phxfs_pointer_device(const void *addr);

struct phxfs_pointer_info {
	uint32_t size;       /* IN: sizeof(struct phxfs_pointer_info) */
	int32_t device;      /* device id */
	uint64_t base;       /* the allocation that the address lies in */
	uint64_t length;     /* of the allocation, bytes */
	uint64_t buffer_id;  /* differs when the address is allocated anew; 0: not known */
};

/**
 * phxfs_pointer_info - the allocation that an address lies in
 * @addr: any address
 * @len: bytes that are of interest: neighbours up to @addr + @len, mapped side
 *	by side, count as one allocation
 * @info: OUT; its size field must be set; no more than that is written
 *
 * Return: 0; -ENOENT: plain host memory (on HOST devices: memory that
 * phxfs_mem_alloc() did not make); -EINVAL: @info is NULL or its size too small.
 */
int phxfs_pointer_info(const void *addr, size_t len, struct phxfs_pointer_info *info);

/**
 * phxfs_export_dmabuf - a dma-buf of device memory, for RDMA devices
 * @device_id: whose memory it is
 * @addr: device memory
 * @len: bytes
 * @fd: OUT: close() it; who has imported it keeps the memory
 * @offset: OUT: where @addr lies in the dma-buf
 *
 * Return: 0; -EOPNOTSUPP: the device's runtime exports none; -ENODEV; -EINVAL: NULL,
 * or not memory that the runtime exports; or the runtime's own error.
 */
int phxfs_export_dmabuf(int device_id, const void *addr, size_t len, int *fd, uint64_t *offset);

struct phxfs_device_info {
	uint32_t size;          /* IN: sizeof(struct phxfs_device_info) */
	int32_t mode;           /* enum phxfs_mode */
	uint64_t page_size;     /* device page, bytes */
	uint64_t memory_bytes;  /* device memory; 0: not known */
	uint64_t staging_bytes; /* size of the chunk pool */
	int32_t clients;        /* phxfs_open() calls not yet closed */
	int32_t ordinal;        /* number in the vendor's runtime */
	char vendor[16];        /* connector: "nvidia", ..., "host" */
	char name[64];          /* product name */
	char bdf[16];           /* "0000:3b:00.0"; "" for HOST */
	char reason[160];       /* why this mode and not a better one; "" when best */
};

/**
 * phxfs_device_info - describe a device
 * @device_id: the device
 * @info: OUT; its size field must be set; no more than that is written
 *
 * Return: 0, -ENODEV, or -EINVAL when @info is NULL or its size too small.
 */
int phxfs_device_info(int device_id, struct phxfs_device_info *info);

struct phxfs_connector_info {
	uint32_t size;    /* IN: sizeof(struct phxfs_connector_info) */
	int32_t status;   /* 0: usable; -errno: why not */
	int32_t devices;  /* devices it brings */
	char name[16];
	char text[160];   /* the runtime found, or what is missing and the cure */
};

/**
 * phxfs_connector_info - describe a vendor connector built into the library
 * @index: 0 .. until -ENOENT
 * @info: OUT; its size field must be set
 *
 * Return: 0, -ENOENT past the last connector, -EINVAL as phxfs_device_info().
 */
int phxfs_connector_info(int index, struct phxfs_connector_info *info);

/**
 * phxfs_open - open a device
 * @device_id: the device
 *
 * Opens are counted: each later open of the same device only adds a client.
 *
 * Return: 0; -ENODEV: no such device; -EBUSY: its last close is still
 * draining, try again; -EACCES or another errno of opening the device node;
 * -EPROTO, -ESTALE: the kernel module was replaced since this process began.
 */
int phxfs_open(int device_id);

/**
 * phxfs_close - drop one client of a device
 * @device_id: the device
 *
 * The last close waits for transfers in flight to finish, removes every
 * registration and closes the device.
 *
 * Return: 0; -ENODEV: no such device, or it is not open; -EBUSY: another
 * thread's last close is draining.
 */
int phxfs_close(int device_id);

/* ----------------------------------------------------------------- memory */

/**
 * phxfs_regmem - register a buffer
 * @device_id: an open device
 * @addr: device address, a multiple of 64 KiB
 * @len: bytes, a non-zero multiple of 64 KiB
 * @target_addr: OUT: the host mapping (FULL), @addr itself (HOST), or an
 *	address range that faults when used (STAGING, BOUNCE). For reference
 *	only: transfers name the buffer by @addr. May be NULL.
 *
 * The same range registered again is counted and needs as many
 * deregistrations. A range that is being deregistered is waited for.
 *
 * Return: 0; -EINVAL: NULL, zero, misaligned or wrapping range, or one that
 * overlaps another live registration; -ENODEV: no such device or not open;
 * -EFAULT: the range is not (wholly) memory of this device; -ENOMEM; or the
 * errno of the kernel module.
 */
PHXFS_MUST_CHECK
int phxfs_regmem(int device_id, const void *addr, size_t len, void **target_addr);

/**
 * phxfs_deregmem - drop one reference of a registration
 * @device_id: the device
 * @addr: as registered
 * @len: as registered
 *
 * The last reference makes new transfers fail with -EFAULT, waits for those on
 * the buffer to finish and then removes the mapping; when it returns, nothing
 * moves into or out of the buffer any more.
 *
 * Return: 0; -ENODEV: no such device or not open; -EINVAL: no live
 * registration has exactly this range.
 */
int phxfs_deregmem(int device_id, const void *addr, size_t len);

/**
 * phxfs_mem_alloc - allocate device memory
 * @device_id: the device (it need not be open)
 * @len: bytes; rounded up to a multiple of 64 KiB
 * @addr: OUT: device address, a multiple of 64 KiB; untouched on failure
 *
 * Return: 0; -ENODEV; -EINVAL: @len is 0 or @addr NULL; -ENOMEM.
 */
PHXFS_MUST_CHECK
int phxfs_mem_alloc(int device_id, size_t len, void **addr);

/**
 * phxfs_mem_free - free memory of phxfs_mem_alloc()
 * @device_id: the device
 * @addr: what phxfs_mem_alloc() returned; NULL does nothing
 *
 * Return: 0; -ENODEV; -EINVAL: not the start of an allocation of this device;
 * -EBUSY: a registration still lies in it.
 */
int phxfs_mem_free(int device_id, void *addr);

/**
 * phxfs_memcpy_to - copy host memory to device memory
 * @device_id: the device
 * @dev_dst: device address
 * @host_src: host address
 * @n: bytes
 *
 * Returns when the copy is done. The ranges must not overlap.
 *
 * Return: 0; -ENODEV; -EINVAL: a NULL address; or the runtime's error.
 */
int phxfs_memcpy_to(int device_id, void *dev_dst, const void *host_src, size_t n);

/**
 * phxfs_memcpy_from - copy device memory to host memory
 * @device_id: the device
 * @host_dst: host address
 * @dev_src: device address
 * @n: bytes
 *
 * Return: as phxfs_memcpy_to().
 */
int phxfs_memcpy_from(int device_id, void *host_dst, const void *dev_src, size_t n);

/* -------------------------------------------------------- single transfers */

/**
 * phxfs_read - read from a file into a registered buffer
 * @fd: open for reading; O_DIRECT recommended
 * @device_id: >= 0: @buf lies in a registration on that device;
 *	PHXFS_DEVICE_ANY: the library finds out whose memory it is, and memory
 *	in no registration goes through chunks; else < 0: @buf is a plain host
 *	address
 * @buf: device address inside the registration, not necessarily its start
 * @buf_offset: bytes added to @buf, not negative
 * @nbyte: bytes to read
 * @f_offset: file offset, bytes; the descriptor's own offset is not used
 *
 * The registration is held for the transfer's duration; memory that is not
 * registered must stay allocated. Requests beyond PHXFS_IO_CHUNK are cut and
 * continued. EINTR and EAGAIN are retried.
 *
 * Return: bytes read, fewer than @nbyte only at the end of the file or before
 * an error; -EFAULT: the range is not wholly inside one registration of the
 * device (PHXFS_DEVICE_ANY: one allocation); -EINVAL: negative or wrapping
 * size or offset; -EOPNOTSUPP: PHX_PATH=direct and this request cannot go
 * direct; or the errno that pread(2) gives.
 *
 * Where an O_DIRECT descriptor cannot serve a request (an unaligned edge of a
 * write, a file system that is O_DIRECT in name only), the file is opened once
 * more, buffered, and closed again. By the rules of POSIX that close drops the
 * fcntl(2) record locks that this process holds on the file; locks of open
 * file descriptions (F_OFD_SETLK) and flock(2) stay.
 */
PHXFS_MUST_CHECK
ssize_t phxfs_read(int fd, int device_id, void *buf, off_t buf_offset, ssize_t nbyte,
		   off_t f_offset);

/**
 * phxfs_write - write a registered buffer to a file
 * @fd: open for writing
 * @device_id: as phxfs_read()
 * @buf: as phxfs_read()
 * @buf_offset: as phxfs_read()
 * @nbyte: bytes to write
 * @f_offset: file offset, bytes; with O_APPEND the data goes to the end of
 *	the file instead, as with pwrite(2) on Linux
 *
 * On an O_DIRECT descriptor an unaligned edge (what lies in a page, of 4 KiB at
 * least, that the request begins or ends in the middle of) is written through
 * a second, buffered descriptor of the same file, so that neighbouring bytes
 * are never read and written back, and neighbours may be written at once.
 *
 * Return: bytes written, or an error as phxfs_read(); -EACCES: an unaligned
 * edge needs the file opened again, and that is not permitted.
 */
PHXFS_MUST_CHECK
ssize_t phxfs_write(int fd, int device_id, void *buf, off_t buf_offset, ssize_t nbyte,
		    off_t f_offset);

struct phxfs_iov {
	void *buf;     /* address, as @buf of phxfs_read() */
	size_t nbytes; /* length */
};

/**
 * phxfs_readv - read one range of a file into several buffers
 * @fd: as phxfs_read()
 * @device_id: the device of all the buffers, or < 0
 * @iov: the buffers, filled in order
 * @n: how many; no upper limit
 * @f_offset: file offset, bytes
 *
 * Return: as phxfs_read(), for the buffers together. When any buffer cannot
 * be resolved nothing is transferred.
 */
PHXFS_MUST_CHECK
ssize_t phxfs_readv(int fd, int device_id, const struct phxfs_iov *iov, int n, off_t f_offset);

/**
 * phxfs_writev - write several buffers to one range of a file
 * @fd: as phxfs_write()
 * @device_id: the device of all the buffers, or < 0
 * @iov: the buffers, written in order
 * @n: how many; no upper limit
 * @f_offset: file offset, bytes
 *
 * Return: as phxfs_write(), for the buffers together.
 */
PHXFS_MUST_CHECK
ssize_t phxfs_writev(int fd, int device_id, const struct phxfs_iov *iov, int n, off_t f_offset);

/* ----------------------------------------------------------------- batches */

typedef struct phxfs_io_req {
	int fd;           /* open file descriptor; O_DIRECT recommended */
	int device_id;    /* as @device_id of phxfs_read() */
	void *buf;        /* device (registered) or host address */
	off_t buf_offset; /* bytes added to buf */
	size_t nbytes;    /* transfer length */
	off_t f_offset;   /* file offset */
	ssize_t result;   /* OUT: bytes transferred, or -errno */
} phxfs_io_req_t;

typedef struct phxfs_batch phxfs_batch_t;

/**
 * phxfs_read_batch - read many ranges and wait for all
 * @reqs: the requests; each result is filled in
 * @n: how many; n <= 0 is an empty batch
 *
 * Requests may mix devices, host buffers and files. A request whose buffer
 * cannot be resolved gets -EFAULT and is not started; the others run.
 * Order between requests is not kept, except writes to O_APPEND descriptors.
 * Descriptors and host buffers must stay valid until the call returns;
 * registered buffers are held.
 *
 * Return: 0: every request moved exactly nbytes; > 0: how many did not;
 * -errno: the batch as a whole could not be run (-EINVAL, -ENOMEM).
 */
PHXFS_MUST_CHECK
int phxfs_read_batch(phxfs_io_req_t *reqs, int n);

/**
 * phxfs_write_batch - write many ranges and wait for all
 * @reqs: as phxfs_read_batch()
 * @n: as phxfs_read_batch()
 *
 * Return: as phxfs_read_batch().
 */
PHXFS_MUST_CHECK
int phxfs_write_batch(phxfs_io_req_t *reqs, int n);

/**
 * phxfs_batch_submit_read - start a batch of reads
 * @reqs: as phxfs_read_batch(); must stay valid until phxfs_batch_wait()
 * @n: as phxfs_read_batch(); n <= 0 gives a handle whose wait returns 0
 *
 * Batches wait in a FIFO of PHXFS_BATCH_FIFO and run one at a time with all
 * workers, beside the caller.
 *
 * Return: a handle that phxfs_batch_wait() or phxfs_batch_destroy() frees;
 * NULL with errno EBUSY: the FIFO is full; EINVAL or ENOMEM.
 */
PHXFS_MUST_CHECK
phxfs_batch_t *phxfs_batch_submit_read(phxfs_io_req_t *reqs, int n);

/**
 * phxfs_batch_submit_write - start a batch of writes
 * @reqs: as phxfs_batch_submit_read()
 * @n: as phxfs_batch_submit_read()
 *
 * Return: as phxfs_batch_submit_read().
 */
PHXFS_MUST_CHECK
phxfs_batch_t *phxfs_batch_submit_write(phxfs_io_req_t *reqs, int n);

/**
 * phxfs_batch_wait - wait for a batch, fill its results, free the handle
 * @handle: of phxfs_batch_submit_read() or _write()
 *
 * Return: as phxfs_read_batch(); -EINVAL for NULL; -ECHILD in a child of the
 * process that submitted it (the handle is freed).
 */
int phxfs_batch_wait(phxfs_batch_t *handle);

/**
 * phxfs_batch_destroy - abandon a batch
 * @handle: of phxfs_batch_submit_read() or _write(); NULL does nothing
 *
 * Requests not yet started are dropped, those in flight are waited for; no
 * result is copied back. When it returns the buffers may be reused.
 *
 * Return: 0; -ECHILD as phxfs_batch_wait().
 */
int phxfs_batch_destroy(phxfs_batch_t *handle);

/* -------------------------------------------------------- completion queue */

enum phxfs_op {
	PHXFS_OP_READ = 0,
	PHXFS_OP_WRITE = 1,
};

typedef struct phxfs_queue phxfs_queue_t;

struct phxfs_completion {
	void *user_data; /* as given at submission */
	ssize_t result;  /* bytes transferred, or -errno; -ECANCELED: cancelled unstarted */
};

/**
 * phxfs_queue_create - make a queue that completes requests one by one
 * @depth: the most requests in flight or completed but not yet taken,
 *	1 .. 32768
 * @q: OUT; untouched on failure
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
PHXFS_MUST_CHECK
int phxfs_queue_create(unsigned int depth, phxfs_queue_t **q);

/**
 * phxfs_queue_submit - start requests
 * @q: the queue
 * @op: enum phxfs_op
 * @reqs: the requests; copied, so the array may be reused at once; result is
 *	not written
 * @user_data: one value for each request, or NULL for none
 * @n: how many
 *
 * Each accepted request completes exactly once, also one whose buffer cannot
 * be resolved (-EFAULT). Descriptors and host buffers must stay valid until
 * then. Writes to an O_APPEND descriptor run in the order of submission.
 *
 * Return: how many were accepted, from the first on; -EAGAIN: none, the queue
 * is full; -EINVAL; -ECHILD: the queue belongs to the parent process.
 */
PHXFS_MUST_CHECK
int phxfs_queue_submit(phxfs_queue_t *q, int op, const phxfs_io_req_t *reqs,
		       void *const *user_data, int n);

/**
 * phxfs_queue_wait - take completions
 * @q: the queue
 * @out: OUT: completions, in the order in which they finished
 * @min: wait until this many are there; 0 only looks. Lowered to the number
 *	of requests not yet taken, so that it never waits for nothing
 * @max: room in @out, at least 1 and at least @min
 * @timeout: the longest wait, relative; NULL: no limit
 *
 * Return: how many were taken, fewer than @min only after the timeout;
 * -EINVAL; -ECHILD.
 */
int phxfs_queue_wait(phxfs_queue_t *q, struct phxfs_completion *out, int min, int max,
		     const struct timespec *timeout);

/**
 * phxfs_queue_cancel - try to cancel a request
 * @q: the queue
 * @user_data: of the request; the oldest in flight with this value is meant
 *
 * Return: 0: it will complete with -ECANCELED, nothing was moved;
 * -EALREADY: it is running and completes with its own result; -ENOENT: no
 * such request in flight; -EINVAL; -ECHILD.
 */
int phxfs_queue_cancel(phxfs_queue_t *q, void *user_data);

/**
 * phxfs_queue_eventfd - a descriptor to poll for completions
 * @q: the queue
 *
 * It becomes readable when a completion may have arrived (sometimes there is
 * none yet: phxfs_queue_wait() with min 0 tells). Read it to reset it, then
 * take completions until there are none. Made on the first call; belongs to
 * the queue, which closes it.
 *
 * Return: a descriptor (O_NONBLOCK, O_CLOEXEC); -EMFILE and the like; -ECHILD.
 */
int phxfs_queue_eventfd(phxfs_queue_t *q);

/**
 * phxfs_queue_destroy - destroy a queue
 * @q: the queue; NULL does nothing. No other thread may use it any more
 *
 * Cancels what has not started and waits for the rest; when it returns the
 * buffers may be reused. Completions not taken are lost.
 *
 * Return: 0; -ECHILD in a child of the process that made it (the child's copy
 * is freed).
 */
int phxfs_queue_destroy(phxfs_queue_t *q);

/* ----------------------------------------------------------------- streams */

/**
 * phxfs_read_stream - read in the order of a device's stream
 * @fd: as phxfs_read(); must stay open until the stream has passed
 * @buf: device address inside a registration, of any open device
 * @nbytes: bytes to read
 * @buf_offset: bytes added to @buf
 * @f_offset: file offset, bytes
 * @bytes_done: OUT, when the stream gets there: bytes read, or -errno
 * @stream: a stream of the device's runtime (CUstream, cudaStream_t, ...);
 *	NULL: its default stream. HOST devices have none: the transfer runs at once
 *
 * Returns when the transfer is queued. The stream runs it behind all earlier
 * work and holds all later work until it is done; the five values behind the
 * pointers are read only then, so earlier work may write them, and must stay
 * valid until then. A transfer that fails says so in *@bytes_done and lets the
 * stream go on. Only a few streams of a device can be held at once (NVIDIA: 3):
 * while others have transfers queued, a call for one more waits.
 *
 * Return: 0; -EINVAL: a NULL pointer; -EFAULT: @buf is in no registration;
 * -EOPNOTSUPP: the device has no streams, or this one is being captured into a
 * graph; -ENOMEM, -EAGAIN: no memory, no worker thread; or the runtime's error.
 */
PHXFS_MUST_CHECK
int phxfs_read_stream(int fd, void *buf, size_t *nbytes, off_t *buf_offset, off_t *f_offset,
		      ssize_t *bytes_done, void *stream);

/**
 * phxfs_write_stream - write in the order of a device's stream
 * @fd: as phxfs_write(); must stay open until the stream has passed
 * @buf: as phxfs_read_stream()
 * @nbytes: bytes to write
 * @buf_offset: bytes added to @buf
 * @f_offset: file offset, bytes
 * @bytes_done: OUT, when the stream gets there: bytes written, or -errno
 * @stream: as phxfs_read_stream()
 *
 * What earlier work of the stream wrote to the buffer is what is written.
 *
 * Return: as phxfs_read_stream().
 */
PHXFS_MUST_CHECK
int phxfs_write_stream(int fd, void *buf, size_t *nbytes, off_t *buf_offset, off_t *f_offset,
		       ssize_t *bytes_done, void *stream);

struct phxfs_stream_io {
	uint32_t size;           /* IN: sizeof(struct phxfs_stream_io) */
	int32_t op;              /* enum phxfs_op */
	int32_t fd;              /* open until the stream has passed */
	int32_t device_id;       /* as @device_id of phxfs_read() */
	void *buf;               /* as @buf of phxfs_read() */
	void *stream;            /* as @stream of phxfs_read_stream() */
	const size_t *nbytes;    /* read when the stream gets there: */
	const off_t *buf_offset;
	const off_t *f_offset;
	void (*done)(void *arg, ssize_t result);
	void *arg;
};

/**
 * phxfs_io_stream - transfer in the order of a stream, and be told of the end
 * @io: what to transfer, copied
 *
 * As phxfs_read_stream() and phxfs_write_stream(), but the buffer is named as
 * in phxfs_read(), and io->done is called with io->arg and the bytes moved, or
 * -errno, once, before the stream goes on. It may be called before this call
 * returns, must not call the device's runtime nor this library, and is not called
 * when this call fails. A host buffer takes its turn in the stream too.
 *
 * Return: as phxfs_read_stream(); -ENODEV: no such device.
 */
PHXFS_MUST_CHECK
int phxfs_io_stream(const struct phxfs_stream_io *io);

/* ------------------------------------------------------- what happened, why */

struct phxfs_path_info {
	uint32_t size;         /* IN: sizeof(struct phxfs_path_info) */
	int32_t path;          /* enum phxfs_path of the bulk of the bytes */
	int32_t dma;           /* 1: storage moves the bulk by DMA (no page cache) */
	int32_t reason;        /* enum phxfs_reason */
	uint64_t direct_bytes; /* bytes that go direct */
	uint64_t chunk_bytes;  /* bytes that go through a chunk or an edge */
	char text[256];        /* the same in words, with file system and cure */
};

/**
 * phxfs_path_query - which way a read would go, and why
 * @fd: the file
 * @device_id: as phxfs_read()
 * @buf: as phxfs_read()
 * @nbytes: length of the request
 * @f_offset: file offset
 * @info: OUT; its size field must be set
 *
 * Return: 0; -EFAULT, -EINVAL, -EBADF as phxfs_read(); -EOPNOTSUPP:
 * PHX_PATH=direct would refuse this request (info is filled).
 */
int phxfs_path_query(int fd, int device_id, const void *buf, size_t nbytes, off_t f_offset,
		     struct phxfs_path_info *info);

struct phxfs_path_stats {
	uint64_t ops;    /* transfers (or edges) that took this path */
	uint64_t bytes;  /* bytes moved */
	uint64_t errors; /* of ops: those that ended with an error */
};

struct phxfs_stats {
	uint32_t size;              /* IN: sizeof(struct phxfs_stats) */
	uint32_t registrations;     /* live registrations now */
	uint64_t registered_bytes;  /* bytes in them */
	uint64_t copies;            /* copies between chunk and buffer */
	uint64_t copy_bytes;        /* bytes in them */
	uint64_t retries;           /* short, EINTR or EAGAIN results resubmitted */
	struct phxfs_path_stats read[PHXFS_PATHS];  /* by enum phxfs_path */
	struct phxfs_path_stats write[PHXFS_PATHS];
};

/**
 * phxfs_stats - counters of a device
 * @device_id: the device; < 0: transfers of plain host buffers
 * @out: OUT; its size field must be set
 *
 * Counters only grow, from the start of the process, and are exact when no
 * transfer runs. A transfer is counted under the path of the bulk of its
 * bytes; bytes of its edges are counted under PHXFS_PATH_EDGE.
 *
 * Return: 0; -ENODEV; -EINVAL.
 */
int phxfs_stats(int device_id, struct phxfs_stats *out);

typedef struct phxfs_stats_view phxfs_stats_view_t;

struct phxfs_latency {
	uint32_t size; /* IN: sizeof(struct phxfs_latency) */
	uint32_t reserved;
	uint64_t count;  /* transfers measured */
	uint64_t sum_ns; /* their latencies together */
	uint64_t max_ns;
	uint64_t p50_ns; /* percentiles, upper bound of a bucket 1/16 wide */
	uint64_t p90_ns;
	uint64_t p99_ns;
	uint64_t p999_ns;
};

/**
 * phxfs_stats_view_open - look into a running process
 * @pid: a process that uses this library; it may be the caller
 * @view: OUT; untouched on failure
 *
 * Works through /proc/PID/fd, so it needs the right to look into that
 * process (the same user, or root). While a view is being read the process
 * measures latencies; a view not read for 10 seconds switches that off again.
 *
 * Return: 0; -ESRCH: no such process; -ENOENT: it does not use the library,
 * has not used it yet, runs with PHX_STATS=off, or had no memory for shared
 * counters at its start; -EACCES; -EPROTO: it uses
 * another version of the library.
 */
int phxfs_stats_view_open(pid_t pid, phxfs_stats_view_t **view);

/**
 * phxfs_stats_view_read - counters of a device in the viewed process
 * @view: the view
 * @device_id: as phxfs_stats()
 * @out: OUT; its size field must be set
 *
 * Return: as phxfs_stats().
 */
int phxfs_stats_view_read(phxfs_stats_view_t *view, int device_id, struct phxfs_stats *out);

/**
 * phxfs_stats_view_latency - latencies in the viewed process
 * @view: the view
 * @op: enum phxfs_op
 * @out: OUT; its size field must be set. Counts from the first view on
 *
 * Return: 0; -EINVAL.
 */
int phxfs_stats_view_latency(phxfs_stats_view_t *view, int op, struct phxfs_latency *out);

/**
 * phxfs_stats_view_close - end a view
 * @view: the view; NULL does nothing
 */
void phxfs_stats_view_close(phxfs_stats_view_t *view);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* PHOENIX_H */
