// SPDX-License-Identifier: Apache-2.0
/*
 * One row of the table of what can be reached: ibv_reg_mr() on the host mapping of a
 * registered buffer of device 0, and RDMA READ and WRITE between it and host memory over the
 * RDMA devices rxe0 and rxe1 of vm/guest/lib.sh, the buffer on the side that asks and on the
 * side that is asked. Usage: vm_reach_rdma; prints and exits as vm_reach does.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "phoenix.h"

#define BYTES	(4u << 20)	/* several 2 MiB pages */
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define GID	1		/* RoCE v2, IPv4 */

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;	/* of the buffer under test, or of host memory */
	union ibv_gid gid;
	void *memory;
};

static void *device;		/* device address of the buffer under test */

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("wrong: ");
	vprintf(format, args);
	va_end(args);
	printf("\n");
	exit(1);
}

static void need(bool ok, const char *what)
{
	if (!ok)
		fail("%s: %s", what, strerror(errno));
}

static void open_end(struct end *e, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	need(list, "device list");
	for (int i = 0; list[i] && !e->context; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			e->context = ibv_open_device(list[i]);
	}
	need(e->context, name);
	ibv_free_device_list(list);
	need((e->pd = ibv_alloc_pd(e->context)), "ibv_alloc_pd");
	need((e->cq = ibv_create_cq(e->context, 4, NULL, NULL, 0)), "ibv_create_cq");
	need(!ibv_query_gid(e->context, 1, GID, &e->gid), "ibv_query_gid");
	init.send_cq = e->cq;
	init.recv_cq = e->cq;
	need((e->qp = ibv_create_qp(e->pd, &init)), "ibv_create_qp");
}

static void connect_end(struct end *e, const struct end *peer)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS,
	};
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = peer->gid, .sgid_index = GID, .hop_limit = 64 },
		},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	need(!ibv_modify_qp(e->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			    IBV_QP_ACCESS_FLAGS), "INIT");
	need(!ibv_modify_qp(e->qp, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			    IBV_QP_MIN_RNR_TIMER), "RTR");
	need(!ibv_modify_qp(e->qp, &send, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

/* One READ or WRITE of everything, asked for by @e. */
static void move(struct end *e, const struct end *peer, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->memory, .length = BYTES, .lkey = e->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)peer->memory, .rkey = peer->mr->rkey },
	};
	time_t end = time(NULL) + 120;
	struct ibv_wc wc;
	int n;

	need(!ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
	do {
		n = ibv_poll_cq(e->cq, 1, &wc);
	} while (!n && time(NULL) < end);
	if (n != 1 || wc.status != IBV_WC_SUCCESS)
		fail("%s: %s", opcode == IBV_WR_RDMA_READ ? "READ" : "WRITE",
		     n == 1 ? ibv_wc_status_str(wc.status) : "no completion");
}

static void fill(unsigned char *p, unsigned int seed)
{
	for (size_t i = 0; i < BYTES; i++)
		p[i] = (unsigned char)((i + 1) * 0x9e3779b1u >> 24) ^ (unsigned char)seed;
}

static void check(const unsigned char *p, unsigned int seed, const char *what)
{
	for (size_t i = 0; i < BYTES; i++) {
		if (p[i] != ((unsigned char)((i + 1) * 0x9e3779b1u >> 24) ^ (unsigned char)seed))
			fail("%s: byte %zu differs", what, i);
	}
}

/*
 * Both operations, asked for by @asks; one of the two ends has the buffer under test, whose
 * bytes go in and out by the accelerator's own copies, and the other has @host.
 */
static void both(struct end *asks, struct end *asked, struct end *under_test, unsigned char *host)
{
	unsigned char *work = malloc(BYTES);

	need(work, "memory");
	for (unsigned int op = 0; op < 2; op++) {
		bool into = (asks == under_test) == (op == 0); /* READ by it, WRITE to it */
		unsigned int seed = 17 * op + 3 * (asks == under_test) + 1;

		fill(into ? host : work, seed);
		memset(into ? work : host, 0, BYTES);
		if (phxfs_memcpy_to(0, device, work, BYTES))
			fail("%s", phxfs_last_error());
		move(asks, asked, op ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);
		if (phxfs_memcpy_from(0, work, device, BYTES))
			fail("%s", phxfs_last_error());
		check(work, seed, "device memory");
		check(host, seed, "host memory");
	}
	free(work);
}

int main(void)
{
	struct end ends[2] = { 0 };
	void *mapping;
	int err;

	if (phxfs_open(0) || phxfs_mem_alloc(0, BYTES, &device) ||
	    phxfs_regmem(0, device, BYTES, &mapping))
		fail("%s", phxfs_last_error());
	open_end(&ends[0], "rxe0");
	open_end(&ends[1], "rxe1");
	connect_end(&ends[0], &ends[1]);
	connect_end(&ends[1], &ends[0]);

	ends[0].memory = mapping;
	ends[0].mr = ibv_reg_mr(ends[0].pd, mapping, BYTES, ACCESS);
	if (!ends[0].mr) {
		err = errno;
		printf("refused: %s by ibv_reg_mr\n", strerrorname_np(err));
		return 0;
	}
	need((ends[1].memory = aligned_alloc(4096, BYTES)), "memory");
	need((ends[1].mr = ibv_reg_mr(ends[1].pd, ends[1].memory, BYTES, ACCESS)), "host memory");
	both(&ends[0], &ends[1], &ends[0], ends[1].memory);
	both(&ends[1], &ends[0], &ends[0], ends[1].memory);

	for (int i = 0; i < 2; i++) {
		need(!ibv_destroy_qp(ends[i].qp), "ibv_destroy_qp");
		need(!ibv_dereg_mr(ends[i].mr), "ibv_dereg_mr");
		need(!ibv_destroy_cq(ends[i].cq), "ibv_destroy_cq");
		need(!ibv_dealloc_pd(ends[i].pd), "ibv_dealloc_pd");
		need(!ibv_close_device(ends[i].context), "ibv_close_device");
	}
	free(ends[1].memory);
	if (phxfs_deregmem(0, device, BYTES) || phxfs_mem_free(0, device) || phxfs_close(0))
		fail("%s", phxfs_last_error());
	printf("works: direct, READ and WRITE, asking and asked\n");
	return 0;
}
