// SPDX-License-Identifier: Apache-2.0
/*
 * demo FILE COPY: loads FILE into device memory with batches, verifies it by
 * hash, writes it back to COPY, compares, and prints one row of a table:
 *
 *   path  load GiB/s  store GiB/s  p50 and p99 of a 4 KiB read, microseconds
 *
 * The environment chooses the path (PHX_PATH). Shows the whole life of a
 * transfer: open, allocate, register, batches two ahead, single reads,
 * deregister, close.
 */
#include <errno.h>
#include <fcntl.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define DEVICE 0
#define CHUNK (1u << 20)
#define BATCH 32      /* requests of one batch */
#define AHEAD 2       /* batches that are submitted before the first is waited for */
#define SAMPLES 2000  /* 4 KiB reads that are timed */
#define SMALL 4096u

struct demo {
	const char *file;
	const char *copy;
	int in;
	int out;
	size_t size;
	size_t region; /* size in whole device pages */
	char *memory;  /* device address */
	char *host;    /* a chunk of host memory, for hashing */
	double load_s;
	double store_s;
	double p50_us;
	double p99_us;
};

static int fail(const char *what, const char *text)
{
	fprintf(stderr, "demo: %s: %s\n", what, text);
	return -1;
}

static int fail_call(const char *what)
{
	return fail(what, phxfs_last_error());
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* O_DIRECT where the file system has it. */
static int open_best(const char *name, int flags)
{
	int fd = open(name, flags | O_DIRECT | O_CLOEXEC, 0600);

	return fd >= 0 || errno != EINVAL ? fd : open(name, flags | O_CLOEXEC, 0600);
}

static int set_up(struct demo *d)
{
	struct stat st;
	void *memory;

	d->in = open_best(d->file, O_RDONLY);
	if (d->in < 0 || fstat(d->in, &st))
		return fail(d->file, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_size < SMALL)
		return fail(d->file, "a file of at least 4096 bytes is needed");
	d->out = open_best(d->copy, O_WRONLY | O_CREAT | O_TRUNC);
	if (d->out < 0)
		return fail(d->copy, strerror(errno));
	d->size = (size_t)st.st_size;
	d->region = (d->size + PHXFS_DEVICE_PAGE - 1) / PHXFS_DEVICE_PAGE * PHXFS_DEVICE_PAGE;
	d->host = malloc(CHUNK);
	if (!d->host)
		return fail("host memory", strerror(ENOMEM));

	if (phxfs_open(DEVICE))
		return fail_call("phxfs_open");
	if (phxfs_mem_alloc(DEVICE, d->region, &memory))
		return fail_call("phxfs_mem_alloc");
	d->memory = memory;
	if (phxfs_regmem(DEVICE, d->memory, d->region, NULL))
		return fail_call("phxfs_regmem");
	return 0;
}

static void tear_down(struct demo *d)
{
	if (d->memory) {
		phxfs_deregmem(DEVICE, d->memory, d->region);
		phxfs_mem_free(DEVICE, d->memory);
		phxfs_close(DEVICE);
	}
	free(d->host);
	if (d->in >= 0)
		close(d->in);
	if (d->out >= 0)
		close(d->out);
}

/* Describes the next requests from *offset on; returns how many. */
static int next_batch(const struct demo *d, int fd, phxfs_io_req_t *reqs, size_t *offset)
{
	int n;

	for (n = 0; n < BATCH && *offset < d->size; n++) {
		reqs[n] = (phxfs_io_req_t){
			.fd = fd,
			.device_id = DEVICE,
			.buf = d->memory,
			.buf_offset = (off_t)*offset,
			.nbytes = d->size - *offset < CHUNK ? d->size - *offset : CHUNK,
			.f_offset = (off_t)*offset,
		};
		*offset += reqs[n].nbytes;
	}
	return n;
}

/* The whole file by batches; while one runs the next is already waiting. */
static int transfer(const struct demo *d, int fd,
		    phxfs_batch_t *(*submit)(phxfs_io_req_t *reqs, int n))
{
	static phxfs_io_req_t reqs[AHEAD][BATCH];
	phxfs_batch_t *batch[AHEAD] = { NULL };
	size_t offset = 0;
	unsigned int turn;
	int n, rc = 0;

	for (turn = 0;; turn = (turn + 1) % AHEAD) {
		if (batch[turn]) {
			rc = phxfs_batch_wait(batch[turn]);
			batch[turn] = NULL;
			if (rc)
				break;
		}
		n = next_batch(d, fd, reqs[turn], &offset);
		if (n) {
			batch[turn] = submit(reqs[turn], n);
			if (!batch[turn]) {
				rc = -errno;
				break;
			}
		} else if (!batch[(turn + 1) % AHEAD]) {
			break;
		}
	}
	for (turn = 0; turn < AHEAD; turn++)
		phxfs_batch_destroy(batch[turn]);
	return rc ? fail_call("a batch") : 0;
}

static int hash_device(const struct demo *d, uint64_t *hash)
{
	XXH3_state_t *state = XXH3_createState();
	size_t offset, n;
	int rc = 0;

	if (!state)
		return fail("hash", strerror(ENOMEM));
	XXH3_64bits_reset(state);
	for (offset = 0; offset < d->size && !rc; offset += n) {
		n = d->size - offset < CHUNK ? d->size - offset : CHUNK;
		rc = phxfs_memcpy_from(DEVICE, d->host, d->memory + offset, n);
		if (rc)
			fail_call("phxfs_memcpy_from");
		else
			XXH3_64bits_update(state, d->host, n);
	}
	*hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return rc ? -1 : 0;
}

/* By read(2), without the library: the judge must not be the accused. */
static int hash_file(const struct demo *d, const char *name, uint64_t *hash)
{
	XXH3_state_t *state = XXH3_createState();
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd >= 0 && state) {
		XXH3_64bits_reset(state);
		while ((n = read(fd, d->host, CHUNK)) > 0)
			XXH3_64bits_update(state, d->host, (size_t)n);
		*hash = XXH3_64bits_digest(state);
	}
	if (n < 0)
		fail(name, strerror(errno));
	if (fd >= 0)
		close(fd);
	XXH3_freeState(state);
	return n < 0 ? -1 : 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* One 4 KiB read after another, all over the file. */
static int time_small_reads(struct demo *d)
{
	static double us[SAMPLES];
	size_t blocks = d->size / SMALL, at;
	unsigned int seed = 1, i;
	double start;

	for (i = 0; i < SAMPLES; i++) {
		at = ((size_t)rand_r(&seed) * 32768u + (size_t)rand_r(&seed)) % blocks * SMALL;
		start = now();
		if (phxfs_read(d->in, DEVICE, d->memory, (off_t)at, SMALL, (off_t)at) != SMALL)
			return fail_call("phxfs_read");
		us[i] = (now() - start) * 1e6;
	}
	qsort(us, SAMPLES, sizeof(*us), by_value);
	d->p50_us = us[SAMPLES / 2];
	d->p99_us = us[SAMPLES - SAMPLES / 100];
	return 0;
}

static int load(struct demo *d, uint64_t expected)
{
	double start = now();
	uint64_t hash;

	if (transfer(d, d->in, phxfs_batch_submit_read))
		return -1;
	d->load_s = now() - start;
	if (hash_device(d, &hash))
		return -1;
	return hash == expected ? 0 : fail(d->file, "device memory holds other data");
}

static int store(struct demo *d, uint64_t expected)
{
	double start = now();
	uint64_t hash;

	if (transfer(d, d->out, phxfs_batch_submit_write))
		return -1;
	if (fdatasync(d->out))
		return fail(d->copy, strerror(errno));
	d->store_s = now() - start;
	if (hash_file(d, d->copy, &hash))
		return -1;
	return hash == expected ? 0 : fail(d->copy, "differs from the original");
}

static int report(const struct demo *d)
{
	static const char *const names[] = { "direct", "staging", "bounce", "edge" };
	struct phxfs_path_info info = { .size = sizeof(info) };
	double gib = (double)d->size / (1u << 30);

	if (phxfs_path_query(d->in, DEVICE, d->memory, CHUNK, 0, &info))
		return fail_call("phxfs_path_query");
	printf("%-8s %12.2f %12.2f %14.1f %14.1f   %s\n", names[info.path], gib / d->load_s,
	       gib / d->store_s, d->p50_us, d->p99_us, info.text);
	return 0;
}

int main(int argc, char **argv)
{
	struct demo d = { .in = -1, .out = -1 };
	uint64_t expected;
	int rc;

	if (argc != 3) {
		fprintf(stderr, "usage: demo FILE COPY\n");
		return 2;
	}
	d.file = argv[1];
	d.copy = argv[2];
	rc = set_up(&d);
	if (!rc)
		rc = hash_file(&d, d.file, &expected);
	if (!rc)
		rc = load(&d, expected);
	if (!rc)
		rc = store(&d, expected);
	if (!rc)
		rc = time_small_reads(&d);
	if (!rc)
		rc = report(&d);
	tear_down(&d);
	return rc ? 1 : 0;
}
