/* SPDX-License-Identifier: Apache-2.0 */
/* The NVIDIA connector, built again as MetaX's. */
#ifndef METAX_NAMES_H
#define METAX_NAMES_H

#define NVIDIA_PREFIX metax
#define NVIDIA_NAME "metax"
#define NVIDIA_VENDOR "MetaX"
#define NVIDIA_RUNTIME "MetaX's runtime"
#define NVIDIA_HELD_STREAMS 1 /* without a context of our own, beside one at a time */
#include "nvidia_names.h"

#endif
