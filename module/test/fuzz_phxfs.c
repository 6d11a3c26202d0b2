// SPDX-License-Identifier: GPL-2.0-only
/*
 * Random sequences of everything a process can do to phxfs.ko, from several processes at
 * once. Calls are mostly nearly right: an argument that is refused at the first look finds
 * nothing. No result is a failure; what must hold is that the machine lives, and that nothing
 * is pinned when all processes have ended.
 *
 * Usage: fuzz_phxfs DISK [SECONDS [SEED]]; uses devices 0 and 1 and writes to the disk.
 * Each process prints its seed; `fuzz_phxfs DISK SECONDS SEED alone` runs that one again: the
 * same calls with the same arguments, as no choice depends on what a call gave.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <liburing.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 4
#define FILES 4
#define MAPPINGS 6
#define MEMORIES 6
#define PIPES 3
#define SLOT (16 * MIB)               /* room of one mapping in the arena */
#define ARENA ((MAPPINGS + 2) * SLOT) /* and where mremap moves things */

static const char *disk_path;
/* The kernel takes two DMAs into one page for an error, whoever is to blame: none then. */
static bool careful;

struct fuzz {
	uint64_t rand;
	uint64_t step;
	int file[FILES];
	int file_dev[FILES];
	char *arena;
	uint64_t length[MAPPINGS];
	uint64_t mapped_addr[MAPPINGS]; /* what MAP was last told */
	uint64_t memory[MEMORIES];
	uint64_t memory_length[MEMORIES];
	int held[PIPES][2];
	int disk[2]; /* O_DIRECT, buffered */
	struct io_uring ring;
	bool has_ring;
	unsigned int flying;
	char *page; /* the last one before nothing */
};

static uint64_t pick(struct fuzz *f, uint64_t below)
{
	return t_random(&f->rand, below);
}

static bool one_in(struct fuzz *f, uint64_t n)
{
	return pick(f, n) == 0;
}

static uint64_t any_length(struct fuzz *f)
{
	static const uint64_t lengths[] = {
		64 * KIB,
		64 * KIB,
		128 * KIB,
		2 * MIB,
		2 * MIB,
		2 * MIB,
		4 * MIB,
		6 * MIB,
		8 * MIB,
		16 * MIB,
		2 * MIB + 64 * KIB,
		4096,
		64 * KIB + 4096,
		1,
	};

	return lengths[pick(f, sizeof(lengths) / sizeof(lengths[0]))];
}

/* Most often the value, else one near it or far from it. */
static uint64_t nearly(struct fuzz *f, uint64_t value)
{
	uint64_t chance = pick(f, 40), random = pick(f, 0);

	switch (chance) {
	case 0:
		return 0;
	case 1:
		return ~0ull - (random & 0xffff);
	case 2:
		return value + 64 * KIB;
	case 3:
		return value - 64 * KIB;
	case 4:
		return value ^ 1ull << (random & 63);
	case 5:
		return value + 4096;
	case 6:
		return random;
	default:
		return value;
	}
}

static char *place(struct fuzz *f, unsigned int slot)
{
	return f->arena + slot * SLOT;
}

/* An argument's address: mostly good, some reach past the end, some lie in device memory. */
static void *argument(struct fuzz *f, const void *arg, size_t size)
{
	uint64_t chance = pick(f, 60), slot = pick(f, MAPPINGS);
	char *p = f->page + 4096 - 256;

	memcpy(p, arg, size);
	switch (chance) {
	case 0:
		return NULL;
	case 1:
		return f->page + 4096 - size / 2;
	case 2:
		return place(f, slot);
	case 3:
		return (void *)0xffff800000000000ull;
	default:
		return p;
	}
}

/* --- descriptors, device memory, faults ------------------------------------------------------ */

static void do_open(struct fuzz *f)
{
	unsigned int i = pick(f, FILES), dev = pick(f, 2);
	char path[32];

	if (f->file[i] >= 0)
		close(f->file[i]);
	snprintf(path, sizeof(path), "/dev/" PHXFS_DEV_PREFIX "%u", dev);
	f->file[i] = open(path, pick(f, 8) ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC);
	f->file_dev[i] = dev;
}

static void do_close(struct fuzz *f)
{
	unsigned int i = pick(f, FILES), j = pick(f, FILES);
	bool copy = one_in(f, 2);

	if (f->file[i] >= 0)
		close(f->file[i]);
	f->file[i] = copy && f->file[j] >= 0 ? dup(f->file[j]) : -1;
	f->file_dev[i] = f->file_dev[j];
}

