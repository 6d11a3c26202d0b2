/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The contract between phxfs.ko and its users: device nodes, sysfs, mmap, ioctl.
 * Kernel and user space compile this one file.
 *
 * Names
 *   /dev/phxfs_devN                       one node per accelerator; N is its device_id
 *   /sys/class/phxfs-generic/phxfs_devN/  one file per value, each ends in '\n':
 *     abi               PHXFS_ABI_VERSION of the module
 *     pci_bdf           "0000:01:00.0"
 *     map_mode          "0" FULL, "1" STAGING
 *     backend           name of the vendor backend that serves the device: "sim"
 *     page_size         bytes of one device page of that backend
 *     status            "ok", or one line saying why MAP gives -EOPNOTSUPP
 *     bar               "INDEX START SIZE" of the BAR that is the memory window,
 *                       START and SIZE in hex
 *     p2p_distance      one line per NVMe controller: "BDF DISTANCE"; -1 = the kernel
 *                       calls peer-to-peer unsupported there or cannot tell
 *     mapped_bytes      bytes of the BAR that have struct pages now
 *     page_struct_bytes upper bound of the host memory these struct pages take
 *     pinned_bytes      bytes pinned for live registrations
 *     zombie_bytes      bytes unregistered but still in use by transfers
 *     regions           live registrations
 *     maps unmaps       successful MAPs and UNMAPs (munmap, close and exit count as UNMAP)
 *     reclaims          registrations the vendor's driver took back
 *     reclaim_timeouts  reclaims that returned with transfers still in flight
 *
 * Life of a registration
 *   1. fd = open("/dev/phxfs_devN", O_RDWR | O_CLOEXEC)
 *   2. p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
 *   3. ioctl(fd, PHXFS_IOCTL_MAP)     pins [n_vaddr, n_vaddr + n_size) of device
 *                                     memory and puts its pages behind p
 *   4. read, write, io_uring, ... with p as the buffer, on O_DIRECT descriptors
 *   5. ioctl(fd, PHXFS_IOCTL_UNMAP)   p is empty again: step 3 may follow
 *   6. munmap(p, len); close(fd)
 *   5 and 6 may come in any order or not at all: munmap, exit and kill unregister.
 *   Closing fd leaves a mapped p working until it is unmapped.
 *   Transfers under way when a registration ends go on safely: the device memory stays
 *   pinned until the last of them has ended (zombie_bytes). The exception is memory that
 *   the vendor's driver takes back by force (freed, process gone): new accesses through p
 *   then fail (-EFAULT, SIGBUS), the driver waits for those under way, within a bound.
 *   A transfer may end short, as of any buffer: continue it. On Linux 7.2 one of at most 1 MiB
 *   with a block device may end where two contiguous pieces of a STAGING registration meet.
 *
 * mmap
 *   MAP_SHARED only, offset 0, length a non-zero multiple of PHXFS_REG_ALIGN; else -EINVAL.
 *   PROT_READ, PROT_WRITE or both; PROT_EXEC -EINVAL. -ENODEV: the device is gone.
 *   -EPERM: the caller is not the process that opened fd. Until MAP an access is SIGBUS,
 *   as a transfer buffer p gives -EFAULT. The CPU does not cache the mapping; it is not
 *   inherited by fork (unless MADV_DOFORK asks for it), cannot grow; parts of it may be unmapped.
 *
 * Whose registration
 *   The process that opened fd. Others that hold the descriptor (fork, SCM_RIGHTS, exec) get
 *   -EPERM from mmap, MAP, UNMAP and REGION; QUERY answers everyone. They open their own.
 *
 * ioctl, all of them
 *   -EFAULT  the argument cannot be read or written
 *   -ENOTTY  unknown number (an old module: fall back)
 *   -EINVAL  a flag or reserved field that this module does not know is not 0
 */
#ifndef _UAPI_PHXFS_H
#define _UAPI_PHXFS_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Grows when a library of before would misread what the module says or does, which added
 * calls, fields and values do not. A library serves no module of another number.
 */
#define PHXFS_ABI_VERSION	1

#define PHXFS_DEV_PREFIX	"phxfs_dev"
#define PHXFS_CLASS		"phxfs-generic"

/* Addresses and lengths of registrations and of mmap are multiples of this. */
#define PHXFS_REG_ALIGN		(64 * 1024)
/*
 * STAGING only: the bus addresses behind a registration form one or more contiguous
 * pieces; each starts on a multiple of this and is a whole multiple long.
 */
#define PHXFS_SPAN_ALIGN	(2 * 1024 * 1024)

#define PHXFS_MAP_MODE_FULL	0
#define PHXFS_MAP_MODE_STAGING	1

/*
 * MAP and UNMAP. The layout is that of the first public release and never changes.
 * Older libraries leave end_addr and sbuf_block uninitialised: both are ignored.
 */
struct phxfs_ioctl_map {
	__u64 dev_id;		/* N of the node this descriptor was opened from */
	__u64 c_vaddr;		/* what mmap returned */
	__u64 c_size;		/* the length given to mmap */
	__u64 n_vaddr;		/* device address */
	__u64 n_size;		/* bytes of device memory; equals c_size */
	__u64 end_addr;		/* ignored */
	__u32 sbuf_block;	/* ignored */
} __attribute__((packed, aligned(8)));

