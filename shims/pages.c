// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <phoenix.h>
#include <pthread.h>
#include <stdbool.h>

#include "pages.h"

#define PAGE_MASK (PHXFS_DEVICE_PAGE - 1)
#define DEVICES 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool opened[DEVICES]; /* protected by: lock */

static int open_device(int device)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	if (device >= 0 && device < DEVICES && !opened[device]) {
		err = phxfs_open(device);
		opened[device] = !err;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

void pages_close(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < DEVICES; i++) {
		if (opened[i])
			phxfs_close(i);
		opened[i] = false;
	}
	pthread_mutex_unlock(&lock);
}

/* False: libphoenix would not have them. */
static bool try_pages(struct pages *pages, uintptr_t from, uintptr_t to)
{
	if (to <= from || phxfs_regmem(pages->device, (void *)from, to - from, NULL))
		return false;
	pages->base = from;
	pages->len = to - from;
	return true;
}

/* The pages that the range touches, where they are the allocation's; else those it fills. */
int pages_register(const void *addr, size_t len, struct pages *out)
{
	uintptr_t base = (uintptr_t)addr, end = base + len;
	uintptr_t from = base & ~PAGE_MASK, to = (end + PAGE_MASK) & ~PAGE_MASK;
	struct phxfs_pointer_info at = { .size = sizeof(at) };
	int err;

	*out = (struct pages){ .device = -1 };
	if (phxfs_pointer_info(addr, len, &at))
		return 0;
	if (end > at.base + at.length)
		return -ERANGE;
	err = open_device(at.device);
	if (err)
		return err;
	out->device = at.device;
	if (from < at.base || to > at.base + at.length || !try_pages(out, from, to))
		try_pages(out, (base + PAGE_MASK) & ~PAGE_MASK, end & ~PAGE_MASK);
	return 0;
}

void pages_deregister(const struct pages *pages)
{
	if (pages->len)
		phxfs_deregmem(pages->device, (void *)pages->base, pages->len);
}
