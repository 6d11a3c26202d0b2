/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_file.h - files, patterns and guarded buffers of the process tests
 *
 * A pattern is a function of a seed and of the offset, so that any byte of
 * any file can be checked by itself, however large the file.
 */
#ifndef T_FILE_H
#define T_FILE_H

#include <fcntl.h>
#include <phoenix.h>

#include "t.h"

#define T_KIB 1024UL
#define T_MIB (1024UL * 1024)
#define T_GIB (1024UL * 1024 * 1024)
#define T_PAGE PHXFS_DEVICE_PAGE
#define T_GUARD 0xa5

/*
 * Of these calls each takes host memory and device memory alike: what lies in
 * a struct t_region or was made by t_alloc().
 */
void t_set(void *buf, int value, size_t len);
void t_put(void *buf, const void *host, size_t len);
void t_get(void *host, const void *buf, size_t len);
void t_fill(void *buf, size_t len, uint64_t seed, uint64_t offset);
/* The index of the first wrong byte, or -1. */
ssize_t t_differs(const void *buf, size_t len, uint64_t seed, uint64_t offset);
/* The index of the first byte that is not value, or -1. */
ssize_t t_differs_from(const void *buf, size_t len, int value);

#define T_PATTERN(buf, len, seed, offset) T_EQ(t_differs(buf, len, seed, offset), -1)
#define T_ALL(buf, len, value) T_EQ(t_differs_from(buf, len, value), -1)

/*
 * What follows the bytes of a short read in the request: left alone, or on an
 * O_DIRECT descriptor cleared.
 */
#define T_REST(buf, len, direct) \
	do { \
		if (!(direct) || t_differs_from(buf, len, 0) != -1) \
			T_ALL(buf, len, T_GUARD); \
	} while (0)

/* The path of a name in the case's folder; a ring of 8 static strings. */
const char *t_name(const char *name);
/* Opens (mode 0600); fails the test when it cannot. */
int t_open(const char *name, int flags);
/* Makes a file of size bytes of the pattern and opens it. */
int t_file(const char *name, size_t size, uint64_t seed, int flags);
/* The same in a memory file (tmpfs). */
int t_memfile(size_t size, uint64_t seed);
/* Skips the case where the test folder has no O_DIRECT. */
void t_need_direct(void);
void t_need_root(void);
void t_need_memory(size_t bytes);
/* The alignment O_DIRECT needs in the test folder. */
size_t t_dio_align(void);

void t_pwrite(int fd, const void *buf, size_t len, off_t offset);
void t_pread(int fd, void *buf, size_t len, off_t offset);
off_t t_size(int fd);
/* Checks bytes of a file, through a buffered descriptor of its own. */
void t_file_pattern(int fd, off_t from, size_t len, uint64_t seed, uint64_t pattern_offset);

/*
 * Memory of len bytes, all set to T_GUARD. On HOST devices it starts and ends
 * on a page that faults; on others no registration follows it.
 */
struct t_region {
	uint8_t *p;
	size_t len;
	int device;
	void *map; /* with the faulting pages */
};

/* Memory of the device, not registered; device -1: host memory. */
void t_map(struct t_region *r, int device, size_t len);
void t_unmap(struct t_region *r);
/* Opens the device, maps and registers. */
void t_region(struct t_region *r, int device, size_t len);
void t_region_free(struct t_region *r);
/* phxfs_mem_alloc() and phxfs_mem_free() that must succeed. */
void *t_alloc(int device, size_t len);
void t_free(int device, void *p);
/* Is target what phxfs_regmem() promises for the mode of the device? */
void t_target(const struct t_region *r, const void *target);
/* The path that PHX_PATH and the mode lead to, on a buffered descriptor. */
int t_buffered_path(int device, bool write, size_t len);

/* phxfs_deregmem() and phxfs_regmem() of a struct t_region, for t_call(). */
long t_deregister(void *arg);
long t_reregister(void *arg);

/* Would a transfer find a live registration there? Takes no chunk, unlike a transfer. */
bool t_registered(int fd, int device, const void *buf);

/* One transfer, to be made by t_call(&c, t_transfer, &x). */
struct t_transfer {
	int fd, device;
	bool write;
	void *buf;
	size_t len;
	off_t offset;
};

long t_transfer(void *arg);

/* A mount of type in the case's own mount namespace; skips when not allowed. */
void t_own_mounts(void);
void t_mount(const char *source, const char *dir, const char *type, const char *options);

#endif
