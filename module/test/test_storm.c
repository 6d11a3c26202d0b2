// SPDX-License-Identifier: GPL-2.0-only
/*
 * Storms: everything that can happen to a registration, by many processes and threads, at
 * moments that nobody chose. What must hold is the end: nothing pinned, nothing draining, the
 * accelerator's memory back (and that the module can be unloaded, which the caller tries).
 *
 * Usage: test_storm DISK [CASE...]; uses devices 0 and 1 and writes to the disk.
 * PHX_STORM_ROUNDS: so many rounds of each case, however long they take; else a few, within
 * PHX_STORM_SECONDS. PHX_STORM_SEED: the moments and sizes of an earlier run.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 24
#define HELD 3
#define DISK_SPAN (64 * MIB)

static uint64_t granule, seed;
static int disk;
static char bdf[2][32];

/* --- rounds ---------------------------------------------------------------------------------- */

struct rounds {
	long wanted;
	long done;
	long long end; /* 0: no bound */
	long long began;
};

static struct rounds rounds(long few)
{
	long wanted = t_setting("PHX_STORM_ROUNDS", 0);
	long seconds = t_setting("PHX_STORM_SECONDS", wanted ? 0 : 2 * t_slow());

	return (struct rounds){
		.wanted = wanted ? wanted : few,
		.began = t_now_ms(),
		.end = seconds ? t_now_ms() + seconds * 1000 : 0,
	};
}

/* The first round is not left out, however slow the machine is. */
static bool another(const struct rounds *n)
{
	return n->done < n->wanted && (!n->done || !n->end || t_now_ms() < n->end);
}

static void say(const struct rounds *n, const char *what)
{
	printf("%ld rounds of %s in %lld ms\n", n->done, what, t_now_ms() - n->began);
}

static void idle_ms(uint64_t below)
{
	usleep(t_random(&seed, below * 1000));
}

/* Both devices have everything back. */
static void expect_all_back(void)
{
	for (int d = 0; d < 2; d++) {
		t_expect_idle(d);
		t_expect_unused(d);
	}
}

/* --- a life: registers, transfers, lets go, and so on ---------------------------------------- */

struct transfer {
	uint64_t addr;
	uint64_t length; /* 0: none */
};

struct life {
	int dev;
	int fd;
	uint64_t rand;
	struct t_region r[HELD];
	struct io_uring ring;
	struct transfer flying[DEPTH];
	bool may_fail; /* the device may go */
};

static bool tolerated(const struct life *l, int err)
{
	/* others may have the device's memory */
	return err == -ENOMEM || (l->may_fail && (err == -ENODEV || err == -EFAULT ||
						  err == -EINVAL || err == -EOPNOTSUPP ||
						  err == -EBUSY || err == -ENXIO));
}

static void life_free(struct life *l, const struct t_region *r)
{
	int err = t_try_free(r->addr);

	CHECK(!err || (l->may_fail && (err == -ENODEV || err == -EINVAL)));
}

static void life_take(struct life *l, struct t_region *r)
{
	static const unsigned int layouts[] = { T_LAYOUT_HUGE, T_LAYOUT_HUGE, T_LAYOUT_SUBSPANS,
						T_LAYOUT_REVERSED, T_LAYOUT_FRAGMENTED };
	unsigned int layout = layouts[t_random(&l->rand, t_is_staging() ? 4 : 5)];
	uint64_t length = granule * (1 + t_random(&l->rand, 4));
	int err;

	*r = (struct t_region){ .fd = l->fd, .dev = l->dev, .length = length };
	err = t_try_alloc(l->dev, length, layout, &r->addr);
	if (err) {
		CHECK(tolerated(l, err));
		usleep(1000);
		return;
	}
	r->p = t_mmap(l->fd, length);
	err = r->p ? t_map(r) : -errno;
	if (!err)
		return;
	if (!tolerated(l, err))
		t_fail(__FILE__, __LINE__, "device %d: %d", l->dev, err);
	if (r->p)
		munmap(r->p, length);
	life_free(l, r);
	r->p = NULL;
}

/* Transfers may be under way. */
static void life_drop(struct life *l, struct t_region *r)
{
	bool free_first = t_random(&l->rand, 4) == 0;

	if (free_first)
		life_free(l, r);
	if (t_random(&l->rand, 3))
		CHECK_EQ(t_unmap(r), 0);
	CHECK_EQ(munmap(r->p, r->length), 0);
	if (!free_first)
		life_free(l, r);
	r->p = NULL;
}

