// SPDX-License-Identifier: Apache-2.0
/*
 * AMD's GPUs, by the NVIDIA connector as it is: HIP has CUDA's functions and numbers,
 * and amd_runtime.c makes the driver's calls of it.
 */
#include "amd_names.h"

#include "nvidia_connector.c"
#include "nvidia_copy.c"
#include "nvidia_stream.c"
