// SPDX-License-Identifier: Apache-2.0
/*
 * bench_gpu FILE [--gib N] [--rounds N] [--rows PART]... - files and the memory of a
 * GPU, side by side with cuFile, with plain loops and with the disk alone
 *
 * The contenders take turns at each point, in an order that changes with the
 * round; the median of the rounds counts. Prints a table and, for each thing
 * that is promised, "BAR name value limit pass|miss"; exits 1 on a miss.
 *
 * Two files of twice --gib, FILE.cached and FILE.cold, are made and left; the cached rows move
 * all of theirs, the others half. cuFile is there twice: as its
 * defaults have it, and as CUFILE_PARALLEL names a configuration; the better
 * one of a row is the peer.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <phoenix.h>

#include "gpu.h"

#define MAX_ROUNDS 9

enum { PHX, LOOP, RAW, CUFILE, CUFILE_PARALLEL, CONTENDERS };

static struct process {
	const struct contender *contender;
	const char *name;
	bool there;      /* the process runs */
	bool takes_part;
	int in, out;
	pid_t pid;
} processes[CONTENDERS] = {
	[PHX] = { .contender = &phx_contender, .name = "phoenix" },
	[LOOP] = { .contender = &loop_contender, .name = "loop" },
	[RAW] = { .contender = &raw_contender, .name = "raw" },
	[CUFILE] = { .contender = &cufile_contender, .name = "cufile" },
	[CUFILE_PARALLEL] = { .contender = &cufile_contender, .name = "cufile, parallel" },
};

int bench_fds[2];

static struct {
	const char *file;
	double gib;
	int rounds;
	const char *rows[8];
	int row_count;
} options = { .gib = 2, .rounds = 3 };

static int missed;
static double limits[2]; /* GB/s of copies: [to the host?] */

/* -------------------------------------------------------------- the files */

/* Data that nothing below can compress or leave out. */
static int make_file(const char *name)
{
	size_t block = 16 * MIB;
	uint64_t *data, x = 88172645463325252ULL;
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0600);

	if (fd < 0 || posix_memalign((void **)&data, 4096, block))
		return -1;
	for (size_t at = 0; at < bench_file_size; at += block) {
		for (size_t i = 0; i < block / 8; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			data[i] = x;
		}
		if (pwrite(fd, data, block, (off_t)at) != (ssize_t)block)
			return -1;
	}
	free(data);
	if (fsync(fd) || close(fd))
		return -1;
	return 0;
}

static int warm(int fd)
{
	static char block[MIB];

	for (size_t at = 0; at < bench_file_size; at += sizeof(block)) {
		if (pread(fd, block, sizeof(block), (off_t)at) != sizeof(block))
			return -1;
	}
	return 0;
}

static int make_files(void)
{
	char name[4096];

	for (int direct = 0; direct < 2; direct++) {
		snprintf(name, sizeof(name), "%s.%s", options.file, direct ? "cold" : "cached");
		if (make_file(name))
			return -1;
		bench_fds[direct] = open(name, O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0));
		if (bench_fds[direct] < 0)
			return -1;
	}
	return warm(bench_fds[0]);
}

/* ---------------------------------------------------------- the processes */

static bool ask(struct process *p, const struct point *point, struct result *r)
{
	memset(r, 0, sizeof(*r));
	if (!p->there || (point && write(p->in, point, sizeof(*point)) != sizeof(*point)) ||
	    read(p->out, r, sizeof(*r)) != sizeof(*r)) {
		if (p->there)
			fprintf(stderr, "gpu: %s has died\n", p->name);
		p->there = false;
		r->failed = true;
	}
	return !r->failed;
}

