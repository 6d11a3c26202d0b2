// SPDX-License-Identifier: Apache-2.0
/*
 * libibverbs at run time: a program that does not use RDMA does not need it,
 * and one built on a machine without runs on one with it.
 */
#include "ibrc_p2p.h"

#include <dlfcn.h>
#include <stdio.h>

#define LIBRARY "libibverbs.so.1"

static struct ib_verbs verbs;
static char trouble[128];
static bool usable;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
	const char *name;
	size_t place;
	bool optional;
} symbols[] = {
#define SYMBOL(field) { "ibv_" #field, offsetof(struct ib_verbs, field), false }
	SYMBOL(get_device_list),
	SYMBOL(free_device_list),
	SYMBOL(get_device_name),
	SYMBOL(open_device),
	SYMBOL(close_device),
	SYMBOL(query_device),
	SYMBOL(query_port),
	SYMBOL(get_async_event),
	SYMBOL(ack_async_event),
	SYMBOL(alloc_pd),
	SYMBOL(dealloc_pd),
	SYMBOL(reg_mr),
	SYMBOL(reg_mr_iova),
	SYMBOL(dereg_mr),
	SYMBOL(create_comp_channel),
	SYMBOL(destroy_comp_channel),
	SYMBOL(create_cq),
	SYMBOL(destroy_cq),
	SYMBOL(get_cq_event),
	SYMBOL(ack_cq_events),
	SYMBOL(create_qp),
	SYMBOL(modify_qp),
	SYMBOL(destroy_qp),
	SYMBOL(wc_status_str),
	{ "_ibv_query_gid_ex", offsetof(struct ib_verbs, query_gid_ex), false },
	{ "ibv_reg_dmabuf_mr", offsetof(struct ib_verbs, reg_dmabuf_mr), true },
};

static void load(void)
{
	void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		snprintf(trouble, sizeof(trouble), "no " LIBRARY);
		return;
	}
	for (size_t i = 0; i < P2P_ARRAY_SIZE(symbols); i++) {
		void *symbol = dlsym(lib, symbols[i].name);

		if (!symbol && !symbols[i].optional) {
			/* its drivers may have threads or hooks by now: it stays loaded */
			snprintf(trouble, sizeof(trouble), LIBRARY " is too old: no %s",
				 symbols[i].name);
			return;
		}
		*(void **)((char *)&verbs + symbols[i].place) = symbol;
	}
	usable = true;
}

const struct ib_verbs *ib_verbs_get(char *why, size_t size)
{
	pthread_once(&once, load);
	if (usable)
		return &verbs;
	snprintf(why, size, "%s", trouble);
	return NULL;
}
