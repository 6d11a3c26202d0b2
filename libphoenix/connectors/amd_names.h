/* SPDX-License-Identifier: Apache-2.0 */
/* The NVIDIA connector, built again as AMD's. */
#ifndef AMD_NAMES_H
#define AMD_NAMES_H

#define NVIDIA_PREFIX amd
#define NVIDIA_NAME "amd"
#define NVIDIA_VENDOR "AMD"
#define NVIDIA_RUNTIME "HIP"
#define NVIDIA_HELD_STREAMS 1 /* without a context of our own, beside one at a time */
#include "nvidia_names.h"

#endif
