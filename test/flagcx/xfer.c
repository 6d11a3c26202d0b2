// SPDX-License-Identifier: Apache-2.0
/* Bytes: sizes, places, batches, both ways; what is refused; ids. */
#include "tp.h"

#include <sys/mman.h>

static void moves_any_size_to_any_place(void)
{
	static const size_t sizes[] = { 1, 2, 7, 511, 4095, 4096, 4097, 65535, 65537, 1 << 20,
					(1 << 20) + 1, 3000001, 9 << 20 };
	const size_t size = 12 << 20;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pMr mr = tp_reg(e, mem, size);
	FlagcxP2pConn *c;

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t n = sizes[i], at = (i * 997) % 4099, to = (i * 31) % 5003;
		uint64_t id;

		/* read: the server's bytes come, nothing beside them is touched */
		tp_server_fill(&s, 10 + i);
		memset(mem, 0xa5, size);
		TP_OK(flagcxP2pEngineRead(c, mr, mem + at, n, tp_desc(&s, to, n), &id));
		TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)));
		TP_EQ(tp_differs(mem + at, 10 + i, to, n), -1);
		for (size_t k = 0; k < at; k++)
			TP_EQ(mem[k], 0xa5);
		for (size_t k = at + n; k < at + n + 5000 && k < size; k++)
			TP_EQ(mem[k], 0xa5);
		/* write: the same the other way */
		tp_fill(mem + at, 100 + i, to, n);
		TP_OK(flagcxP2pEngineWrite(c, mr, mem + at, n, tp_desc(&s, to, n), &id));
		TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)));
		tp_server_check(&s, 100 + i, to, n);
		tp_server_check(&s, 10 + i, 0, to);
		tp_server_check(&s, 10 + i, to + n, size - to - n);
	}
	/* the very last byte, before an unmapped page, on both ends */
	uint64_t id;

	TP_OK(flagcxP2pEngineRead(c, mr, mem + size - 1, 1, tp_desc(&s, size - 1, 1), &id));
	TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)));
	tp_gauges_zero(e);
	flagcxP2pEngineConnDestroy(c);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
	tp_free(mem, size);
}

struct batch {
	int n;
	FlagcxP2pMr *mr;
	void **local;
	size_t *size;
	FlagcxP2pRdmaDesc *desc;
};

static struct batch batch_new(int n)
{
	return (struct batch){ n, calloc((size_t)n, 8), calloc((size_t)n, sizeof(void *)),
			       calloc((size_t)n, sizeof(size_t)),
			       calloc((size_t)n, sizeof(FlagcxP2pRdmaDesc)) };
}

static void batch_free(struct batch *b)
{
	free(b->mr);
	free(b->local);
	free(b->size);
	free(b->desc);
}

static void moves_scattered_batches(void)
{
	const size_t size = 32 << 20, block = 4096;
	const int n = 2000;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pMr mr = tp_reg(e, mem, size);
	struct batch b = batch_new(n);
	FlagcxP2pConn *c;
	uint64_t id;

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	/* block i of the server lies at place 7i mod slots here */
	for (int i = 0; i < n; i++) {
		size_t slot = (size_t)i * 7 % (size / block);

		b.mr[i] = mr;
		b.local[i] = mem + slot * block;
		b.size[i] = i % 50 ? block - (size_t)i % 3 : 0; /* some are empty */
		b.desc[i] = tp_desc(&s, (size_t)i * block, block);
	}
	TP_OK(flagcxP2pEngineReadVector(c, b.mr, b.local, b.size, b.desc, n, &id, NULL));
	TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)));
	for (int i = 0; i < n; i++)
		TP_EQ(tp_differs(b.local[i], 1, (size_t)i * block, b.size[i]), -1);
	for (int i = 0; i < n; i++)
		tp_fill(b.local[i], 5, (size_t)i * block, b.size[i]);
	for (int policy = FLAGCX_P2P_POLICY_NIXL; policy <= FLAGCX_P2P_POLICY_CONNECTOR; policy++) {
		tp_server_fill(&s, 2);
		TP_OK(flagcxP2pEngineWriteVectorPolicy(c, b.mr, b.local, b.size, b.desc, n, policy,
						       &id));
		TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(20000)));
		for (int i = 0; i < n; i += 97) {
			uint64_t off = (uint64_t)i * block;

			tp_server_check(&s, 5, off, b.size[i]);
			tp_server_check(&s, 2, off + b.size[i], block - b.size[i]);
		}
	}
	TP_EQ(flagcxP2pEngineWriteVectorPolicy(c, b.mr, b.local, b.size, b.desc, n, 7, &id),
	      -EINVAL);
	TP_OK(flagcxP2pEngineWriteVectorSync(c, b.mr, b.local, b.size, b.desc, n));
	TP_OK(flagcxP2pEngineReadVectorSync(c, b.mr, b.local, b.size, b.desc, n));
	/* nothing to move is done at once */
	memset(b.size, 0, (size_t)n * sizeof(*b.size));
	TP_OK(flagcxP2pEngineReadVector(c, b.mr, b.local, b.size, b.desc, n, &id, NULL));
	TP_EQ(id, 0);
	TP_CHECK(flagcxP2pEngineXferStatus(c, id));
	TP_OK(flagcxP2pEngineXferWait(c, id, 0));
	batch_free(&b);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

