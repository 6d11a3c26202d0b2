// SPDX-License-Identifier: Apache-2.0
/*
 * Files that were registered. Nothing is kept of a file but what refuses a
 * transfer early, so that registering costs two system calls; the descriptor
 * stays the program's.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "cufile.h"

/* Protects nothing but the order of "is it registered" and "register it". */
static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;

struct cf_file *cf_file_get(CUfileHandle_t fh)
{
	return (struct cf_file *)cf_object_get(fh, CF_FILE);
}

void cf_file_put(struct cf_file *file)
{
	cf_object_put(&file->object);
}

int cf_file_refuses(const struct cf_file *file, bool write)
{
	if (file->fd < 0)
		return CU_FILE_DRIVER_CLOSING; /* what cuFile says of user-space file systems */
	if (write && (file->flags & O_ACCMODE) == O_RDONLY)
		return EIO;
	if (!write && (file->flags & O_ACCMODE) == O_WRONLY)
		return CU_FILE_INVALID_FILE_OPEN_FLAG;
	return 0;
}

static void free_file(struct cf_object *object)
{
	free(object);
}

static bool same_descriptor(struct cf_object *object, const void *arg)
{
	return ((struct cf_file *)object)->fd == *(const int *)arg;
}

/*
 * A descriptor is registered once. One that was closed without telling and is
 * now another file's is not the one that was registered.
 */
static int check_twice(const struct cf_file *file)
{
	struct cf_file *other;
	void *handle;
	bool same;

	other = (struct cf_file *)cf_object_find(CF_FILE, same_descriptor, &file->fd, &handle);
	if (!other)
		return 0;
	same = other->dev == file->dev && other->ino == file->ino && other->flags == file->flags;
	cf_file_put(other);
	if (same)
		return CU_FILE_HANDLE_ALREADY_REGISTERED;
	other = (struct cf_file *)cf_object_remove(handle, CF_FILE);
	if (other)
		cf_file_put(other);
	return 0;
}

static int inspect(struct cf_file *file, int fd)
{
	struct stat st;

	file->fd = fd;
	file->flags = fcntl(fd, F_GETFL);
	if (file->flags < 0 || fstat(fd, &st))
		return CU_FILE_INVALID_VALUE;
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return CU_FILE_INVALID_FILE_TYPE;
	if (file->flags & (O_APPEND | O_PATH))
		return CU_FILE_INVALID_FILE_OPEN_FLAG;
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	return check_twice(file);
}

static int register_file(CUfileHandle_t *fh, const CUfileDescr_t *descr)
{
	struct cf_file *file;
	void *handle;
	int number;

	if (!fh || !descr)
		return CU_FILE_INVALID_VALUE;
	if (descr->type != CU_FILE_HANDLE_TYPE_OPAQUE_FD &&
	    descr->type != CU_FILE_HANDLE_TYPE_USERSPACE_FS)
		return CU_FILE_IO_NOT_SUPPORTED;
	number = cf_driver_use();
	if (number)
		return number;
	file = calloc(1, sizeof(*file));
	if (!file)
		return CU_FILE_NOMEM_ERROR;
	file->object.kind = CF_FILE;
	file->object.refs = 1;
	file->object.free = free_file;
	file->fd = -1;
	pthread_mutex_lock(&register_lock);
	if (descr->type == CU_FILE_HANDLE_TYPE_OPAQUE_FD)
		number = inspect(file, descr->handle.fd);
	handle = number ? NULL : cf_object_add(&file->object);
	pthread_mutex_unlock(&register_lock);
	if (!handle) {
		free(file);
		return number ? number : CU_FILE_NOMEM_ERROR;
	}
	*fh = handle;
	return CU_FILE_SUCCESS;
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	return cf_count(CF_HDL_REGISTER, register_file(fh, descr));
}

void cuFileHandleDeregister(CUfileHandle_t fh)
{
	struct cf_object *object = cf_object_remove(fh, CF_FILE);

	cf_count(CF_HDL_DEREGISTER, object ? 0 : CU_FILE_HANDLE_NOT_REGISTERED);
	if (object)
		cf_object_put(object);
}

static bool any(struct cf_object *object, const void *arg)
{
	return true;
}

void cf_files_close(void)
{
	struct cf_object *object;
	void *handle;

	while ((object = cf_object_find(CF_FILE, any, NULL, &handle))) {
		cf_object_put(object);
		object = cf_object_remove(handle, CF_FILE);
		if (object)
			cf_object_put(object);
	}
}
