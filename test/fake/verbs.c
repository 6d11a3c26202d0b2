// SPDX-License-Identifier: Apache-2.0
/*
 * A libibverbs of the tests' own: the calls that the RDMA transport makes, over
 * sockets between processes. A device is a listener; a queue pair a thread that
 * does its work requests one after the other at the listener its address names.
 * That end checks key, bounds, rights and the state of the other queue pair as
 * hardware would.
 *
 * Stricter than hardware: more entries in a completion queue, or more requests
 * in a send queue, than it was made for end the process. A request leaves its
 * queue when a completion of it, or of one behind it, has been polled.
 *
 *   PHX_VERBS_DEVICES=N       how many devices (1)
 *   PHX_VERBS_MR_MAX=BYTES    max_mr_size
 *   PHX_VERBS_FAIL=NAME:NTH:ERRNO[:TIMES],...   the NTH call of ibv_NAME, and those behind
 *                             it up to TIMES, fail; "wc" are work requests done
 *                             (ERRNO: an ibv_wc_status), "lost" those that never are
 *
 * phx_verbs_fail(text) sets that anew, phx_verbs_event(type) raises an event on
 * every device of the process, phx_verbs_event_on(n, type) on mockN alone,
 * phx_verbs_calls(name) counts.
 *
 * phx_verbs_hold(1) lets no queue pair begin a request and phx_verbs_hold(2) no
 * completion be seen, until phx_verbs_hold(0); phx_verbs_held("sq") are the requests
 * in send queues, phx_verbs_held("cq") the completions in completion queues.
 *
 * phx_verbs_seen(name) is the largest value of an attribute that was asked for: mtu
 * retry timeout tc sl pkey gid port sge inline send_wr cqe chain poll reads. main_post
 * and main_qp are 1 when the program's first thread has posted, or made or ended a
 * queue pair.
 */
#include "verbs_fake.h"

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

void phx_verbs_fail(const char *text);
void phx_verbs_event(int type);
void phx_verbs_event_on(int device, int type);
long phx_verbs_calls(const char *name);
void phx_verbs_hold(int what);
long phx_verbs_held(const char *where);
long phx_verbs_seen(const char *name);

/* --------------------------------------------------------------------- faults */

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;
static char fault_text[512];
static bool fault_read;
static struct {
	char name[32];
	long calls;
} counted[64]; /* fault_lock */

void phx_verbs_fail(const char *text)
{
	pthread_mutex_lock(&fault_lock);
	snprintf(fault_text, sizeof(fault_text), "%s", text);
	fault_read = true;
	memset(counted, 0, sizeof(counted));
	pthread_mutex_unlock(&fault_lock);
}

static long count(const char *name, bool more)
{
	int i = 0;

	while (counted[i].name[0] && strcmp(counted[i].name, name))
		i++;
	snprintf(counted[i].name, sizeof(counted[i].name), "%s", name);
	return counted[i].calls += more;
}

long phx_verbs_calls(const char *name)
{
	long n;

	pthread_mutex_lock(&fault_lock);
	n = count(name, false);
	pthread_mutex_unlock(&fault_lock);
	return n;
}

/* What this call of the name is to fail with; 0: it is not. */
int verbs_fault(const char *name)
{
	const char *env = getenv("PHX_VERBS_FAIL"), *at;
	size_t len = strlen(name);
	int rc = 0;
	long n;

	pthread_mutex_lock(&fault_lock);
	if (!fault_read && env)
		snprintf(fault_text, sizeof(fault_text), "%s", env);
	fault_read = true;
	n = count(name, true);
	for (at = fault_text; *at; at += strcspn(at, ","), at += *at == ',') {
		long nth = 0, times = 1;
		int err = 0;

		if (strncmp(at, name, len) || at[len] != ':')
			continue;
		sscanf(at + len, ":%ld:%d:%ld", &nth, &err, &times);
		if (n >= nth && n < nth + times)
			rc = err;
	}
	pthread_mutex_unlock(&fault_lock);
	return rc;
}

static struct {
	char name[16];
	long value;
} saw[32]; /* fault_lock */

