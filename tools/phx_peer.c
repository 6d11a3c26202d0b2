// SPDX-License-Identifier: Apache-2.0
/*
 * phx peer: one-sided transfers with another process or host.
 *
 * serve registers a buffer and waits; put, get and bench connect to it. A file
 * passes in chunks through the slots of a buffer, in host or device memory:
 * chunk k is in slot k mod DEPTH while its transfer is under way, and is
 * hashed, in order, as it is in that memory.
 */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <flagcx_p2p.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define CHUNK (4u << 20)
#define DEPTH 4u

static const char help[] =
	"usage: phx peer serve [OPTION...]\n"
	"       phx peer put SESSION FILE [OPTION...]\n"
	"       phx peer get SESSION FILE [OPTION...]\n"
	"       phx peer bench SESSION [OPTION...]\n"
	"\n"
	"serve registers a buffer, prints the session (HOST:PORT) to reach it by, and\n"
	"waits for a signal. put writes FILE into it, get reads FILE's bytes out of it,\n"
	"bench moves batches of blocks and reports throughput and latency. put and get\n"
	"print the XXH3 checksum of what was moved.\n"
	"\n"
	"  --size SIZE       serve: bytes of the buffer (default 64M); get: bytes to read\n"
	"                    (default: the whole buffer)\n"
	"  --port N          serve: listening port (default 0: any)\n"
	"  --interface NAME  serve: interface, address or CIDR (default: every one)\n"
	"  --offset SIZE     put, get: where in the peer's buffer (default 0)\n"
	"  --verify          put: read it back and compare the checksum\n"
	"  --write           bench: write to the peer (default: read from it)\n"
	"  --block SIZE      bench: bytes of a block (default 64K)\n"
	"  --batch N         bench: blocks of a transfer (default 8)\n"
	"  --depth N         bench: transfers at a time (default 1)\n"
	"  --seconds N       bench: how long (default 3)\n"
	"  --device N        device whose memory is used (default -1: host memory)\n"
	"  --transport NAME  auto, ibrc or tcp\n"
	"  --json            one JSON object\n"
	"\n"
	"SIZE takes K, M, G, T (powers of 1024).\n"
	"exit status: 0 done, 1 failed, 2 wrong command line\n";

struct peer {
	/* from the command line */
	uint64_t size, port, offset, block, batch, depth;
	double seconds;
	const char *interface, *transport;
	int device;
	bool verify, write, json;
	const char *session, *file;