static void life_reap(struct life *l)
{
	struct io_uring_cqe *cqe;

	CHECK_EQ(io_uring_wait_cqe(&l->ring, &cqe), 0);
	/* the region may have ended between submission and start */
	if (cqe->res < 0 && cqe->res != -EFAULT)
		t_fail(__FILE__, __LINE__, "transfer: %d", cqe->res);
	l->flying[cqe->user_data].length = 0;
	io_uring_cqe_seen(&l->ring, cqe);
}

/* A free place, or -1 if the memory is in use: two DMAs into one page are an error of ours. */
static int life_place(const struct life *l, uint64_t addr, uint64_t length)
{
	int place = -1;

	for (int i = 0; i < DEPTH; i++) {
		const struct transfer *t = &l->flying[i];

		if (!t->length)
			place = i;
		else if (addr < t->addr + t->length && t->addr < addr + length)
			return -1;
	}
	return place;
}

static void life_transfer(struct life *l, const struct t_region *r)
{
	uint64_t length = 4096 << t_random(&l->rand, 6), at, offset;
	struct io_uring_sqe *sqe;
	int place;

	at = t_random(&l->rand, r->length / 4096) * 4096;
	if (length > r->length - at)
		length = r->length - at;
	offset = t_random(&l->rand, DISK_SPAN - length) & ~4095ull;
	while ((place = life_place(l, r->addr + at, length)) < 0)
		life_reap(l);
	sqe = io_uring_get_sqe(&l->ring);
	CHECK(sqe);
	if (t_random(&l->rand, 3))
		io_uring_prep_read(sqe, disk, (char *)r->p + at, length, offset);
	else
		io_uring_prep_write(sqe, disk, (char *)r->p + at, length, offset);
	sqe->user_data = place;
	CHECK_EQ(io_uring_submit(&l->ring), 1);
	l->flying[place] = (struct transfer){ .addr = r->addr + at, .length = length };
}

static void life_step(struct life *l)
{
	struct t_region *r = &l->r[t_random(&l->rand, HELD)];

	if (!r->p)
		life_take(l, r);
	else if (t_random(&l->rand, 40))
		life_transfer(l, r);
	else
		life_drop(l, r);
}

/* Runs until it is killed; tells `ready` when transfers have been going for a while. */
static void live(int dev, uint64_t rand, int ready, bool may_fail)
{
	struct life l = { .dev = dev, .rand = rand, .may_fail = may_fail };
	char path[32];

	snprintf(path, sizeof(path), "/dev/" PHXFS_DEV_PREFIX "%d", dev);
	l.fd = open(path, O_RDWR | O_CLOEXEC);
	if (l.fd < 0 && may_fail)
		_exit(0);
	CHECK(l.fd >= 0);
	CHECK_EQ(io_uring_queue_init(2 * DEPTH, &l.ring, 0), 0);
	for (int i = 0;; i++) {
		life_step(&l);
		if (i == 60 && ready >= 0)
			CHECK_EQ(write(ready, "", 1), 1);
	}
}

static pid_t born(int dev, int ready, bool may_fail)
{
	uint64_t rand = t_random(&seed, 0);
	pid_t pid;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		live(dev, rand, ready, may_fail);
	return pid;
}

static void slay(pid_t pid)
{
	int status;

	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status))
		CHECK_EQ(WEXITSTATUS(status), 0);
}

/* --- kill -9 --------------------------------------------------------------------------------- */

static void kill_round(long round)
{
	int ready[2], n = 1 + round % 3;
	pid_t pids[3];
	char c;

	CHECK_EQ(pipe(ready), 0);
	for (int i = 0; i < n; i++)
		pids[i] = born(round % 4 == 3, ready[1], false);
	close(ready[1]);
	/* mostly in full swing, sometimes while they still start */
	for (int i = 0; round % 4 && i < n; i++)
		CHECK_EQ(read(ready[0], &c, 1), 1);
	idle_ms(20);
	for (int i = 0; i < n; i++)
		slay(pids[i]);
	close(ready[0]);
	expect_all_back();
}

static void killed(void)
{
	struct rounds n = rounds(8);

	for (; another(&n); n.done++)
		kill_round(n.done);
	CHECK_EQ(t_counter(0, "reclaim_timeouts"), 0);
	say(&n, "kill -9 with transfers under way");
}

