// SPDX-License-Identifier: Apache-2.0
/*
 * phx cp: file -> device memory -> file.
 *
 * The source is cut into chunks; chunk k passes through slot k mod depth of a
 * device buffer. Reads and writes of different chunks are in flight together;
 * a chunk is hashed, in order, between its read and its write, out of device
 * memory: the checksum tells what the device held. The data goes into a
 * temporary file beside the destination, which takes the destination's name
 * only when all of it is on the disk (and, with --verify, was read back).
 */
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <phoenix.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <xxhash.h>

static const char help[] =
	"usage: phx cp SRC DST [OPTION...]\n"
	"\n"
	"Copies a file (or a block device) to a file through device memory and prints\n"
	"the XXH3 checksum of what the device held. DST appears, or is replaced, only\n"
	"when all of it is on the disk.\n"
	"\n"
	"  --verify         read DST back from the disk and compare the checksum\n"
	"  --chunk SIZE     bytes of one request (default 4M)\n"
	"  --depth N        chunks in flight (default 8)\n"
	"  --direct MODE    on, off or auto (default): O_DIRECT where there is any\n"
	"  --engine NAME    auto, io_uring or sync\n"
	"  --path NAME      auto, direct, staging or bounce\n"
	"  --device N       device (default 0; -1: plain host memory)\n"
	"  --json           one JSON object\n"
	"\n"
	"SIZE takes K, M, G, T (powers of 1024).\n"
	"exit status: 0 copied, 1 failed (DST is as it was), 2 wrong command line\n";

enum slot_state {
	SLOT_FREE,
	SLOT_READING,
	SLOT_READ,
	SLOT_WRITING,
};

struct copy {
	/* from the command line */
	const char *src;
	const char *dst;
	const char *direct;
	const char *engine;
	const char *path;
	uint64_t chunk;
	uint64_t depth;
	int device;
	bool verify;
	bool json;

	char target[PATH_MAX]; /* DST, or the file in it where it is a directory */
	char temporary[PATH_MAX];
	int in;
	int out;
	uint64_t size;
	mode_t mode;
	bool in_direct;
	bool out_direct;

	struct buffer buf;
	void *scratch;       /* a chunk in host memory, where buf cannot be looked at */
	enum slot_state *slots;
	phxfs_queue_t *queue;
	uint64_t hash;
	double copy_s;
	double verify_s;
};

/* One pass of the pipeline. */
struct pass {
	int in;
	int out;             /* -1: only read and hash */
	uint64_t next_read;  /* chunk */
	uint64_t next_hash;
	uint64_t chunks;
	uint64_t done;       /* bytes */
	unsigned int flying;
	XXH3_state_t *hash;
	struct progress progress;
};

static atomic_bool interrupted;

static void on_signal(int number)
{
	(void)number;
	atomic_store_explicit(&interrupted, true, memory_order_relaxed);
}

static int refuse(const char *file, const char *step, int error)
{
	char name[WORD_MAX];

	return failed(&cmd_cp, "%s: cannot %s: %s (%s)", file, step, errno_name(name, error),
		      strerror(error));
}

/* ---------------------------------------------------------------- pipeline */

static size_t chunk_length(const struct copy *c, uint64_t k)
{
	uint64_t left = c->size - k * c->chunk;

	return left < c->chunk ? (size_t)left : (size_t)c->chunk;
}

static int submit(struct copy *c, struct pass *p, int op, uint64_t k)
{
	size_t slot = k % c->depth;
	phxfs_io_req_t req = {
		.fd = op == PHXFS_OP_READ ? p->in : p->out,
		.device_id = c->device,
		.buf = c->buf.addr,
		.buf_offset = (off_t)(slot * c->chunk),
		.nbytes = chunk_length(c, k),
		.f_offset = (off_t)(k * c->chunk),
	};
	void *id = (void *)(uintptr_t)k;
	int rc = phxfs_queue_submit(c->queue, op, &req, &id, 1);

	if (rc != 1)
		return failed_call(&cmd_cp, rc, "%s: cannot submit",
				   op == PHXFS_OP_READ ? c->src : c->dst);
	c->slots[slot] = op == PHXFS_OP_READ ? SLOT_READING : SLOT_WRITING;
	p->flying++;
	return EXIT_OK;
}

