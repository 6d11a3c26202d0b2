// SPDX-License-Identifier: Apache-2.0
/*
 * Ranges on the profiler's time line (NVTX), if PHX_NVTX=1 asks for them.
 *
 * A profiler that supervises the process names its library in
 * NVTX_INJECTION64_PATH and fills in tables of function pointers that the
 * program offers, one table for each module of NVTX; two entries of the core
 * module are used here. Without it the SDK's libnvToolsExt, up to CUDA 12, may
 * be there.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "nvidia_card.h"
#include "../phx_config.h"
#include "../phx_error.h"

#define VERSION 3u
#define EXPORT_CALLBACKS 1u
#define EXPORT_VERSION 3u
#define MODULES 7
#define MODULE_CORE 1
#define MAX_ENTRIES 16
#define ENTRY_PUSH 9
#define ENTRY_POP 11

typedef void (*function)(void);

/* Entries of each module's table; entry 0 is none. */
static const unsigned int entries[MODULES] = { 0, 16, 9, 15, 7, 16, 7 };
static function functions[MODULES][MAX_ENTRIES];
static function *tables[MODULES][MAX_ENTRIES + 1];

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int (*push)(const char *name); /* NULL: no profiler */
static int (*pop)(void);

static int module_table(int module, function ***table, unsigned int *size)
{
	if (module <= 0 || module >= MODULES)
		return 0;
	for (unsigned int i = 1; i < entries[module]; i++)
		tables[module][i] = &functions[module][i];
	if (size)
		*size = entries[module];
	if (table)
		*table = tables[module];
	return 1;
}

static void set_version(uint32_t version)
{
}

static const void *export_table(uint32_t id)
{
	static const struct {
		size_t size;
		int (*module_table)(int module, function ***table, unsigned int *size);
	} callbacks = { sizeof(callbacks), module_table };
	static const struct {
		size_t size;
		uint32_t version;
		uint32_t reserved;
		void (*set_version)(uint32_t version);
	} about = { sizeof(about), VERSION, 0, set_version };

	if (id == EXPORT_CALLBACKS)
		return &callbacks;
	return id == EXPORT_VERSION ? &about : NULL;
}

static bool attach_profiler(void)
{
	const char *path = secure_getenv("NVTX_INJECTION64_PATH");
	void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	int (*initialize)(const void *(*table)(uint32_t id));

	if (!library)
		return false;
	*(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
	if (!initialize || initialize(export_table) != 1)
		return false;
	push = (int (*)(const char *))functions[MODULE_CORE][ENTRY_PUSH];
	pop = (int (*)(void))functions[MODULE_CORE][ENTRY_POP];
	return true;
}

static bool attach_sdk(void)
{
	void *library = dlopen("libnvToolsExt.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
	*(void **)&push = dlsym(library, "nvtxRangePushA");
	*(void **)&pop = dlsym(library, "nvtxRangePop");
	return true;
}

static void attach(void)
{
	if (!phx_config.nvtx)
		return;
	if ((attach_profiler() || attach_sdk()) && push && pop)
		return;
	push = NULL;
	pop = NULL;
	phx_log(PHXFS_LOG_INFO, "PHX_NVTX=1, but no profiler is attached");
}

void nvidia_range_push(const char *name)
{
	pthread_once(&once, attach);
	if (push)
		push(name);
}

void nvidia_range_pop(void)
{
	if (pop)
		pop();
}