static void do_memory(struct fuzz *f)
{
	unsigned int i = pick(f, MEMORIES), dev = pick(f, 2), layout = pick(f, 6);
	uint64_t length = any_length(f);

	if (f->memory[i])
		t_try_free(f->memory[i]);
	f->memory[i] = 0;
	f->memory_length[i] = length;
	t_try_alloc(dev, length, layout, &f->memory[i]);
}

static void do_fault(struct fuzz *f)
{
	/* not T_FAULT_PUT: a driver that never unpins keeps the modules for good */
	static const unsigned int kinds[] = {
		T_FAULT_ALLOC,
		T_FAULT_PIN,
		T_FAULT_PIN_SILENT,
		T_FAULT_PIN_OUTSIDE,
		T_FAULT_PIN_NULL,
		T_FAULT_PIN_SHORT,
		T_FAULT_PIN_VERSION,
		T_FAULT_PIN_PAGE_SIZE,
		T_FAULT_PIN_DELAY,
		T_FAULT_PIN_RECLAIM,
		T_FAULT_PERSISTENT,
		T_FAULT_RECLAIM_DELAY,
		/* these let memory change hands under a transfer */
		T_FAULT_RECLAIM_ATOMIC,
		T_FAULT_PIN_UNALIGNED,
	};
	unsigned int kind = kinds[pick(f, sizeof(kinds) / sizeof(kinds[0]) - 2 * careful)];
	uint64_t dev = pick(f, 2), skip = pick(f, 3), small = pick(f, 5);

	if (kind == T_FAULT_ALLOC || kind == T_FAULT_PIN)
		small = ENOMEM;
	else if (kind == T_FAULT_PERSISTENT)
		small = EOPNOTSUPP;
	else if (kind == T_FAULT_PIN_PAGE_SIZE)
		small = 1024 << small;
	t_try_fault(dev, kind, skip, 1, small);
}

static void do_reclaim(struct fuzz *f)
{
	uint64_t addr = f->memory[pick(f, MEMORIES)], dev = pick(f, 2);

	t_try_reclaim(dev, one_in(f, 4) ? 0 : addr);
}

/* --- mappings -------------------------------------------------------------------------------- */

static void do_mmap(struct fuzz *f)
{
	static const int prots[] = { PROT_READ | PROT_WRITE, PROT_READ, PROT_WRITE, PROT_NONE,
				     PROT_READ | PROT_WRITE | PROT_EXEC };
	unsigned int i = pick(f, MAPPINGS), file = pick(f, FILES);
	uint64_t length = any_length(f), chance = pick(f, 16), offset = pick(f, 4);
	int prot = prots[pick(f, 16) < 12 ? 0 : pick(f, 5)], flags = MAP_SHARED;

	if (chance == 0)
		flags = MAP_PRIVATE;
	else if (chance == 1)
		flags |= MAP_POPULATE;
	else if (chance == 2)
		flags = MAP_SHARED_VALIDATE;
	f->length[i] = length;
	mmap(place(f, i), length, prot, flags | MAP_FIXED, f->file[file],
	     chance == 3 ? (off_t)(offset * 64 * KIB) : 0);
}

