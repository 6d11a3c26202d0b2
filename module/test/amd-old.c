// SPDX-License-Identifier: GPL-2.0-only
/* phxfs-amd-old.ko: AMD's backend as it is built against an old release's header. */
#define PHXFS_LINKED
#define PHXFS_AMD_NO_DMA_DEVICE
#include "../amd-backend.c"
