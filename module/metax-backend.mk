# SPDX-License-Identifier: GPL-2.0-only
# Plain exports in some releases.
phxfs-symvers-metax := /usr/src/metax-*/Module.symvers /var/lib/dkms/metax*/*/build/Module.symvers
CFLAGS_metax-backend.o += $(call phxfs-linked,metax_p2p_acquire_mem)
