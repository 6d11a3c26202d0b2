// SPDX-License-Identifier: Apache-2.0
/*
 * IPC information of device memory. The vendors' runtimes are reached through
 * phoenix.h, which exports no IPC handles, so a blob never carries one; its
 * addresses are kept right all the same.
 */
#include "engine.h"

#include <string.h>

struct ipc_info {
	uint8_t handle[64];
	uint64_t base;
	uint64_t offset;
	uint64_t size;
	uint32_t flags;
	uint32_t handle_size; /* 0: none */
	uint8_t pad[32];
};

_Static_assert(sizeof(struct ipc_info) == FLAGCX_P2P_IPC_INFO_SIZE, "IPC info is 128 bytes");

int flagcxP2pEngineGetIpcInfo(FlagcxP2pEngine *engine, uintptr_t addr, char *ipcBuf, bool *hasIpc)
{
	struct ipc_info info = { 0 };
	struct p2p_engine *e = ipcBuf && hasIpc ? p2p_engine_get(engine) : NULL;
	struct p2p_mr *m;

	if (!e)
		return p2p_fail(-EINVAL, "IPC info: no such engine, or NULL");
	m = p2p_mr_pin_range(&e->mrs, addr, 1);
	if (m) {
		info.base = m->base;
		info.offset = addr - m->base;
		info.size = m->size;
		p2p_mr_unpin(m);
		memcpy(ipcBuf, &info, sizeof(info));
		*hasIpc = false;
	}
	p2p_engine_put(e);
	return m ? 0 : p2p_fail(-ENOENT, "IPC info: %#zx is not registered", (size_t)addr);
}

int flagcxP2pEngineUpdateIpcInfo(char *ipcBuf, uintptr_t addr, uintptr_t baseAddr, size_t size)
{
	struct ipc_info info;

	if (!ipcBuf || addr < baseAddr)
		return p2p_fail(-EINVAL, "IPC info: NULL, or an address below its base");
	memcpy(&info, ipcBuf, sizeof(info));
	info.offset = addr - baseAddr;
	info.size = size;
	memcpy(ipcBuf, &info, sizeof(info));
	return 0;
}