static long see(const char *name, long value)
{
	int i = 0;

	pthread_mutex_lock(&fault_lock);
	while (saw[i].name[0] && strcmp(saw[i].name, name))
		i++;
	snprintf(saw[i].name, sizeof(saw[i].name), "%s", name);
	value = saw[i].value = value > saw[i].value ? value : saw[i].value;
	pthread_mutex_unlock(&fault_lock);
	return value;
}

void verbs_see(const char *name, long value)
{
	see(name, value);
}

long phx_verbs_seen(const char *name)
{
	return see(name, 0);
}

void verbs_die(const char *what)
{
	fprintf(stderr, "verbs: %s\n", what);
	abort();
}

/* -------------------------------------------------------------------- addresses */

static struct ibv_device devices[DEVICES_MAX];
static struct context *contexts[CONTEXTS_MAX];
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;

static int device_count(void)
{
	const char *n = getenv("PHX_VERBS_DEVICES");

	return n ? atoi(n) : 1;
}

/* A pid and a context's number are the address. */
socklen_t verbs_where(struct sockaddr_un *a, uint32_t pid, uint32_t id)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1,
					    "phx-verbs-%u-%u", pid, id));
}

/* ------------------------------------------------------------- devices, events */

struct ibv_device **ibv_get_device_list(int *n)
{
	int count_ = device_count(), rc = verbs_fault("get_device_list");
	struct ibv_device **list = rc ? NULL : calloc((size_t)count_ + 1, sizeof(*list));

	errno = rc ? rc : errno;
	for (int i = 0; list && i < count_; i++) {
		snprintf(devices[i].name, sizeof(devices[i].name), "mock%d", i);
		devices[i].node_type = IBV_NODE_CA;
		devices[i].transport_type = IBV_TRANSPORT_IB;
		list[i] = &devices[i];
	}
	if (list && n)
		*n = count_;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

static int listen_at(struct context *c)
{
	struct sockaddr_un a;
	socklen_t len = verbs_where(&a, (uint32_t)getpid(), (uint32_t)c->id);

	c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return c->listener < 0 || bind(c->listener, (struct sockaddr *)&a, len) ||
			       listen(c->listener, 256) ?
		       -1 :
		       0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct context *c;
	int rc = verbs_fault("open_device");

	if (rc) {
		errno = rc;
		return NULL;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->idle, NULL);
	c->device = (int)(device - devices);
	c->ctx.device = device;
	c->ctx.cmd_fd = eventfd(0, EFD_CLOEXEC);
	c->ctx.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	c->ctx.ops.poll_cq = verbs_poll_cq;
	c->ctx.ops.req_notify_cq = verbs_req_notify_cq;
	c->ctx.ops.post_send = verbs_post_send;
	pthread_mutex_lock(&all_lock);
	while (c->id < CONTEXTS_MAX && contexts[c->id])
		c->id++;
	if (c->id == CONTEXTS_MAX || listen_at(c))
		verbs_die("no more contexts");
	contexts[c->id] = c;
	pthread_mutex_unlock(&all_lock);
	if (pthread_create(&c->server, NULL, verbs_listen, c))
		verbs_die("no thread");
	return &c->ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	struct context *c = (struct context *)ctx;

	pthread_mutex_lock(&all_lock);
	contexts[c->id] = NULL;
	pthread_mutex_unlock(&all_lock);
	c->closing = true;
	pthread_join(c->server, NULL);
	pthread_mutex_lock(&c->lock);
	while (c->serving)
		pthread_cond_wait(&c->idle, &c->lock);
	if (c->qps)
		verbs_die("a device was closed under a queue pair");
	for (int i = 0; i < MR_MAX; i++)
		if (c->mr[i])
			verbs_die("a device was closed under a registration");
	pthread_mutex_unlock(&c->lock);
	close(c->listener);
	close(c->ctx.cmd_fd);
	close(c->ctx.async_fd);
	free(c);
	return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	const char *max = getenv("PHX_VERBS_MR_MAX");

	memset(attr, 0, sizeof(*attr));
	attr->max_mr_size = max ? strtoull(max, NULL, 0) : UINT64_MAX;
	attr->max_qp_wr = WR_MAX;
	attr->max_sge = 4;
	attr->max_cqe = CQE_MAX;
	attr->max_qp = 65536;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
	return verbs_fault("query_device");
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)compat;
	int rc = verbs_fault("query_port");

