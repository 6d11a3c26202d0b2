// SPDX-License-Identifier: Apache-2.0
/*
 * Rails: the ports in use, opened for one engine, and their events.
 *
 * Lock: rail->lock guards what a port's event changes (address, packet size);
 * a leaf. Events are taken by worker 0.
 */
#include "ibrc_p2p.h"
#include "phoenix.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define GIDS_MAX 256
#define PORTS_MAX 64

/* -------------------------------------------------------------- what there is */

static enum ib_link link_of(const struct ibv_port_attr *attr)
{
	if (attr->link_layer == IBV_LINK_LAYER_ETHERNET)
		return IB_LINK_ROCE;
	return IB_LINK_IB; /* unspecified is what old devices say, and those are this */
}

/* Mbit/s of the port, for comparison only. */
static uint64_t speed_of(const struct ibv_port_attr *attr)
{
	static const struct {
		uint8_t speed;
		uint32_t mbit;
	} lanes[] = { { 1, 2500 }, { 2, 5000 }, { 4, 10000 }, { 8, 10000 }, { 16, 14062 },
		      { 32, 25781 }, { 64, 53125 }, { 128, 106250 } };
	uint64_t lane = 0, width = 1;

	for (size_t i = 0; i < P2P_ARRAY_SIZE(lanes); i++)
		if (attr->active_speed == lanes[i].speed)
			lane = lanes[i].mbit;
	for (uint64_t bit = 1; bit < 32; bit <<= 1)
		if (attr->active_width & bit)
			width = bit == 1 ? 1 : bit == 2 ? 4 : bit == 4 ? 8 : bit == 8 ? 12 : 2;
	return lane * width;
}

/* Where the accelerator hangs in sysfs; false: there is none. */
static bool device_path(int device, char path[PATH_MAX])
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	char name[64];

	if (device < 0 || phxfs_device_info(device, &info) || !info.bdf[0])
		return false;
	snprintf(name, sizeof(name), "/sys/bus/pci/devices/%s", info.bdf);
	return realpath(name, path) != NULL;
}

static int distance(const char *name, int device)
{
	char near[PATH_MAX], far[PATH_MAX], link[128];

	if (!device_path(device, near))
		return 0;
	snprintf(link, sizeof(link), "/sys/class/infiniband/%s/device", name);
	return realpath(link, far) ? ib_distance(near, far) : -1;
}

/* Note the device's active port, if there is one that the settings let in. */
static int add_port(const struct ib_verbs *v, struct ibv_device *d, const struct p2p_config *cfg,
		    int device, struct ib_port *out)
{
	struct ibv_context *ctx = v->open_device(d);
	struct ibv_port_attr attr;
	int rc;

	if (!ctx)
		return errno ? -errno : -EIO;
	*out = (struct ib_port){ .port = cfg->g.ibPort };
	snprintf(out->name, sizeof(out->name), "%s", v->get_device_name(d));
	memset(&attr, 0, sizeof(attr));
	rc = -v->query_port(ctx, out->port, &attr);
	if (!rc && attr.state != IBV_PORT_ACTIVE)
		rc = -ENETDOWN;
	if (!rc) {
		out->link = link_of(&attr);
		out->speed = speed_of(&attr);
		out->distance = distance(out->name, device);
	}
	v->close_device(ctx);
	return rc;
}

/* ------------------------------------------------------------------- a rail */

static int find_gids(struct ib_rail *rail, int table, struct ib_gid *gids, int max)
{
	int n = 0;

	for (int i = 0; i < table && n < max; i++) {
		struct ibv_gid_entry e;

		memset(&e, 0, sizeof(e));
		if (rail->net->v->query_gid_ex(rail->ctx, rail->port, (uint32_t)i, &e, 0,
					       sizeof(e)))
			continue; /* an empty place */
		memcpy(gids[n].raw, e.gid.raw, 16);
		gids[n].index = i;
		gids[n].kind = e.gid_type == IBV_GID_TYPE_IB    ? IB_GID_IB :
			       e.gid_type == IBV_GID_TYPE_ROCE_V2 ? IB_GID_ROCE2 :
								    IB_GID_ROCE1;
		n++;
	}
	return n;
}

