// SPDX-License-Identifier: Apache-2.0
// example FILE: the whole life of a buffer with the calls of FGDS. Writes 16 MiB
// of device memory to FILE, reads them back into other memory, and compares.
//
//   g++ example.cc -lfgds -lphoenix
//
// The device memory is libphoenix's, so that this runs on every vendor and
// without an accelerator; in a CUDA program cudaMalloc() takes its place.

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fgds.h>
#include <phoenix.h>
#include <unistd.h>

namespace
{

constexpr int device = 0;
constexpr size_t size = 16 << 20;
constexpr size_t block = 1 << 20;

struct buffer {
	void *memory = nullptr; // device address
	void *target = nullptr; // where plain I/O reaches it, if anything does
};

int fail(const char *what)
{
	std::fprintf(stderr, "example: %s: %s\n", what, std::strerror(errno));
	return 1;
}

bool make(buffer &b)
{
	if (phxfs_mem_alloc(device, size, &b.memory) < 0)
		return false;
	return fgds_regmem(device, b.memory, size, &b.target) == 0;
}

// Plain I/O where the target can be used; where it cannot, that says EFAULT.
ssize_t store(int fd, const buffer &b, off_t at)
{
	ssize_t n = pwrite(fd, static_cast<char *>(b.target) + at, block, at);

	if (n < 0 && errno == EFAULT)
		n = fgds_write(fd, device, static_cast<char *>(b.memory) + at, block, at);
	return n;
}

ssize_t load(int fd, const buffer &b, off_t at)
{
	ssize_t n = pread(fd, static_cast<char *>(b.target) + at, block, at);

	if (n < 0 && errno == EFAULT)
		n = fgds_read(fd, device, static_cast<char *>(b.memory) + at, block, at);
	return n;
}

int run(int fd)
{
	std::vector<char> pattern(size), back(size);
	buffer from, to;

	for (size_t i = 0; i < size; i++)
		pattern[i] = static_cast<char>(i * 2654435761u >> 13);
	if (!make(from) || !make(to))
		return fail("device memory");
	if (phxfs_memcpy_to(device, from.memory, pattern.data(), size) < 0)
		return fail("filling device memory");

	for (size_t at = 0; at < size; at += block)
		if (store(fd, from, static_cast<off_t>(at)) != static_cast<ssize_t>(block))
			return fail("writing");
	for (size_t at = 0; at < size; at += block)
		if (load(fd, to, static_cast<off_t>(at)) != static_cast<ssize_t>(block))
			return fail("reading");

	if (phxfs_memcpy_from(device, back.data(), to.memory, size) < 0)
		return fail("looking at device memory");
	if (back != pattern) {
		std::fprintf(stderr, "example: what came back is not what was written\n");
		return 1;
	}
	for (buffer *b : { &from, &to }) {
		if (fgds_deregmem(device, b->memory, size) < 0)
			return fail("fgds_deregmem");
		phxfs_mem_free(device, b->memory);
	}
	std::printf("%zu bytes to the file and back\n", size);
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2) {
		std::fprintf(stderr, "usage: example FILE\n");
		return 2;
	}
	if (fgds_open(device) < 0)
		return fail("fgds_open");
	int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (fd < 0 && errno == EINVAL) // no O_DIRECT on this file system
		fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return fail(argv[1]);
	int status = run(fd);
	close(fd);
	if (fgds_close(device) < 0)
		return fail("fgds_close");
	return status;
}