	if (rc || port != 1)
		return rc ? rc : EINVAL;
	attr->state = ((struct context *)ctx)->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	attr->active_mtu = attr->max_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = 4;
	attr->max_msg_sz = 1u << 31;
	attr->active_speed = 32;
	attr->active_width = 2;
	attr->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t size)
{
	struct context *c = (struct context *)ctx;
	uint32_t pid = (uint32_t)getpid(), id = (uint32_t)c->id;
	int rc = verbs_fault("query_gid_ex");

	if (rc || index != 2)
		return rc ? rc : ENODATA;
	memset(entry, 0, size);
	entry->gid.raw[0] = 0x20;
	entry->gid.raw[1] = 1;
	memcpy(entry->gid.raw + 4, &pid, 4);
	memcpy(entry->gid.raw + 8, &id, 4);
	entry->gid_index = index;
	entry->port_num = port;
	entry->gid_type = IBV_GID_TYPE_ROCE_V2;
	return 0;
}

/* c->lock is held */
static void raise_event(struct context *c, int type, struct qp *q)
{
	uint64_t one = 1;

	if (c->events == 16)
		return;
	c->event[c->events].event_type = (enum ibv_event_type)type;
	c->event[c->events++].element.qp = q ? &q->qp : NULL;
	if (write(c->ctx.async_fd, &one, sizeof(one)) < 0)
		verbs_die("eventfd");
}

void phx_verbs_event(int type)
{
	phx_verbs_event_on(-1, type);
}

void phx_verbs_event_on(int device, int type)
{
	pthread_mutex_lock(&all_lock);
	for (int i = 0; i < CONTEXTS_MAX; i++) {
		struct context *c = contexts[i];

		if (!c || (device >= 0 && c->device != device))
			continue;
		if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE)
			c->down = type == IBV_EVENT_PORT_ERR;
		pthread_mutex_lock(&c->lock);
		if (type != IBV_EVENT_QP_FATAL && type != IBV_EVENT_QP_ACCESS_ERR)
			raise_event(c, type, NULL);
		else
			for (struct qp *q = c->qps; q; q = q->next)
				raise_event(c, type, q);
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&all_lock);
}

/* --------------------------------------------------------------------- holding */

_Atomic int verbs_holds;
_Atomic long verbs_completions;

void phx_verbs_hold(int what)
{
	verbs_holds = what;
	/* who armed a queue whose completions were not to be seen hears of them now */
	if (!(what & VERBS_HOLD_POLL))
		verbs_notify_all();
}