static void do_munmap(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS);
	uint64_t from = 0, length = f->length[i], chance = pick(f, 8), part = pick(f, 64);

	if (chance == 0)
		from = part * 4096;
	else if (chance == 1)
		length = part * 4096;
	if (chance == 2)
		munmap(place(f, i), length);
	/* the room stays ours */
	mmap(place(f, i) + from, length ?: 4096, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* What mremap took away stays ours as well. */
static void refill(char *at, uint64_t length)
{
	if (length)
		mmap(at, length, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

static void do_mremap(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS), to = MAPPINGS + pick(f, 2);
	uint64_t chance = pick(f, 5), other = any_length(f);

	switch (chance) {
	case 0: /* away and back */
		if (mremap(place(f, i), f->length[i], f->length[i], MREMAP_MAYMOVE | MREMAP_FIXED,
			   place(f, to)) != MAP_FAILED)
			mremap(place(f, to), f->length[i], f->length[i],
			       MREMAP_MAYMOVE | MREMAP_FIXED, place(f, i));
		break;
	case 1: /* a part of it, somewhere else for good */
		mremap(place(f, i), 64 * KIB, 64 * KIB, MREMAP_MAYMOVE | MREMAP_FIXED,
		       place(f, to));
		break;
	case 2:
		mremap(place(f, i), f->length[i], other, 0);
		break;
	case 3: /* a second mapping of the same */
		mremap(place(f, i), 0, f->length[i], MREMAP_MAYMOVE | MREMAP_FIXED, place(f, to));
		break;
	default:
		mremap(place(f, i), f->length[i], f->length[i],
		       MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, place(f, to));
	}
	refill(place(f, i), chance == 1 ? 64 * KIB : f->length[i]);
	other = (other + 4095) & ~4095ull;
	if (other < f->length[i])
		refill(place(f, i) + other, f->length[i] - other);
}

static void do_advise(struct fuzz *f)
{
	static const int advices[] = { MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK, MADV_WILLNEED,
				       MADV_REMOVE, MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ,
				       MADV_POPULATE_WRITE, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
				       MADV_MERGEABLE };
	static const int prots[] = { PROT_READ, PROT_READ | PROT_WRITE, PROT_NONE };
	unsigned int i = pick(f, MAPPINGS), kind = pick(f, 16);
	int advice = advices[pick(f, sizeof(advices) / sizeof(advices[0]))];
	uint64_t from = one_in(f, 4) ? 4096 * pick(f, 16) : 0;

	if (kind == 0)
		mlock(place(f, i), f->length[i]);
	else if (kind == 1)
		munlock(place(f, i), f->length[i]);
	else if (kind == 2)
		msync(place(f, i), f->length[i], MS_SYNC);
	else if (kind < 6)
		mprotect(place(f, i) + from, 64 * KIB, prots[kind - 3]);
	else
		madvise(place(f, i) + from, f->length[i], advice);
}

/* --- ioctls ---------------------------------------------------------------------------------- */

static void do_map(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS), file = pick(f, FILES), m = pick(f, MEMORIES);
	bool other_file = one_in(f, 8), fits = !one_in(f, 6);
	uint64_t n = fits ? f->length[i] : f->memory_length[m];
	struct phxfs_ioctl_map arg = {
		.dev_id = nearly(f, f->file_dev[file]),
		.c_vaddr = nearly(f, (uintptr_t)place(f, i)),
		.c_size = nearly(f, f->length[i]),
		.n_vaddr = nearly(f, f->memory[m]),
		.n_size = nearly(f, n),
		.end_addr = pick(f, 0),
	};

	f->mapped_addr[i] = arg.n_vaddr;
	ioctl(f->file[other_file ? 0 : file], PHXFS_IOCTL_MAP, argument(f, &arg, sizeof(arg)));
}

static void do_unmap(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS), file = pick(f, FILES);
	struct phxfs_ioctl_map arg = {
		.dev_id = nearly(f, f->file_dev[file]),
		.c_vaddr = nearly(f, (uintptr_t)place(f, i)),
		.c_size = nearly(f, f->length[i]),
		.n_vaddr = nearly(f, f->mapped_addr[i]),
		.n_size = nearly(f, f->length[i]),
	};

	ioctl(f->file[file], PHXFS_IOCTL_UNMAP, argument(f, &arg, sizeof(arg)));
}

static void do_query(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS), file = pick(f, FILES);
	struct phxfs_ioctl_query q = { .size = nearly(f, sizeof(q)), .flags = one_in(f, 16) };
	struct phxfs_ioctl_region r = { .size = nearly(f, sizeof(r)),
					.flags = one_in(f, 16),
					.c_vaddr = nearly(f, (uintptr_t)place(f, i)) };
	bool region = one_in(f, 2);

	if (region)
		ioctl(f->file[file], PHXFS_IOCTL_REGION, argument(f, &r, sizeof(r)));
	else
		ioctl(f->file[file], PHXFS_IOCTL_QUERY, argument(f, &q, sizeof(q)));
}

static void do_other_call(struct fuzz *f)
{
	unsigned int file = pick(f, FILES), nr = pick(f, 6), dir = pick(f, 4), size = pick(f, 8);
	uint64_t words[8];
	unsigned long number = _IOC(dir, PHXFS_IOC_MAGIC, nr, size * 16);

	for (int i = 0; i < 8; i++)
		words[i] = pick(f, 0);
	ioctl(f->file[file], nearly(f, number), argument(f, words, sizeof(words)));
	/* what is not there */
	(void)!read(f->file[file], words, sizeof(words));
	(void)!write(f->file[file], words, sizeof(words));
	lseek(f->file[file], 4096, SEEK_SET);
}

/* --- transfers, accesses --------------------------------------------------------------------- */

static sigjmp_buf fault_jump;
static volatile sig_atomic_t touching;

static void on_fault(int sig)
{
	if (!touching)
		_exit(128 + sig);
	siglongjmp(fault_jump, sig);
}