static int hash_chunk(struct copy *c, struct pass *p, uint64_t k)
{
	size_t at = k % c->depth * c->chunk, n = chunk_length(c, k);
	const void *view = buffer_view(&c->buf, at);
	int rc;

	if (!view) {
		rc = buffer_load(&c->buf, at, c->scratch, n);
		if (rc)
			return failed_call(&cmd_cp, rc, "cannot copy from the device");
		view = c->scratch;
	}
	XXH3_64bits_update(p->hash, view, n);
	return EXIT_OK;
}

/* Hashes what has been read, in order, and sends it on. */
static int advance(struct copy *c, struct pass *p)
{
	uint64_t k;
	int rc;

	while (p->next_hash < p->next_read &&
	       c->slots[p->next_hash % c->depth] == SLOT_READ) {
		k = p->next_hash++;
		rc = hash_chunk(c, p, k);
		if (!rc && p->out >= 0)
			rc = submit(c, p, PHXFS_OP_WRITE, k);
		if (rc)
			return rc;
		if (p->out < 0) {
			c->slots[k % c->depth] = SLOT_FREE;
			p->done += chunk_length(c, k);
		}
	}
	while (p->next_read < p->chunks && c->slots[p->next_read % c->depth] == SLOT_FREE) {
		rc = submit(c, p, PHXFS_OP_READ, p->next_read);
		if (rc)
			return rc;
		p->next_read++;
	}
	return EXIT_OK;
}

static int land(struct copy *c, struct pass *p, const struct phxfs_completion *done)
{
	uint64_t k = (uintptr_t)done->user_data;
	enum slot_state *slot = &c->slots[k % c->depth];
	bool reading = *slot == SLOT_READING;
	const char *file = reading && p->out >= 0 ? c->src : c->dst;
	size_t n = chunk_length(c, k);

	p->flying--;
	if (done->result < 0)
		return failed_call(&cmd_cp, (int)done->result, "%s: %s at offset %ju", file,
				   reading ? "read" : "write", (uintmax_t)(k * c->chunk));
	if (done->result != (ssize_t)n)
		return failed(&cmd_cp, "%s: %s of %zu bytes at offset %ju moved %zd%s", file,
			      reading ? "read" : "write", n, (uintmax_t)(k * c->chunk),
			      done->result, reading ? ": the file has been cut" : "");
	*slot = reading ? SLOT_READ : SLOT_FREE;
	if (!reading)
		p->done += n;
	return EXIT_OK;
}

static int pump(struct copy *c, struct pass *p)
{
	const struct timespec patience = { .tv_nsec = 200000000 };
	struct phxfs_completion done[16];
	int i, n, rc;

	rc = advance(c, p);
	while (!rc && p->flying) {
		n = phxfs_queue_wait(c->queue, done, 1, 16, &patience);
		if (n < 0)
			return failed_call(&cmd_cp, n, "cannot wait for the queue");
		for (i = 0; i < n && !rc; i++)
			rc = land(c, p, &done[i]);
		if (!rc && atomic_load_explicit(&interrupted, memory_order_relaxed))
			rc = failed(&cmd_cp, "interrupted");
		if (!rc)
			rc = advance(c, p);
		progress_update(&p->progress, p->done, c->size);
	}
	return rc;
}

/* Moves all chunks from in to out (or only reads them); *hash is of all of it. */
static int run_pass(struct copy *c, int in, int out, uint64_t *hash)
{
	struct pass p = { .in = in, .out = out };
	int rc;

	p.chunks = c->size / c->chunk + (c->size % c->chunk != 0);
	p.hash = XXH3_createState();
	if (!p.hash)
		return failed(&cmd_cp, "no memory for a checksum");
	XXH3_64bits_reset(p.hash);
	memset(c->slots, 0, c->depth * sizeof(*c->slots));

	progress_start(&p.progress);
	rc = pump(c, &p);
	progress_end(&p.progress);
	*hash = XXH3_64bits_digest(p.hash);
	XXH3_freeState(p.hash);
	return rc;
}