/* The engine's own address as a GID has it; false: not an address. */
static bool engine_address(const struct p2p_engine *e, uint8_t raw[16], bool *v6)
{
	union p2p_sockaddr a;

	if (p2p_ip_parse(e->ip, &a))
		return false;
	*v6 = a.sa.sa_family == AF_INET6;
	memset(raw, 0, 16);
	if (*v6) {
		memcpy(raw, &a.in6.sin6_addr, 16);
	} else {
		raw[10] = raw[11] = 0xff;
		memcpy(raw + 12, &a.in.sin_addr, 4);
	}
	return true;
}

int ib_rail_refresh(struct ib_rail *rail)
{
	struct p2p_engine *e = rail->net->engine;
	struct ibv_port_attr attr;
	struct ib_gid *gids;
	uint8_t address[16];
	bool v6 = false, known = engine_address(e, address, &v6);
	int n, at, rc;

	memset(&attr, 0, sizeof(attr));
	rc = -rail->net->v->query_port(rail->ctx, rail->port, &attr);
	if (rc || attr.state != IBV_PORT_ACTIVE)
		return rc ? rc : -ENETDOWN;
	if (rail->link == IB_LINK_NONE) { /* for good */
		rail->link = link_of(&attr);
		rail->max_msg = attr.max_msg_sz ? attr.max_msg_sz : IB_SLICE_MAX;
	}
	gids = calloc(GIDS_MAX, sizeof(*gids));
	if (!gids)
		return -ENOMEM;
	n = find_gids(rail, attr.gid_tbl_len, gids, GIDS_MAX);
	at = ib_gid_choose(gids, n, rail->link, e->config.g.gidIndex, v6, known ? address : NULL);
	if (at >= 0 || rail->link == IB_LINK_IB) {
		pthread_mutex_lock(&rail->lock);
		if (at >= 0)
			rail->gid = gids[at];
		rail->lid = attr.lid;
		rail->mtu = ib_mtu_bytes((int)attr.active_mtu);
		pthread_mutex_unlock(&rail->lock);
		at = 0;
	}
	free(gids);
	return at < 0 ? -EADDRNOTAVAIL : 0;
}

void ib_rail_bind(const struct ib_rail *rail)
{
	char path[128], list[1024];
	cpu_set_t allowed, near;
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device/local_cpulist", rail->name);
	f = fopen(path, "re");
	if (!f)
		return; /* a device without a place, as software ones are */
	if (fgets(list, sizeof(list), f) &&
	    !pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed)) {
		n = ib_cpus(list, &allowed, &near);
		if (n > 0 && n < CPU_COUNT(&allowed))
			pthread_setaffinity_np(pthread_self(), sizeof(near), &near);
	}
	fclose(f);
}

static void rail_close(struct ib_rail *rail)
{
	const struct ib_verbs *v = rail->net->v;

	if (rail->pd)
		v->dealloc_pd(rail->pd);
	if (rail->ctx) {
		p2p_fd_untrack(rail->ctx->cmd_fd);
		p2p_fd_untrack(rail->ctx->async_fd);
		v->close_device(rail->ctx);
	}
	rail->pd = NULL;
	rail->ctx = NULL;
	pthread_mutex_destroy(&rail->lock);
}

static int rail_open(struct ib_rail *rail, struct ibv_device *d, const struct ib_port *port)
{
	const struct ib_verbs *v = rail->net->v;
	int rc;

	pthread_mutex_init(&rail->lock, NULL);
	memcpy(rail->name, port->name, sizeof(rail->name));
	rail->port = port->port;
	rail->speed = port->speed;
	rail->ctx = v->open_device(d);
	if (!rail->ctx) {
		rc = errno ? -errno : -EIO;
		goto err_close;
	}
	p2p_fd_track(rail->ctx->cmd_fd);
	p2p_fd_track(rail->ctx->async_fd);
	rc = -v->query_device(rail->ctx, &rail->attr);
	rc = rc ? rc : ib_rail_refresh(rail);
	if (rc)
		goto err_close;
	rail->pd = v->alloc_pd(rail->ctx);
	if (!rail->pd) {
		rc = errno ? -errno : -ENOMEM;
		goto err_close;
	}
	if (fcntl(rail->ctx->async_fd, F_SETFL,
		  fcntl(rail->ctx->async_fd, F_GETFL) | O_NONBLOCK)) {
		rc = -errno;
		goto err_close;
	}
	return 0;

err_close:
	rail_close(rail);
	return rc;
}

