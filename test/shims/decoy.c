// SPDX-License-Identifier: Apache-2.0
/* Another libcufile.so.0, that a program was linked with by its rpath. */
#include <phx_cufile.h>

CUfileError_t cuFileGetVersion(int *version)
{
	*version = 1;
	return (CUfileError_t){ .err = CU_FILE_SUCCESS };
}

long cuFileUseCount(void)
{
	return 0;
}
