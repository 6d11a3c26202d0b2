/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of phxfs.ko: events/phxfs/ in tracefs. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM phxfs

#if !defined(PHXFS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PHXFS_TRACE_H

#include <linux/tracepoint.h>

/* A MAP or UNMAP call that reached a region, with its result. */
DECLARE_EVENT_CLASS(phxfs_call,
	TP_PROTO(int dev, u64 vaddr, u64 length, int err),
	TP_ARGS(dev, vaddr, length, err),
	TP_STRUCT__entry(
		__field(int, dev)
		__field(u64, vaddr)
		__field(u64, length)
		__field(int, err)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->vaddr = vaddr;
		__entry->length = length;
		__entry->err = err;
	),
	TP_printk("dev=%d vaddr=%#llx length=%#llx err=%d",
		  __entry->dev, __entry->vaddr, __entry->length, __entry->err)
);

DEFINE_EVENT(phxfs_call, phxfs_map,
	TP_PROTO(int dev, u64 vaddr, u64 length, int err),
	TP_ARGS(dev, vaddr, length, err)
);

DEFINE_EVENT(phxfs_call, phxfs_unmap,
	TP_PROTO(int dev, u64 vaddr, u64 length, int err),
	TP_ARGS(dev, vaddr, length, err)
);

/* The vendor's driver took memory back; drained: no transfer was left when it got it. */
TRACE_EVENT(phxfs_reclaim,
	TP_PROTO(int dev, u64 vaddr, u64 length, bool drained),
	TP_ARGS(dev, vaddr, length, drained),
	TP_STRUCT__entry(
		__field(int, dev)
		__field(u64, vaddr)
		__field(u64, length)
		__field(bool, drained)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->vaddr = vaddr;
		__entry->length = length;
		__entry->drained = drained;
	),
	TP_printk("dev=%d vaddr=%#llx length=%#llx drained=%d",
		  __entry->dev, __entry->vaddr, __entry->length, __entry->drained)
);

/* A registration's last transfer has ended and its pin is gone. */
TRACE_EVENT(phxfs_drain,
	TP_PROTO(int dev, u64 vaddr, u64 length),
	TP_ARGS(dev, vaddr, length),
	TP_STRUCT__entry(
		__field(int, dev)
		__field(u64, vaddr)
		__field(u64, length)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->vaddr = vaddr;
		__entry->length = length;
	),
	TP_printk("dev=%d vaddr=%#llx length=%#llx",
		  __entry->dev, __entry->vaddr, __entry->length)
);

#endif /* PHXFS_TRACE_H */

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
/* clang-format off */
#define TRACE_INCLUDE_FILE phxfs-trace
/* clang-format on */
#include <trace/define_trace.h>
