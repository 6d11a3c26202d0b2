// SPDX-License-Identifier: Apache-2.0
/*
 * A process that loads the library at run time, perhaps twice, uses it and
 * lets go of it before it ends. usage: exit_dlopen local|global LIBRARY FILE
 *
 * Names like those inside the library are defined here, with other meanings.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int phx_init(void);
int phx_init(void)
{
	abort();
}

int phx_fail(void);
int phx_fail(void)
{
	abort();
}

int phx_engine(void);
int phx_engine(void)
{
	abort();
}

static void *need(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	if (!p) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	return p;
}

#define CALL(name) ((__typeof__(&name))need(lib, #name))

static void use(void *lib, int fd)
{
	phxfs_io_req_t req = { .fd = fd, .nbytes = PHXFS_DEVICE_PAGE };

	if (CALL(phxfs_open)(0) || CALL(phxfs_mem_alloc)(0, PHXFS_DEVICE_PAGE, &req.buf) ||
	    CALL(phxfs_regmem)(0, req.buf, PHXFS_DEVICE_PAGE, NULL))
		exit(2);
	if (CALL(phxfs_read_batch)(&req, 1) != 0 || req.result != (ssize_t)PHXFS_DEVICE_PAGE)
		exit(2);
	if (CALL(phxfs_read)(fd, 0, req.buf, 0, -1, 0) >= 0 || !*CALL(phxfs_last_error)())
		exit(2);
	if (CALL(phxfs_close)(0) || CALL(phxfs_mem_free)(0, req.buf))
		exit(2);
}

int main(int argc, char **argv)
{
	int flags, fd;

	if (argc != 4)
		return 2;
	flags = RTLD_NOW | (!strcmp(argv[1], "global") ? RTLD_GLOBAL : RTLD_LOCAL);
	fd = open(argv[3], O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 2;
	for (int i = 0; i < 2; i++) {
		void *lib = dlopen(argv[2], flags);

		if (!lib) {
			fprintf(stderr, "%s\n", dlerror());
			return 2;
		}
		use(lib, fd);
		if (dlclose(lib))
			return 2;
	}
	usleep(200);
	return 0;
}
