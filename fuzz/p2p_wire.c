// SPDX-License-Identifier: Apache-2.0
/*
 * Everything that a peer can say, against a real engine in one thread. The
 * first byte of an input chooses the ear, the rest is what is said:
 *
 *	0  decoders alone
 *	1  a stream: requests of a peer
 *	2  a stream on which answers to our own requests are due
 *	3  a control session
 *
 * Registrations have fixed addresses and keys, so that inputs can reach them.
 * With P2P_SEEDS=DIR inputs to start from are written there.
 */
#include "ibrc_p2p.h"
#include "net_adaptor.h"
#include "tcp_p2p.h"

#include "control.c"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MEM_ADDR 0x200000000000ull /* beyond the shadow of the address sanitizer */
#define MEM_SIZE 65536u
#define RKEY 0x11111111u

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct p2p_engine *engine;
static struct p2p_worker worker;
static int listener;
static struct sockaddr_in where;
static uint64_t mr_id;
static uint32_t rid;

static void need(bool ok, const char *what)
{
	if (!ok) {
		perror(what);
		__builtin_trap();
	}
}

/* ---------------------------------------------------------------------- seeds */

static FILE *seed_open(const char *dir, const char *name, uint8_t mode)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	need(f != NULL, path);
	fputc(mode, f);
	return f;
}

static void put_frame(FILE *f, uint8_t type, uint16_t count, uint32_t seq, uint32_t bad,
		      uint64_t body)
{
	struct p2p_frame_header h = { type, count, seq, bad, body };
	uint8_t buf[P2P_FRAME_HEADER], desc[P2P_FRAME_DESC], refusal[P2P_FRAME_BAD];

	p2p_frame_encode(&h, buf);
	fwrite(buf, 1, sizeof(buf), f);
	for (uint32_t i = 0; i < bad; i++) {
		p2p_frame_bad_encode(&(struct p2p_frame_bad){ i, -EACCES }, refusal);
		fwrite(refusal, 1, sizeof(refusal), f);
	}
	if (type == P2P_FRAME_WRITE_ACK || type == P2P_FRAME_READ_RESP)
		count = 0; /* answers have no descriptors */
	for (uint32_t i = 0; i < count; i++) {
		struct p2p_frame_desc d = {
			.addr = MEM_ADDR + i * 256,
			.len = body ? (uint32_t)(body / count) : 256,
			.rkey = RKEY,
			.rid = rid,
		};

		p2p_frame_desc_encode(&d, desc);
		fwrite(desc, 1, sizeof(desc), f);
	}
	for (uint64_t i = 0; i < body; i++)
		fputc((int)i & 0xff, f);
}

static void put_msg(FILE *f, uint16_t type, uint16_t flags, const void *payload, uint32_t len)
{
	struct p2p_msg m = { type, flags, len, 1 };
	uint8_t buf[P2P_MSG_HEADER];

	p2p_msg_encode(&m, buf);
	fwrite(buf, 1, sizeof(buf), f);
	fwrite(payload, 1, len, f);
}

/* Keys of two regions, the first told twice: on two rails in three pieces, then on one. */
static void put_keys(FILE *f)
{
	static const struct p2p_keys_head heads[] = {
		{ MEM_ADDR, 10000, 4096, RKEY, 5, 2, 3 },
		{ MEM_ADDR, 10000, 10000, RKEY, 5, 1, 1 },
		{ MEM_ADDR + 20000, 8192, 4096, RKEY + 1, 300, 8, 2 },
	};
	uint8_t buf[P2P_KEYS_HEAD + 4 * 16];

	for (size_t i = 0; i < P2P_ARRAY_SIZE(heads); i++) {
		uint32_t keys = (uint32_t)heads[i].rails * heads[i].pieces;

		p2p_keys_head_encode(&heads[i], buf);
		for (uint32_t k = 0; k < keys; k++)
			p2p_u32_encode(0x100 * k, buf + P2P_KEYS_HEAD + 4 * k);
		put_msg(f, P2P_MSG_REGION_KEYS, 0, buf, P2P_KEYS_HEAD + 4 * keys);
	}
}