/* --- fork ------------------------------------------------------------------------------------ */

/* What a child has of its parent's registration: nothing. Then it makes its own. */
static void bomblet(const struct t_region *parents, uint64_t rand)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	struct life l = { .rand = rand };

	if (!fork())
		l.rand++;
	CHECK(t_faults(parents->p));
	CHECK_EQ(t_map(parents), -EPERM);
	CHECK_EQ(t_unmap(parents), -EPERM);
	CHECK_EQ(t_state(parents), -EPERM);
	CHECK(!t_mmap(parents->fd, granule) && errno == EPERM);
	CHECK_EQ(t_ioctl(parents->fd, PHXFS_IOCTL_QUERY, &q), 0);
	l.fd = t_open(0);
	CHECK_EQ(io_uring_queue_init(2 * DEPTH, &l.ring, 0), 0);
	for (int i = t_random(&l.rand, 60); i > 0; i--)
		life_step(&l);
	if (t_random(&l.rand, 2))
		raise(SIGKILL);
	_exit(0);
}

/* The last registration's transfers may be under way for a moment yet. */
static int map_again(const struct t_region *r)
{
	int err;

	for (int i = 0; i < 500 * t_slow(); i++) {
		err = t_map(r);
		if (err != -EBUSY)
			break;
		usleep(10000);
	}
	return err;
}

static void bomb(uint64_t rand)
{
	struct t_region r = { .fd = t_open(0), .length = granule };

	r.addr = t_alloc(0, granule, T_LAYOUT_HUGE);
	r.p = t_mmap(r.fd, granule);
	CHECK(r.p);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(map_again(&r), 0);
		if (!fork())
			bomblet(&r, t_random(&rand, 0));
		CHECK_EQ(pread(disk, r.p, 4096, 0), 4096);
		if (i == 3 && t_random(&rand, 2))
			raise(SIGKILL);
		CHECK_EQ(t_unmap(&r), 0);
	}
	_exit(0);
}

static void forked(void)
{
	struct rounds n = rounds(4);
	int status;

	/* orphans are ours, so that none is left when the round is */
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	for (; another(&n); n.done++) {
		for (int i = 0; i < 2; i++) {
			uint64_t rand = t_random(&seed, 0);

			fflush(stdout);
			if (!fork())
				bomb(rand);
		}
		while (waitpid(-1, &status, 0) > 0)
			if (WIFEXITED(status))
				CHECK_EQ(WEXITSTATUS(status), 0);
		CHECK_EQ(errno, ECHILD);
		expect_all_back();
	}
	say(&n, "fork bombs");
}

/* --- forced reclaim against all calls, and each other ---------------------------------------- */

#define SLOTS 4

/*
 * Threads work on the same mappings and the same memory. A mapping is replaced by plain
 * memory rather than unmapped: its address is never anybody else's.
 */
struct arena {
	char *base;
	uint64_t length; /* of a slot */
	int fd;
	_Atomic uint64_t addr[SLOTS];
	_Atomic bool stop;
	_Atomic long mapped;
	_Atomic long reclaimed;
};

struct hand {
	pthread_t thread;
	struct arena *a;
	uint64_t rand;
	int number;
	bool takes_back;
};

static void arena_call(struct hand *h, unsigned int what, const struct t_region *r)
{
	struct arena *a = h->a;

	switch (what) {
	case 0:
		CHECK(mmap(r->p, r->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->fd,
			   0) == r->p);
		break;
	case 1:
		CHECK(mmap(r->p, r->length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			   0) == r->p);
		break;
	case 2:
	case 3:
	case 4:
		a->mapped += t_map(r) == 0;
		break;
	case 5:
		(void)t_unmap(r);
		break;
	case 6:
		(void)t_state(r);
		break;
	default:
		/* its own pages: two DMAs into one are an error of ours */
		(void)!pread(disk, (char *)r->p + h->number * 8 * KIB, 8 * KIB, 0);
	}
}

static void arena_take_back(struct hand *h, unsigned int slot)
{
	uint64_t addr = h->a->addr[slot];

	if (!addr)
		return;
	if (t_random(&h->rand, 8)) {
		h->a->reclaimed += t_reclaim(0, addr);
	} else if (atomic_compare_exchange_strong(&h->a->addr[slot], &addr, 0)) {
		t_free(addr);
		if (!t_try_alloc(0, h->a->length, T_LAYOUT_HUGE, &addr))
			h->a->addr[slot] = addr;
	}
	usleep(t_random(&h->rand, 1000));
}