/* ------------------------------------------------------------------- files */

/* True: the descriptor now has O_DIRECT. */
static bool make_direct(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	struct statfs fs;

	if (flags < 0 || fstatfs(fd, &fs) || is_memory_filesystem((long)fs.f_type))
		return false;
	return fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

static int want_direct(const struct copy *c, const char *file, int fd, bool *direct)
{
	if (!strcmp(c->direct, "off"))
		return EXIT_OK;
	*direct = make_direct(fd);
	if (!*direct && !strcmp(c->direct, "on"))
		return failed(&cmd_cp, "%s: no direct I/O on its file system; use --direct auto",
			      file);
	return EXIT_OK;
}

static int open_source(struct copy *c, struct stat *st)
{
	off_t length;
	char byte;

	/* a pipe without a writer must not be waited for, only refused */
	c->in = open(c->src, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (c->in < 0 || fcntl(c->in, F_SETFL, 0))
		return refuse(c->src, "open it for reading", errno);
	if (fstat(c->in, st))
		return refuse(c->src, "look at it", errno);
	if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
		return failed(&cmd_cp, "%s: neither a file nor a block device", c->src);
	length = S_ISREG(st->st_mode) ? st->st_size : lseek(c->in, 0, SEEK_END);
	if (length < 0)
		return refuse(c->src, "find its length", errno);
	/* files of /proc say 0 and have data */
	if (length == 0 && pread(c->in, &byte, 1, 0) > 0)
		return failed(&cmd_cp, "%s: it has data but no length", c->src);
	c->size = (uint64_t)length;
	return want_direct(c, c->src, c->in, &c->in_direct);
}

/* Where the data ends up: links are followed, a directory takes the file. */
static int find_target(struct copy *c, const struct stat *source)
{
	char name[PATH_MAX], joined[PATH_MAX];
	struct stat st;
	mode_t mask;

	snprintf(joined, sizeof(joined), "%s", c->dst);
	if (stat(c->dst, &st) == 0 && S_ISDIR(st.st_mode)) {
		snprintf(name, sizeof(name), "%s", c->src);
		if ((size_t)snprintf(joined, sizeof(joined), "%s/%s", c->dst, basename(name)) >=
		    sizeof(joined))
			return refuse(c->dst, "name the file in it", ENAMETOOLONG);
	}
	if (stat(joined, &st)) {
		if (errno != ENOENT)
			return refuse(joined, "look at it", errno);
		if (lstat(joined, &st) == 0)
			return failed(&cmd_cp, "%s: a link to nothing", joined);
		mask = umask(0);
		umask(mask);
		c->mode = S_ISREG(source->st_mode) ? source->st_mode & 0777 & ~mask :
						     0666 & ~mask;
		memcpy(c->target, joined, sizeof(c->target));
		return EXIT_OK;
	}
	if (!S_ISREG(st.st_mode))
		return failed(&cmd_cp, "%s: exists and is not a file", joined);
	if (st.st_dev == source->st_dev && st.st_ino == source->st_ino)
		return failed(&cmd_cp, "%s and %s are the same file", c->src, joined);
	if (access(joined, W_OK))
		return refuse(joined, "write to it", errno);
	c->mode = st.st_mode & 0777;
	return realpath(joined, c->target) ? EXIT_OK : refuse(joined, "resolve it", errno);
}

static int open_temporary(struct copy *c)
{
	char copy[PATH_MAX];

	memcpy(copy, c->target, sizeof(copy));
	if ((size_t)snprintf(c->temporary, sizeof(c->temporary), "%s/.phx-cp-XXXXXX",
			     dirname(copy)) >= sizeof(c->temporary))
		return refuse(c->target, "name a temporary file beside it", ENAMETOOLONG);
	c->out = mkostemp(c->temporary, O_CLOEXEC);
	if (c->out < 0) {
		c->temporary[0] = '\0';
		return refuse(c->target, "make a temporary file beside it", errno);
	}
	/* a full disk is met now, not after most of the copy */
	if (c->size && fallocate(c->out, 0, 0, (off_t)c->size) && errno != EOPNOTSUPP)
		return refuse(c->target, "reserve its blocks", errno);
	if (ftruncate(c->out, (off_t)c->size))
		return refuse(c->target, "set its length", errno);
	return want_direct(c, c->target, c->out, &c->out_direct);
}

static int sync_directory(const char *file)
{
	char copy[PATH_MAX];
	int fd, rc = EXIT_OK;

	snprintf(copy, sizeof(copy), "%s", file);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return refuse(file, "open its directory", errno);
	/* EINVAL: a file system that has no need of it */
	if (fsync(fd) && errno != EINVAL)
		rc = refuse(file, "make its name durable", errno);
	close(fd);
	return rc;
}

static int publish(struct copy *c)
{
	if (fchmod(c->out, c->mode))
		return refuse(c->target, "set its mode", errno);
	if (fsync(c->out))
		return refuse(c->target, "make its data durable", errno);
	if (rename(c->temporary, c->target))
		return refuse(c->target, "rename the temporary file to it", errno);
	c->temporary[0] = '\0';
	return sync_directory(c->target);
}

/* ------------------------------------------------------------------- steps */

static int prepare_device(struct copy *c)
{
	const char *step = "";
	int rc;

	rc = buffer_get(&c->buf, c->device, c->chunk * c->depth, &step);
	if (rc)
		return failed_call(&cmd_cp, rc, "device %d: cannot %s", c->device, step);
	rc = phxfs_queue_create((unsigned int)c->depth, &c->queue);
	if (rc)
		return failed_call(&cmd_cp, rc, "cannot make a queue");
	c->slots = calloc(c->depth, sizeof(*c->slots));
	if (!buffer_view(&c->buf, 0))
		c->scratch = malloc(c->chunk);
	if (!c->slots || (!c->scratch && !buffer_view(&c->buf, 0)))
		return failed(&cmd_cp, "no memory");
	return EXIT_OK;
}

static int read_back(struct copy *c)
{
	uint64_t start = now_ns(), hash = 0;
	int rc;

	/* from the disk, not from what the writes left in memory */
	if (fsync(c->out))
		return refuse(c->target, "make its data durable", errno);
	posix_fadvise(c->out, 0, 0, POSIX_FADV_DONTNEED);
	rc = run_pass(c, c->out, -1, &hash);
	c->verify_s = (double)(now_ns() - start) / 1e9;
	if (rc)
		return rc;
	if (hash != c->hash)
		return failed(&cmd_cp, "%s: read back, its checksum is %016jx, not %016jx",
			      c->target, (uintmax_t)hash, (uintmax_t)c->hash);
	return EXIT_OK;
}

static int copy_file(struct copy *c)
{
	struct stat source;
	uint64_t start;
	int rc;

	rc = open_source(c, &source);
	if (!rc)
		rc = find_target(c, &source);
	if (!rc)
		rc = prepare_device(c);
	if (!rc)
		rc = open_temporary(c);
	if (rc)
		return rc;
	start = now_ns();
	rc = run_pass(c, c->in, c->out, &c->hash);
	c->copy_s = (double)(now_ns() - start) / 1e9;
	if (!rc && c->verify)
		rc = read_back(c);
	return rc ? rc : publish(c);
}

static void release(struct copy *c)
{
	phxfs_queue_destroy(c->queue);
	buffer_put(&c->buf);
	free(c->scratch);
	free(c->slots);
	if (c->temporary[0])
		unlink(c->temporary);
	if (c->out >= 0)
		close(c->out);
	if (c->in >= 0)
		close(c->in);
}

static double gib_per_s(const struct copy *c)
{
	return c->copy_s > 0 ? (double)c->size / (1u << 30) / c->copy_s : 0;
}

static bool report(const struct copy *c)
{
	char size[WORD_MAX], digits[WORD_MAX];
	cJSON *root;

	snprintf(digits, sizeof(digits), "%016jx", (uintmax_t)c->hash);
	if (!c->json)
		return printf("%s -> %s: %s in %.2f s, %.2f GiB/s, XXH3 %s%s\n", c->src, c->target,
			      size_word(size, c->size), c->copy_s, gib_per_s(c), digits,
			      c->verify ? ", verified" : "") > 0;
	root = cJSON_CreateObject();
	cJSON_AddStringToObject(root, "version", phxfs_version());
	cJSON_AddStringToObject(root, "source", c->src);
	cJSON_AddStringToObject(root, "target", c->target);
	json_uint(root, "bytes", c->size);
	cJSON_AddNumberToObject(root, "seconds", c->copy_s);
	cJSON_AddNumberToObject(root, "gib_per_s", gib_per_s(c));
	cJSON_AddStringToObject(root, "xxh3", digits);
	cJSON_AddBoolToObject(root, "verified", c->verify);
	cJSON_AddNumberToObject(root, "verify_seconds", c->verify_s);
	cJSON_AddBoolToObject(root, "source_direct", c->in_direct);
	cJSON_AddBoolToObject(root, "target_direct", c->out_direct);
	cJSON_AddStringToObject(root, "engine", phxfs_io_engine_name());
	cJSON_AddNumberToObject(root, "device", c->device);
	return json_print(root);
}

static int take_line(struct copy *c, int argc, char **argv)
{
	static const char *const switches[] = { "auto", "on", "off", NULL };
	static const char *const engines[] = { "auto", "io_uring", "sync", NULL };
	static const char *const paths[] = { "auto", "direct", "staging", "bounce", NULL };
	const struct opt opts[] = {
		{ "verify", OPT_FLAG, &c->verify, 0, 0, NULL },
		{ "chunk", OPT_SIZE, &c->chunk, 4096, UINT64_C(1) << 30, NULL },
		{ "depth", OPT_UINT, &c->depth, 1, 1024, NULL },
		{ "direct", OPT_CHOICE, &c->direct, 0, 0, switches },
		{ "engine", OPT_CHOICE, &c->engine, 0, 0, engines },
		{ "path", OPT_CHOICE, &c->path, 0, 0, paths },
		{ "device", OPT_INT, &c->device, 0, 0, NULL },
		{ "json", OPT_FLAG, &c->json, 0, 0, NULL },
		{ NULL, OPT_FLAG, NULL, 0, 0, NULL },
	};
	int first = 0;
	int rc = parse_options(&cmd_cp, opts, argc, argv, &first);

	if (rc)
		return rc;
	if (argc - first != 2)
		return usage_error(&cmd_cp, "one source and one destination are needed");
	if (c->chunk % 4096)
		return usage_error(&cmd_cp, "--chunk: not a multiple of 4096");
	c->src = argv[first];
	c->dst = argv[first + 1];
	return EXIT_OK;
}

static int run(int argc, char **argv)
{
	struct copy c = {
		.direct = "auto",
		.chunk = 4u << 20,
		.depth = 8,
		.in = -1,
		.out = -1,
	};
	struct sigaction action = { .sa_handler = on_signal };
	int rc = take_line(&c, argc, argv);

	if (rc)
		return rc == PARSED_HELP ? EXIT_OK : rc;
	if ((c.engine && set_environment("PHX_IO_ENGINE", c.engine)) ||
	    (c.path && set_environment("PHX_PATH", c.path)))
		return failed(&cmd_cp, "no memory");
	/* so that the temporary file is removed */
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);

	rc = copy_file(&c);
	release(&c);
	if (!rc && !report(&c))
		rc = EXIT_FAILED;
	return rc;
}

const struct subcommand cmd_cp = {
	.name = "cp",
	.summary = "copy a file through device memory, with a checksum",
	.help = help,
	.run = run,
};
