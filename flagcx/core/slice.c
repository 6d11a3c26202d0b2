// SPDX-License-Identifier: Apache-2.0
/*
 * The two policies. NIXL: a caller's entry is one slice. Connector: blocks of
 * one size, and a tail too short to be worth a request joins the last block.
 * Either way the port's limit holds.
 */
#include "slice.h"
#include "common.h"
#include "flagcx_p2p.h"

int p2p_cut_init(struct p2p_cut *cut, int policy, size_t slice_size, size_t fragment_limit,
		 size_t port_limit)
{
	switch (policy) {
	case FLAGCX_P2P_POLICY_NIXL:
		*cut = (struct p2p_cut){ SIZE_MAX, 0, port_limit };
		return 0;
	case FLAGCX_P2P_POLICY_CONNECTOR:
		*cut = (struct p2p_cut){ slice_size, fragment_limit, port_limit };
		return 0;
	default:
		return -EINVAL;
	}
}
