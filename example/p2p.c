// SPDX-License-Identifier: Apache-2.0
/*
 * p2p FILE: loads FILE into device memory, writes it from there into the device
 * memory of a second process, which hashes what has come, and compares that
 * hash with the file's own. Prints one line.
 *
 * A window of device memory at a time, so that a file may be larger than a
 * device: load, write, notify, and wait until the second process has hashed it.
 * The second process is this program with the argument --receive; it says on its
 * standard output where it is to be reached.
 */
#include <errno.h>
#include <fcntl.h>
#include <flagcx_p2p.h>
#include <inttypes.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#define DEVICE 0
#define WINDOW (256u << 20)
#define CHUNK (1u << 20)
#define PATIENCE_S 60

/* One end: a window of device memory, registered with storage and with an engine. */
struct end {
	FlagcxP2pEngine *engine;
	FlagcxP2pMr mr;
	void *memory;
	char *host; /* a chunk, for hashing */
};

static int fail(const char *what, const char *text)
{
	fprintf(stderr, "p2p: %s: %s\n", what, text);
	return -1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int end_open(struct end *e)
{
	memset(e, 0, sizeof(*e));
	e->host = malloc(CHUNK);
	if (!e->host)
		return fail("memory", strerror(ENOMEM));
	if (phxfs_open(DEVICE) || phxfs_mem_alloc(DEVICE, WINDOW, &e->memory))
		return fail("device memory", phxfs_last_error());
	if (phxfs_regmem(DEVICE, e->memory, WINDOW, NULL))
		return fail("phxfs_regmem", phxfs_last_error());
	e->engine = flagcxP2pEngineCreate();
	if (!e->engine || flagcxP2pEngineReg(e->engine, (uintptr_t)e->memory, WINDOW, &e->mr))
		return fail("engine", flagcxP2pLastError());
	return 0;
}

static void end_close(struct end *e)
{
	flagcxP2pEngineDestroy(e->engine); /* before the memory that it serves */
	if (e->memory) {
		phxfs_deregmem(DEVICE, e->memory, WINDOW);
		phxfs_mem_free(DEVICE, e->memory);
		phxfs_close(DEVICE);
	}
	free(e->host);
}

/* The next notification, whose message must be of size bytes. */
static int await(struct end *e, void *msg, size_t size, FlagcxP2pConn **from)
{
	double until = now() + PATIENCE_S;
	FlagcxP2pNotif n;

	while (flagcxP2pEngineGetNotifsV(e->engine, &n, 1) != 1) {
		if (now() > until)
			return fail("the other process", "is silent");
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	}
	if (n.msg_len == size)
		memcpy(msg, n.msg, size);
	*from = n.conn;
	flagcxP2pNotifFree(&n);
	return n.msg_len == size ? 0 : fail("the other process", "says something else");
}

/* ------------------------------------------------------- the second process */

static int hash_window(struct end *e, XXH3_state_t *state, size_t size)
{
	for (size_t at = 0; at < size; at += CHUNK) {
		size_t n = size - at < CHUNK ? size - at : CHUNK;

		if (phxfs_memcpy_from(DEVICE, e->host, (char *)e->memory + at, n))
			return fail("phxfs_memcpy_from", phxfs_last_error());
		XXH3_64bits_update(state, e->host, n);
	}
	return 0;
}

/* Bytes in the window come as a notification, and the hash so far goes back; 0 ends it. */
static int receive_all(struct end *e, XXH3_state_t *state)
{
	for (;;) {
		uint64_t size, hash;
		FlagcxP2pConn *peer;

		if (await(e, &size, sizeof(size), &peer))
			return -1;
		if (!size)
			return 0;
		if (size > WINDOW || hash_window(e, state, (size_t)size))
			return -1;
		hash = XXH3_64bits_digest(state);
		if (flagcxP2pEngineSendNotifV(peer, "hash", 4, &hash, sizeof(hash)))
			return fail("notification", flagcxP2pLastError());
	}
}

static int receive(void)
{
	XXH3_state_t *state = XXH3_createState();
	struct end e;
	int rc = end_open(&e);

	if (!rc && flagcxP2pEngineStartRpcServer(e.engine))
		rc = fail("server", flagcxP2pLastError());
	if (!rc && state) {
		XXH3_64bits_reset(state);
		printf("127.0.0.1:%d %" PRIuPTR "\n", flagcxP2pEngineGetRpcPort(e.engine),
		       (uintptr_t)e.memory);
		fflush(stdout);
		rc = receive_all(&e, state);
	}
	XXH3_freeState(state);
	end_close(&e);
	return rc;
}

/* -------------------------------------------------------- the first process */

struct far {
	pid_t pid;
	char session[64];
	uint64_t address;
};

static int start_receiver(struct far *f)
{
	int out[2];
	FILE *from;
	int got;

	if (pipe2(out, O_CLOEXEC))
		return fail("pipe", strerror(errno));
	f->pid = fork();
	if (f->pid < 0)
		return fail("fork", strerror(errno));
	if (!f->pid) {
		dup2(out[1], STDOUT_FILENO);
		execl("/proc/self/exe", "p2p", "--receive", (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	from = fdopen(out[0], "r");
	got = from ? fscanf(from, "%63s %" SCNu64, f->session, &f->address) : 0;
	if (from)
		fclose(from);
	return got == 2 ? 0 : fail("the second process", "did not start");
}

static int load(const struct end *e, int fd, off_t from, size_t size)
{
	ssize_t n = phxfs_read(fd, DEVICE, e->memory, 0, (ssize_t)size, from);

	if (n < 0)
		return fail("phxfs_read", phxfs_last_error());
	return (size_t)n == size ? 0 : fail("phxfs_read", "the file has shrunk");
}

/* By read(2), without the library: the judge must not be the accused. */
static int hash_file(const struct end *e, const char *file, uint64_t *hash)
{
	XXH3_state_t *state = XXH3_createState();
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = -1;

	if (fd >= 0 && state) {
		XXH3_64bits_reset(state);
		while ((n = read(fd, e->host, CHUNK)) > 0)
			XXH3_64bits_update(state, e->host, (size_t)n);
		*hash = XXH3_64bits_digest(state);
	}
	if (fd >= 0)
		close(fd);
	XXH3_freeState(state);
	return n ? fail(file, strerror(errno)) : 0;
}

/* All windows; the seconds that the writes took, and the second process's hash. */
static int move(struct end *e, const struct far *f, int fd, off_t size, double *took,
		uint64_t *hash)
{
	FlagcxP2pConn *c = flagcxP2pEngineGetConn(e->engine, f->session), *from;

	if (!c)
		return fail("connect", flagcxP2pLastError());
	*took = 0;
	for (off_t at = 0; at < size; at += WINDOW) {
		uint64_t n = size - at < (off_t)WINDOW ? (uint64_t)(size - at) : WINDOW;
		uint64_t local = (uintptr_t)e->memory;
		double start;

		if (load(e, fd, at, (size_t)n))
			return -1;
		start = now();
		if (flagcxP2pRpcBatchWriteSync(c, 1, &local, &f->address, &n))
			return fail("write", flagcxP2pLastError());
		*took += now() - start;
		if (flagcxP2pEngineSendNotifV(c, "bytes", 5, &n, sizeof(n)))
			return fail("notification", flagcxP2pLastError());
		if (await(e, hash, sizeof(*hash), &from))
			return -1;
	}
	if (flagcxP2pEngineSendNotifV(c, "bytes", 5, &(uint64_t){ 0 }, sizeof(uint64_t)))
		return fail("notification", flagcxP2pLastError());
	return 0;
}

static int give(const char *file)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC), status = 0, rc;
	uint64_t theirs = 0, want = 0;
	struct far f = { 0 };
	struct stat st;
	struct end e;
	double took;

	if (fd < 0 || fstat(fd, &st))
		return fail(file, strerror(errno));
	if (!S_ISREG(st.st_mode) || !st.st_size)
		return fail(file, "a file with bytes in it is needed");
	rc = end_open(&e);
	rc = rc ? rc : start_receiver(&f);
	rc = rc ? rc : move(&e, &f, fd, st.st_size, &took, &theirs);
	rc = rc ? rc : hash_file(&e, file, &want);
	end_close(&e);
	close(fd);
	if (f.pid > 0 && (waitpid(f.pid, &status, 0) < 0 || status) && !rc)
		rc = fail("the second process", "has failed");
	if (!rc && theirs != want)
		rc = fail(file, "differs in the second process's device memory");
	if (!rc)
		printf("device memory to a second process's: %.3f GiB/s, verified there\n",
		       (double)st.st_size / took / (1u << 30));
	return rc;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: p2p FILE\n");
		return 2;
	}
	return (strcmp(argv[1], "--receive") ? give(argv[1]) : receive()) ? 1 : 0;
}