static void do_touch(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS);
	volatile char *p = place(f, i) + pick(f, 32) * 4096;
	bool write = one_in(f, 2);

	touching = 1;
	if (sigsetjmp(fault_jump, 1)) {
		touching = 0;
		return;
	}
	if (write)
		*p = 1;
	else
		(void)*p;
	touching = 0;
}

static void reap(struct fuzz *f, bool all)
{
	struct io_uring_cqe *cqe;

	while (f->flying) {
		if (all ? io_uring_wait_cqe(&f->ring, &cqe) : io_uring_peek_cqe(&f->ring, &cqe))
			return;
		io_uring_cqe_seen(&f->ring, cqe);
		f->flying--;
	}
}

static void do_transfer(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS), j = pick(f, MAPPINGS), chance = pick(f, 12);
	uint64_t at = pick(f, 16) * 4096, length = 4096ull << pick(f, 6);
	uint64_t offset = pick(f, 4096) * 4096;
	struct iovec iov[2] = {
		{ .iov_base = place(f, i) + at, .iov_len = length },
		{ .iov_base = place(f, j), .iov_len = length },
	};

	/* what is read must not meet what is read already; writes may meet */
	reap(f, true);
	if (chance < 5)
		(void)!pread(f->disk[0], iov[0].iov_base, length, offset);
	else if (chance < 9)
		(void)!pwrite(f->disk[0], iov[0].iov_base, length, offset);
	else if (chance == 9)
		(void)!pwritev(f->disk[0], iov, 2, offset);
	else if (chance == 10)
		(void)!pread(f->disk[1], iov[0].iov_base, 4096 - 8, offset + 8);
	else
		(void)!process_vm_readv(getpid(), &iov[0], 1, &iov[1], 1, 0);
}

static void do_hold(struct fuzz *f)
{
	unsigned int p = pick(f, PIPES), i = pick(f, MAPPINGS);
	struct iovec iov = { .iov_base = place(f, i), .iov_len = 4096 * (1 + pick(f, 4)) };
	bool let_go = one_in(f, 2);

	if (let_go || f->held[p][0] < 0) {
		close(f->held[p][0]);
		close(f->held[p][1]);
		if (pipe2(f->held[p], O_CLOEXEC | O_NONBLOCK))
			f->held[p][0] = f->held[p][1] = -1;
	}
	if (!let_go)
		(void)!vmsplice(f->held[p][1], &iov, 1, SPLICE_F_NONBLOCK);
}

static void do_ring(struct fuzz *f)
{
	unsigned int i = pick(f, MAPPINGS), chance = pick(f, 8);
	uint64_t length = 4096ull << pick(f, 5), offset = pick(f, 4096) * 4096;
	struct iovec iov = { .iov_base = place(f, i), .iov_len = f->length[i] };
	struct io_uring_sqe *sqe;

	if (!f->has_ring)
		return;
	if (chance == 0) {
		io_uring_register_buffers(&f->ring, &iov, 1);
		return;
	}
	if (chance == 1) {
		io_uring_unregister_buffers(&f->ring);
		return;
	}
	reap(f, chance == 2);
	if (f->flying)
		return;
	sqe = io_uring_get_sqe(&f->ring);
	if (!sqe)
		return;
	if (chance == 3)
		io_uring_prep_read_fixed(sqe, f->disk[0], iov.iov_base, length, offset, 0);
	else if (chance < 6)
		io_uring_prep_read(sqe, f->disk[0], iov.iov_base, length, offset);
	else
		io_uring_prep_write(sqe, f->disk[0], iov.iov_base, length, offset);
	if (io_uring_submit(&f->ring) == 1)
		f->flying++;
}

/* --- processes ------------------------------------------------------------------------------- */

static void do_fork(struct fuzz *f)
{
	static void (*const calls[])(struct fuzz *) = { do_map, do_unmap, do_query, do_touch,
							do_mmap, do_munmap, do_close, do_transfer };
	unsigned int n = pick(f, 12);
	uint64_t rand = pick(f, 0);
	pid_t pid = fork();

	if (pid)
		return;
	f->rand = rand;
	/* the ring is the parent's */
	f->has_ring = false;
	f->flying = 0;
	while (n--)
		calls[pick(f, sizeof(calls) / sizeof(calls[0]))](f);
	if (one_in(f, 2))
		raise(SIGKILL);
	_exit(0);
}