static void start(struct process *p, bool parallel)
{
	const char *configuration = getenv("CUFILE_PARALLEL");
	int in[2], out[2];
	struct result r;

	if ((parallel && !configuration) || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		return;
	p->pid = fork();
	if (p->pid < 0)
		return;
	if (!p->pid) {
		close(in[1]);
		close(out[0]);
		/* An end held here would keep the others from seeing the end. */
		for (int i = 0; i < CONTENDERS; i++) {
			if (processes[i].there) {
				close(processes[i].in);
				close(processes[i].out);
			}
		}
		if (parallel)
			setenv("CUFILE_ENV_PATH_JSON", configuration, 1);
		_exit(bench_serve(p->contender, in[0], out[1]));
	}
	close(in[0]);
	close(out[1]);
	p->in = in[1];
	p->out = out[0];
	p->there = true;
	if (!ask(p, NULL, &r))
		printf("%s takes no part: %s\n", p->name, r.why);
	p->takes_part = p->there && !r.failed;
}

static void stop(void)
{
	for (int i = 0; i < CONTENDERS; i++) {
		if (processes[i].pid <= 0)
			continue;
		close(processes[i].in);
		waitpid(processes[i].pid, NULL, 0);
	}
}

/* ------------------------------------------------------------- measuring */

struct value {
	bool there;
	double rate;   /* GB/s, or seconds of one */
	double cpu_gb; /* processor seconds for 1e9 bytes */
	long rss_kib;
};

static int by_rate(const void *a, const void *b)
{
	double x = ((const struct value *)a)->rate, y = ((const struct value *)b)->rate;

	return x < y ? -1 : x > y;
}

static struct value value_of(const struct point *p, const struct result *r)
{
	struct value v = { .there = !r->failed, .rss_kib = r->rss_kib };

	if (p->what != THROUGHPUT) {
		v.rate = r->median;
		return v;
	}
	v.rate = (double)r->bytes / r->seconds / 1e9;
	v.cpu_gb = r->cpu / ((double)r->bytes / 1e9);
	return v;
}

/*
 * Lets those in @who do @point in turn. What was written through the page
 * cache is on the disk before the next one's turn.
 */
static void measure(struct point point, unsigned int who, struct value *out)
{
	static struct value values[CONTENDERS][MAX_ROUNDS];
	int counts[CONTENDERS] = { 0 };
	/* The disk's latency drifts: short turns, many of them. */
	int rounds = point.what == LATENCY ? MAX_ROUNDS : options.rounds;
	struct result r;

	memset(out, 0, CONTENDERS * sizeof(*out));
	for (int round = 0; round < rounds; round++) {
		for (int turn = 0; turn < CONTENDERS; turn++) {
			int i = (turn + round) % CONTENDERS;

			if (!(who & 1U << i) || !processes[i].takes_part)
				continue;
			point.from = (off_t)((size_t)round * GIB % bench_file_size);
			if (ask(&processes[i], &point, &r))
				values[i][counts[i]++] = value_of(&point, &r);
			else
				printf("%s fails: %s\n", processes[i].name, r.why);
			if (point.write)
				fsync(bench_fds[point.direct]);
		}
	}
	for (int i = 0; i < CONTENDERS; i++) {
		if (counts[i] < rounds)
			continue;
		qsort(values[i], (size_t)counts[i], sizeof(values[i][0]), by_rate);
		out[i] = values[i][counts[i] / 2];
	}
}

static void bar(const char *name, double value, double limit, bool at_least)
{
	bool pass = at_least ? value >= limit : value <= limit;

	printf("BAR %s %.3f %.2f %s\n", name, value, limit, pass ? "pass" : "miss");
	missed += !pass;
}

/* A peer that is not there cannot be beaten: a miss. */
static void ratio_bar(const char *name, const char *what, double mine, double peer, double limit,
		      bool at_least)
{
	char text[160];

	snprintf(text, sizeof(text), "%s,%s", name, what);
	if (mine > 0 && peer > 0) {
		bar(text, mine / peer, limit, at_least);
		return;
	}
	printf("BAR %s none %.2f miss\n", text, limit);
	missed++;
}

/* The better of the two cuFiles. */
static const struct value *better(const struct value *v, bool more)
{
	const struct value *a = &v[CUFILE], *b = &v[CUFILE_PARALLEL];

	if (!a->there || !b->there)
		return a->there ? a : b;
	return (a->rate > b->rate) == more ? a : b;
}

static void rss_bar(const char *name, const struct value *v, const struct value *cufile)
{
	ratio_bar(name, "rss/cufile", (double)v[PHX].rss_kib,
		  cufile->there ? (double)cufile->rss_kib : 0, 1, false);
}

/* ------------------------------------------------------------------- rows */

static bool wanted(const char *part)
{
	for (int i = 0; i < options.row_count; i++) {
		if (!strcmp(options.rows[i], part))
			return true;
	}
	return !options.row_count;
}

static void block_name(char *out, size_t size, size_t block)
{
	if (block < MIB)
		snprintf(out, size, "%zuK", block / KIB);
	else if (block < GIB)
		snprintf(out, size, "%zuM", block / MIB);
	else
		snprintf(out, size, "%zuG", block / GIB);
}

static void print_rates(const char *name, const struct value *v)
{
	printf("%-28s", name);
	for (int i = 0; i < CONTENDERS; i++) {
		if (v[i].there)
			printf(" %7.2f", v[i].rate);
		else
			printf("       -");
	}
	printf("  cpu/GB %.3f %.3f %.3f  rss MiB %ld %ld %ld\n", v[PHX].cpu_gb, v[CUFILE].cpu_gb,
	       v[CUFILE_PARALLEL].cpu_gb, v[PHX].rss_kib >> 10, v[CUFILE].rss_kib >> 10,
	       v[CUFILE_PARALLEL].rss_kib >> 10);
	fflush(stdout);
}

static void heading(const char *text)
{
	printf("\n%s (GB/s)\n%-28s", text, "");
	for (int i = 0; i < CONTENDERS; i++)
		printf(" %7.7s", processes[i].name);
	printf("\n");
}

/* The best that the loop reaches, whatever its threads and blocks. */
static double best_loop(bool write)
{
	static const int threads[] = { 1, 4, 8, 16 };
	static const size_t blocks[] = { MIB, 4 * MIB };
	struct value v[CONTENDERS];
	double best = 0;
	char name[64];

	for (size_t b = 0; b < 2; b++) {
		for (size_t t = 0; t < 4; t++) {
			struct point p = { .what = THROUGHPUT, .write = write, .block = blocks[b],
					   .threads = threads[t], .bytes = bench_file_size };

			measure(p, 1U << LOOP, v);
			snprintf(name, sizeof(name), "loop %zuM x %d", blocks[b] / MIB, threads[t]);
			print_rates(name, v);
			best = v[LOOP].rate > best ? v[LOOP].rate : best;
		}
	}
	return best;
}

static void cached_rows(bool write)
{
	static const struct {
		size_t block;
		int threads;
	} rows[] = { { GIB, 1 }, { 4 * MIB, 1 }, { 4 * MIB, 4 }, { 4 * MIB, 16 } };
	unsigned int who = 1U << PHX | 1U << CUFILE | 1U << CUFILE_PARALLEL;
	const char *kind = write ? "cached-write" : "cached-read";
	struct value v[CONTENDERS];
	char name[64], block[16];
	double best;

	heading(write ? "GPU -> page cache" : "page cache -> GPU");
	best = best_loop(write);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct point p = { .what = THROUGHPUT, .write = write, .block = rows[i].block,
				   .threads = rows[i].threads, .bytes = bench_file_size };

		measure(p, who, v);
		block_name(block, sizeof(block), p.block);
		snprintf(name, sizeof(name), "%s,%s,%d", kind, block, p.threads);
		print_rates(name, v);
		ratio_bar(name, "best-loop", v[PHX].rate, best, 1, true);
		ratio_bar(name, "cufile", v[PHX].rate, better(v, true)->rate, 1.5, true);
		printf("%s is %.2f of the copy limit\n", name, v[PHX].rate / limits[write]);
		rss_bar(name, v, better(v, true));
	}
}

