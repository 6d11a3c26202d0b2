// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of FGDS over libphoenix.
 *
 * What libphoenix does not keep is the way back from a target address to the
 * buffer: a tree of targets, and how often each device was opened here, so
 * that the last close takes away what this library registered, whoever else in
 * the process has the device open.
 *
 * Lock: lock protects the tree and the counts; never held while libphoenix
 * registers or waits for transfers.
 */
#include <errno.h>
#include <fgds.h>
#include <limits.h>
#include <phoenix.h>
#include <pthread.h>
#include <search.h>
#include <stdint.h>
#include <stdlib.h>

#define MAX_DEVICES 64

/* Made by the first fgds_regmem() of a range; freed by the last fgds_deregmem(). */
struct target {
	uintptr_t at;    /* the target address */
	size_t len;
	int device;
	char *addr;      /* the device address */
	unsigned int users;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static void *by_target, *by_addr;  /* trees of tsearch(3), of the same nodes */
static unsigned int opens[MAX_DEVICES];

static ssize_t moved(ssize_t n)
{
	if (n >= 0)
		return n;
	errno = (int)-n;
	return -1;
}

static int result(int rc)
{
	return (int)moved(rc);
}

/* Ranges that overlap are the same: those in a tree never do. */
static int compare(const struct target *x, const struct target *y, uintptr_t a, uintptr_t b)
{
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	if (a + x->len <= b)
		return -1;
	return b + y->len <= a;
}

static int compare_targets(const void *a, const void *b)
{
	const struct target *x = a, *y = b;

	return compare(x, y, x->at, y->at);
}

static int compare_addrs(const void *a, const void *b)
{
	const struct target *x = a, *y = b;

	return compare(x, y, (uintptr_t)x->addr, (uintptr_t)y->addr);
}

static struct target *find_target(int device, uintptr_t at, size_t len)
{
	struct target wanted = { .at = at, .len = len, .device = device };
	struct target **found = tfind(&wanted, &by_target, compare_targets);

	return found ? *found : NULL;
}

static struct target *find_addr(int device, const void *addr, size_t len)
{
	struct target wanted = { .addr = (char *)addr, .len = len, .device = device };
	struct target **found = tfind(&wanted, &by_addr, compare_addrs);

	return found ? *found : NULL;
}

static void take_out(struct target *target)
{
	tdelete(target, &by_target, compare_targets);
	tdelete(target, &by_addr, compare_addrs);
	free(target);
}

/* ---------------------------------------------------------------- devices */

int fgds_open(int deviceID)
{
	int err = phxfs_open(deviceID);

	if (!err && deviceID < MAX_DEVICES) {
		pthread_rwlock_wrlock(&lock);
		opens[deviceID]++;
		pthread_rwlock_unlock(&lock);
	}
	return result(err);
}

/* Undo every registration of the device; with the lock held, which it drops at times. */
static void remove_all(int device)
{
	struct target *target, gone;

	while ((target = find_target(device, 0, UINTPTR_MAX))) {
		gone = *target;
		take_out(target);
		pthread_rwlock_unlock(&lock);
		while (gone.users--)
			phxfs_deregmem(device, gone.addr, gone.len);
		pthread_rwlock_wrlock(&lock);
	}
}

int fgds_close(int deviceID)
{
	pthread_rwlock_wrlock(&lock);
	if (deviceID < 0 || deviceID >= MAX_DEVICES || !opens[deviceID]) {
		pthread_rwlock_unlock(&lock);
		return result(-ENODEV);
	}
	if (--opens[deviceID] == 0)
		remove_all(deviceID);
	pthread_rwlock_unlock(&lock);
	return result(phxfs_close(deviceID));
}

/* ----------------------------------------------------------- registrations */

/* 0, or -errno with nothing added. */
static int add(int device, const void *addr, size_t len, void *at)
{
	struct target *target = find_addr(device, addr, len);

	if (!opens[device]) /* closed meanwhile */
		return -ENODEV;
	if (target) {
		target->users++;
		return 0;
	}
	target = malloc(sizeof(*target));
	if (!target)
		return -ENOMEM;
	*target = (struct target){ .at = (uintptr_t)at, .len = len, .device = device,
				   .addr = (char *)addr, .users = 1 };
	if (!tsearch(target, &by_target, compare_targets))
		goto err_free;
	if (!tsearch(target, &by_addr, compare_addrs))
		goto err_delete;
	return 0;

err_delete:
	tdelete(target, &by_target, compare_targets);
err_free:
	free(target);
	return -ENOMEM;
}

int fgds_regmem(int device_id, const void *addr, size_t len, void **target_addr)
{
	void *at;
	int err;

	if (!target_addr)
		return result(-EINVAL);
	err = phxfs_regmem(device_id, addr, len, &at);
	if (err)
		return result(err);
	pthread_rwlock_wrlock(&lock);
	err = add(device_id, addr, len, at);
	pthread_rwlock_unlock(&lock);
	if (err) {
		phxfs_deregmem(device_id, addr, len);
		return result(err);
	}
	*target_addr = at;
	return 0;
}

int fgds_deregmem(int device_id, const void *addr, size_t len)
{
	struct target *target;
	int err = 0;

	pthread_rwlock_wrlock(&lock);
	target = find_addr(device_id, addr, len);
	if (device_id < 0 || device_id >= MAX_DEVICES || !opens[device_id])
		err = -ENODEV;
	else if (!len || !target || target->addr != addr || target->len != len)
		err = -EINVAL;
	else if (--target->users == 0)
		take_out(target);
	pthread_rwlock_unlock(&lock);
	return result(err ? err : phxfs_deregmem(device_id, addr, len));
}

/* ----------------------------------------------------------------- transfers */

/* The device address for an address of the program's: its own, or its target's. */
static char *device_address(int device, const void *buf)
{
	char *addr = (char *)buf;
	struct target *target;

	pthread_rwlock_rdlock(&lock);
	target = find_target(device, (uintptr_t)buf, 1);
	if (target)
		addr = target->addr + ((uintptr_t)buf - target->at);
	pthread_rwlock_unlock(&lock);
	return addr;
}

static int check(int device, size_t nbyte)
{
	if (device < 0) /* to libphoenix that is a host buffer */
		return -ENODEV;
	return nbyte > SSIZE_MAX ? -EINVAL : 0;
}

ssize_t fgds_read(int fd, int device_id, void *buf, size_t nbyte, off_t offset)
{
	int err = check(device_id, nbyte);

	return moved(err ? err : phxfs_read(fd, device_id, device_address(device_id, buf), 0,
					    (ssize_t)nbyte, offset));
}

ssize_t fgds_write(int fd, int device_id, const void *buf, size_t nbyte, off_t offset)
{
	int err = check(device_id, nbyte);

	return moved(err ? err : phxfs_write(fd, device_id, device_address(device_id, buf), 0,
					     (ssize_t)nbyte, offset));
}
