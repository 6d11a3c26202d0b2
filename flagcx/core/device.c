// SPDX-License-Identifier: Apache-2.0
/* Accelerator memory, through phoenix.h. HOST devices are plain memory. */
#include "engine.h"

#include "phoenix.h"

int p2p_device_of(const void *addr)
{
	int device = phxfs_pointer_device(addr);

	if (device < 0 || phxfs_device_mode(device) == PHXFS_MODE_HOST)
		return -1;
	return device;
}

int p2p_device_read(int device, void *host, const void *dev, size_t n)
{
	int rc;

	p2p_foreign_begin();
	rc = phxfs_memcpy_from(device, host, dev, n);
	p2p_foreign_end();
	return rc;
}

int p2p_device_write(int device, void *dev, const void *host, size_t n)
{
	int rc;

	p2p_foreign_begin();
	rc = phxfs_memcpy_to(device, dev, host, n);
	p2p_foreign_end();
	return rc;
}

int p2p_device_default(void)
{
	return 0; /* callers expect a number; the first device, or none */
}