static void cold_rows(bool write)
{
	static const size_t blocks[] = { 64 * KIB, MIB, 16 * MIB };
	static const int threads[] = { 1, 4, 16 };
	unsigned int who = 1U << PHX | 1U << RAW | 1U << CUFILE | 1U << CUFILE_PARALLEL;
	const char *kind = write ? "cold-write" : "cold-read";
	struct value v[CONTENDERS];
	char name[64], block[16];

	heading(write ? "GPU -> disk, O_DIRECT" : "disk -> GPU, O_DIRECT");
	for (size_t b = 0; b < 3; b++) {
		for (size_t t = 0; t < 3; t++) {
			struct point p = { .what = THROUGHPUT, .write = write, .direct = true,
					   .block = blocks[b], .threads = threads[t],
					   .bytes = bench_file_size / 2 };
			const struct value *cufile;
			double peer;

			measure(p, who, v);
			cufile = better(v, true);
			peer = cufile->rate > v[RAW].rate ? cufile->rate : v[RAW].rate;
			block_name(block, sizeof(block), p.block);
			snprintf(name, sizeof(name), "%s,%s,%d", kind, block, p.threads);
			print_rates(name, v);
			ratio_bar(name, "best-peer", v[PHX].rate, cufile->there ? peer : 0, 0.97,
				  true);
			ratio_bar(name, "cpu/cufile", v[PHX].cpu_gb, cufile->cpu_gb, 1, false);
			rss_bar(name, v, cufile);
		}
	}
}

