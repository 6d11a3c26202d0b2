// SPDX-License-Identifier: Apache-2.0
/* The transports built in, and which of them an engine uses. */
#include "net_adaptor.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A transport is registered by its line here, the preferred one first. */
static const struct p2p_net_ops *const transports[] = {
#ifdef P2P_HAVE_IBRC
	&p2p_net_ibrc,
#endif
	&p2p_net_tcp,
};

const struct p2p_net_ops *p2p_net_by_name(const char *name)
{
	for (size_t i = 0; i < P2P_ARRAY_SIZE(transports); i++)
		if (!strcasecmp(transports[i]->name, name))
			return transports[i];
	return NULL;
}

const struct p2p_net_ops *p2p_net_by_bit(uint32_t bit)
{
	for (size_t i = 0; i < P2P_ARRAY_SIZE(transports); i++)
		if (transports[i]->bit == bit)
			return transports[i];
	return NULL;
}

static int open_one(struct p2p_engine *e, const struct p2p_net_ops *ops, char *why, size_t size)
{
	int rc;

	if (ops->abi != P2P_NET_ABI) {
		snprintf(why, size, "%s: built for another engine", ops->name);
		return -ENOEXEC;
	}
	rc = ops->open(e, &e->net[ops->slot], why, size);
	if (!rc)
		e->ops[ops->slot] = ops;
	return rc;
}

/*
 * tcp: that alone, no other is even looked at. ibrc: that or an error. auto:
 * every transport that works, so that a peer without RDMA is reached by TCP.
 */
int p2p_net_open(struct p2p_engine *e)
{
	static const char *const names[] = { "auto", "ibrc", "tcp" };
	const char *want = names[e->config.transport];
	bool any = false;
	size_t used = 0;

	for (size_t i = 0; i < P2P_ARRAY_SIZE(transports); i++) {
		const struct p2p_net_ops *ops = transports[i];
		char why[160] = "";
		int rc;

		if (e->config.transport != P2P_TRANSPORT_AUTO && strcasecmp(want, ops->name))
			continue;
		rc = open_one(e, ops, why, sizeof(why));
		any |= rc == 0;
		used += (size_t)snprintf(e->transport_why + used,
					 sizeof(e->transport_why) - used, "%s%s: %s",
					 used ? "; " : "", ops->name, why);
		used = P2P_MIN(used, sizeof(e->transport_why) - 1);
	}
	if (any)
		return 0;
	return p2p_fail(-ENODEV, "no transport (FLAGCX_P2P_TRANSPORT=%s): %s", want,
			used ? e->transport_why : "not built in");
}

void p2p_net_reg(struct p2p_engine *e, struct p2p_mr *mr)
{
	for (int i = 0; i < P2P_NETS; i++) {
		struct p2p_mr_net *m = NULL;
		int rc = e->ops[i] ? e->ops[i]->mr_reg(e->net[i], mr, &m) : 0;

		if (rc)
			p2p_warn("registration %#llx: not with %s (%s), its bytes go by the stream",
				 (unsigned long long)mr->base, e->ops[i]->name,
				 p2p_errno_name(rc));
		else
			atomic_store_explicit(&mr->net[i], m, memory_order_release);
	}
}

void p2p_net_dereg(struct p2p_engine *e, struct p2p_mr *mr)
{
	for (int i = 0; i < P2P_NETS; i++) {
		struct p2p_mr_net *m = atomic_exchange(&mr->net[i], NULL);

		if (m)
			e->ops[i]->mr_dereg(e->net[i], mr, m);
	}
}

int p2p_net_nosys_adopt(struct p2p_path *path, int fd)
{
	return -EPROTO;
}

int p2p_net_nosys_poll(struct p2p_worker *w)
{
	return 0;
}

bool p2p_net_nosys_arm(struct p2p_worker *w)
{
	return false;
}

int p2p_net_nosys_borrow(struct p2p_path *path)
{
	return -EOPNOTSUPP;
}

int p2p_net_nosys_step(struct p2p_path *path)
{
	return -EOPNOTSUPP;
}

void p2p_net_nosys_give_back(struct p2p_path *path)
{
}

int p2p_net_nosys_reg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net **out)
{
	*out = NULL;
	return 0;
}

void p2p_net_nosys_dereg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net *m)
{
}

size_t p2p_net_nosys_keys(const struct p2p_mr_net *m, const struct p2p_mr *mr, uint8_t *buf,
			  size_t size)
{
	return 0;
}