/* --------------------------------------------------------------------- all */

static struct ibv_device *by_name(const struct ib_verbs *v, struct ibv_device **list, int n,
				  const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(v->get_device_name(list[i]), name))
			return list[i];
	return NULL;
}

/* Ports that could be used; *err: what spoke against the last that could not. */
static int find_ports(struct p2p_net *net, struct ibv_device **list, int n, struct ib_port *ports,
		      int *err)
{
	const struct p2p_config *cfg = &net->engine->config;
	int found = 0;

	for (int i = 0; i < n && found < PORTS_MAX; i++) {
		const char *name = net->v->get_device_name(list[i]);
		int rc;

		if (!ib_hca_match(cfg->hca, name, cfg->g.ibPort))
			continue;
		rc = add_port(net->v, list[i], cfg, net->engine->device, &ports[found]);
		found += rc == 0;
		*err = rc ? rc : *err;
	}
	return found;
}

static void say_rails(const struct p2p_net *net, char *why, size_t size)
{
	size_t used = 0;

	for (unsigned int i = 0; i < net->rails && used < size; i++) {
		const struct ib_rail *r = &net->rail[i];
		int n = snprintf(why + used, size - used, "%s%s port %u, %s, %d-byte packets",
				 i ? "; " : "", r->name, r->port,
				 r->link == IB_LINK_IB	       ? "InfiniBand" :
				 r->gid.kind == IB_GID_ROCE2 ? "RoCE v2" :
							       "RoCE v1",
				 ib_mtu_choose(net->engine->config.g.mtuLength, r->mtu, r->mtu));

		used += n > 0 ? (size_t)n : 0;
	}
}

int ib_rails_open(struct p2p_net *net, char *why, size_t size)
{
	struct ib_port ports[PORTS_MAX];
	struct ibv_device **list;
	int n = 0, found, keep, rc = -ENODEV;

	errno = 0;
	list = net->v->get_device_list(&n);
	if (!list || !n) {
		snprintf(why, size, "no RDMA device%s%s", errno ? ": " : "",
			 errno ? p2p_errno_name(errno) : "");
		if (list)
			net->v->free_device_list(list);
		return -ENODEV;
	}
	found = find_ports(net, list, n, ports, &rc);
	keep = ib_ports_choose(ports, found, *net->engine->config.hca != '\0');
	for (int i = 0; i < keep; i++) {
		struct ib_rail *rail = &net->rail[net->rails];
		struct ibv_device *d = by_name(net->v, list, n, ports[i].name);
		int failed;

		*rail = (struct ib_rail){ .net = net, .index = net->rails };
		failed = d ? rail_open(rail, d, &ports[i]) : -ENODEV;
		if (failed)
			rc = failed;
		else
			net->rails++;
	}
	net->v->free_device_list(list);
	for (unsigned int i = 0; i < net->rails; i++) {
		const struct ibv_device_attr *a = &net->rail[i].attr;

		flagcxP2pClampToDeviceLimits((uint32_t)a->max_qp_wr, (uint32_t)a->max_sge,
					     (uint32_t)a->max_cqe, (uint32_t)a->max_qp);
	}
	if (net->rails) {
		net->engine->config.g = *flagcxP2pGlobalConfigGet();
		say_rails(net, why, size);
		return 0;
	}
	snprintf(why, size, "none of %d RDMA devices is usable: %s", n, p2p_errno_name(rc));
	return -ENODEV;
}

void ib_rails_close(struct p2p_net *net)
{
	while (net->rails)
		rail_close(&net->rail[--net->rails]);
}

/* -------------------------------------------------------------------- events */

/* A worker's paths on dead rails will get no completion: they let go at once. */
static void run_fatal(struct p2p_worker *w, struct p2p_cmd *cmd)
{
	struct p2p_list *i, *next;

	atomic_store(&p2p_container_of(cmd, struct ib_fatal, cmd)->sent, false);
	for (i = w->paths.next; i != &w->paths; i = next) {
		struct p2p_path *path = p2p_list_entry(i, struct p2p_path, link);

		next = i->next;
		if (path->ops == &p2p_net_ibrc && ib_of(path)->rail &&
		    atomic_load(&ib_of(path)->rail->state) == IB_RAIL_DEAD)
			ib_qp_drop(ib_of(path));
	}
}