static const struct {
	void (*call)(struct fuzz *f);
	unsigned int weight;
} steps[] = {
	{ do_open, 4 },
	{ do_close, 1 },
	{ do_memory, 6 },
	{ do_fault, 2 },
	{ do_reclaim, 3 },
	{ do_mmap, 12 },
	{ do_munmap, 6 },
	{ do_mremap, 3 },
	{ do_advise, 5 },
	{ do_map, 24 },
	{ do_unmap, 8 },
	{ do_query, 4 },
	{ do_other_call, 2 },
	{ do_touch, 6 },
	{ do_transfer, 10 },
	{ do_hold, 4 },
	{ do_ring, 8 },
	{ do_fork, 1 },
};

static void prepare(struct fuzz *f)
{
	struct rlimit none = { 0, 0 };
	struct sigaction act = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	char *two;

	setrlimit(RLIMIT_CORE, &none);
	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGSEGV, &act, NULL);
	signal(SIGCHLD, SIG_IGN);
	f->arena = mmap(NULL, ARENA + 2 * MIB, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(f->arena != MAP_FAILED);
	f->arena = (char *)(((uintptr_t)f->arena + 2 * MIB - 1) & ~(2 * MIB - 1));
	two = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(two != MAP_FAILED);
	CHECK_EQ(mprotect(two + 4096, 4096, PROT_NONE), 0);
	f->page = two;
	f->disk[0] = open(disk_path, O_RDWR | O_DIRECT | O_CLOEXEC);
	f->disk[1] = open(disk_path, O_RDONLY | O_CLOEXEC);
	CHECK(f->disk[0] >= 0 && f->disk[1] >= 0);
	f->has_ring = !io_uring_queue_init(4, &f->ring, 0);
	for (int i = 0; i < FILES; i++)
		f->file[i] = -1;
	for (int i = 0; i < PIPES; i++)
		f->held[i][0] = f->held[i][1] = -1;
	for (int i = 0; i < MAPPINGS; i++)
		f->length[i] = 2 * MIB;
}

static void run(uint64_t seed, long long end)
{
	struct fuzz f = { .rand = seed };
	unsigned int total = 0;

	prepare(&f);
	for (unsigned int i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		total += steps[i].weight;
	for (; t_now_ms() < end; f.step++) {
		unsigned int at = pick(&f, total), i = 0;

		while (at >= steps[i].weight)
			at -= steps[i++].weight;
		steps[i].call(&f);
	}
	printf("seed %llu: %llu calls\n", (unsigned long long)seed, (unsigned long long)f.step);
	fflush(stdout);
	_exit(0);
}

static pid_t start(uint64_t seed, long long end)
{
	pid_t pid;

	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		run(seed, end);
	return pid;
}

/* Some processes are killed in the middle; new ones take their place. */
static long supervise(uint64_t seed, int n, long long end)
{
	uint64_t chance = seed, next = seed;
	pid_t pids[PROCESSES];
	long killed = 0;
	int status;

	for (int i = 0; i < n; i++)
		pids[i] = start(next++, end);
	while (n > 1 && t_now_ms() + 2000 < end) {
		int i = t_random(&chance, n);

		usleep((200 + t_random(&chance, 1300)) * 1000);
		CHECK_EQ(kill(pids[i], SIGKILL), 0);
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : !status);
		killed++;
		pids[i] = start(next++, end);
	}
	for (int i = 0; i < n; i++) {
		CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
		CHECK(WIFEXITED(status));
		CHECK_EQ(WEXITSTATUS(status), 0);
	}
	return killed;
}

static bool dma_is_checked(void)
{
	FILE *f = fopen("/sys/kernel/debug/dma-api/disabled", "r");
	int c = f ? fgetc(f) : 'Y';

	if (f)
		fclose(f);
	return c == 'N';
}

int main(int argc, char **argv)
{
	long seconds = argc > 2 ? strtol(argv[2], NULL, 10) : 5;
	uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : (uint64_t)time(NULL);
	bool alone = argc > 4 && !strcmp(argv[4], "alone");
	long killed;

	CHECK(argc >= 2 && seconds > 0);
	disk_path = argv[1];
	careful = dma_is_checked();
	/* a reclaim that waits for a held page waits for all processes */
	t_set_parameter("phxfs", "drain_ms", careful ? "3000" : "50");
	killed = supervise(seed, alone ? 1 : PROCESSES, t_now_ms() + seconds * 1000);
	for (int d = 0; d < 2; d++) {
		t_expect_idle(d);
		t_expect_unused(d);
	}
	printf("%ld s of fuzzing, %ld processes killed, nothing left pinned\n", seconds, killed);
	return 0;
}
