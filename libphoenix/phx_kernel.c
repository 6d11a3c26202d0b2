// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "uapi/phxfs.h"

#include "phoenix.h"
#include "phx_error.h"
#include "phx_kernel.h"

#define CLASS_DIRECTORY "/sys/class/" PHXFS_CLASS

/* One line of a sysfs file, without its newline; "" when it is not there. */
static void read_line(const char *node, const char *file, char *out, size_t size)
{
	char path[128];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), CLASS_DIRECTORY "/%s/%s", node, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		n = read(fd, out, size - 1);
		close(fd);
	}
	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

/* A module of another ABI could be misread: then it is as good as none. */
static bool same_abi(const char *name, struct phx_kernel_node *node)
{
	char abi[16], *end;

	read_line(name, "abi", abi, sizeof(abi));
	if (abi[0] && strtoul(abi, &end, 10) == PHXFS_ABI_VERSION && !*end)
		return true;
	snprintf(node->status, sizeof(node->status),
		 "its ABI is %s, this library's is %d: use both of one release",
		 abi[0] ? abi : "older than 1", PHXFS_ABI_VERSION);
	return false;
}

static int read_node(const char *name, struct phx_kernel_node *node)
{
	const size_t prefix = sizeof(PHXFS_DEV_PREFIX) - 1;
	char mode[8], *end;

	if (strncmp(name, PHXFS_DEV_PREFIX, prefix))
		return -ENOENT;
	node->number = (int)strtol(name + prefix, &end, 10);
	if (end == name + prefix || *end)
		return -ENOENT;
	read_line(name, "pci_bdf", node->bdf, sizeof(node->bdf));
	read_line(name, "backend", node->backend, sizeof(node->backend));
	read_line(name, "status", node->status, sizeof(node->status));
	read_line(name, "map_mode", mode, sizeof(mode));
	if (same_abi(name, node) && strcmp(mode, "0") && strcmp(mode, "1"))
		return -ENOENT;
	node->map_mode = mode[0] == '0' ? PHXFS_MODE_FULL : PHXFS_MODE_STAGING;
	return 0;
}

int phx_kernel_scan(struct phx_kernel_node *nodes, int max)
{
	DIR *dir = opendir(CLASS_DIRECTORY);
	struct dirent *entry;
	int n = 0;

	if (!dir)
		return 0;
	while (n < max && (entry = readdir(dir))) {
		if (!read_node(entry->d_name, &nodes[n]))
			n++;
	}
	closedir(dir);
	return n;
}

/* Is what was opened what sysfs told of? */
static int check_node(int fd, int number, int map_mode, const char *bdf)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };

	if (ioctl(fd, PHXFS_IOCTL_QUERY, &q) < 0)
		return phx_fail(-errno, "open", "use a library and a module of one release",
				"asking /dev/" PHXFS_DEV_PREFIX "%d", number);
	if (q.abi != PHXFS_ABI_VERSION)
		return phx_fail(-EPROTO, "open", "use a library and a module of one release",
				"/dev/" PHXFS_DEV_PREFIX "%d has ABI %u, this library %d", number,
				q.abi, PHXFS_ABI_VERSION);
	if ((int)q.map_mode != map_mode || strncmp(q.pci_bdf, bdf, sizeof(q.pci_bdf)))
		return phx_fail(-ESTALE, "open",
				"the module was loaded anew, differently: restart the program",
				"/dev/" PHXFS_DEV_PREFIX "%d is %.31s in mode %u, not %s in %d",
				number, q.pci_bdf, q.map_mode, bdf, map_mode);
	return 0;
}

int phx_kernel_open(int number, int map_mode, const char *bdf)
{
	char path[40];
	int fd, err;

	snprintf(path, sizeof(path), "/dev/" PHXFS_DEV_PREFIX "%d", number);
	do {
		fd = open(path, O_RDWR | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return phx_fail(-errno, "open",
				errno == EACCES ? "join the group that owns the node" :
				errno == ENOENT ? "mount devtmpfs, or make the node by hand" :
						  NULL,
				"%s", path);
	err = check_node(fd, number, map_mode, bdf);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

/* What an errno of MAP means to who registers. */
static const char *map_cure(int err)
{
	switch (err) {
	case EINVAL:
		return "the address is not memory of this device, or (STAGING) its pages are not "
		       "whole, aligned 2 MiB pieces";
	case ENXIO:
		return "the memory lies outside the BAR, or in a part that another driver holds";
	case ENODEV:
		return "the device was unbound or removed";
	case EOPNOTSUPP:
		return "see the device's status in sysfs, or phx check";
	case EPERM:
		return "open the device in this process";
	default:
		return NULL;
	}
}

static int map_ioctl(int fd, unsigned long request, int number, const void *addr, size_t len,
		     void *mapping)
{
	struct phxfs_ioctl_map arg = {
		.dev_id = (uint64_t)number,
		.c_vaddr = (uintptr_t)mapping,
		.c_size = len,
		.n_vaddr = (uintptr_t)addr,
		.n_size = len,
		.end_addr = (uintptr_t)addr + len,
	};
	int err;

	do {
		err = ioctl(fd, request, &arg);
	} while (err < 0 && errno == EINTR);
	return err < 0 ? -errno : 0;
}

int phx_kernel_map(int fd, int number, const void *addr, size_t len, void **mapping)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int err;

	if (at == MAP_FAILED)
		return phx_fail(-errno, "mmap of the device", NULL, "%#zx bytes of /dev/%s%d", len,
				PHXFS_DEV_PREFIX, number);
	err = map_ioctl(fd, PHXFS_IOCTL_MAP, number, addr, len, at);
	if (err) {
		munmap(at, len);
		return phx_fail(err, "mapping device memory", map_cure(-err),
				"%#zx bytes at %p of /dev/%s%d", len, addr, PHXFS_DEV_PREFIX,
				number);
	}
	*mapping = at;
	return 0;
}

void phx_kernel_unmap(int fd, int number, const void *addr, size_t len, void *mapping)
{
	/* munmap() unregisters too, so an error here leaves nothing behind. */
	map_ioctl(fd, PHXFS_IOCTL_UNMAP, number, addr, len, mapping);
	munmap(mapping, len);
}