static void *hand_works(void *arg)
{
	struct hand *h = arg;
	struct arena *a = h->a;
	int own = t_open(0);

	while (!a->stop) {
		unsigned int slot = t_random(&h->rand, SLOTS);
		struct t_region r = {
			.fd = t_random(&h->rand, 4) ? a->fd : own,
			.p = a->base + slot * a->length,
			.addr = a->addr[t_random(&h->rand, SLOTS)],
			.length = a->length,
		};

		if (h->takes_back) {
			arena_take_back(h, slot);
		} else if (t_random(&h->rand, 100)) {
			arena_call(h, t_random(&h->rand, 10), &r);
		} else {
			/* what is mapped through it lives on */
			close(own);
			own = t_open(0);
		}
	}
	close(own);
	return NULL;
}

static void reclaim_round(long ms, long *mapped, long *reclaimed)
{
	struct arena a = { .length = granule, .fd = t_open(0) };
	struct hand hands[5];

	a.base = mmap(NULL, SLOTS * a.length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(a.base != MAP_FAILED);
	for (int i = 0; i < SLOTS; i++)
		a.addr[i] = t_alloc(0, a.length, T_LAYOUT_HUGE);
	for (int i = 0; i < 5; i++) {
		hands[i] = (struct hand){
			.a = &a,
			.rand = t_random(&seed, 0),
			.number = i,
			.takes_back = i < 2,
		};
		CHECK(!pthread_create(&hands[i].thread, NULL, hand_works, &hands[i]));
	}
	usleep(ms * 1000);
	a.stop = true;
	for (int i = 0; i < 5; i++)
		pthread_join(hands[i].thread, NULL);
	munmap(a.base, SLOTS * a.length);
	for (int i = 0; i < SLOTS; i++)
		if (a.addr[i])
			t_free(a.addr[i]);
	close(a.fd);
	*mapped += a.mapped;
	*reclaimed += a.reclaimed;
	expect_all_back();
}

static void reclaimed(void)
{
	bool persistent = t_parameter("phxfs_sim", "persistent");
	struct rounds n = rounds(4);
	long mapped = 0, taken = 0;

	t_set_parameter("phxfs_sim", "persistent", "N");
	for (; another(&n); n.done++)
		reclaim_round(500 * t_slow(), &mapped, &taken);
	t_set_parameter("phxfs_sim", "persistent", persistent ? "Y" : "N");
	CHECK(mapped > 0);
	CHECK(taken > 0);
	say(&n, "forced reclaim against all calls");
	printf("%ld mapped, %ld taken back\n", mapped, taken);
}

/* --- the driver unbinds ---------------------------------------------------------------------- */

static void driver(const char *what, int dev)
{
	char path[64];
	int f;

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/phxsim/%s", what);
	f = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(f >= 0);
	if (write(f, bdf[dev], strlen(bdf[dev])) < 0)
		t_fail(__FILE__, __LINE__, "%s %s: %s", what, bdf[dev], strerror(errno));
	close(f);
}

static void await_node(int dev)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/" PHXFS_DEV_PREFIX "%d", dev);
	for (int i = 0; i < 500 * t_slow() && access(path, R_OK | W_OK); i++)
		usleep(10000);
	CHECK_EQ(access(path, R_OK | W_OK), 0);
}

/* The second device goes and comes; nobody notices on the first. */
static void unbind_round(long round)
{
	pid_t lives[3];
	int ready[2];
	char c;

	CHECK_EQ(pipe(ready), 0);
	for (int i = 0; i < 3; i++)
		lives[i] = born(i > 0, ready[1], i > 0);
	close(ready[1]);
	for (int i = 0; round % 2 && i < 3; i++)
		CHECK_EQ(read(ready[0], &c, 1), 1);
	idle_ms(30);
	driver("unbind", 1);
	if (round % 3 == 0) {
		slay(lives[1]);
		driver("bind", 1);
		slay(lives[2]);
	} else {
		driver("bind", 1);
		idle_ms(10);
		slay(lives[1]);
		slay(lives[2]);
	}
	await_node(1);
	t_expect_idle(1);
	/* alive, and undisturbed */
	CHECK_EQ(waitpid(lives[0], NULL, WNOHANG), 0);
	slay(lives[0]);
	close(ready[0]);
	expect_all_back();
}

