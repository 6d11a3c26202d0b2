/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libphoenix needs of a vendor's runtime: one table per vendor.
 *
 * A connector loads its runtime with dlopen() in init() and keeps its own
 * prototypes, so that one library serves every vendor and building it needs no
 * vendor's SDK. Every slot is filled: what a vendor lacks is one of the
 * devconn_no_*() functions below, so that callers never test for NULL.
 *
 * "device" is a phxfs device number; devconn_ordinal() turns it into the
 * number that the vendor's runtime uses. Functions return 0 or -errno unless
 * they say otherwise, may be called from any thread, and leave the caller's
 * current device and context as they were.
 */
#ifndef DEVCONNECTOR_H
#define DEVCONNECTOR_H

#include <stddef.h>
#include <stdint.h>

#define DEVCONN_ABI 1
#define DEVCONN_SLOTS 32 /* queues of a device; the same slot keeps its order */
#define DEVCONN_HELD_STREAMS 16

struct devconn_device {
	char bdf[16];          /* "0000:3b:00.0", lower case; "" when it has none */
	char name[64];
	uint64_t memory_bytes; /* 0: not known */
};

struct devconn_pointer {
	int device;         /* phxfs device whose memory it is */
	uintptr_t base;     /* the allocation it lies in */
	size_t len;         /* IN: how many bytes are asked about; OUT: of the allocation */
	uint64_t buffer_id; /* differs when the address is allocated anew; 0: not known */
};

struct devconn_ops {
	uint32_t abi;     /* DEVCONN_ABI */
	const char *name;
	size_t page_size; /* the kernel backend's page size */
	/*
	 * How many of the user's streams transfers may hold at once, at most
	 * DEVCONN_HELD_STREAMS; 0: the device has no streams.
	 */
	int held_streams;

	/*
	 * Load the runtime. -ENOENT: it is not on this machine; @text says what
	 * was found or is missing, and the cure.
	 */
	int (*init)(char *text, size_t size);
	int (*device_count)(void);
	int (*device_describe)(int ordinal, struct devconn_device *out);
	/* The vendor's device number -> the phxfs device number; -1: none. */
	int (*find_device)(int ordinal);

	/* Device memory; @len a multiple of 64 KiB, *@addr too. */
	int (*mem_alloc)(int device, size_t len, void **addr);
	int (*mem_free)(int device, void *addr, size_t len);
	/* Whose memory @addr is: -ENOENT: not this vendor's. */
	int (*pointer_device)(const void *addr, struct devconn_pointer *out);
	/* Host memory that the device copies from and to at full speed. */
	int (*host_alloc)(int device, size_t len, void **addr);
	int (*host_free)(int device, void *addr, size_t len);

	/*
	 * A dma-buf of device memory, for RDMA: *@fd is the caller's to close, @addr lies
	 * at *@offset in it. -EOPNOTSUPP: the vendor's runtime makes none.
	 */
	int (*export_dmabuf)(int device, const void *addr, size_t len, int *fd, uint64_t *offset);

	/* Copies that are complete on return. */
	int (*memcpy_dtod)(int device, void *dst, const void *src, size_t n);
	int (*memcpy_htod)(int device, void *dst, const void *src, size_t n);
	int (*memcpy_dtoh)(int device, void *dst, const void *src, size_t n);
	/* Copies queued on @slot; queue_sync() waits and reports their errors. */
	int (*memcpy_dtod_async)(int device, int slot, void *dst, const void *src, size_t n);
	int (*memcpy_htod_async)(int device, int slot, void *dst, const void *src, size_t n);
	int (*memcpy_dtoh_async)(int device, int slot, void *dst, const void *src, size_t n);
	int (*queue_sync)(int device, int slot);
	/*
	 * A mark behind what has been queued on @slot. *event is NULL or an
	 * event of this device to use again, and is made or kept. event_done():
	 * 0, -EBUSY (not yet, or it failed and that is not known yet), or the
	 * error of what was queued; event_wait() waits for it.
	 */
	int (*event_record)(int device, int slot, void **event);
	int (*event_done)(int device, void *event);
	int (*event_wait)(int device, void *event);
	void (*event_free)(int device, void *event);

	/* Run @fn(@arg) on the user's stream, after all before it, before all after. */
	int (*launch_host_func)(void *stream, void (*fn)(void *arg), void *arg);
	/*
	 * One more (@change 1) or less (-1) transfer is enqueued in a user's
	 * stream and not over. While there is one, copies must get past whatever
	 * else is queued behind it. Fails for one more only.
	 */
	int (*stream_held)(int device, int change);
	/*
	 * Hold the stream until *@word >= @value; set *@word to @value from it.
	 * The word lies in memory of host_alloc().
	 */
	int (*stream_wait)(void *stream, uint64_t *word, uint64_t value);
	int (*stream_signal)(void *stream, uint64_t *word, uint64_t value);

	/* Ranges for the vendor's profiler; strictly paired in each thread. */
	void (*range_push)(const char *name);
	void (*range_pop)(void);
};

/*
 * For connectors: keep for this thread, and log, why a call fails; returns @err.
 * devconn_detail() is that text, with ": " before it, if this thread's last
 * failure was @err; else "". Ask right after the call.
 */
int devconn_fail(int err, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
const char *devconn_detail(int err);

/* Host memory that needs no pinning: pages of this process. */
int devconn_host_alloc(int device, size_t len, void **addr);
int devconn_host_free(int device, void *addr, size_t len);

/* For the slots that a vendor lacks; each returns -EOPNOTSUPP or does nothing. */
int devconn_no_alloc(int device, size_t len, void **addr);
int devconn_no_free(int device, void *addr, size_t len);
int devconn_no_export(int device, const void *addr, size_t len, int *fd, uint64_t *offset);
int devconn_no_copy(int device, void *dst, const void *src, size_t n);
int devconn_no_copy_async(int device, int slot, void *dst, const void *src, size_t n);
int devconn_no_queue_sync(int device, int slot);
int devconn_no_event_record(int device, int slot, void **event);
int devconn_no_event(int device, void *event);
void devconn_no_event_free(int device, void *event);
int devconn_no_launch_host_func(void *stream, void (*fn)(void *arg), void *arg);
int devconn_no_stream_word(void *stream, uint64_t *word, uint64_t value);
int devconn_no_stream_held(int device, int change);
void devconn_no_range_push(const char *name);
void devconn_no_range_pop(void);

/* For connectors: the phxfs device with PCI address @bdf, or -1. */
int devconn_find_bdf(const char *bdf);
/* For connectors: the vendor's number of a phxfs device of this connector. */
int devconn_ordinal(int device);

/* The connectors built in, NULL-terminated, in order of preference. */
extern const struct devconn_ops *const devconn_list[];
extern const struct devconn_ops nvidia_connector;
extern const struct devconn_ops metax_connector;
extern const struct devconn_ops amd_connector;
extern const struct devconn_ops huawei_connector;
extern const struct devconn_ops host_connector;
extern const struct devconn_ops sim_connector;
/* Not in the list: stands for devices that only the kernel module knows. */
extern const struct devconn_ops bare_connector;

#endif
