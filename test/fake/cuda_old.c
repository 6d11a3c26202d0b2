// SPDX-License-Identifier: Apache-2.0
/* A libcuda.so.1 that lacks nearly everything. */

__attribute__((visibility("default"))) int cuInit(unsigned int flags)
{
	return 0;
}
