/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of any address and length. libphoenix registers whole pages of 64 KiB
 * that lie apart; what of a range it will have is registered, and a transfer
 * finds that by the address alone (PHXFS_DEVICE_ANY). The rest goes through
 * chunks.
 *
 * A device is opened when its memory is first registered, so that no
 * accelerator is touched that no buffer lies on.
 */
#ifndef PAGES_H
#define PAGES_H

#include <stddef.h>
#include <stdint.h>

struct pages {
	int device;     /* -1: host memory, which needs no registration */
	uintptr_t base; /* what libphoenix holds */
	size_t len;     /* 0: nothing */
};

/* 0; -ERANGE: the range passes the end of its allocation; or why the device cannot be opened. */
int pages_register(const void *addr, size_t len, struct pages *out);
void pages_deregister(const struct pages *pages);
/* Close the devices that were opened: what is still registered on them is not any more. */
void pages_close(void);

#endif
