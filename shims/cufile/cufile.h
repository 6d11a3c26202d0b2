/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libcufile share. It knows three things that libphoenix does
 * not: handles that stand for files and batches, which buffers were registered
 * in cuFile's words, and the settings of a cufile.json.
 *
 * Locks, in their order: the driver's (driver.c), then one of: objects, buffers,
 * streams, settings, a batch's. None is held while bytes move.
 */
#ifndef CUFILE_H
#define CUFILE_H

#include <errno.h>
#include <phoenix.h>
#include <phx_cufile.h>
#include <stdatomic.h>

static inline CUfileError_t cf_result(int number)
{
	return (CUfileError_t){ .err = (CUfileOpError)number };
}

/* A CU_FILE_ number for what a call of libphoenix returned. */
int cf_number(int err);

/* --------------------------------------------------------------- objects.c */

enum cf_kind { CF_FILE, CF_BATCH };

/*
 * What a handle stands for. A handle is a number and a generation, so that one
 * that was given back is known as such. Who creates: the register or set-up
 * call. Who holds: the table, and each call while it runs. Who frees: the last put.
 */
struct cf_object {
	enum cf_kind kind;
	_Atomic unsigned int refs;
	void (*free)(struct cf_object *object);
};

/* Takes the caller's reference over; NULL: no memory, and nothing was taken. */
void *cf_object_add(struct cf_object *object);
/* The live object with a reference, or NULL. */
struct cf_object *cf_object_get(void *handle, enum cf_kind kind);
void cf_object_put(struct cf_object *object);
/* Out of the table; the reference is the caller's. NULL: there is none. */
struct cf_object *cf_object_remove(void *handle, enum cf_kind kind);
/* The first that @match accepts, with a reference, and its handle. */
struct cf_object *cf_object_find(enum cf_kind kind,
				 bool (*match)(struct cf_object *object, const void *arg),
				 const void *arg, void **handle);

/* ----------------------------------------------------------------- files.c */

struct cf_file {
	struct cf_object object; /* must be first */
	int fd;                  /* the program's; -1: a file system in user space */
	int flags;               /* of open(2) */
	uint64_t dev, ino;
};

struct cf_file *cf_file_get(CUfileHandle_t fh);
void cf_file_put(struct cf_file *file);
void cf_files_close(void);
/* 0, or the number with which @file must refuse to be read or written. */
int cf_file_refuses(const struct cf_file *file, bool write);

/* --------------------------------------------------------------- buffers.c */

/* False: @base was registered, and the range passes the end of that. */
bool cf_buffer_holds(const void *base, off_t offset, size_t size);
void cf_buffers_close(void);

/* ---------------------------------------------------------------- driver.c */

/* Opens the driver if nobody has; 0 or a number. */
int cf_driver_use(void);
bool cf_driver_is_open(void);
int cf_version(void);

/* ---------------------------------------------------------------- config.c */

#define CF_SIZES 12
#define CF_BOOLS 14
#define CF_STRINGS 4
#define CF_STRING_MAX 1024
#define CF_SLABS 2 /* the POSIX pool's, the GPU bounce buffers' */
#define CF_SLAB_MAX 16

struct cf_slab {
	size_t size_kb[CF_SLAB_MAX];
	size_t count[CF_SLAB_MAX];
	int len;
};

struct cf_settings {
	size_t sizes[CF_SIZES];            /* by CUFileSizeTConfigParameter_t */
	bool bools[CF_BOOLS];              /* by CUFileBoolConfigParameter_t */
	char strings[CF_STRINGS][CF_STRING_MAX];
	struct cf_slab slabs[CF_SLABS];
};

/* properties.allow_compat_mode is false: nothing of a device's goes through the processor. */
extern atomic_bool cf_strict;

void cf_config_open(void);
void cf_config_close(void);
/* A value within its limits, from now on; or a number. */
int cf_config_set_size(CUFileSizeTConfigParameter_t param, size_t value);
void cf_config_set_poll(bool poll);
size_t cf_config_size(CUFileSizeTConfigParameter_t param);
bool cf_config_bool(CUFileBoolConfigParameter_t param);

/* ----------------------------------------------------------------- stats.c */

enum cf_counter {
	CF_READ, CF_WRITE, CF_HDL_REGISTER, CF_HDL_DEREGISTER, CF_BUF_REGISTER, CF_BUF_DEREGISTER,
	CF_BATCH_SUBMIT, CF_BATCH_COMPLETE, CF_BATCH_SETUP, CF_BATCH_CANCEL, CF_BATCH_DESTROY,
	CF_BATCH_ENTRY, CF_READV, CF_WRITEV,
	CF_COUNTERS,
};

/* Counts, where statistics run, and passes its number on. */
CUfileError_t cf_count(enum cf_counter counter, int number);
/* The time to give to cf_count_io(); 0: statistics do not run. */
uint64_t cf_stats_start(void);
void cf_count_io(enum cf_counter counter, ssize_t result, size_t asked, uint64_t start);
void cf_count_batch_io(bool write, ssize_t result);
/* As the settings ask for. */
void cf_stats_open(size_t level);

#endif