static void latency_rows(bool write)
{
	static const size_t blocks[] = { 4 * KIB, 64 * KIB };
	unsigned int who = 1U << PHX | 1U << RAW | 1U << CUFILE | 1U << CUFILE_PARALLEL;
	struct value v[CONTENDERS];
	char name[64], block[16];

	printf("\n%s, one after the other (microseconds, median)\n", write ? "writes" : "reads");
	for (size_t b = 0; b < 2; b++) {
		struct point p = { .what = LATENCY, .write = write, .direct = true,
				   .block = blocks[b], .bytes = 1000 };

		measure(p, who, v);
		block_name(block, sizeof(block), p.block);
		snprintf(name, sizeof(name), "latency-%s,%s", write ? "write" : "read", block);
		printf("%-28s phoenix %.1f raw %.1f cufile %.1f, parallel %.1f\n", name,
		       v[PHX].rate * 1e6, v[RAW].rate * 1e6, v[CUFILE].rate * 1e6,
		       v[CUFILE_PARALLEL].rate * 1e6);
		ratio_bar(name, "cufile", v[PHX].rate, better(v, false)->rate, 0.9, false);
		rss_bar(name, v, better(v, false));
	}
}

static void register_rows(void)
{
	static const size_t buffers[] = { 64 * KIB, MIB, 16 * MIB };
	unsigned int who = 1U << PHX | 1U << CUFILE | 1U << CUFILE_PARALLEL;
	struct value v[CONTENDERS];
	char name[64], size[16];

	printf("\nregister, first 64 KiB, deregister (microseconds, median)\n");
	for (size_t b = 0; b < 3; b++) {
		struct point p = { .what = REGISTER, .direct = true, .block = 64 * KIB,
				   .bytes = 100, .buffer = buffers[b] };

		measure(p, who, v);
		block_name(size, sizeof(size), p.buffer);
		snprintf(name, sizeof(name), "register,%s", size);
		printf("%-28s phoenix %.0f cufile %.0f, parallel %.0f\n", name, v[PHX].rate * 1e6,
		       v[CUFILE].rate * 1e6, v[CUFILE_PARALLEL].rate * 1e6);
		ratio_bar(name, "cufile", v[PHX].rate, better(v, false)->rate, 0.2, false);
		rss_bar(name, v, better(v, false));
	}
}

static void copy_limits(void)
{
	for (int write = 0; write < 2; write++) {
		struct point p = { .what = LIMIT, .write = write };
		struct result r;

		if (ask(&processes[LOOP], &p, &r))
			limits[write] = r.median;
		printf("pinned copies %s the device: %.1f GB/s\n", write ? "from" : "to",
		       limits[write]);
	}
}

static bool read_options(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--gib") && i + 1 < argc)
			options.gib = strtod(argv[++i], NULL);
		else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
			options.rounds = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--rows") && i + 1 < argc && options.row_count < 8)
			options.rows[options.row_count++] = argv[++i];
		else if (argv[i][0] != '-' && !options.file)
			options.file = argv[i];
		else
			return false;
	}
	return options.file && options.gib >= 0.5 && options.rounds > 0 &&
	       options.rounds <= MAX_ROUNDS;
}

int main(int argc, char **argv)
{
	if (!read_options(argc, argv)) {
		fprintf(stderr, "usage: bench_gpu FILE [--gib N] [--rounds 1-%d] [--rows cached|"
				"cold|latency|register|cached-write|cold-write|latency-write]...\n",
			MAX_ROUNDS);
		return 2;
	}
	printf("bench_gpu %s\n", phxfs_version());
	bench_file_size = (size_t)(options.gib * 2) * GIB;
	if (make_files()) {
		fprintf(stderr, "gpu: %s: %s\n", options.file, strerror(errno));
		return 1;
	}
	for (int i = 0; i < CONTENDERS; i++)
		start(&processes[i], i == CUFILE_PARALLEL);
	copy_limits();
	if (wanted("cached"))
		cached_rows(false);
	if (wanted("register"))
		register_rows();
	if (wanted("latency"))
		latency_rows(false);
	if (wanted("cold"))
		cold_rows(false);
	if (wanted("cached-write"))
		cached_rows(true);
	if (wanted("latency-write"))
		latency_rows(true);
	if (wanted("cold-write"))
		cold_rows(true);
	stop();
	printf("\n%d missed\n", missed);
	return missed ? 1 : 0;
}