static void seeds(const char *dir)
{
	struct p2p_region region = { MEM_ADDR, 4096, RKEY, 5 };
	struct ib_note note = { .kind = IB_NOTE_OFFER, .mtu = 1024, .epoch = 1, .qpn = 17 };
	uint8_t buf[P2P_FRAME_NOTE_SIZE] = { 0 };
	FILE *f;

	mkdir(dir, 0777);
	f = seed_open(dir, "requests", 1);
	put_frame(f, P2P_FRAME_WRITE, 2, 0, 0, 512);
	put_frame(f, P2P_FRAME_READ, 3, 1, 0, 0);
	put_frame(f, P2P_FRAME_WRITE, 1, 2, 0, 9000);
	fclose(f);
	f = seed_open(dir, "answers", 2);
	put_frame(f, P2P_FRAME_WRITE_ACK, 2, 0, 1, 0);
	put_frame(f, P2P_FRAME_READ_RESP, 2, 1, 0, 2048);
	put_frame(f, P2P_FRAME_READ, 1, 9, 0, 0);
	fclose(f);
	f = seed_open(dir, "control", 3);
	put_msg(f, P2P_MSG_PING, 0, buf, 0);
	p2p_region_encode(&region, buf);
	put_msg(f, P2P_MSG_REGION_ADD, P2P_MSG_F_LAST, buf, P2P_REGION_WIRE);
	put_msg(f, P2P_MSG_REGION_ANSWER, 0, buf, P2P_REGION_WIRE);
	p2p_u32_encode(5, buf);
	p2p_u32_encode(RKEY, buf + 4);
	put_msg(f, P2P_MSG_REGION_DEL, 0, buf, 8);
	p2p_u64_encode(MEM_ADDR, buf);
	p2p_u64_encode(100, buf + 8);
	put_msg(f, P2P_MSG_REGION_QUERY, 0, buf, 16);
	put_msg(f, P2P_MSG_NOTIF_CREDIT, 0, buf, 8);
	p2p_notif_head_encode(&(struct p2p_notif_head){ 4, 20 }, buf);
	put_msg(f, P2P_MSG_NOTIF, P2P_MSG_F_FIRST, buf, P2P_NOTIF_HEAD + 10);
	put_msg(f, P2P_MSG_NOTIF, P2P_MSG_F_LAST, buf, 14);
	fclose(f);
	f = seed_open(dir, "keys", 3);
	put_keys(f);
	p2p_u32_encode(5, buf);
	p2p_u32_encode(RKEY, buf + 4);
	put_msg(f, P2P_MSG_REGION_DEL, 0, buf, 8);
	put_keys(f);
	fclose(f);
	f = seed_open(dir, "note", 0);
	ib_note_encode(&note, buf);
	fwrite(buf, 1, sizeof(buf), f);
	fclose(f);
	f = seed_open(dir, "decoders", 0);
	for (int i = 0; i < 200; i++)
		fputc(i, f);
	fclose(f);
}

/* ----------------------------------------------------------------------- setup */

