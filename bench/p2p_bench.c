// SPDX-License-Identifier: Apache-2.0
/*
 * One end of a measurement of the P2P engine.
 *
 *   p2p_bench serve BYTES
 *	registers memory, prints "SESSION ADDRESS", ends with its standard input
 *   p2p_bench run SESSION ADDRESS read|write BLOCK COUNT DEPTH SECONDS
 *	moves batches of COUNT blocks, DEPTH batches at a time, for so long, and
 *	prints "GB/s  us per batch (median)  batches  CPU seconds per GB": from the
 *	first start to the last end. 0 SECONDS: DEPTH batches, no more
 *   p2p_bench idle SESSION SECONDS
 *	keeps a connection and prints the CPU it costs, percent
 */
#include "flagcx_p2p.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	fprintf(stderr, "p2p_bench: %s: %s\n", what, flagcxP2pLastError());
	exit(1);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void *memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	memset(p, 1, size);
	return p;
}

static FlagcxP2pMr reg(FlagcxP2pEngine *e, void *mem, size_t size)
{
	FlagcxP2pMr mr;

	if (flagcxP2pEngineReg(e, (uintptr_t)mem, size, &mr))
		die("register");
	return mr;
}

static int serve(size_t size)
{
	FlagcxP2pEngine *e = flagcxP2pEngineCreate();
	void *mem = memory(size);
	char byte;

	if (!e)
		die("engine");
	reg(e, mem, size);
	if (flagcxP2pEngineStartRpcServer(e))
		die("server");
	printf("127.0.0.1:%d %llu\n", flagcxP2pEngineGetRpcPort(e),
	       (unsigned long long)(uintptr_t)mem);
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	flagcxP2pEngineDestroy(e);
	return 0;
}

struct batch {
	int n;
	FlagcxP2pMr *mr;
	void **local;
	size_t *size;
	FlagcxP2pRdmaDesc *desc;
	uint64_t id;
	double start;
};

/* Every batch uses the same blocks: what is measured is the path, not memory. */
static void fill(struct batch *b, FlagcxP2pConn *c, FlagcxP2pMr mr, uint8_t *mem, uint64_t remote,
		 size_t block, int n)
{
	FlagcxP2pRdmaDesc all;

	if (flagcxP2pEngineMakeDesc(c, remote, 1, &all))
		die("descriptor");
	b->n = n;
	b->mr = calloc((size_t)n, sizeof(*b->mr));
	b->local = calloc((size_t)n, sizeof(*b->local));
	b->size = calloc((size_t)n, sizeof(*b->size));
	b->desc = calloc((size_t)n, sizeof(*b->desc));
	for (int i = 0; i < n; i++) {
		b->mr[i] = mr;
		b->local[i] = mem + (size_t)i * block;
		b->size[i] = block;
		b->desc[i] = all;
		flagcxP2pEngineUpdateDesc(&b->desc[i], remote + (size_t)i * block,
					  (uint32_t)block);
	}
}

static void start(struct batch *b, FlagcxP2pConn *c, int write)
{
	b->start = now();
	if (write ? flagcxP2pEngineWriteVector(c, b->mr, b->local, b->size, b->desc, b->n, &b->id,
					       NULL) :
		    flagcxP2pEngineReadVector(c, b->mr, b->local, b->size, b->desc, b->n, &b->id,
					      NULL))
		die("transfer");
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static int run(char **arg)
{
	uint64_t remote = strtoull(arg[1], NULL, 0);
	int write = !strcmp(arg[2], "write"), n = atoi(arg[4]), depth = atoi(arg[5]);
	size_t block = strtoull(arg[3], NULL, 0), cap = 1 << 22;
	double seconds = atof(arg[6]), begin, end, spent, *took = malloc(cap * sizeof(*took));
	FlagcxP2pEngine *e = flagcxP2pEngineCreate();
	struct batch *b = calloc((size_t)depth, sizeof(*b));
	FlagcxP2pConn *c;
	size_t batches = 0;
	uint8_t *mem = memory((size_t)n * block);
	FlagcxP2pMr mr;

	if (!e)
		die("engine");
	mr = reg(e, mem, (size_t)n * block);
	c = flagcxP2pEngineGetConn(e, arg[0]);
	if (!c)
		die("connect");
	for (int i = 0; i < depth; i++)
		fill(&b[i], c, mr, mem, remote, block, n);
	b[0].n = n < 64 ? n : 64;
	/* the streams' windows open */
	for (size_t i = 0; i < 3 && (!i || i * (size_t)b[0].n * block < 16 << 20); i++) {
		start(&b[0], c, write);
		if (flagcxP2pEngineXferWait(c, b[0].id, -1))
			die("transfer");
	}
	b[0].n = n;
	begin = now();
	spent = cpu();
	for (int i = 0; i < depth; i++)
		start(&b[i], c, write);
	for (int i = 0, flying = depth; flying; i = (i + 1) % depth) {
		if (!b[i].n)
			continue; /* it has ended, and time is over */
		if (flagcxP2pEngineXferWait(c, b[i].id, -1))
			die("transfer");
		if (batches < cap)
			took[batches] = now() - b[i].start;
		batches++;
		if (now() - begin < seconds) {
			start(&b[i], c, write);
		} else {
			b[i].n = 0;
			flying--;
		}
	}
	end = now();
	spent = cpu() - spent;
	qsort(took, batches < cap ? batches : cap, sizeof(*took), by_value);
	printf("%.4f %.1f %zu %.4f\n",
	       (double)batches * (double)n * (double)block / (end - begin) / 1e9,
	       took[(batches < cap ? batches : cap) / 2] * 1e6, batches,
	       spent / ((double)batches * (double)n * (double)block / 1e9));
	flagcxP2pEngineDestroy(e);
	return 0;
}

static int idle(const char *session, double seconds)
{
	FlagcxP2pEngine *e = flagcxP2pEngineCreate();
	double used;

	if (!e || !flagcxP2pEngineGetConn(e, session))
		die("connect");
	usleep(300000);
	used = cpu();
	usleep((useconds_t)(seconds * 1e6));
	printf("%.3f\n", (cpu() - used) / seconds * 100);
	flagcxP2pEngineDestroy(e);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(strtoull(argv[2], NULL, 0));
	if (argc == 9 && !strcmp(argv[1], "run"))
		return run(argv + 2);
	if (argc == 4 && !strcmp(argv[1], "idle"))
		return idle(argv[2], atof(argv[3]));
	fprintf(stderr, "usage: p2p_bench serve BYTES\n"
			"       p2p_bench run SESSION ADDRESS read|write BLOCK COUNT DEPTH "
			"SECONDS\n"
			"       p2p_bench idle SESSION SECONDS\n");
	return 2;
}