static void policy_decides_the_slices(void)
{
	const size_t size = 1 << 20;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pMr mr = tp_reg(e, mem, size);
	FlagcxP2pConn *c;
	void *local = mem;
	struct {
		int policy;
		size_t size;
		uint64_t slices;
	} want[] = {
		{ FLAGCX_P2P_POLICY_NIXL, 300000, 1 },
		{ FLAGCX_P2P_POLICY_CONNECTOR, 65536, 1 },
		{ FLAGCX_P2P_POLICY_CONNECTOR, 65536 + 4096, 1 },
		{ FLAGCX_P2P_POLICY_CONNECTOR, 65536 + 4097, 2 },
		{ FLAGCX_P2P_POLICY_CONNECTOR, 300000, 5 },
	};

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		FlagcxP2pXferInfo info = { .size = sizeof(info) };
		uint64_t id;

		TP_OK(flagcxP2pEngineWriteVectorPolicy(c, &mr, &local, &want[i].size, &s.desc, 1,
						       want[i].policy, &id));
		TP_OK(flagcxP2pEngineXferQuery(c, id, &info));
		TP_EQ(info.slices, want[i].slices);
		TP_EQ(info.bytes_total, want[i].size);
		TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(10000)));
	}
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

/* R03: one bad key in a batch fails the transfer, moves the other bytes, and is named. */
static void one_bad_key_fails_the_transfer_only(void)
{
	const size_t block = 10000;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(8 * block);
	FlagcxP2pMr mr = tp_reg(e, mem, 8 * block);
	FlagcxP2pConn *c;

	tp_serve(&s, 8 * block, 0, NULL);
	c = tp_connect(e, &s);
	for (int write = 0; write < 2; write++) {
		struct batch b = batch_new(8);
		FlagcxP2pXferInfo info = { .size = sizeof(info) };
		uint64_t id;

		tp_server_fill(&s, 1);
		tp_fill(mem, 3, 0, 8 * block);
		for (int i = 0; i < 8; i++) {
			b.mr[i] = mr;
			b.local[i] = mem + (size_t)i * block;
			b.size[i] = block;
			b.desc[i] = tp_desc(&s, (size_t)i * block, block);
		}
		b.desc[5].rkey ^= 0x1000;
		TP_OK(write ? flagcxP2pEngineWriteVector(c, b.mr, b.local, b.size, b.desc, 8, &id,
							 NULL)
			    : flagcxP2pEngineReadVector(c, b.mr, b.local, b.size, b.desc, 8, &id,
							NULL));
		do {
			TP_OK(flagcxP2pEngineXferQuery(c, id, &info));
		} while (info.state == FLAGCX_P2P_XFER_PENDING);
		TP_EQ(info.state, FLAGCX_P2P_XFER_FAILED);
		TP_EQ(info.first_error, -EACCES);
		TP_EQ(info.first_failed, 5);
		TP_EQ(info.failed_slices, 1);
		TP_EQ(info.bytes_done, 7 * block);
		TP_EQ(info.quiet, 1);
		TP_EQ(flagcxP2pEngineXferWait(c, id, 0), -EACCES);
		for (int i = 0; i < 8; i++) {
			uint64_t off = (uint64_t)i * block;

			if (write)
				tp_server_check(&s, i == 5 ? 1 : 3, off, block);
			else
				TP_EQ(tp_differs(mem + off, i == 5 ? 3 : 1, off, block), -1);
		}
		/* and the connection lives on */
		TP_OK(flagcxP2pEngineConnStatus(c));
		b.desc[5] = tp_desc(&s, 5 * block, block);
		TP_OK(flagcxP2pEngineReadVectorSync(c, b.mr, b.local, b.size, b.desc, 8));
		batch_free(&b);
	}
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

static void the_target_checks_bounds(void)
{
	const size_t size = 100000;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(2 * size);
	FlagcxP2pMr mr = tp_reg(e, mem, 2 * size);
	FlagcxP2pRdmaDesc d;
	FlagcxP2pConn *c;
	uint64_t id;

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	d = tp_desc(&s, 1, 1);
	TP_OK(flagcxP2pEngineWrite(c, mr, mem, size, d, &id)); /* one byte too far */
	TP_EQ(flagcxP2pEngineXferWait(c, id, tp_ms(10000)), -EFAULT);
	d.addr = s.addr - 1;
	TP_OK(flagcxP2pEngineRead(c, mr, mem, 2, d, &id));
	TP_EQ(flagcxP2pEngineXferWait(c, id, tp_ms(10000)), -EFAULT);
	d.addr = UINT64_MAX - 3;
	TP_EQ(flagcxP2pEngineRead(c, mr, mem, 8, d, &id), -EINVAL);
	d = s.desc;
	d.rid ^= 1;
	TP_OK(flagcxP2pEngineRead(c, mr, mem, 8, d, &id));
	TP_CHECK(flagcxP2pEngineXferWait(c, id, tp_ms(10000)) < 0);
	tp_server_check(&s, 1, 0, size);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

/* R26, R35 */
static void bad_arguments_start_nothing(void)
{
	const size_t size = 100000;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size), *gone;
	FlagcxP2pMr mr = tp_reg(e, mem, size), other;
	FlagcxP2pRdmaDesc d;
	FlagcxP2pConn *c;
	uint64_t id = 77;
	char desc[FLAGCX_P2P_DESC_SIZE];

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	d = s.desc;
	TP_EQ(flagcxP2pEngineRead(c, mr, mem, 8, d, NULL), -EINVAL);
	TP_EQ(flagcxP2pEngineRead(NULL, mr, mem, 8, d, &id), -ENOTCONN);
	TP_EQ(flagcxP2pEngineRead(c, mr + 1, mem, 8, d, &id), -ENOENT);
	TP_EQ(flagcxP2pEngineRead(c, mr, mem + 1, size, d, &id), -EFAULT);
	TP_EQ(flagcxP2pEngineRead(c, mr, mem - 1, 8, d, &id), -EFAULT);
	TP_EQ(flagcxP2pEngineReadVector(c, &mr, NULL, NULL, NULL, 1, &id, NULL), -EINVAL);
	TP_EQ(flagcxP2pEngineReadVector(c, &mr, (void *[]){ mem }, &size, &d, 0, &id, NULL),
	      -EINVAL);
	TP_EQ(flagcxP2pEngineReadVector(c, &mr, (void *[]){ mem }, &size, &d, -1, &id, NULL),
	      -EINVAL);
	d.idx ^= 2;
	TP_EQ(flagcxP2pEngineRead(c, mr, mem, 8, d, &id), -ESTALE);
	TP_EQ(id, 77);
	TP_EQ(flagcxP2pEngineReg(e, 0, 4096, &other), -EINVAL);
	TP_EQ(flagcxP2pEngineReg(e, (uintptr_t)mem, 0, &other), -EINVAL);
	TP_EQ(flagcxP2pEngineReg(e, (uintptr_t)mem, 8, NULL), -EINVAL);
	TP_EQ(flagcxP2pEngineReg(e, (uintptr_t)mem, SIZE_MAX, &other), -EINVAL);
	TP_EQ(flagcxP2pEngineReg(NULL, (uintptr_t)mem, 8, &other), -EINVAL);
	gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(gone + 4096, 4096);
	TP_EQ(flagcxP2pEngineReg(e, (uintptr_t)gone, 8192, &other), -EFAULT);
	TP_EQ(flagcxP2pEnginePrepareDesc(e, mr, mem + 1, size, desc), -EFAULT);
	TP_EQ(flagcxP2pEnginePrepareDesc(e, mr + 9, mem, 1, desc), -ENOENT);
	TP_EQ(flagcxP2pEnginePrepareDesc(e, mr, mem, 1, NULL), -EINVAL);
	TP_EQ(flagcxP2pEngineUpdateDesc(NULL, 0, 0), -EINVAL);
	TP_EQ(flagcxP2pEngineSend(c, mr, mem, 1, &id), -EOPNOTSUPP);
	TP_EQ(flagcxP2pEngineRecv(c, mr, mem, 1), -EOPNOTSUPP);
	TP_CHECK(strstr(flagcxP2pLastError(), "EOPNOTSUPP"));
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

static void a_key_dies_with_its_registration(void)
{
	const size_t size = 100000;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pMr mr = tp_reg(e, mem, size);
	FlagcxP2pRdmaDesc old;
	FlagcxP2pConn *c;
	uint64_t id;
	char *line;

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	old = s.desc;
	tp_say(s.peer, "dereg");
	tp_hear(s.peer, 20);
	TP_OK(flagcxP2pEngineWrite(c, mr, mem, 8, old, &id));
	TP_EQ(flagcxP2pEngineXferWait(c, id, tp_ms(10000)), -ESTALE);
	tp_say(s.peer, "reg"); /* the same addresses again */
	line = tp_hear(s.peer, 20);
	TP_CHECK(!strncmp(line, "desc ", 5));
	TP_OK(flagcxP2pEngineWrite(c, mr, mem, 8, old, &id));
	TP_EQ(flagcxP2pEngineXferWait(c, id, tp_ms(10000)), -ESTALE);
	tp_server_check(&s, 1, 0, size);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

static void ids_are_collected_once(void)
{
	const size_t size = 1 << 16;
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(size);
	FlagcxP2pMr mr = tp_reg(e, mem, size);
	FlagcxP2pXferInfo info = { .size = sizeof(info) };
	FlagcxP2pConn *c, *c2;
	uint64_t id, id2;

	tp_serve(&s, size, 0, NULL);
	c = tp_connect(e, &s);
	c2 = tp_connect(e, &s);
	TP_OK(flagcxP2pEngineRead(c, mr, mem, size, s.desc, &id));
	TP_EQ(flagcxP2pEngineXferWait(c2, id, 0), -ENOENT); /* not its connection */
	TP_CHECK(flagcxP2pEngineXferStatus(c2, id));
	TP_WITHIN(20, flagcxP2pEngineXferStatus(c, id));
	for (int i = 0; i < 100; i++) {
		TP_CHECK(flagcxP2pEngineXferStatus(c, id));
		TP_EQ(flagcxP2pEngineXferQuery(c, id, &info), -ENOENT);
		TP_EQ(flagcxP2pEngineXferWait(c, id, 0), -ENOENT);
		TP_EQ(flagcxP2pEngineXferCancel(c, id), -ENOENT);
	}
	/* two that run at once have ids of their own, whatever was asked of the old one */
	TP_OK(flagcxP2pEngineRead(c, mr, mem, size, s.desc, &id));
	TP_OK(flagcxP2pEngineRead(c, mr, mem, size, s.desc, &id2));
	TP_CHECK(id != id2);
	TP_OK(flagcxP2pEngineXferWait(c, id, 5000));
	TP_OK(flagcxP2pEngineXferWait(c, id2, 5000));
	TP_CHECK(flagcxP2pEngineXferStatus(NULL, id));
	TP_CHECK(flagcxP2pEngineXferStatus((FlagcxP2pConn *)0x1234567, id));
	/* collected or not, a destroyed connection takes its ids along */
	TP_OK(flagcxP2pEngineRead(c, mr, mem, size, s.desc, &id));
	flagcxP2pEngineConnDestroy(c);
	TP_CHECK(flagcxP2pEngineXferStatus(c, id));
	TP_EQ(flagcxP2pEngineXferQuery(c, id, &info), -ENOENT);
	flagcxP2pEngineConnDestroy(c);
	tp_gauges_zero(e);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

/* A failure that XferStatus cannot tell shows at the next call. */
static void a_collected_failure_fails_the_connection(void)
{
	struct tp_server s;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *mem = tp_alloc(4096);
	FlagcxP2pMr mr = tp_reg(e, mem, 4096);
	FlagcxP2pNotifyMsg note = { .name = "n", .msg = "m" };
	FlagcxP2pRdmaDesc d;
	FlagcxP2pConn *c;
	uint64_t id;

	tp_serve(&s, 4096, 0, NULL);
	c = tp_connect(e, &s);
	TP_EQ(flagcxP2pEngineSendNotif(c, &note), (int)sizeof(note));
	d = s.desc;
	d.rkey++;
	TP_OK(flagcxP2pEngineRead(c, mr, mem, 8, d, &id));
	TP_WITHIN(20, flagcxP2pEngineXferStatus(c, id));
	TP_EQ(flagcxP2pEngineSendNotif(c, &note), -1);
	TP_EQ(flagcxP2pEngineRead(c, mr, mem, 8, s.desc, &id), -EACCES);
	TP_EQ(flagcxP2pEngineConnStatus(c), -EACCES);
	flagcxP2pEngineDestroy(e);
	tp_quit(s.peer, 10);
}

static void large_sizes_are_whole(void)
{
	/* R01: beyond 32 bits; sparse memory on both ends of one process */
	const size_t size = (1ull << 32) + 4096;
	FlagcxP2pEngine *e = tp_engine();
	uint8_t *a = tp_alloc(size), *b = tp_alloc(size);
	FlagcxP2pMr ma, mb;
	char desc[FLAGCX_P2P_DESC_SIZE];
	FlagcxP2pRdmaDesc d;
	FlagcxP2pXferInfo info = { .size = sizeof(info) };
	FlagcxP2pConn *c;
	uint64_t id;

	if (tp_sanitized())
		tp_skip("8 GiB of memory under a sanitizer");
	ma = tp_reg(e, a, size);
	mb = tp_reg(e, b, size);
	TP_OK(flagcxP2pEnginePrepareDesc(e, mb, b, size, desc));
	flagcxP2pDeserializeRdmaDesc(desc, &d);
	TP_EQ(d.size, 4096);
	TP_EQ(d.nmsgs, 1);
	c = flagcxP2pEngineConnect(e, "127.0.0.1", 0, flagcxP2pEngineGetRpcPort(e), true);
	TP_CHECK(c != NULL);
	for (size_t at = 0; at < size; at += 64 << 20)
		tp_fill(a + at, 9, at, 4096);
	tp_fill(a + size - 4096, 9, size - 4096, 4096);
	TP_OK(flagcxP2pEngineWrite(c, ma, a, size, d, &id));
	TP_OK(flagcxP2pEngineXferWait(c, id, tp_ms(60000)));
	for (size_t at = 0; at < size; at += 64 << 20)
		TP_EQ(tp_differs(b + at, 9, at, 4096), -1);
	TP_EQ(tp_differs(b + size - 4096, 9, size - 4096, 4096), -1);
	TP_EQ(tp_stats(e).write_bytes, size);
	(void)info;
	flagcxP2pEngineDestroy(e);
}

static const struct tp_case cases[] = {
	TP_CASE(moves_any_size_to_any_place),
	TP_CASE(moves_scattered_batches),
	TP_CASE(policy_decides_the_slices),
	TP_CASE(one_bad_key_fails_the_transfer_only),
	TP_CASE(the_target_checks_bounds),
	TP_CASE(bad_arguments_start_nothing),
	TP_CASE(a_key_dies_with_its_registration),
	TP_CASE(ids_are_collected_once),
	TP_CASE(a_collected_failure_fails_the_connection),
	TP_CASE(large_sizes_are_whole, .timeout = 120),
};
static const struct tp_role roles[] = { TP_SERVER };

TP_MAIN(cases, roles)
