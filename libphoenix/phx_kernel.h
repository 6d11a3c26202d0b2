/* SPDX-License-Identifier: Apache-2.0 */
/*
 * phxfs.ko, seen from here: which devices it serves, and mapping their memory.
 * The only part of the library that knows the module's ABI.
 */
#ifndef PHX_KERNEL_H
#define PHX_KERNEL_H

#include <stddef.h>

struct phx_kernel_node {
	int number;       /* N of /dev/phxfs_devN */
	int map_mode;     /* enum phxfs_mode: FULL or STAGING */
	char bdf[16];
	char backend[16];
	char status[128]; /* "ok", or why the device cannot be mapped, or not by this library */
};

/* Fill @nodes with what sysfs shows; their number, 0 without the module. */
int phx_kernel_scan(struct phx_kernel_node *nodes, int max);

/*
 * Open the device node: a descriptor, or -errno with the error recorded. @map_mode and @bdf
 * are what phx_kernel_scan() saw: a module that was loaded anew since, and has another
 * device there, must not be taken for it.
 */
int phx_kernel_open(int number, int map_mode, const char *bdf);

/*
 * Map @len bytes of device memory at @addr; *mapping is where the CPU and
 * storage reach them. 0, or -errno with the error recorded.
 */
int phx_kernel_map(int fd, int number, const void *addr, size_t len, void **mapping);
void phx_kernel_unmap(int fd, int number, const void *addr, size_t len, void *mapping);

#endif
