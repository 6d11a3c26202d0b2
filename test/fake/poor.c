// SPDX-License-Identifier: Apache-2.0
/* A runtime that has next to nothing of what is needed. */
__attribute__((visibility("default"))) int aclInit(const char *config)
{
	return 0;
}

__attribute__((visibility("default"))) const char *hipGetErrorName(int result)
{
	return "";
}
