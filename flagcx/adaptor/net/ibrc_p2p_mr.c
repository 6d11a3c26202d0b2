// SPDX-License-Identifier: Apache-2.0
/*
 * Registrations with the devices. Host memory is registered as it is. For an
 * accelerator's the ways are tried in this order, the first that every rail
 * takes holds:
 *
 *   dmabuf   the device's library exports the range
 *   full     the kernel module maps it into this process, and that is registered
 *   peermem  the RDMA driver knows the accelerator's addresses by itself
 *   staged   none: its bytes pass through host memory, on the path's stream
 *
 * What a device has for a limit of one registration makes several of it. More than
 * a message to peers holds are none at all: the bytes go by the stream, too.
 */
#include "ibrc_p2p.h"
#include "phoenix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ACCESS_ALL \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define DEVICE_PAGE 65536u /* what the library registers whole ones of */

/* Where a range is registered from: its place in this process or, with fd, in a dma-buf. */
struct source {
	void *host;
	uint64_t base, size;
	int fd;
	uint64_t offset;
};

#define FROM_HOST(at, base_, size_) \
	((struct source){ .host = (at), .base = (base_), .size = (size_), .fd = -1 })

static void drop_all(struct p2p_net *net, struct ib_mr *m)
{
	for (unsigned int i = 0; i < m->rails * m->pieces; i++)
		if (m->mr[i])
			net->v->dereg_mr(m->mr[i]);
}

static struct ibv_mr *reg_piece(struct ib_rail *rail, const struct source *s, uint64_t off,
				uint64_t len, int access)
{
	const struct ib_verbs *v = rail->net->v;
	uint8_t *from = (uint8_t *)s->host + off;

	if (s->fd >= 0)
		return v->reg_dmabuf_mr(rail->pd, s->offset + off, len, s->base + off, s->fd,
					access);
	/* the address that peers name is the registration's own, wherever it is mapped */
	if ((uint64_t)(uintptr_t)s->host == s->base)
		return v->reg_mr(rail->pd, from, len, access);
	return v->reg_mr_iova(rail->pd, from, len, s->base + off, access);
}

/* On every rail, every piece, or -errno and nothing. */
static int reg_all(struct p2p_net *net, struct ib_mr *m, const struct source *s, int access)
{
	for (unsigned int r = 0; r < m->rails; r++)
		for (unsigned int i = 0; i < m->pieces; i++) {
			uint64_t off = (uint64_t)i * m->step;
			uint64_t len = P2P_MIN(m->step, s->size - off);
			struct ibv_mr **mr = &m->mr[r * m->pieces + i];

			errno = 0;
			*mr = reg_piece(&net->rail[r], s, off, len, access);
			if (!*mr) {
				int rc = errno ? -errno : -ENOMEM;

				drop_all(net, m);
				memset(m->mr, 0, m->rails * m->pieces * sizeof(m->mr[0]));
				return rc;
			}
		}
	return 0;
}

static struct ib_mr *mr_new(struct p2p_net *net, const struct p2p_mr *mr)
{
	uint64_t step = mr->size, pieces;
	struct ib_mr *m;

	for (unsigned int r = 0; r < net->rails; r++)
		if (net->rail[r].attr.max_mr_size)
			step = P2P_MIN(step, net->rail[r].attr.max_mr_size);
	if (step < mr->size) /* no piece ends within a page */
		step = P2P_MAX(step & ~(uint64_t)(DEVICE_PAGE - 1), DEVICE_PAGE);
	pieces = (mr->size - 1) / step + 1;
	if (pieces > UINT16_MAX || pieces * net->rails > P2P_KEYS_MAX)
		pieces = 0;
	m = calloc(1, sizeof(*m) + net->rails * pieces * sizeof(m->mr[0]));
	if (m) {
		m->step = step;
		m->rails = net->rails;
		m->pieces = (unsigned int)pieces;
	}
	return m;
}

static void note(char *reason, size_t size, const char *way, int rc)
{
	size_t used = strlen(reason);

	snprintf(reason + used, size - used, "%s%s: %s", used ? ", " : "", way,
		 p2p_errno_name(rc));
}

/* Read-only memory can still be read by peers. */
static int reg_host(struct p2p_net *net, struct ib_mr *m, const struct source *s)
{
	int rc = reg_all(net, m, s, ACCESS_ALL);

	return rc ? reg_all(net, m, s, IBV_ACCESS_REMOTE_READ) ? rc : 0 : 0;
}

/* The device's library exports it. */
static int reg_dmabuf(struct p2p_net *net, struct ib_mr *m, const struct p2p_mr *mr)
{
	struct source s = { .base = mr->base, .size = mr->size, .fd = -1 };
	int rc;

	if (!net->v->reg_dmabuf_mr)
		return -ENOSYS;
	rc = phxfs_export_dmabuf(mr->device, (void *)(uintptr_t)mr->base, mr->size, &s.fd,
				 &s.offset);
	if (rc)
		return rc;
	rc = reg_all(net, m, &s, ACCESS_ALL);
	close(s.fd); /* the registrations keep what it stands for */
	return rc;
}

