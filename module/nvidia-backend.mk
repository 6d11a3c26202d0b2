# SPDX-License-Identifier: GPL-2.0-only
# Plain exports up to 535.161 and 545, GPL ones later.
phxfs-symvers-nvidia := /usr/src/nvidia-*/Module.symvers /var/lib/dkms/nvidia*/*/build/Module.symvers
CFLAGS_nvidia-backend.o += $(call phxfs-linked,nvidia_p2p_get_pages)
CFLAGS_nvidia-backend.o += $(if $(call phxfs-linked,nvidia_p2p_get_pages_persistent),-DPHXFS_LINKED_PERSISTENT)
