/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * phxsim, the software accelerator: its user ABI. Only the simulator's own
 * runtime (sim/runtime) includes this file; everybody else goes through that.
 *
 * One char device per accelerator, /dev/phxsimN. Memory belongs to the file that
 * allocated it and to the process that opened the file: closing it, or the
 * process's death, frees it and reclaims what is pinned. Device addresses are
 * per process, unique over all accelerators, and never valid CPU addresses.
 */
#ifndef PHXSIM_UAPI_H
#define PHXSIM_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PHXSIM_ABI_VERSION	1
#define PHXSIM_PAGE_SIZE	65536u
#define PHXSIM_HUGE_SIZE	2097152u
/* no CPU has an address here, with four levels of page tables or five */
#define PHXSIM_VA_BASE		0x0d00000000000000ull
#define PHXSIM_VA_END		0x0e00000000000000ull

struct phxsim_info {
	__u32 version;
	__u32 index;		/* N of /dev/phxsimN, in BDF order at probe */
	__u32 page_size;
	__u32 pad;
	__u64 bar_phys;
	__u64 bar_size;
	__u64 free_bytes;
	char bdf[16];
};

/* How an allocation's pages lie in the BAR. */
enum phxsim_layout {
	PHXSIM_LAYOUT_DEFAULT,		/* the module parameter "layout" */
	PHXSIM_LAYOUT_HUGE,		/* >= 2 MiB: 2 MiB blocks, in one piece if one is free */
	PHXSIM_LAYOUT_FRAGMENTED,	/* no two pages next to each other */
	PHXSIM_LAYOUT_SUBSPANS,		/* 2 MiB blocks with holes between them */
	PHXSIM_LAYOUT_REVERSED,		/* 2 MiB blocks in descending order */
	PHXSIM_LAYOUT_MISALIGNED,	/* one piece that starts 64 KiB past a 2 MiB border */
	PHXSIM_LAYOUT_COUNT
};

struct phxsim_alloc_args {
	__u64 size;
	__u32 layout;
	__u32 pad;
	__u64 va;		/* out */
	__u64 id;		/* out: unique for the life of the module */
};

struct phxsim_free_args {
	__u64 va;
};

struct phxsim_query {
	__u64 va;		/* in: any address inside */
	__u64 base;
	__u64 size;
	__u64 id;
	__u32 index;		/* accelerator */
	__u32 layout;
};

/* Offsets in the BAR of an allocation's pages, from the one that holds va on. */
struct phxsim_pages {
	__u64 va;
	__u64 offsets;		/* pointer to __u64[count] */
	__u32 count;
	__u32 pad;
};

enum phxsim_copy_kind { PHXSIM_HTOD = 1, PHXSIM_DTOH, PHXSIM_DTOD };

struct phxsim_copy {
	__u64 dst;
	__u64 src;
	__u64 len;
	__u32 kind;
	__u32 pad;
};

enum phxsim_fill_kind {
	PHXSIM_FILL_BYTE,	/* the low byte of value */
	PHXSIM_FILL_WORDS,	/* 64-bit word i is phxsim_word(value, i); va and len by 8 */
};

struct phxsim_fill {
	__u64 va;
	__u64 len;
	__u64 value;
	__u32 kind;
	__u32 pad;
};

struct phxsim_checksum {
	__u64 va;
	__u64 len;
	__u64 sum;		/* in: start value, out: phxsim_sum() over the bytes */
};

/*
 * Faults on demand. A fault lets `skip` chances pass, then strikes `count` times
 * (PHXSIM_FAULT_FOREVER: until it is cleared by count 0).
 */
enum phxsim_fault_kind {
	PHXSIM_FAULT_ALLOC,		/* allocation fails with errno arg */
	PHXSIM_FAULT_PIN,		/* get_pages fails with errno arg */
	PHXSIM_FAULT_PIN_SILENT,	/* get_pages returns 0 and no page table */
	PHXSIM_FAULT_PIN_OUTSIDE,	/* page arg of the table lies outside of the BAR */
	PHXSIM_FAULT_PIN_UNALIGNED,	/* page arg of the table is off by 4 KiB */
	PHXSIM_FAULT_PIN_NULL,		/* page arg of the table has address 0 */
	PHXSIM_FAULT_PIN_SHORT,		/* the table has arg entries too few */
	PHXSIM_FAULT_PIN_VERSION,	/* the table's version is arg */
	PHXSIM_FAULT_PIN_PAGE_SIZE,	/* the table's page size is arg */
	PHXSIM_FAULT_PIN_DELAY,		/* get_pages takes arg ms */
	PHXSIM_FAULT_PIN_RECLAIM,	/* the pin is reclaimed before get_pages returns */
	PHXSIM_FAULT_PUT,		/* put_pages fails with errno arg, the pin stays */
	PHXSIM_FAULT_PERSISTENT,	/* the persistent pin fails with errno arg */
	PHXSIM_FAULT_COPY,		/* a copy fails with errno arg */
	PHXSIM_FAULT_COPY_DELAY,	/* a copy takes arg ms */
	PHXSIM_FAULT_RECLAIM_ATOMIC,	/* a free callback is called in atomic context */
	PHXSIM_FAULT_RECLAIM_DELAY,	/* arg ms pass, lock held, before a free callback */
	PHXSIM_FAULT_COUNT
};
#define PHXSIM_FAULT_FOREVER	0xffffffffu

struct phxsim_fault {
	__u32 kind;
	__u32 skip;
	__u32 count;
	__u32 pad;
	__u64 arg;
};

/* Take back what is pinned, now, as a driver in distress does. */
struct phxsim_reclaim {
	__u64 va;		/* 0: all of the process's memory on this accelerator */
	__u32 pid;		/* 0: the caller */
	__u32 callbacks;	/* out: how many pins were reclaimed */
};

#define PHXSIM_IOC_INFO		_IOR('V', 1, struct phxsim_info)
#define PHXSIM_IOC_ALLOC	_IOWR('V', 2, struct phxsim_alloc_args)
#define PHXSIM_IOC_FREE		_IOW('V', 3, struct phxsim_free_args)
#define PHXSIM_IOC_QUERY	_IOWR('V', 4, struct phxsim_query)
#define PHXSIM_IOC_PAGES	_IOW('V', 5, struct phxsim_pages)
#define PHXSIM_IOC_COPY		_IOW('V', 6, struct phxsim_copy)
#define PHXSIM_IOC_FILL		_IOW('V', 7, struct phxsim_fill)
#define PHXSIM_IOC_CHECKSUM	_IOWR('V', 8, struct phxsim_checksum)
#define PHXSIM_IOC_FAULT	_IOW('V', 9, struct phxsim_fault)
#define PHXSIM_IOC_RECLAIM	_IOWR('V', 10, struct phxsim_reclaim)

static inline __u64 phxsim_word(__u64 seed, __u64 i)
{
	__u64 x = seed + i * 0x9e3779b97f4a7c15ull;

	return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
}

/* FNV-1a over little-endian 64-bit words, then over the bytes that are left. */
static inline __u64 phxsim_sum(__u64 sum, const void *data, __u64 len)
{
	const unsigned char *p = (const unsigned char *)data;
	const __u64 prime = 0x100000001b3ull;
	__u64 word;

	for (; len >= 8; len -= 8, p += 8) {
		__builtin_memcpy(&word, p, 8);
		sum = (sum ^ word) * prime;
	}
	for (; len; len--, p++)
		sum = (sum ^ *p) * prime;
	return sum;
}

#endif