/* The kernel module's mapping of device memory, whole device pages of it. */
static int reg_mapping(struct p2p_net *net, struct ib_mr *m, const struct p2p_mr *mr)
{
	uint64_t base = mr->base & ~(uint64_t)(DEVICE_PAGE - 1);
	uint64_t end = (mr->base + mr->size + DEVICE_PAGE - 1) & ~(uint64_t)(DEVICE_PAGE - 1);
	struct source s = FROM_HOST(NULL, mr->base, mr->size);
	void *mapping = NULL;
	int rc;

	if (phxfs_device_mode(mr->device) != PHXFS_MODE_FULL)
		return -EOPNOTSUPP;
	rc = phxfs_open(mr->device);
	if (rc)
		return rc;
	rc = phxfs_regmem(mr->device, (void *)(uintptr_t)base, end - base, &mapping);
	if (rc)
		goto err_close;
	s.host = (uint8_t *)mapping + (mr->base - base);
	rc = reg_all(net, m, &s, ACCESS_ALL);
	if (rc)
		goto err_dereg;
	m->mapping = mapping;
	return 0;

err_dereg:
	phxfs_deregmem(mr->device, (void *)(uintptr_t)base, end - base);
err_close:
	phxfs_close(mr->device);
	return rc;
}

static void unmap(const struct p2p_mr *mr)
{
	uint64_t base = mr->base & ~(uint64_t)(DEVICE_PAGE - 1);
	uint64_t end = (mr->base + mr->size + DEVICE_PAGE - 1) & ~(uint64_t)(DEVICE_PAGE - 1);

	phxfs_deregmem(mr->device, (void *)(uintptr_t)base, end - base);
	phxfs_close(mr->device);
}

static void reg_device(struct p2p_net *net, struct ib_mr *m, const struct p2p_mr *mr)
{
	struct source s = FROM_HOST((void *)(uintptr_t)mr->base, mr->base, mr->size);
	char *reason = m->base.reason;
	size_t size = sizeof(m->base.reason);
	int rc;

	m->base.path = "staged";
	if (!m->pieces) {
		note(reason, size, "verbs", -E2BIG);
		return;
	}
	rc = reg_dmabuf(net, m, mr);
	if (!rc) {
		m->base.path = "dmabuf";
		return;
	}
	note(reason, size, "dmabuf", rc);
	rc = reg_mapping(net, m, mr);
	if (!rc) {
		m->base.path = "full";
		return;
	}
	note(reason, size, "full", rc);
	rc = reg_all(net, m, &s, ACCESS_ALL);
	if (!rc) {
		m->base.path = "peermem";
		return;
	}
	note(reason, size, "peermem", rc);
	m->pieces = 0;
}

int ib_mr_reg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net **out)
{
	struct source s = FROM_HOST((void *)(uintptr_t)mr->base, mr->base, mr->size);
	struct ib_mr *m = mr_new(net, mr);
	int rc;

	if (!m)
		return -ENOMEM;
	m->base.path = "host";
	if (mr->device >= 0) {
		reg_device(net, m, mr);
	} else {
		rc = m->pieces ? reg_host(net, m, &s) : -E2BIG;
		if (rc) { /* its bytes go by the stream, as under TCP */
			note(m->base.reason, sizeof(m->base.reason), "verbs", rc);
			m->pieces = 0;
		}
	}
	if (m->base.reason[0])
		p2p_info("registration %#llx, %llu bytes: %s (%s)", (unsigned long long)mr->base,
			 (unsigned long long)mr->size, m->base.path, m->base.reason);
	*out = &m->base;
	return 0;
}

void ib_mr_dereg(struct p2p_net *net, const struct p2p_mr *mr, struct p2p_mr_net *base)
{
	struct ib_mr *m = p2p_container_of(base, struct ib_mr, base);

	drop_all(net, m);
	if (m->mapping)
		unmap(mr);
	free(m);
}

size_t ib_mr_keys(const struct p2p_mr_net *base, const struct p2p_mr *mr, uint8_t *buf, size_t size)
{
	const struct ib_mr *m = (const struct ib_mr *)base;
	size_t keys = (size_t)m->rails * m->pieces, len = P2P_KEYS_HEAD + 4 * keys;
	struct p2p_keys_head h = {
		.base = mr->base,
		.size = mr->size,
		.step = m->step,
		.rkey = mr->rkey,
		.rid = mr->rid,
		.rails = (uint16_t)m->rails,
		.pieces = (uint16_t)m->pieces,
	};

	if (!keys)
		return 0;
	if (size < len)
		return len;
	p2p_keys_head_encode(&h, buf);
	for (size_t i = 0; i < keys; i++)
		p2p_u32_encode(m->mr[i]->rkey, buf + P2P_KEYS_HEAD + 4 * i);
	return len;
}
