// SPDX-License-Identifier: Apache-2.0
/*
 * MetaX's GPUs, by the NVIDIA connector as it is: MetaX's runtime is compatible
 * with CUDA's, and metax_runtime.c makes the driver's calls of it.
 */
#include "metax_names.h"

#include "nvidia_connector.c"
#include "nvidia_copy.c"
#include "nvidia_stream.c"
