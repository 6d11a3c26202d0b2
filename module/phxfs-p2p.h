/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Device memory for other kernel modules: bus addresses of pinned accelerator memory, for
 * drivers that program DMA themselves. Process context, may sleep.
 */
#ifndef PHXFS_P2P_H
#define PHXFS_P2P_H

#include <linux/types.h>

/* What one entry of ioaddrs covers. */
#define PHXFS_P2P_PAGE_SIZE	65536

/**
 * phxfs_p2p_register - pin device memory of the calling process
 * @gpu_vaddr: device address, a multiple of 64 KiB
 * @length: bytes, a non-zero multiple of 64 KiB
 * @handle: out: names the registration; never reused
 * @ioaddrs: out: one bus address per 64 KiB; owned by the handle, valid until deregister
 * @n: out: entries of @ioaddrs
 *
 * The backends are asked in turn; the first that knows the address serves it.
 *
 * Return: 0; -EINVAL misaligned, or not contiguous within 64 KiB; -EOPNOTSUPP where bus
 * addresses differ from CPU addresses (translating IOMMU, bridge window with an offset), as
 * the addresses would be wrong for some peers; -ENODEV no backend; -ENXIO outside of a
 * device's memory window; -EFAULT taken back meanwhile; else what the vendor's driver says.
 */
int phxfs_p2p_register(u64 gpu_vaddr, u64 length, u64 *handle, const u64 **ioaddrs, u32 *n);

/**
 * phxfs_p2p_on_revoke - ask to be told when the memory goes away
 * @handle: from phxfs_p2p_register()
 * @fn: called at most once, in whatever context the vendor's driver reclaims in; all DMA
 *	must be over when it returns. It must not call this interface.
 * @arg: for @fn
 *
 * Return: 0; -ESTALE it is gone already; -EINVAL no such handle.
 */
int phxfs_p2p_on_revoke(u64 handle, void (*fn)(void *arg), void *arg);

/* True while the addresses may be used. */
bool phxfs_p2p_valid(u64 handle);

/**
 * phxfs_p2p_deregister - unpin
 *
 * All DMA must be over. Return: 0; -ESTALE the memory had been taken back (the handle is
 * freed all the same); -EINVAL no such handle; -EDEADLK called from @fn.
 */
int phxfs_p2p_deregister(u64 handle);

#endif /* PHXFS_P2P_H */
