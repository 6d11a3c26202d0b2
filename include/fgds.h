/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: fgds.h
 *
 * The calls of FGDS, served by libphoenix: a program that was written for them
 * runs unchanged, on every vendor, with the kernel module or without.
 *
 * The life of a buffer: fgds_open(), allocate device memory, fgds_regmem(),
 * transfer, fgds_deregmem(), fgds_close().
 *
 * Two ways to transfer. Where storage reaches the buffer (devices in FULL mode,
 * and HOST devices), the address that fgds_regmem() gives is good for pread(2),
 * pwrite(2) and whatever else moves bytes. Everywhere else it is an address
 * range in which every access fails (EFAULT, or SIGSEGV), so that a program
 * learns of it at once; fgds_read() and fgds_write() work in every mode, and
 * with O_DIRECT descriptors at any alignment.
 *
 * Results. Every call returns 0 (a transfer: the bytes moved), or -1 with errno
 * set; phxfs_last_error() of libphoenix tells the rest.
 *
 * Devices are counted as in phoenix.h: N of /dev/phxfs_devN, else the index in
 * PCI bus order.
 *
 * Threads. Every call may be made from any thread at any time.
 */
#ifndef FGDS_H
#define FGDS_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/**
 * fgds_open - open a device
 * @deviceID: the device
 *
 * Opens are counted.
 *
 * Return: 0, or -1 with errno: ENODEV: no such device; EBUSY: its last close
 * is still draining; or another errno of opening the device node.
 */
int fgds_open(int deviceID);

/**
 * fgds_close - undo one fgds_open()
 * @deviceID: the device
 *
 * The last one waits for transfers in flight and removes what fgds_regmem()
 * has registered on the device.
 *
 * Return: 0, or -1 with errno ENODEV: no such device, or it is not open.
 */
int fgds_close(int deviceID);

/**
 * fgds_regmem - register device memory
 * @device_id: an open device
 * @addr: device address, a multiple of 64 KiB
 * @len: bytes, a non-zero multiple of 64 KiB
 * @target_addr: OUT: the address for plain I/O; untouched on failure
 *
 * The same range registered again is counted and gives the same address.
 *
 * Return: 0, or -1 with errno: EINVAL: a NULL, zero, misaligned or wrapping
 * argument, or an overlap with another registration; ENODEV: no such device,
 * or not open; EFAULT: not (wholly) memory of this device; ENOMEM; or the
 * errno of the kernel module.
 */
int fgds_regmem(int device_id, const void *addr, size_t len, void **target_addr);

/**
 * fgds_deregmem - undo one fgds_regmem()
 * @device_id: the device
 * @addr: as registered
 * @len: as registered
 *
 * When the last one returns, nothing moves into or out of the buffer by
 * fgds_read() or fgds_write() any more, and the target address is gone.
 *
 * Return: 0, or -1 with errno: ENODEV: no such device, or not open; EINVAL: no
 * fgds_regmem() of exactly this range.
 */
int fgds_deregmem(int device_id, const void *addr, size_t len);

/**
 * fgds_read - read from a file into a registered buffer
 * @fd: open for reading; O_DIRECT recommended
 * @device_id: the device
 * @buf: an address in the registration, or in its target
 * @nbyte: bytes to read
 * @offset: file offset, bytes
 *
 * Moves the same bytes as pread(2) on a buffered descriptor, in every mode, at
 * any alignment.
 *
 * Return: bytes read, fewer than @nbyte only at the end of the file or before
 * an error; or -1 with errno: EFAULT: not wholly inside one registration;
 * EINVAL; or what pread(2) gives.
 */
ssize_t fgds_read(int fd, int device_id, void *buf, size_t nbyte, off_t offset);

/**
 * fgds_write - write a registered buffer to a file
 * @fd: open for writing
 * @device_id: the device
 * @buf: an address in the registration, or in its target
 * @nbyte: bytes to write
 * @offset: file offset, bytes
 *
 * Return: bytes written, or -1 with errno as fgds_read().
 */
ssize_t fgds_write(int fd, int device_id, const void *buf, size_t nbyte, off_t offset);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif /* FGDS_H */
