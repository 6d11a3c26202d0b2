// SPDX-License-Identifier: GPL-2.0-only
/*
 * An older user library: knows nothing but open, mmap, and the MAP and UNMAP calls of the
 * first public release, with its own copy of their layout and fields it never sets. It
 * includes no header of this project. Usage: old_library FILE
 *
 * Only the device memory comes from the accelerator's runtime, as it would there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct old_dev_info {
	uint64_t dev_id;
} __attribute__((packed, aligned(8)));

struct old_map {
	struct old_dev_info dev;
	uint64_t c_vaddr;
	uint64_t c_size;
	uint64_t n_vaddr;
	uint64_t n_size;
	uint64_t end_addr;
	uint32_t sbuf_block;
} __attribute__((packed, aligned(8)));

#define OLD_MAP		_IOW(0x88, 1, struct old_map)
#define OLD_UNMAP	_IOW(0x88, 2, struct old_map)
#define LENGTH		(2u << 20)

#define TRY(expr)                                                                             \
	do {                                                                                  \
		if (!(expr)) {                                                                \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expr,         \
				strerror(errno));                                             \
			return 1;                                                             \
		}                                                                             \
	} while (0)

static int call(int fd, unsigned long cmd, void *host, void *device)
{
	struct old_map para;

	memset(&para, 0xa5, sizeof(para));	/* its stack */
	para.n_vaddr = (uintptr_t)device;
	para.c_vaddr = (uintptr_t)host;
	para.c_size = LENGTH;
	para.n_size = LENGTH;
	para.dev.dev_id = 0;
	return ioctl(fd, cmd, &para);
}

int main(int argc, char **argv)
{
	void *sim = dlopen("libphxsim.so", RTLD_NOW), *device, *host, *check;
	int (*alloc)(int, size_t, unsigned int, void **);
	int (*dtoh)(void *, const void *, size_t);
	int dev, file;

	TRY(argc == 2 && sim);
	alloc = (int (*)(int, size_t, unsigned int, void **))dlsym(sim, "phxsim_mem_alloc");
	dtoh = (int (*)(void *, const void *, size_t))dlsym(sim, "phxsim_memcpy_dtoh");
	TRY(alloc && dtoh && !alloc(0, LENGTH, 1, &device));
	TRY((check = aligned_alloc(4096, LENGTH)));
	TRY((dev = open("/dev/phxfs_dev0", O_RDWR)) >= 0);
	TRY((file = open(argv[1], O_RDWR | O_DIRECT)) >= 0);

	memset(check, 0x5a, LENGTH);
	TRY(pwrite(file, check, LENGTH, 0) == LENGTH);
	host = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, dev, 0);
	TRY(host != MAP_FAILED);
	TRY(!call(dev, OLD_MAP, host, device));
	TRY(pread(file, host, LENGTH, 0) == LENGTH);
	TRY(!dtoh(check, device, LENGTH));
	for (size_t i = 0; i < LENGTH; i++)
		TRY(((unsigned char *)check)[i] == 0x5a);
	TRY(pwrite(file, host, LENGTH, LENGTH) == LENGTH);
	memset(check, 0, LENGTH);
	TRY(pread(file, check, LENGTH, LENGTH) == LENGTH);
	for (size_t i = 0; i < LENGTH; i++)
		TRY(((unsigned char *)check)[i] == 0x5a);
	TRY(!call(dev, OLD_UNMAP, host, device));
	TRY(!munmap(host, LENGTH));
	printf("ok old library\n");
	return 0;
}