	FlagcxP2pEngine *engine;
	FlagcxP2pConn *conn;
	struct buffer buf;
	FlagcxP2pMr mr;
	uint64_t remote, remote_size;
	char carried_by[256];
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static int broken(const char *what)
{
	return failed(&cmd_peer, "%s: %s", what, flagcxP2pLastError());
}

/* ------------------------------------------------------------------ both ends */

static int open_engine(struct peer *p)
{
	FlagcxP2pEngineOptions o = {
		.size = sizeof(o),
		.port = (int32_t)p->port,
		.interface = p->interface,
		.transport = p->transport,
		.device = p->device,
	};

	if (flagcxP2pEngineCreateWith(&o, &p->engine))
		return broken("cannot start an engine");
	flagcxP2pEngineTransport(p->engine, p->carried_by, sizeof(p->carried_by));
	return EXIT_OK;
}

static int get_buffer(struct peer *p, uint64_t len)
{
	const char *step;
	int rc = buffer_get(&p->buf, p->device, len, &step);

	if (rc)
		return failed_call(&cmd_peer, rc, "cannot %s", step);
	if (flagcxP2pEngineReg(p->engine, (uintptr_t)p->buf.addr, len, &p->mr))
		return broken("cannot register the buffer");
	return EXIT_OK;
}

static void close_all(struct peer *p)
{
	if (p->engine)
		flagcxP2pEngineDestroy(p->engine);
	if (p->buf.addr)
		buffer_put(&p->buf);
}

static int reach(struct peer *p)
{
	p->conn = flagcxP2pEngineGetConn(p->engine, p->session);
	if (!p->conn)
		return broken("cannot connect");
	if (flagcxP2pEngineRemoteRegion(p->conn, 0, &p->remote, &p->remote_size))
		return broken("the peer has registered nothing");
	return EXIT_OK;
}

/* ---------------------------------------------------------------------- serve */

/* How the buffer is reached, and what had to be copied for want of a better way. */
static void json_memory(struct peer *p, cJSON *j)
{
	FlagcxP2pMrInfo info = { .size = sizeof(info) };
	FlagcxP2pStats s = { .size = sizeof(s) };

	flagcxP2pEngineMrInfo(p->engine, p->mr, &info);
	flagcxP2pEngineStats(p->engine, &s);
	cJSON_AddStringToObject(j, "registered", info.path);
	cJSON_AddStringToObject(j, "reason", info.reason);
	json_uint(j, "staged", s.staged_bytes);
	json_uint(j, "rdma", s.rdma_bytes);
}

static int serve_report(struct peer *p, bool end)
{
	FlagcxP2pStats s = { .size = sizeof(s) };
	char *where = NULL, word[WORD_MAX];
	cJSON *j;

	if (flagcxP2pEngineGetMetadata(p->engine, &where) ||
	    flagcxP2pEngineStats(p->engine, &s)) {
		free(where);
		return broken("cannot ask the engine");
	}
	where[strcspn(where, "?")] = '\0';
	if (!p->json) {
		if (end)
			printf("received %s, ", size_word(word, s.served_write_bytes));
		if (end)
			printf("sent %s\n", size_word(word, s.served_read_bytes));
		else
			printf("%s  %s  %s\n", where, size_word(word, p->size), p->carried_by);
		fflush(stdout);
		free(where);
		return EXIT_OK;
	}
	j = cJSON_CreateObject();
	cJSON_AddStringToObject(j, "session", where);
	cJSON_AddStringToObject(j, "transport", p->carried_by);
	json_uint(j, "address", (uintptr_t)p->buf.addr);
	json_uint(j, "size", p->size);
	json_uint(j, "received", s.served_write_bytes);
	json_uint(j, "sent", s.served_read_bytes);
	json_uint(j, "refused", s.served_refused);
	json_memory(p, j);
	free(where);
	return json_print(j) ? EXIT_OK : EXIT_FAILED;
}

static int serve(struct peer *p)
{
	struct sigaction sa = { .sa_handler = on_signal };
	sigset_t mask, old;
	int rc;

	if (!p->size)
		p->size = 64u << 20;
	/* a signal before the wait is not lost: it is blocked until then */
	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigprocmask(SIG_BLOCK, &mask, &old);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	rc = open_engine(p);
	rc = rc ? rc : get_buffer(p, p->size);
	if (!rc && flagcxP2pEngineStartRpcServer(p->engine))
		rc = broken("cannot serve");
	rc = rc ? rc : serve_report(p, false);
	while (!rc && !stop)
		sigsuspend(&old);
	return rc ? rc : serve_report(p, true);
}

/* ----------------------------------------------------------------- put and get */

struct pass {
	struct peer *p;
	int fd;             /* -1: read back and hash only */
	bool put;
	uint64_t size, chunks;
	uint64_t id[DEPTH];
	void *scratch;
	XXH3_state_t *hash;
	struct progress progress;
};

static size_t chunk_len(const struct pass *s, uint64_t k)
{
	uint64_t left = s->size - k * CHUNK;

	return left < CHUNK ? (size_t)left : CHUNK;
}

static int start_chunk(struct pass *s, uint64_t k)
{
	struct peer *p = s->p;
	size_t n = chunk_len(s, k);
	char *at = (char *)p->buf.addr + k % DEPTH * CHUNK;
	FlagcxP2pRdmaDesc desc;
	int rc = flagcxP2pEngineMakeDesc(p->conn, p->remote + p->offset + k * CHUNK, (uint32_t)n,
					 &desc);

	if (!rc)
		rc = s->put ? flagcxP2pEngineWrite(p->conn, p->mr, at, n, desc, &s->id[k % DEPTH]) :
			      flagcxP2pEngineRead(p->conn, p->mr, at, n, desc, &s->id[k % DEPTH]);
	return rc ? broken("cannot transfer") : EXIT_OK;
}

static int read_file(struct pass *s, uint64_t k)
{
	size_t n = chunk_len(s, k), got = 0;
	int rc;

	while (got < n) {
		ssize_t m = pread(s->fd, (char *)s->scratch + got, n - got,
				  (off_t)(k * CHUNK + got));

		if (m < 0 && errno == EINTR)
			continue;
		if (m <= 0)
			return failed(&cmd_peer, "%s: cannot read: %s", s->p->file,
				      m ? strerror(errno) : "it has shrunk");
		got += (size_t)m;
	}
	XXH3_64bits_update(s->hash, s->scratch, n);
	rc = buffer_store(&s->p->buf, k % DEPTH * CHUNK, s->scratch, n);
	return rc ? failed_call(&cmd_peer, rc, "cannot copy to the device") : EXIT_OK;
}

static int write_file(struct pass *s, uint64_t k)
{
	size_t n = chunk_len(s, k), done = 0;
	int rc = buffer_load(&s->p->buf, k % DEPTH * CHUNK, s->scratch, n);

	if (rc)
		return failed_call(&cmd_peer, rc, "cannot copy from the device");
	XXH3_64bits_update(s->hash, s->scratch, n);
	while (s->fd >= 0 && done < n) {
		ssize_t m = pwrite(s->fd, (char *)s->scratch + done, n - done,
				   (off_t)(k * CHUNK + done));

		if (m < 0 && errno == EINTR)
			continue;
		if (m < 0)
			return failed(&cmd_peer, "%s: cannot write: %s", s->p->file,
				      strerror(errno));
		done += (size_t)m;
	}
	return EXIT_OK;
}

static int finish_chunk(struct pass *s, uint64_t k)
{
	if (flagcxP2pEngineXferWait(s->p->conn, s->id[k % DEPTH], -1))
		return broken("the transfer failed");
	progress_update(&s->progress, k * CHUNK + chunk_len(s, k), s->size);
	return s->put ? EXIT_OK : write_file(s, k);
}

/* All chunks, DEPTH under way at a time; the checksum of what passed. */
static int run_pass(struct pass *s, uint64_t *hash)
{
	uint64_t next = 0, done = 0;
	int rc = EXIT_OK;

	s->chunks = (s->size + CHUNK - 1) / CHUNK;
	s->scratch = malloc(CHUNK);
	s->hash = XXH3_createState();
	if (!s->scratch || !s->hash)
		rc = failed(&cmd_peer, "out of memory");
	else
		XXH3_64bits_reset(s->hash);
	progress_start(&s->progress);
	while (!rc && done < s->chunks) {
		if (next < s->chunks && next - done < DEPTH) {
			rc = s->put ? read_file(s, next) : EXIT_OK;
			rc = rc ? rc : start_chunk(s, next);
			next++;
		} else {
			rc = finish_chunk(s, done++);
		}
	}
	progress_end(&s->progress);
	if (!rc)
		*hash = XXH3_64bits_digest(s->hash);
	XXH3_freeState(s->hash);
	free(s->scratch);
	return rc;
}

/* How the bytes went, rather than how they might have. */
static const char *carried(struct peer *p)
{
	flagcxP2pEngineConnTransport(p->conn, p->carried_by, sizeof(p->carried_by));
	return p->carried_by;
}

static int report_move(struct peer *p, uint64_t size, uint64_t hash, double took)
{
	char word[WORD_MAX], rate[WORD_MAX], sum[24];
	cJSON *j;

	snprintf(sum, sizeof(sum), "%016llx", (unsigned long long)hash);
	if (!p->json) {
		printf("%s  %s  %s/s  %s%s\n", sum, size_word(word, size),
		       size_word(rate, (uint64_t)((double)size / took)), carried(p),
		       p->verify ? "  verified" : "");
		return EXIT_OK;
	}
	j = cJSON_CreateObject();
	cJSON_AddStringToObject(j, "xxh3", sum);
	json_uint(j, "bytes", size);
	cJSON_AddNumberToObject(j, "seconds", took);
	cJSON_AddStringToObject(j, "transport", carried(p));
	cJSON_AddBoolToObject(j, "verified", p->verify);
	json_memory(p, j);
	return json_print(j) ? EXIT_OK : EXIT_FAILED;
}

static int check_room(struct peer *p, uint64_t size)
{
	if (p->offset <= p->remote_size && size <= p->remote_size - p->offset)
		return EXIT_OK;
	return failed(&cmd_peer, "%llu bytes from %llu on: the peer's buffer has %llu",
		      (unsigned long long)size, (unsigned long long)p->offset,
		      (unsigned long long)p->remote_size);
}

static int put(struct peer *p)
{
	struct pass s = { .p = p, .put = true }, back = { .p = p, .fd = -1 };
	uint64_t hash, again, begin;
	struct stat st;
	double took;
	int rc;

	s.fd = open(p->file, O_RDONLY | O_CLOEXEC);
	if (s.fd < 0 || fstat(s.fd, &st))
		return failed(&cmd_peer, "%s: %s", p->file, strerror(errno));
	s.size = (uint64_t)st.st_size;
	rc = open_engine(p);
	rc = rc ? rc : get_buffer(p, DEPTH * CHUNK);
	rc = rc ? rc : reach(p);
	rc = rc ? rc : check_room(p, s.size);
	begin = now_ns();
	rc = rc ? rc : run_pass(&s, &hash);
	took = (double)(now_ns() - begin) / 1e9;
	close(s.fd);
	if (!rc && p->verify) {
		back.size = s.size;
		rc = run_pass(&back, &again);
		if (!rc && again != hash)
			rc = failed(&cmd_peer, "the peer's memory differs from %s", p->file);
	}
	return rc ? rc : report_move(p, s.size, hash, took);
}

static int get(struct peer *p)
{
	struct pass s = { .p = p };
	uint64_t hash, begin;
	int rc = open_engine(p);

	rc = rc ? rc : get_buffer(p, DEPTH * CHUNK);
	rc = rc ? rc : reach(p);
	if (rc)
		return rc;
	s.size = p->size ? p->size : p->remote_size - p->offset;
	rc = check_room(p, s.size);
	if (rc)
		return rc;
	s.fd = open(p->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (s.fd < 0)
		return failed(&cmd_peer, "%s: %s", p->file, strerror(errno));
	begin = now_ns();
	rc = run_pass(&s, &hash);
	if (close(s.fd) && !rc)
		rc = failed(&cmd_peer, "%s: %s", p->file, strerror(errno));
	return rc ? rc : report_move(p, s.size, hash, (double)(now_ns() - begin) / 1e9);
}

/* ---------------------------------------------------------------------- bench */

struct batches {
	int n;
	FlagcxP2pMr *mr;
	void **local;
	size_t *size;
	FlagcxP2pRdmaDesc *desc;
	uint64_t *id, *start;
	double *us;
	size_t done, cap;
};

static int make_batches(struct peer *p, struct batches *b)
{
	FlagcxP2pRdmaDesc all;
	size_t n = p->batch;

	*b = (struct batches){ .n = (int)n, .cap = 1 << 20 };
	b->mr = calloc(n, sizeof(*b->mr));
	b->local = calloc(n, sizeof(*b->local));
	b->size = calloc(n, sizeof(*b->size));
	b->desc = calloc(n, sizeof(*b->desc));
	b->id = calloc(p->depth, sizeof(*b->id));
	b->start = calloc(p->depth, sizeof(*b->start));
	b->us = calloc(b->cap, sizeof(*b->us));
	if (!b->mr || !b->local || !b->size || !b->desc || !b->id || !b->start || !b->us)
		return failed(&cmd_peer, "out of memory");
	if (flagcxP2pEngineMakeDesc(p->conn, p->remote, 1, &all))
		return broken("cannot describe the peer's buffer");
	for (size_t i = 0; i < n; i++) {
		b->mr[i] = p->mr;
		b->local[i] = (char *)p->buf.addr + i * p->block;
		b->size[i] = p->block;
		b->desc[i] = all;
		flagcxP2pEngineUpdateDesc(&b->desc[i], p->remote + i * p->block,
					  (uint32_t)p->block);
	}
	return EXIT_OK;
}

static void free_batches(struct batches *b)
{
	free(b->mr);
	free(b->local);
	free(b->size);
	free(b->desc);
	free(b->id);
	free(b->start);
	free(b->us);
}

static int start_batch(struct peer *p, struct batches *b, size_t slot)
{
	int rc;

	b->start[slot] = now_ns();
	rc = p->write ? flagcxP2pEngineWriteVector(p->conn, b->mr, b->local, b->size, b->desc, b->n,
						   &b->id[slot], NULL) :
			flagcxP2pEngineReadVector(p->conn, b->mr, b->local, b->size, b->desc, b->n,
						  &b->id[slot], NULL);
	return rc ? broken("cannot transfer") : EXIT_OK;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int report_bench(struct peer *p, struct batches *b, double took)
{
	size_t kept = b->done < b->cap ? b->done : b->cap;
	double bytes = (double)b->done * (double)p->batch * (double)p->block, p50, p99;
	char block[WORD_MAX], rate[WORD_MAX], w50[WORD_MAX], w99[WORD_MAX];
	cJSON *j;

	qsort(b->us, kept, sizeof(*b->us), by_value);
	p50 = b->us[kept / 2];
	p99 = b->us[kept - 1 - kept / 100];
	if (!p->json) {
		printf("%s %llu x %s: %s/s, a batch p50 %s p99 %s  %s\n",
		       p->write ? "write" : "read", (unsigned long long)p->batch,
		       size_word(block, p->block), size_word(rate, (uint64_t)(bytes / took)),
		       time_word(w50, p50 * 1e3), time_word(w99, p99 * 1e3), carried(p));
		return EXIT_OK;
	}
	j = cJSON_CreateObject();
	cJSON_AddStringToObject(j, "op", p->write ? "write" : "read");
	json_uint(j, "block", p->block);
	json_uint(j, "batch", p->batch);
	json_uint(j, "depth", p->depth);
	json_uint(j, "batches", b->done);
	cJSON_AddNumberToObject(j, "bytes_per_second", bytes / took);
	cJSON_AddNumberToObject(j, "p50_us", p50);
	cJSON_AddNumberToObject(j, "p99_us", p99);
	cJSON_AddStringToObject(j, "transport", carried(p));
	json_memory(p, j);
	return json_print(j) ? EXIT_OK : EXIT_FAILED;
}

static int run_batches(struct peer *p, struct batches *b, double *took)
{
	uint64_t begin = now_ns(), end = begin + (uint64_t)(p->seconds * 1e9);
	size_t slot = 0;
	int rc = EXIT_OK;

	for (size_t i = 0; !rc && i < p->depth; i++)
		rc = start_batch(p, b, i);
	while (!rc && (now_ns() < end || !b->done)) {
		if (flagcxP2pEngineXferWait(p->conn, b->id[slot], -1))
			return broken("the transfer failed");
		if (b->done < b->cap)
			b->us[b->done] = (double)(now_ns() - b->start[slot]) / 1e3;
		b->done++;
		rc = start_batch(p, b, slot);
		slot = (slot + 1) % p->depth;
	}
	*took = (double)(now_ns() - begin) / 1e9;
	for (size_t i = 0; !rc && i < p->depth; i++)
		if (flagcxP2pEngineXferWait(p->conn, b->id[i], -1))
			rc = broken("the transfer failed");
	return rc;
}

static int bench(struct peer *p)
{
	struct batches b = { 0 };
	double took = 0;
	int rc;

	if (p->batch * p->block > 1ull << 40)
		return failed(&cmd_peer, "a batch of that many bytes");
	rc = open_engine(p);
	rc = rc ? rc : get_buffer(p, p->batch * p->block);
	rc = rc ? rc : reach(p);
	rc = rc ? rc : check_room(p, p->batch * p->block);
	rc = rc ? rc : make_batches(p, &b);
	rc = rc ? rc : run_batches(p, &b, &took);
	rc = rc ? rc : report_bench(p, &b, took);
	free_batches(&b);
	return rc;
}

/* ------------------------------------------------------------------------ main */

static int run(int argc, char **argv)
{
	static const char *const transports[] = { "auto", "ibrc", "tcp", NULL };
	static const struct {
		const char *name;
		int operands;
		int (*run)(struct peer *p);
	} actions[] = { { "serve", 0, serve }, { "put", 2, put }, { "get", 2, get },
			{ "bench", 1, bench } };
	struct peer p = { .block = 64 << 10, .batch = 8, .depth = 1, .seconds = 3, .device = -1 };
	const struct opt opts[] = {
		{ "size", OPT_SIZE, &p.size, 1, 0, NULL },
		{ "port", OPT_UINT, &p.port, 0, 65535, NULL },
		{ "interface", OPT_TEXT, &p.interface, 0, 0, NULL },
		{ "offset", OPT_SIZE, &p.offset, 0, 0, NULL },
		{ "verify", OPT_FLAG, &p.verify, 0, 0, NULL },
		{ "write", OPT_FLAG, &p.write, 0, 0, NULL },
		{ "block", OPT_SIZE, &p.block, 1, 1u << 30, NULL },
		{ "batch", OPT_UINT, &p.batch, 1, 1u << 20, NULL },
		{ "depth", OPT_UINT, &p.depth, 1, 1024, NULL },
		{ "seconds", OPT_SECONDS, &p.seconds, 0, 0, NULL },
		{ "device", OPT_INT, &p.device, 0, 0, NULL },
		{ "transport", OPT_CHOICE, &p.transport, 0, 0, transports },
		{ "json", OPT_FLAG, &p.json, 0, 0, NULL },
		{ 0 },
	};
	int first, rc = parse_options(&cmd_peer, opts, argc, argv, &first);

	if (rc == PARSED_HELP)
		return EXIT_OK;
	if (rc)
		return rc;
	for (size_t i = 0; first < argc && i < sizeof(actions) / sizeof(*actions); i++) {
		if (strcmp(argv[first], actions[i].name))
			continue;
		if (argc - first - 1 != actions[i].operands)
			return usage_error(&cmd_peer, "%s takes %d operands", actions[i].name,
					   actions[i].operands);
		p.session = actions[i].operands ? argv[first + 1] : NULL;
		p.file = actions[i].operands == 2 ? argv[first + 2] : NULL;
		rc = actions[i].run(&p);
		close_all(&p);
		return rc;
	}
	return usage_error(&cmd_peer, "say serve, put, get or bench");
}

const struct subcommand cmd_peer = {
	.name = "peer",
	.summary = "transfers with the memory of another process or host",
	.help = help,
	.run = run,
};
