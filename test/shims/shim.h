/* SPDX-License-Identifier: Apache-2.0 */
/* Memory as programs of the foreign ABIs have it, on HOST devices and on accelerators. */
#ifndef SHIM_H
#define SHIM_H

#include <sys/mman.h>

#include "t_file.h"

static inline bool on_host(void)
{
	return phxfs_device_mode(0) == PHXFS_MODE_HOST;
}

/* Ordinary memory, or memory that the CPU cannot touch. */
static inline char *memory(size_t len)
{
	void *p;

	if (on_host()) {
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		T_CHECK(p != MAP_FAILED);
		return p;
	}
	T_EQ(phxfs_mem_alloc(0, len, &p), 0);
	return p;
}

#endif