static void pair(int *mine, int *theirs)
{
	int on = 1;

	*theirs = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	/* the fuzzer's alarm interrupts; the connection is made all the same */
	need(connect(*theirs, (struct sockaddr *)&where, sizeof(where)) == 0 || errno == EINTR,
	     "connect");
	do
		*mine = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (*mine < 0 && errno == EINTR);
	need(*mine >= 0, "accept");
	setsockopt(*theirs, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof(on));
	p2p_fd_track(*mine);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	FlagcxP2pEngineOptions o = { .size = sizeof(o), .interface = "127.0.0.1" };
	FlagcxP2pEngine *handle;
	socklen_t len = sizeof(where);
	struct p2p_mr *mr;
	void *mem;

	signal(SIGPIPE, SIG_IGN);
	need(flagcxP2pEngineCreateWith(&o, &handle) == 0, flagcxP2pLastError());
	engine = p2p_engine_get(handle);
	mem = mmap((void *)MEM_ADDR, MEM_SIZE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	need(mem == (void *)MEM_ADDR, "mmap");
	need(flagcxP2pEngineReg(handle, (uintptr_t)mem, MEM_SIZE, &mr_id) == 0, "register");
	mr = p2p_mr_pin_id(&engine->mrs, mr_id);
	mr->rkey = RKEY;
	rid = mr->rid;
	p2p_mr_unpin(mr);
	worker.engine = engine;
	worker.epoll = epoll_create1(EPOLL_CLOEXEC);
	worker.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	worker.cmds_end = &worker.cmds;
	pthread_mutex_init(&worker.cmd_lock, NULL);
	p2p_list_init(&worker.paths);
	need(p2p_net_tcp.worker_init(NULL, &worker) == 0, "worker");
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	where.sin_family = AF_INET;
	where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(bind(listener, (struct sockaddr *)&where, sizeof(where)) == 0, "bind");
	need(listen(listener, 16) == 0, "listen");
	getsockname(listener, (struct sockaddr *)&where, &len);
	if (getenv("P2P_SEEDS"))
		seeds(getenv("P2P_SEEDS"));
	return 0;
}

/* ------------------------------------------------------------------------ ears */

static void decoders(const uint8_t *data, size_t size)
{
	uint8_t buf[256] = { 0 };
	struct p2p_greeting g;
	struct p2p_msg m;
	struct p2p_region r;
	struct p2p_notif_head n;
	struct p2p_frame_header h;
	struct p2p_frame_desc d;
	struct p2p_frame_bad b;
	struct p2p_keys_head k;
	struct ib_note note;
	char text[257] = "", host[64];
	int port;

	memcpy(buf, data, P2P_MIN(size, sizeof(buf)));
	memcpy(text, data, P2P_MIN(size, sizeof(text) - 1));
	if (!p2p_greeting_decode(buf, &g)) {
		uint8_t back[P2P_GREETING_SIZE];

		p2p_greeting_encode(&g, back);
		need(!memcmp(back, buf, sizeof(back)), "greeting");
	}
	p2p_msg_decode(buf, &m);
	p2p_region_decode(buf, &r);
	p2p_notif_head_decode(buf, &n);
	size = P2P_MIN(size, sizeof(buf));
	if (!p2p_keys_head_decode(buf, size, &k))
		need(P2P_KEYS_HEAD + 4ul * k.rails * k.pieces == size, "keys");
	if (!ib_note_decode(buf, &note)) {
		uint8_t back[P2P_FRAME_NOTE_SIZE];

		ib_note_encode(&note, back);
		need(!memcmp(back, buf, sizeof(back)), "note");
	}
	if (!p2p_frame_decode(buf, &h))
		need(p2p_frame_meta(&h) <= P2P_FRAME_SLICES * P2P_FRAME_DESC, "frame");
	p2p_frame_desc_decode(buf, &d);
	p2p_frame_bad_decode(buf, buf[8], buf[9], &b);
	if (!p2p_session_parse(text, host, sizeof(host), &port, -1))
		need(port > 0 && port < 65536, "session");
	p2p_config_find(text, "A", host, sizeof(host));
}

static struct p2p_conn *conn_new(void)
{
	struct p2p_conn *c;

	need(p2p_conn_new(engine, &c) == 0, "conn");
	need(p2p_conn_make_paths(c, &p2p_net_tcp, 1) == 0, "paths");
	c->path[0]->worker = &worker;
	return c;
}

/* Our own requests, so that answers are due: a write of two slices, a read of two. */
static void post_requests(struct p2p_conn *c)
{
	void *local[2] = { (void *)MEM_ADDR, (void *)(MEM_ADDR + 8192) };
	size_t size[2] = { 1024, 1024 };
	FlagcxP2pMr mr[2] = { mr_id, mr_id };
	FlagcxP2pRdmaDesc desc[2] = { { .addr = 4096 }, { .addr = 8192 } };
	struct p2p_slice *slice[8];
	uint64_t id;

	for (int op = 0; op < 2; op++) {
		struct p2p_xfer x = { op, FLAGCX_P2P_POLICY_NIXL, 2, mr, local, NULL, size, NULL,
				      desc };
		unsigned int n;

		need(p2p_xfer_start(c, &x, &id) == 0, "xfer");
		n = p2p_queue_pull(c, op, slice, 8, 1 << 20);
		p2p_count(engine, posted, n);
		p2p_net_tcp.path_post(c->path[0], op, slice, n);
	}
}

static void drain(int fd)
{
	char buf[65536];

	while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static void stream(const uint8_t *data, size_t size, bool answers)
{
	struct p2p_conn *c = conn_new();
	struct tcp_path *p = tcp_of(c->path[0]);
	int mine, theirs;

	pair(&mine, &theirs);
	need(p2p_net_tcp.path_adopt(c->path[0], mine) == 0, "adopt");
	need(p2p_net_tcp.path_start(c->path[0]) == 0, "start");
	p->writable = true;
	if (answers)
		post_requests(c);
	/* in two parts, so that frames are cut anywhere */
	need(send(theirs, data, size / 2, MSG_NOSIGNAL) >= 0 || errno == EINTR, "send");
	while (tcp_rx_turn(p))
		;
	tcp_tx_flush(p);
	send(theirs, data + size / 2, size - size / 2, MSG_NOSIGNAL);
	shutdown(theirs, SHUT_WR);
	p->hup = true;
	for (int i = 0; i < 50 && !p->broken; i++) {
		tcp_rx_turn(p);
		tcp_tx_flush(p);
		drain(theirs);
	}
	need(p->broken, "the end of the stream was not seen");
	p2p_net_tcp.path_stop(c->path[0], -ECONNRESET);
	close(theirs);
	p2p_conn_destroy(c);
}

/* What was told of keys: each found by what it says of itself, and every key there. */
static void keys_hold_together(struct p2p_key_table *t)
{
	uint32_t sum = 0;

	p2p_keys_hold(t);
	for (uint32_t i = 0; i < t->cap; i++) {
		const struct p2p_keyset *set = t->set[i];
		const struct p2p_keys_head *h = set ? &set->head : NULL;

		if (!h)
			continue;
		need(p2p_keys_find(t, h->rid, h->rkey, h->base, h->size) == set, "keys are lost");
		need(!p2p_keys_find(t, h->rid, h->rkey, h->base, h->size + 1), "too far");
		/* where a post looks: the last byte's */
		need((h->size - 1) / h->step < h->pieces, "a piece is missing");
		for (uint32_t k = 0; k < (uint32_t)h->rails * h->pieces; k++)
			sum += set->key[k];
	}
	p2p_keys_release(t);
	/* so that the reads are made */
	__asm__ volatile("" : : "r"(sum));
}

static void control(const uint8_t *data, size_t size)
{
	struct p2p_conn *c = conn_new();
	FlagcxP2pNotif n;
	int theirs, rc = 0;

	pair(&c->fd, &theirs);
	send(theirs, data, size / 2, MSG_NOSIGNAL);
	rc = session_read(c);
	send(theirs, data + size / 2, size - size / 2, MSG_NOSIGNAL);
	shutdown(theirs, SHUT_WR);
	for (int i = 0; i < 50 && !rc; i++) {
		rc = session_read(c);
		drain(theirs);
	}
	need(rc != 0, "the end of the session was not seen");
	keys_hold_together(&c->keys);
	while (flagcxP2pEngineGetNotifsV(p2p_handle_pointer(engine->handle), &n, 1) > 0)
		flagcxP2pNotifFree(&n);
	close(theirs);
	p2p_conn_destroy(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FlagcxP2pStats s = { .size = sizeof(s) };

	if (size < 1 || size > 1 << 17)
		return 0;
	switch (data[0]) {
	case 0:
		decoders(data + 1, size - 1);
		break;
	case 1:
	case 2:
		stream(data + 1, size - 1, data[0] == 2);
		break;
	case 3:
		control(data + 1, size - 1);
		break;
	default:
		return -1;
	}
	flagcxP2pEngineStats(p2p_handle_pointer(engine->handle), &s);
	need(!s.in_flight && !s.queued_slices && !s.posted_slices && !s.staging_busy, "left over");
	return 0;
}