long phx_verbs_held(const char *where)
{
	long n = 0;

	if (strcmp(where, "sq"))
		return verbs_completions;
	pthread_mutex_lock(&all_lock);
	for (int i = 0; i < CONTEXTS_MAX; i++) {
		struct context *c = contexts[i];

		if (!c)
			continue;
		pthread_mutex_lock(&c->lock);
		for (struct qp *q = c->qps; q; q = q->next) {
			pthread_mutex_lock(&q->lock);
			n += (long)(q->head - q->retired);
			pthread_mutex_unlock(&q->lock);
		}
		pthread_mutex_unlock(&c->lock);
	}
	pthread_mutex_unlock(&all_lock);
	return n;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
	struct context *c = (struct context *)ctx;
	uint64_t one;

	if (read(ctx->async_fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	pthread_mutex_lock(&c->lock);
	*event = c->event[0];
	memmove(c->event, c->event + 1, --c->events * sizeof(*event));
	pthread_mutex_unlock(&c->lock);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
}

/* --------------------------------------------------------------- registrations */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	int rc = verbs_fault("alloc_pd");
	struct ibv_pd *pd = rc ? NULL : calloc(1, sizeof(*pd));

	errno = rc ? rc : errno;
	if (pd)
		pd->context = ctx;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

/* Could its pages be pinned? An accelerator's cannot, but by its own driver's help. */
static bool readable(void *addr)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { addr, 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	struct context *c = (struct context *)pd->context;
	const char *max = getenv("PHX_VERBS_MR_MAX");
	struct mr *m;
	uint32_t i = 0;

	if (!readable(addr)) {
		errno = EFAULT;
		return NULL;
	}
	if (max && length > strtoull(max, NULL, 0)) {
		errno = EINVAL;
		return NULL;
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	pthread_mutex_lock(&c->lock);
	while (i < MR_MAX && c->mr[i])
		i++;
	if (i == MR_MAX)
		verbs_die("no more registrations");
	m->mr = (struct ibv_mr){ .context = pd->context, .pd = pd, .addr = addr, .length = length };
	m->mr.lkey = m->mr.rkey = i << 8 | (++c->generation & 0xff);
	m->iova = iova;
	m->access = access;
	c->mr[i] = m;
	pthread_mutex_unlock(&c->lock);
	return &m->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	int rc = verbs_fault("reg_mr");

	errno = rc ? rc : errno;
	return rc ? NULL : reg(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	int rc = verbs_fault("reg_mr_iova");

	errno = rc ? rc : errno;
	return rc ? NULL : reg(pd, addr, length, iova, access);
}

/* A file stands for the dma-buf, which begins at the place of its descriptor. */
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	int rc = verbs_fault("reg_dmabuf_mr");
	off_t start = rc ? 0 : lseek(fd, 0, SEEK_CUR);
	uint64_t first = ((uint64_t)start + offset) & ~4095ull;
	size_t before = (size_t)((uint64_t)start + offset - first);
	struct ibv_mr *mr;
	void *at;

	errno = rc ? rc : errno;
	if (rc || start < 0)
		return NULL;
	at = mmap(NULL, before + length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)first);
	if (at == MAP_FAILED)
		return NULL;
	mr = reg(pd, (char *)at + before, length, iova, access);
	if (!mr) {
		munmap(at, before + length);
		return NULL;
	}
	((struct mr *)mr)->map = at;
	((struct mr *)mr)->map_len = before + length;
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct context *c = (struct context *)mr->context;
	struct mr *m = (struct mr *)mr;

	pthread_mutex_lock(&c->lock);
	c->mr[mr->rkey >> 8] = NULL;
	while (m->users)
		pthread_cond_wait(&c->idle, &c->lock);
	pthread_mutex_unlock(&c->lock);
	if (m->map)
		munmap(m->map, m->map_len);
	free(m);
	return 0;
}

/* --------------------------------------------------------------------- queues */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	int rc = verbs_fault("create_comp_channel");
	struct channel *ch = rc ? NULL : calloc(1, sizeof(*ch));

	errno = rc ? rc : errno;
	if (!ch)
		return NULL;
	pthread_mutex_init(&ch->lock, NULL);
	ch->channel.context = ctx;
	ch->channel.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	struct channel *ch = (struct channel *)channel;
	uint64_t one;

	if (read(channel->fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	pthread_mutex_lock(&ch->lock);
	*cq = &ch->pending[0]->cq;
	*context = (*cq)->cq_context;
	memmove(ch->pending, ch->pending + 1, --ch->n * sizeof(ch->pending[0]));
	pthread_mutex_unlock(&ch->lock);
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	int rc = verbs_fault("create_cq");
	struct cq *cq = rc ? NULL : calloc(1, sizeof(*cq));

	errno = rc ? rc : errno;
	if (!cq)
		return NULL;
	verbs_see("cqe", cqe);
	pthread_mutex_init(&cq->lock, NULL);
	cq->cap = (unsigned int)cqe;
	cq->wc = calloc(cq->cap, sizeof(*cq->wc));
	cq->of = calloc(cq->cap, sizeof(struct qp *));
	cq->upto = calloc(cq->cap, sizeof(*cq->upto));
	cq->cq = (struct ibv_cq){ .context = ctx, .channel = channel, .cq_context = cq_context,
				  .cqe = cqe };
	verbs_cq_enter(cq);
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *base)
{
	struct cq *cq = (struct cq *)base;

	verbs_cq_leave(cq);
	free(cq->wc);
	free(cq->of);
	free(cq->upto);
	free(cq);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static _Atomic uint32_t made[DEVICES_MAX]; /* their numbers are each device's own */
	struct context *c = (struct context *)pd->context;
	int rc = verbs_fault("create_qp");
	struct qp *q;

	if (!rc && attr->cap.max_inline_data > 512)
		rc = EINVAL;
	q = rc ? NULL : calloc(1, sizeof(*q));
	errno = rc ? rc : errno;
	if (!q)
		return NULL;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->more, NULL);
	verbs_see("main_qp", gettid() == getpid());
	verbs_see("sge", attr->cap.max_send_sge);
	verbs_see("inline", attr->cap.max_inline_data);
	verbs_see("send_wr", attr->cap.max_send_wr);
	q->c = c;
	q->sock = -1;
	q->cap = attr->cap.max_send_wr;
	q->ring = calloc(q->cap, sizeof(*q->ring));
	q->qp = (struct ibv_qp){ .context = pd->context, .pd = pd, .send_cq = attr->send_cq,
				 .recv_cq = attr->recv_cq,
				 .qp_num = (16 + made[c->device]++) & 0xffffff };
	pthread_mutex_lock(&c->lock);
	q->next = c->qps;
	c->qps = q;
	pthread_mutex_unlock(&c->lock);
	if (pthread_create(&q->thread, NULL, verbs_work, q))
		verbs_die("no thread");
	return &q->qp;
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask)
{
	static const char *const names[] = { [IBV_QPS_INIT] = "modify_init",
					     [IBV_QPS_RTR] = "modify_rtr",
					     [IBV_QPS_RTS] = "modify_rts",
					     [IBV_QPS_ERR] = "modify_err" };
	struct qp *q = (struct qp *)base;
	int rc = verbs_fault(names[attr->qp_state]);

	if (rc)
		return rc;
	if (attr->qp_state == IBV_QPS_INIT) {
		verbs_see("pkey", attr->pkey_index);
		verbs_see("port", attr->port_num);
	} else if (attr->qp_state == IBV_QPS_RTR) {
		verbs_see("mtu", 128L << attr->path_mtu);
		verbs_see("tc", attr->ah_attr.grh.traffic_class);
		verbs_see("gid", attr->ah_attr.grh.sgid_index);
		verbs_see("sl", attr->ah_attr.sl);
	} else if (attr->qp_state == IBV_QPS_RTS) {
		verbs_see("retry", attr->retry_cnt);
		verbs_see("timeout", attr->timeout);
	}
	pthread_mutex_lock(&q->lock);
	if (attr->qp_state == IBV_QPS_RTR) {
		q->peer_qpn = attr->dest_qp_num;
		q->peer = attr->ah_attr.grh.dgid;
	}
	/* each state from the one before it, error from any */
	if (attr->qp_state != IBV_QPS_ERR && (int)attr->qp_state != q->state + 1)
		rc = EINVAL;
	else
		q->state = attr->qp_state;
	pthread_cond_broadcast(&q->more);
	pthread_mutex_unlock(&q->lock);
	return rc;
}

static void forget_completions(struct qp *q)
{
	struct cq *cq = (struct cq *)q->qp.send_cq;

	/* they stay in the queue, as some hardware leaves them */
	pthread_mutex_lock(&cq->lock);
	for (unsigned int i = 0; i < cq->n; i++)
		if (cq->of[(cq->first + i) % cq->cap] == q)
			cq->of[(cq->first + i) % cq->cap] = NULL;
	pthread_mutex_unlock(&cq->lock);
}

int ibv_destroy_qp(struct ibv_qp *base)
{
	struct qp *q = (struct qp *)base, **at;

	verbs_see("main_qp", gettid() == getpid());
	pthread_mutex_lock(&q->c->lock);
	for (at = &q->c->qps; *at != q; at = &(*at)->next)
		;
	*at = q->next;
	for (unsigned int i = 0; i < q->c->events; i++)
		if (q->c->event[i].element.qp == base)
			q->c->event[i] = (struct ibv_async_event){
				.event_type = IBV_EVENT_SM_CHANGE,
			};
	pthread_mutex_unlock(&q->c->lock);
	pthread_mutex_lock(&q->lock);
	q->ending = true;
	pthread_cond_broadcast(&q->more);
	if (q->sock >= 0)
		shutdown(q->sock, SHUT_RDWR); /* a request under way ends */
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	if (q->state == IBV_QPS_ERR) /* hardware may flush until then, and no longer */
		verbs_flush(q);
	forget_completions(q);
	if (q->sock >= 0)
		close(q->sock);
	free(q->ring);
	free(q);
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const names[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_WR_FLUSH_ERR] = "flushed",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_RETRY_EXC_ERR] = "retries exceeded",
	};

	return (size_t)status < sizeof(names) / sizeof(names[0]) && names[status] ? names[status] :
										    "error";
}
