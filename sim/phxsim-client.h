/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* The ABI of /dev/phxsim-client, a test's way to phxsim's pin API. */
#ifndef PHXSIM_CLIENT_H
#define PHXSIM_CLIENT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define PHXSIM_CLIENT_PERSISTENT	1u
/* the callback breaks the contract: it puts its pin, which the driver WARNs about */
#define PHXSIM_CLIENT_PUT_IN_CALLBACK	2u

struct phxsim_client_pin {
	__u64 va;
	__u64 len;
	__u32 flags;
	__u32 handle;		/* out, as the rest */
	__u32 version;
	__u32 page_size;
	__u32 entries;
	__u32 pad;
};

struct phxsim_client_state {
	__u32 handle;
	__u32 index;		/* the page whose address is asked for */
	__u32 reclaimed;	/* out, as the rest */
	__u32 atomic;		/* the callback came in atomic context */
	__s32 put_error;	/* what the put in the callback got */
	__u32 pad;
	__u64 addr;
};

#define PHXSIM_CLIENT_PIN	_IOWR('W', 1, struct phxsim_client_pin)
#define PHXSIM_CLIENT_UNPIN	_IOW('W', 2, __u32)
#define PHXSIM_CLIENT_STATE	_IOWR('W', 3, struct phxsim_client_state)

#endif
