# SPDX-License-Identifier: GPL-2.0-only
# A plain export: never found by a lookup. AMD_RDMA_H= names the driver's amd_rdma.h, which
# tells whether its get_pages wants a device; else it is looked for beside the symvers.
phxfs-symvers-amd := /usr/src/amdgpu-*/Module.symvers /var/lib/dkms/amdgpu/*/build/Module.symvers
phxfs-needs-amd := amdkfd_query_rdma_interface
AMD_RDMA_H ?= $(firstword $(wildcard $(addsuffix include/drm/amd_rdma.h,$(dir $(KBUILD_EXTRA_SYMBOLS)))))
CFLAGS_amd-backend.o += $(call phxfs-linked,amdkfd_query_rdma_interface)
CFLAGS_amd-backend.o += $(if $(wildcard $(AMD_RDMA_H)),$(shell grep -q 'struct device \*' $(AMD_RDMA_H) || \
	echo -DPHXFS_AMD_NO_DMA_DEVICE))
