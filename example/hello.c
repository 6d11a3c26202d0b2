// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <phoenix.h>
#include <stdio.h>
#include <sys/stat.h>

int main(int argc, char **argv)
{
	const char *path = argv[argc - 1];
	int fd = open(path, O_RDONLY | O_DIRECT);
	struct stat st;
	void *buf;
	ssize_t n = -1;

	if (fd < 0)
		fd = open(path, O_RDONLY); /* this file system has no O_DIRECT */
	if (fd < 0 || fstat(fd, &st)) {
		perror(path);
		return 1;
	}
	/* A registration is a whole number of device pages of 64 KiB. */
	size_t len = (st.st_size / PHXFS_DEVICE_PAGE + 1) * PHXFS_DEVICE_PAGE;

	if (phxfs_open(0))
		goto out;
	if (phxfs_mem_alloc(0, len, &buf))
		goto out_close;
	if (phxfs_regmem(0, buf, len, NULL))
		goto out_free;
	n = phxfs_read(fd, 0, buf, 0, st.st_size, 0);
	phxfs_deregmem(0, buf, len);
out_free:
	phxfs_mem_free(0, buf);
out_close:
	phxfs_close(0);
out:
	if (n < 0)
		fprintf(stderr, "%s\n", phxfs_last_error());
	else
		printf("%s: %zd bytes are in device memory\n", path, n);
	return n != st.st_size;
}
