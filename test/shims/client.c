// SPDX-License-Identifier: Apache-2.0
/*
 * client [LIBRARY [SYMBOL]]: opens LIBRARY, or uses the one it was linked with,
 * and says which version it is and where it lies.
 */
#include <dlfcn.h>
#include <phx_cufile.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	CUfileError_t (*get_version)(int *version);
	int version = 0;
	Dl_info where;
	void *library;

#ifdef LINKED
	get_version = cuFileGetVersion;
	library = NULL;
#else
	library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 3;
	}
	if (argc > 2)
		return dlsym(library, argv[2]) ? 0 : 4;
	*(void **)&get_version = dlsym(library, "cuFileGetVersion");
#endif
	if (!get_version || get_version(&version).err)
		return 4;
	/* a linked program knows its own place in the table of calls: ask by name */
	if (!dladdr(library ? dlsym(library, "cuFileUseCount") :
			      dlsym(RTLD_DEFAULT, "cuFileUseCount"), &where))
		return 4;
	printf("%d %s\n", version, where.dli_fname);
	return 0;
}
