/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: phxfile.h
 *
 * The phxFile calls, which LMCache's Phoenix backend loads by name: buffers and
 * files are registered, and transfers take their turn in a stream. Served in every
 * mode, with the kernel module or without, and, where there is no accelerator,
 * on ordinary memory.
 *
 * Results. Every call returns 0 or a negative errno value. What becomes of a
 * transfer stands in *@bytes when the stream has passed it.
 *
 * Threads. Every call may be made from any thread at any time.
 */
#ifndef PHXFILE_H
#define PHXFILE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/**
 * phxFileDriverOpen - begin
 *
 * Counted. The other calls work without it too.
 *
 * Return: 0.
 */
int phxFileDriverOpen(void);

/**
 * phxFileDriverClose - undo one phxFileDriverOpen()
 *
 * The last one removes every buffer that is still registered, and waits for the
 * transfers on it. Without an open it ends what the first registration began.
 *
 * Return: 0.
 */
int phxFileDriverClose(void);

/**
 * phxFileBufRegister - register memory
 * @addr: device address, or ordinary memory; any alignment
 * @len: bytes, not 0
 *
 * The device is found by the address. The same range registered again is
 * counted. Memory that is not registered can be transferred too, more slowly
 * where storage could reach it.
 *
 * Return: 0; -EINVAL: NULL, zero or wrapping range; -EEXIST: registered with
 * another length; -ERANGE: it passes the end of its allocation; -ENOMEM; or
 * an errno of opening the device.
 */
int phxFileBufRegister(const void *addr, size_t len);

/**
 * phxFileBufDeregister - undo one phxFileBufRegister()
 * @addr: as registered
 *
 * The last one waits for transfers that use the registration.
 *
 * Return: 0, also when @addr is not registered.
 */
int phxFileBufDeregister(const void *addr);

/**
 * phxFileHandleRegister - register a file
 * @fh: OUT: its handle, never NULL; untouched on failure
 * @fd: open file descriptor; O_DIRECT recommended. It stays the caller's and
 *	must stay open until its transfers are over
 *
 * Return: 0; -EINVAL: @fh is NULL; -EBADF.
 */
int phxFileHandleRegister(void **fh, int fd);

/**
 * phxFileHandleDeregister - undo phxFileHandleRegister()
 * @fh: the handle
 *
 * Return: 0.
 */
int phxFileHandleDeregister(void *fh);

/**
 * phxFileStreamRegister - say that a stream will be used
 * @stream: a stream of the device's runtime; NULL: its default stream
 *
 * Transfers need it not.
 *
 * Return: 0.
 */
int phxFileStreamRegister(void *stream);

/**
 * phxFileStreamDeregister - undo phxFileStreamRegister()
 * @stream: the stream
 *
 * Return: 0.
 */
int phxFileStreamDeregister(void *stream);

/**
 * phxFileReadAsync - read in the order of a stream
 * @fh: the file
 * @base: address in a buffer
 * @n: bytes to read
 * @file_off: file offset, bytes
 * @buf_off: bytes added to @base
 * @bytes: OUT, when the stream gets there: bytes read, or -errno
 * @stream: a stream of the device's runtime; NULL: its default stream. Without an
 *	accelerator the transfer runs at once
 *
 * Returns when the transfer is queued. The values behind @n, @file_off and
 * @buf_off are read when the stream gets there, and must stay valid until then.
 *
 * Return: 0; -EINVAL: a NULL argument; -EOPNOTSUPP: the stream is being captured
 * into a graph; -ENOMEM; or the runtime's error.
 */
int phxFileReadAsync(void *fh, void *base, size_t *n, int64_t *file_off, int64_t *buf_off,
		     int64_t *bytes, void *stream);

/**
 * phxFileWriteAsync - write in the order of a stream
 * @fh: the file
 * @base: address in a buffer
 * @n: bytes to write
 * @file_off: file offset, bytes
 * @buf_off: bytes added to @base
 * @bytes: OUT, when the stream gets there: bytes written, or -errno
 * @stream: as phxFileReadAsync()
 *
 * What earlier work of the stream wrote to the buffer is what is written.
 *
 * Return: as phxFileReadAsync().
 */
int phxFileWriteAsync(void *fh, void *base, size_t *n, int64_t *file_off, int64_t *buf_off,
		      int64_t *bytes, void *stream);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* PHXFILE_H */