/*
 * MAP: pin and map. 0, or with nothing changed:
 *   -EINVAL      dev_id is not this device; n_vaddr or n_size is 0 or not a multiple of
 *                PHXFS_REG_ALIGN; n_vaddr + n_size overflows; c_size differs from n_size;
 *                the mapping at c_vaddr starts or ends elsewhere; a STAGING piece is
 *                misaligned; the vendor's driver refuses the address
 *   -EFAULT      no mapping of this descriptor at c_vaddr, or it was unmapped meanwhile;
 *                the device memory was taken back meanwhile
 *   -EEXIST      the mapping is registered already
 *   -EBUSY       another MAP works on this mapping, or transfers of its last registration
 *                are still under way (map a new one, or retry)
 *   -EPERM       not the process that opened the descriptor
 *   -ENODEV      the device was unbound or removed
 *   -EOPNOTSUPP  nothing can be mapped on this device: see sysfs status
 *   -ENXIO       the memory lies outside the BAR window, or in a part of it that another
 *                driver holds with a conflicting cache type
 *   -ENOMEM      host memory; other values come from the vendor's driver unchanged
 *
 * UNMAP: unregister; every field as given to MAP. 0 also when the vendor's driver took the
 * memory back in between, and when transfers are still under way (they keep the memory).
 *   -EINVAL      a field differs from what was registered
 *   -EFAULT      no mapping of this descriptor at c_vaddr
 *   -ENOENT      nothing is registered there
 *   -EBUSY       MAP is still working on it
 *   -EPERM       not the process that opened the descriptor
 */
#define PHXFS_IOC_MAGIC		0x88
#define PHXFS_IOCTL_MAP		_IOW(PHXFS_IOC_MAGIC, 1, struct phxfs_ioctl_map)
#define PHXFS_IOCTL_UNMAP	_IOW(PHXFS_IOC_MAGIC, 2, struct phxfs_ioctl_map)

/*
 * QUERY and REGION take structs that may grow at the end. The caller sets size to
 * sizeof(struct); the module fills what both sides know, zeroes the rest up to the caller's
 * size, and sets size to the bytes it knows. A size below the first release's is -EINVAL;
 * so is one above 4096, or a non-zero byte beyond what the module knows.
 */

/* phxfs_ioctl_query.features */
#define PHXFS_F_RECLAIM		(1ULL << 0)	/* the vendor's driver may take memory back */
/*
 * Long-term pins (fixed buffers, RDMA) are allowed as far as the kernel can: 6.1 has no fixed
 * buffers on such mappings.
 */
#define PHXFS_F_LONGTERM	(1ULL << 1)

struct phxfs_ioctl_query {
	__u32 size;		/* in, out */
	__u32 flags;		/* in: 0 */
	__u32 abi;		/* PHXFS_ABI_VERSION of the module */
	__u32 map_mode;		/* PHXFS_MAP_MODE_* */
	__u32 dev_id;
	__u32 bar;		/* index of the BAR that is the memory window */
	__u64 features;		/* PHXFS_F_* of the backend; a registration may have more */
	__u64 page_size;	/* bytes of a device page of the backend */
	__u64 reg_align;	/* PHXFS_REG_ALIGN */
	__u64 span_align;	/* PHXFS_SPAN_ALIGN in STAGING, 0 in FULL */
	__u64 window_size;	/* bytes of the BAR */
	char pci_bdf[32];	/* NUL-terminated, as in sysfs */
	char backend[32];	/* NUL-terminated, as in sysfs */
};

/* No error but the common ones and -ENODEV (unbound or removed). */
#define PHXFS_IOCTL_QUERY	_IOWR(PHXFS_IOC_MAGIC, 3, struct phxfs_ioctl_query)

/* phxfs_ioctl_region.state */
#define PHXFS_REGION_EMPTY	0	/* not registered: MAP is possible */
#define PHXFS_REGION_MAPPING	1	/* MAP is at work */
#define PHXFS_REGION_LIVE	2
#define PHXFS_REGION_RECLAIMED	3	/* taken back by force; UNMAP makes it EMPTY */
#define PHXFS_REGION_DRAINING	4	/* unregistered; its last transfers are under way */

struct phxfs_ioctl_region {
	__u32 size;		/* in, out */
	__u32 flags;		/* in: 0 */
	__u64 c_vaddr;		/* in: an address inside a mapping of this descriptor */
	__u32 state;		/* PHXFS_REGION_* */
	__u32 pieces;		/* physically contiguous pieces; 0 if not LIVE */
	__u64 features;		/* PHXFS_F_* of this registration; 0 if not LIVE */
	__u64 n_vaddr;		/* 0 if EMPTY, as n_size */
	__u64 n_size;
	__u64 page_size;	/* bytes of a device page of this allocation; 0 if not LIVE */
};

/* -EFAULT: no mapping of this descriptor at c_vaddr. -EPERM as for MAP. */
#define PHXFS_IOCTL_REGION	_IOWR(PHXFS_IOC_MAGIC, 4, struct phxfs_ioctl_region)

#ifdef __cplusplus
#define PHXFS_ABI_ASSERT(expr)	static_assert(expr, #expr)
#else
#define PHXFS_ABI_ASSERT(expr)	_Static_assert(expr, #expr)
#endif

PHXFS_ABI_ASSERT(sizeof(struct phxfs_ioctl_map) == 56);
PHXFS_ABI_ASSERT(sizeof(struct phxfs_ioctl_query) == 128);
PHXFS_ABI_ASSERT(sizeof(struct phxfs_ioctl_region) == 56);
PHXFS_ABI_ASSERT(PHXFS_IOCTL_MAP == 0x40388801u);
PHXFS_ABI_ASSERT(PHXFS_IOCTL_UNMAP == 0x40388802u);

#endif /* _UAPI_PHXFS_H */
