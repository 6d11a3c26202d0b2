// SPDX-License-Identifier: Apache-2.0
// The library is taken down by the destructor of a static object.
#include <fcntl.h>
#include <phoenix.h>
#include <unistd.h>

namespace {

struct Device {
	void *buf = nullptr;
	bool ok = false;

	Device()
	{
		ok = phxfs_open(0) == 0 && phxfs_mem_alloc(0, PHXFS_DEVICE_PAGE, &buf) == 0 &&
		     phxfs_regmem(0, buf, PHXFS_DEVICE_PAGE, nullptr) == 0;
	}

	~Device()
	{
		if (!ok || phxfs_deregmem(0, buf, PHXFS_DEVICE_PAGE) || phxfs_mem_free(0, buf) ||
		    phxfs_close(0))
			_exit(3);
	}
};

Device device; // used before main, and after it

} // namespace

int main(int argc, char **argv)
{
	phxfs_io_req_t req = {};

	req.fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	req.buf = device.buf;
	req.nbytes = PHXFS_DEVICE_PAGE;
	return device.ok && phxfs_read_batch(&req, 1) == 0 ? 0 : 2;
}