static void device_died(struct ib_rail *rail)
{
	struct p2p_net *net = rail->net;

	atomic_store(&rail->state, IB_RAIL_DEAD);
	p2p_warn("RDMA device %s has failed: its paths go on by TCP", rail->name);
	for (unsigned int i = 0; i < net->engine->workers; i++) {
		struct ib_fatal *f = &net->fatal[i];

		if (atomic_exchange(&f->sent, true))
			continue;
		f->cmd.run = run_fatal;
		p2p_worker_command(&net->engine->worker[i], &f->cmd);
	}
}

static void run_sick(struct p2p_worker *w, struct p2p_cmd *cmd)
{
	struct ib_sick *sick = p2p_container_of(cmd, struct ib_sick, cmd);
	struct ib_worker *iw = ib_worker_of(w);

	for (uint32_t i = 0; i < iw->paths; i++) {
		struct ib_path *p = iw->path[i];

		if (!p || !p->qp || p->rail != sick->rail || p->qp->qp_num != sick->qpn)
			continue;
		ib_qp_fail(p, -EIO, false);
		break; /* the next one may get the number again */
	}
	free(sick);
}

/*
 * A queue pair with nothing of its own in flight learns only so that it is of
 * no use to its peer any more. Whose it is its worker knows.
 */
static void qp_sick(struct ib_rail *rail, uint32_t qpn)
{
	struct p2p_engine *e = rail->net->engine;

	for (unsigned int i = 0; i < e->workers; i++) {
		struct ib_sick *sick = malloc(sizeof(*sick));

		if (!sick)
			return; /* the peer will find it out by itself, later */
		*sick = (struct ib_sick){ { NULL, run_sick }, rail, qpn };
		p2p_worker_command(&e->worker[i], &sick->cmd);
	}
}

static void port_changed(struct ib_rail *rail)
{
	int now = ib_rail_refresh(rail) ? IB_RAIL_DOWN : IB_RAIL_UP, was = IB_RAIL_UP;

	if (now == IB_RAIL_UP)
		was = IB_RAIL_DOWN;
	/* a dead device stays dead */
	if (atomic_compare_exchange_strong(&rail->state, &was, now))
		p2p_warn("RDMA device %s port %u is %s", rail->name, rail->port,
			 now == IB_RAIL_UP ? "up again" : "down");
}

static void on_async(struct p2p_source *source, uint32_t events)
{
	struct ib_rail *rail = p2p_container_of(source, struct ib_rail, async);
	const struct ib_verbs *v = rail->net->v;
	struct ibv_async_event ev;

	while (!v->get_async_event(rail->ctx, &ev)) {
		enum ibv_event_type type = ev.event_type;
		bool of_qp = type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
			     type == IBV_EVENT_QP_ACCESS_ERR;
		uint32_t qpn = of_qp ? ev.element.qp->qp_num : 0;

		/* at once: a queue pair cannot go while one of its own is out */
		v->ack_async_event(&ev);
		switch (type) {
		case IBV_EVENT_DEVICE_FATAL:
		case IBV_EVENT_CQ_ERR:
			device_died(rail);
			break;
		case IBV_EVENT_PORT_ERR:
		case IBV_EVENT_PORT_ACTIVE:
		case IBV_EVENT_LID_CHANGE:
		case IBV_EVENT_GID_CHANGE:
		case IBV_EVENT_PKEY_CHANGE:
			port_changed(rail);
			break;
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
			qp_sick(rail, qpn);
			break;
		default:
			break;
		}
	}
}

int ib_rails_watch(struct p2p_net *net, struct p2p_worker *w)
{
	for (unsigned int i = 0; i < net->rails; i++) {
		struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &net->rail[i].async };

		net->rail[i].async.event = on_async;
		if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, net->rail[i].ctx->async_fd, &ev))
			return -errno;
	}
	return 0;
}

void ib_rails_unwatch(struct p2p_net *net, struct p2p_worker *w)
{
	for (unsigned int i = 0; i < net->rails; i++)
		epoll_ctl(w->epoll, EPOLL_CTL_DEL, net->rail[i].ctx->async_fd, NULL);
}