static void unbound(void)
{
	struct rounds n = rounds(4);

	for (; another(&n); n.done++)
		unbind_round(n.done);
	say(&n, "unbind and bind");
}

/* --- what stays pinned after UNMAP, close, rmmod --------------------------------------------- */

/* Holds the pages for the caller as long as they can be held, and longer than the process. */
static void pinned_round(long round)
{
	struct t_region r = t_register(t_open(0), 0, t_alloc(0, granule, T_LAYOUT_HUGE), granule);
	struct iovec iov = { .iov_base = r.p, .iov_len = r.length };
	struct io_uring ring;
	struct t_held held;
	bool fixed;

	t_fill_device(r.addr, granule, round);
	CHECK_EQ(io_uring_queue_init(4, &ring, 0), 0);
	/* 6.1 has no long-term pins of such pages: then for a pipe */
	fixed = io_uring_register_buffers(&ring, &iov, 1) == 0;
	if (!fixed)
		held = t_hold(r.p, 64 * KIB);
	if (round % 3 == 0)
		CHECK_EQ(t_unmap(&r), 0);
	if (round % 3 != 1) {
		CHECK_EQ(munmap(r.p, r.length), 0);
		CHECK_EQ(close(r.fd), 0);
	} else {
		CHECK_EQ(close(r.fd), 0);
		CHECK_EQ(munmap(r.p, r.length), 0);
	}
	t_expect_counter(0, "zombie_bytes", granule);
	CHECK(syscall(SYS_delete_module, "phxfs_sim", O_NONBLOCK) < 0);
	CHECK(syscall(SYS_delete_module, "phxfs", O_NONBLOCK) < 0);
	/* freed while held: the pages are nobody else's yet */
	if (t_parameter("phxfs_sim", "persistent")) {
		uint64_t free_before = t_available(0);

		t_free(r.addr);
		CHECK_EQ(t_available(0), free_before);
		r.addr = 0;
	}
	idle_ms(20);
	CHECK_EQ(t_counter(0, "zombie_bytes"), granule);
	if (fixed)
		CHECK_EQ(io_uring_unregister_buffers(&ring), 0);
	else
		t_let_go(&held);
	io_uring_queue_exit(&ring);
	t_expect_idle(0);
	if (r.addr)
		t_free(r.addr);
	expect_all_back();
}

static void pinned(void)
{
	struct rounds n = rounds(6);

	for (; another(&n); n.done++)
		pinned_round(n.done);
	say(&n, "pages pinned past UNMAP, close and rmmod");
}

/* --- random registrations -------------------------------------------------------------------- */

static void registered(void)
{
	struct rounds n = rounds(400);
	struct life l = { .fd = t_open(0), .rand = t_random(&seed, 0) };
	long failed = 0;

	for (; another(&n); n.done++) {
		struct t_region *r = &l.r[t_random(&l.rand, HELD)];

		if (r->p)
			life_drop(&l, r);
		life_take(&l, r);
		failed += !r->p;
		if (r->p && n.done % 64 == 0) {
			t_fill_device(r->addr, 64 * KIB, n.done);
			CHECK(t_host_has(r->p, 64 * KIB, n.done));
		}
	}
	for (int i = 0; i < HELD; i++)
		if (l.r[i].p)
			life_drop(&l, &l.r[i]);
	close(l.fd);
	CHECK_EQ(failed, 0);
	expect_all_back();
	say(&n, "register and deregister");
}

static void learn_bdf(int dev)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	int fd = t_open(dev);

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	strcpy(bdf[dev], q.pci_bdf);
	close(fd);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "killed", killed },
		{ "forked", forked },
		{ "reclaimed", reclaimed },
		{ "unbound", unbound },
		{ "pinned", pinned },
		{ "registered", registered },
		{ 0 }
	};

	char text[16];

	CHECK(argc >= 2);
	disk = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	CHECK(disk >= 0);
	granule = t_granule();
	snprintf(text, sizeof(text), "%d", 5000 * t_slow());
	t_set_parameter("phxfs", "drain_ms", text);
	seed = t_setting("PHX_STORM_SEED", time(NULL));
	printf("PHX_STORM_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	learn_bdf(0);
	learn_bdf(1);
	return t_main(argc - 1, argv + 1, cases);
}
