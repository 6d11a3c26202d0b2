// SPDX-License-Identifier: Apache-2.0
/* The tests' own libibverbs at work: both ends of a request, and completions. */
#include "verbs_fake.h"

static int fd_read(int fd, void *buf, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n = read(fd, (char *)buf + got, len - got);

		if (n <= 0 && !(n < 0 && errno == EINTR))
			return -1;
		got += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int fd_write(int fd, const void *buf, size_t len)
{
	for (size_t sent = 0; sent < len;) {
		ssize_t n = send(fd, (const char *)buf + sent, len - sent, MSG_NOSIGNAL);

		if (n < 0 && errno != EINTR)
			return -1;
		sent += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

/*
 * Around accesses to registered memory: who orders them sits in other processes
 * or is the program, which no tool in this one sees.
 */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define HARDWARE_BEGIN()                                         \
	do {                                                     \
		AnnotateIgnoreReadsBegin(__FILE__, __LINE__);    \
		AnnotateIgnoreWritesBegin(__FILE__, __LINE__);   \
	} while (0)
#define HARDWARE_END()                                           \
	do {                                                     \
		AnnotateIgnoreWritesEnd(__FILE__, __LINE__);     \
		AnnotateIgnoreReadsEnd(__FILE__, __LINE__);      \
	} while (0)
#else
#define HARDWARE_BEGIN() ((void)0)
#define HARDWARE_END() ((void)0)
#endif

/* -------------------------------------------------------- the answering end */

struct wire {
	uint32_t write, rkey, len, qpn;
	uint64_t addr;
};

/* The memory of a key, in use; NULL: refused. */
static struct mr *mr_use(struct context *c, const struct wire *w, int access)
{
	struct mr *m;

	pthread_mutex_lock(&c->lock);
	m = w->rkey >> 8 < MR_MAX ? c->mr[w->rkey >> 8] : NULL;
	if (m && (m->mr.rkey != w->rkey || !(m->access & access) || w->addr < m->iova ||
		  w->len > m->mr.length || w->addr - m->iova > m->mr.length - w->len))
		m = NULL;
	if (m)
		m->users++;
	pthread_mutex_unlock(&c->lock);
	return m;
}

static void mr_unuse(struct context *c, struct mr *m)
{
	pthread_mutex_lock(&c->lock);
	m->users--;
	pthread_cond_broadcast(&c->idle);
	pthread_mutex_unlock(&c->lock);
}

/* Is the queue pair there, and fit? A key that is refused ends that. */
static bool qp_answers(struct context *c, uint32_t qpn, bool refused)
{
	bool fit = false;

	pthread_mutex_lock(&c->lock);
	for (struct qp *q = c->qps; q; q = q->next) {
		if (q->qp.qp_num != qpn)
			continue;
		pthread_mutex_lock(&q->lock);
		fit = q->state == IBV_QPS_RTR || q->state == IBV_QPS_RTS;
		if (refused && fit) {
			q->state = IBV_QPS_ERR;
			pthread_cond_broadcast(&q->more);
		}
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return fit;
}

static int serve_one(struct context *c, int fd, const struct wire *w)
{
	int access = w->write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_READ;
	uint8_t *data = malloc(w->len + 1);
	struct mr *m = NULL;
	uint32_t status = IBV_WC_SUCCESS;
	int rc = data ? 0 : -1;

	if (!rc && w->write)
		rc = fd_read(fd, data, w->len);
	if (!rc && !qp_answers(c, w->qpn, false))
		status = IBV_WC_RETRY_EXC_ERR; /* silence, and at last */
	else if (!rc)
		m = mr_use(c, w, access);
	if (!rc && !m && status == IBV_WC_SUCCESS) {
		status = IBV_WC_REM_ACCESS_ERR;
		qp_answers(c, w->qpn, true);
	}
	if (m) {
		uint8_t *mem = (uint8_t *)m->mr.addr + (w->addr - m->iova);

		HARDWARE_BEGIN();
		memcpy(w->write ? mem : data, w->write ? data : mem, w->len);
		HARDWARE_END();
		mr_unuse(c, m);
	}
	rc = rc ? rc : fd_write(fd, &status, sizeof(status));
	if (!rc && !w->write && status == IBV_WC_SUCCESS)
		rc = fd_write(fd, data, w->len);
	free(data);
	return rc;
}

struct served {
	struct context *c;
	int fd;
};

static void *serve(void *arg)
{
	struct served s = *(struct served *)arg;
	struct wire w;

	free(arg);
	for (;;) {
		struct pollfd p = { .fd = s.fd, .events = POLLIN };

		if (poll(&p, 1, 20) == 0 && !s.c->closing)
			continue;
		if (s.c->closing || fd_read(s.fd, &w, sizeof(w)) || serve_one(s.c, s.fd, &w))
			break;
	}
	close(s.fd);
	pthread_mutex_lock(&s.c->lock);
	s.c->serving--;
	pthread_cond_broadcast(&s.c->idle);
	pthread_mutex_unlock(&s.c->lock);
	return NULL;
}

void *verbs_listen(void *arg)
{
	struct context *c = arg;

	while (!c->closing) {
		struct pollfd p = { .fd = c->listener, .events = POLLIN };
		struct served *s;
		pthread_t t;
		int fd;

		if (poll(&p, 1, 20) <= 0)
			continue;
		fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
		s = fd < 0 ? NULL : malloc(sizeof(*s));
		if (!s)
			continue;
		*s = (struct served){ c, fd };
		pthread_mutex_lock(&c->lock);
		c->serving++;
		pthread_mutex_unlock(&c->lock);
		if (pthread_create(&t, NULL, serve, s))
			verbs_die("no thread");
		pthread_detach(t);
	}
	return NULL;
}

/* ---------------------------------------------------------------- completions */

static void notify(struct cq *cq)
{
	struct channel *ch = (struct channel *)cq->cq.channel;
	uint64_t one = 1;

	cq->armed = false;
	pthread_mutex_lock(&ch->lock);
	ch->pending[ch->n++] = cq;
	if (write(ch->channel.fd, &one, sizeof(one)) < 0)
		verbs_die("eventfd");
	pthread_mutex_unlock(&ch->lock);
}

static struct cq *cqs;
static pthread_mutex_t cqs_lock = PTHREAD_MUTEX_INITIALIZER;

void verbs_cq_enter(struct cq *cq)
{
	pthread_mutex_lock(&cqs_lock);
	cq->next = cqs;
	cqs = cq;
	pthread_mutex_unlock(&cqs_lock);
}

void verbs_cq_leave(struct cq *cq)
{
	struct cq **at = &cqs;

	pthread_mutex_lock(&cqs_lock);
	while (*at != cq)
		at = &(*at)->next;
	*at = cq->next;
	verbs_completions -= cq->n;
	pthread_mutex_unlock(&cqs_lock);
}

void verbs_notify_all(void)
{
	pthread_mutex_lock(&cqs_lock);
	for (struct cq *cq = cqs; cq; cq = cq->next) {
		pthread_mutex_lock(&cq->lock);
		if (cq->armed && cq->n)
			notify(cq);
		pthread_mutex_unlock(&cq->lock);
	}
	pthread_mutex_unlock(&cqs_lock);
}

static void complete(struct qp *q, const struct request *r, enum ibv_wc_status status,
		     uint32_t upto)
{
	struct cq *cq = (struct cq *)q->qp.send_cq;
	unsigned int at;

	pthread_mutex_lock(&cq->lock);
	if (cq->n == cq->cap)
		verbs_die("a completion queue has overflowed");
	at = (cq->first + cq->n++) % cq->cap;
	cq->wc[at] = (struct ibv_wc){ .wr_id = r->wr_id,
				      .status = status,
				      .qp_num = q->qp.qp_num,
				      .opcode = r->write ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ };
	cq->of[at] = q;
	cq->upto[at] = upto;
	verbs_completions++;
	if (cq->armed && !(verbs_holds & VERBS_HOLD_POLL))
		notify(cq);
	pthread_mutex_unlock(&cq->lock);
}

void verbs_flush(struct qp *q)
{
	for (; q->at != q->head; q->at++)
		complete(q, &q->ring[q->at % q->cap], IBV_WC_WR_FLUSH_ERR, q->at + 1);
}

int verbs_poll_cq(struct ibv_cq *base, int max, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)base;
	int n = 0;

	verbs_see("poll", max);
	if (verbs_holds & VERBS_HOLD_POLL)
		return 0;
	pthread_mutex_lock(&cq->lock);
	for (; n < max && cq->n; n++, cq->n--) {
		struct qp *q = cq->of[cq->first];

		wc[n] = cq->wc[cq->first];
		if (q) {
			pthread_mutex_lock(&q->lock);
			q->retired = cq->upto[cq->first];
			pthread_mutex_unlock(&q->lock);
		}
		cq->first = (cq->first + 1) % cq->cap;
	}
	verbs_completions -= n;
	pthread_mutex_unlock(&cq->lock);
	return n;
}

int verbs_req_notify_cq(struct ibv_cq *base, int solicited)
{
	struct cq *cq = (struct cq *)base;
	int rc = verbs_fault("req_notify_cq");

	pthread_mutex_lock(&cq->lock);
	cq->armed = !rc;
	pthread_mutex_unlock(&cq->lock);
	return rc;
}

/* ----------------------------------------------------------- the asking end */

static int dial(struct qp *q)
{
	struct sockaddr_un a;
	uint32_t pid, id;
	socklen_t len;

	memcpy(&pid, q->peer.raw + 4, 4);
	memcpy(&id, q->peer.raw + 8, 4);
	len = verbs_where(&a, pid, id);
	q->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return q->sock < 0 ? -1 : connect(q->sock, (struct sockaddr *)&a, len);
}

static enum ibv_wc_status ask(struct qp *q, const struct request *r)
{
	struct wire w = { r->write, r->rkey, r->len, q->peer_qpn, r->raddr };
	const struct wire local = { 0, r->lkey, r->len, 0, r->laddr };
	uint8_t *mem = NULL;
	struct mr *m = NULL;
	uint32_t status;
	int rc;

	if (!r->inlined) {
		m = mr_use(q->c, &local, ~0);
		if (!m)
			return IBV_WC_LOC_PROT_ERR;
		mem = (uint8_t *)m->mr.addr + (r->laddr - m->iova);
	}
	HARDWARE_BEGIN();
	rc = q->sock < 0 ? dial(q) : 0;
	rc = rc ? rc : fd_write(q->sock, &w, sizeof(w));
	if (!rc && r->write)
		rc = fd_write(q->sock, r->inlined ? r->data : mem, r->len);
	rc = rc ? rc : fd_read(q->sock, &status, sizeof(status));
	if (!rc && !r->write && status == IBV_WC_SUCCESS)
		rc = fd_read(q->sock, mem, r->len);
	HARDWARE_END();
	if (m)
		mr_unuse(q->c, m);
	return rc ? IBV_WC_RETRY_EXC_ERR : (enum ibv_wc_status)status;
}

void *verbs_work(void *arg)
{
	struct qp *q = arg;

	pthread_mutex_lock(&q->lock);
	while (!q->ending) {
		struct request *r = &q->ring[q->at % q->cap];
		enum ibv_wc_status status;
		bool flush;
		int injected;

		if (q->at == q->head || q->state == IBV_QPS_INIT || q->state == IBV_QPS_RTR) {
			pthread_cond_wait(&q->more, &q->lock);
			continue;
		}
		if (verbs_holds & VERBS_HOLD_WORK) {
			pthread_mutex_unlock(&q->lock);
			usleep(1000);
			pthread_mutex_lock(&q->lock);
			continue;
		}
		flush = q->state == IBV_QPS_ERR;
		pthread_mutex_unlock(&q->lock);
		if (!flush && verbs_fault("lost")) {
			pthread_mutex_lock(&q->lock);
			while (!q->ending && q->state != IBV_QPS_ERR)
				pthread_cond_wait(&q->more, &q->lock);
			continue;
		}
		injected = flush ? 0 : verbs_fault("wc");
		status = flush ? IBV_WC_WR_FLUSH_ERR :
			 injected ? (enum ibv_wc_status)injected : ask(q, r);
		pthread_mutex_lock(&q->lock);
		if (status != IBV_WC_SUCCESS)
			q->state = IBV_QPS_ERR;
		q->at++;
		if (status != IBV_WC_SUCCESS || r->signalled) {
			uint32_t upto = q->at;
			struct request done = *r;

			pthread_mutex_unlock(&q->lock);
			complete(q, &done, status, upto);
			pthread_mutex_lock(&q->lock);
		}
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

int verbs_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)base;
	int rc = 0;
	long chain = 0, reads = 0;

	pthread_mutex_lock(&q->lock);
	for (uint32_t i = q->at; i != q->head; i++)
		reads += !q->ring[i % q->cap].write;
	for (; wr; wr = wr->next, chain++) {
		struct request *r;

		rc = EINVAL;
		if (q->state == IBV_QPS_RTS || q->state == IBV_QPS_ERR)
			rc = verbs_fault("post_send");
		if (rc)
			break;
		if (q->head - q->retired == q->cap)
			verbs_die("a send queue has overflowed");
		r = &q->ring[q->head % q->cap];
		r->wr_id = wr->wr_id;
		r->write = wr->opcode == IBV_WR_RDMA_WRITE;
		r->signalled = wr->send_flags & IBV_SEND_SIGNALED;
		r->inlined = wr->send_flags & IBV_SEND_INLINE;
		r->laddr = wr->sg_list[0].addr;
		r->len = wr->sg_list[0].length;
		r->lkey = wr->sg_list[0].lkey;
		r->raddr = wr->wr.rdma.remote_addr;
		r->rkey = wr->wr.rdma.rkey;
		reads += !r->write;
		if (r->inlined)
			memcpy(r->data, (void *)(uintptr_t)r->laddr, r->len);
		q->head++;
	}
	pthread_cond_broadcast(&q->more);
	pthread_mutex_unlock(&q->lock);
	verbs_see("chain", chain);
	verbs_see("main_post", gettid() == getpid());
	verbs_see("reads", reads);
	if (rc)
		*bad = wr;
	return rc;
}
