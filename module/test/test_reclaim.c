// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that the vendor's driver takes back: idle, under transfers, in the middle of MAP,
 * against UNMAP and munmap, in atomic context, and when transfers do not end in time.
 * Usage: test_reclaim DISK [CASE...]; the disk is read only. Sets persistent=N itself.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t granule;
static int fd, disk;

static struct t_region fresh(uint64_t length)
{
	return t_register(fd, 0, t_alloc(0, length, T_LAYOUT_HUGE), length);
}

static void drain_within(int ms)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", ms);
	t_set_parameter("phxfs", "drain_ms", text);
}

static void expect_dead(const struct t_region *r)
{
	CHECK_EQ(t_state(r), PHXFS_REGION_RECLAIMED);
	CHECK(t_faults(r->p));
	CHECK(pread(disk, r->p, 4096, 0) < 0 && errno == EFAULT);
	CHECK_EQ(t_counter(0, "pinned_bytes"), 0);
	CHECK_EQ(t_map(r), -EEXIST);
}

static void idle(void)
{
	struct t_region r = fresh(granule);
	long long reclaims = t_counter(0, "reclaims");

	CHECK_EQ(t_features(&r), PHXFS_F_RECLAIM);
	CHECK_EQ(t_reclaim(0, r.addr), 1);
	CHECK_EQ(t_counter(0, "reclaims"), reclaims + 1);
	expect_dead(&r);
	t_expect_idle(0);		/* the pin is gone though nobody unregistered */
	CHECK_EQ(t_unmap(&r), 0);
	CHECK_EQ(t_state(&r), PHXFS_REGION_EMPTY);
	CHECK_EQ(t_map(&r), 0);		/* the memory is still there: again */
	CHECK(!t_faults(r.p));
	CHECK_EQ(t_reclaim(0, r.addr), 1);
	CHECK_EQ(munmap(r.p, r.length), 0);
	t_free(r.addr);
	t_expect_idle(0);
}

/* free, then deregister; a new allocation shows new data */
static void freed_first(void)
{
	for (int i = 0; i < 50; i++) {
		struct t_region r = fresh(granule);

		t_fill_device(r.addr, granule, i);
		t_free(r.addr);
		expect_dead(&r);
		CHECK_EQ(t_unmap(&r), 0);
		munmap(r.p, r.length);
		r.addr = t_alloc(0, granule, T_LAYOUT_HUGE);
		t_fill_device(r.addr, granule, i + 1000);
		r = t_register(fd, 0, r.addr, granule);
		CHECK(t_host_has(r.p, 4096, i + 1000));
		t_unregister(&r);
		t_free(r.addr);
	}
	t_expect_idle(0);
}

struct reader {
	pthread_t thread;
	const struct t_region *r;
	uint64_t at, length;	/* its own part: two DMAs into one page are an error of ours */
	volatile bool stop;
	long done;
	long refused;
};

static void *read_on(void *arg)
{
	struct reader *me = arg;

	while (!me->stop) {
		long got = pread(disk, (char *)me->r->p + me->at, me->length, 0);

		if (got == (long)me->length)
			me->done++;
		else if (got < 0 && errno == EFAULT)
			me->refused++;
		else if (got < 0)
			t_fail(__FILE__, __LINE__, "pread: %s", strerror(errno));
	}
	return NULL;
}

static void start_readers(struct reader *readers, int n, const struct t_region *r)
{
	uint64_t part = r->length / n & ~4095ull;

	for (int i = 0; i < n; i++) {
		readers[i] = (struct reader){ .r = r, .at = i * part, .length = part };
		CHECK(!pthread_create(&readers[i].thread, NULL, read_on, &readers[i]));
	}
}

static long stop_readers(struct reader *readers, int n)
{
	long done = 0;

	for (int i = 0; i < n; i++) {
		readers[i].stop = true;
		pthread_join(readers[i].thread, NULL);
		done += readers[i].done;
	}
	return done;
}

/* When reclaim has returned, nothing may write into the memory any more. */
static void under_transfers(void)
{
	long done = 0;

	for (int i = 0; i < 20; i++) {
		struct reader readers[3];
		struct t_region r = fresh(2 * MIB);

		start_readers(readers, 3, &r);
		usleep(20000 + i * 1000);
		CHECK_EQ(t_reclaim(0, r.addr), 1);
		t_fill_device(r.addr, r.length, i);
		usleep(5000);
		done += stop_readers(readers, 3);
		CHECK(t_device_has(r.addr, r.length, i));
		CHECK_EQ(t_unmap(&r), 0);
		munmap(r.p, r.length);
		t_free(r.addr);
	}
	CHECK(done > 0);
	CHECK_EQ(t_counter(0, "reclaim_timeouts"), 0);
	t_expect_idle(0);
}

static void during_map(void)
{
	struct t_region r = { .fd = fd, .length = granule };

	r.addr = t_alloc(0, granule, T_LAYOUT_HUGE);
	r.p = t_mmap(fd, granule);
	for (int i = 0; i < 10; i++) {
		t_fault(0, T_FAULT_PIN_RECLAIM, 0, 1, 0);
		CHECK_EQ(t_map(&r), -EFAULT);
		t_expect_idle(0);
		CHECK_EQ(t_state(&r), PHXFS_REGION_EMPTY);
	}
	CHECK_EQ(t_map(&r), 0);
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

struct mapper {
	pthread_t thread;
	struct t_region r;
	uint64_t at;		/* its own part, as a reader's */
	volatile bool stop;
	long mapped;
	long lost;
};

static void *map_on(void *arg)
{
	struct mapper *me = arg;

	while (!me->stop) {
		int err;

		me->r.p = t_mmap(fd, me->r.length);
		CHECK(me->r.p);
		err = t_map(&me->r);
		if (err)
			CHECK_EQ(err, -EFAULT);
		if (!err) {
			(void)!pread(disk, (char *)me->r.p + me->at, 64 * KIB, 0);
			if (me->mapped % 3)
				CHECK_EQ(t_unmap(&me->r), 0);
		}
		err ? me->lost++ : me->mapped++;
		munmap(me->r.p, me->r.length);
	}
	return NULL;
}

/* MAP, UNMAP, munmap and transfers of the same memory against reclaim, at random moments. */
static void racing_map(void)
{
	uint64_t addr = t_alloc(0, 4 * MIB, T_LAYOUT_HUGE);
	long long end = t_now_ms() + 4000, timeouts = t_counter(0, "reclaim_timeouts");
	struct mapper mappers[3];
	long reclaimed = 0, mapped = 0, lost = 0;

	for (int i = 0; i < 3; i++) {
		mappers[i] = (struct mapper){
			.r = { .fd = fd, .addr = addr, .length = 4 * MIB },
			.at = i * MIB,
		};
		CHECK(!pthread_create(&mappers[i].thread, NULL, map_on, &mappers[i]));
	}
	while (t_now_ms() < end) {
		reclaimed += t_reclaim(0, addr);
		usleep(rand() % 3000);
	}
	for (int i = 0; i < 3; i++) {
		mappers[i].stop = true;
		pthread_join(mappers[i].thread, NULL);
		mapped += mappers[i].mapped;
		lost += mappers[i].lost;
	}
	printf("%ld mapped, %ld lost to %ld reclaims\n", mapped, lost, reclaimed);
	CHECK(mapped > 0);
	CHECK(reclaimed > 0);
	CHECK_EQ(t_counter(0, "reclaim_timeouts"), timeouts);
	t_free(addr);
	t_expect_idle(0);
}

static void *reclaim_thread(void *arg)
{
	t_reclaim(0, *(uint64_t *)arg);
	return NULL;
}

/* The driver has begun to take the memory back; UNMAP, or munmap, comes before its call. */
static void racing_unmap(void)
{
	for (int i = 0; i < 6; i++) {
		struct t_region r = fresh(granule);
		pthread_t thread;

		t_fault(0, T_FAULT_RECLAIM_DELAY, 0, 1, 100);
		CHECK(!pthread_create(&thread, NULL, reclaim_thread, &r.addr));
		usleep(30000);
		if (i % 2)
			CHECK_EQ(t_unmap(&r), 0);
		CHECK_EQ(munmap(r.p, r.length), 0);
		pthread_join(thread, NULL);
		t_expect_idle(0);
		t_free(r.addr);
	}
}

static void *let_go_later(void *arg)
{
	usleep(300000);
	t_let_go(arg);
	return NULL;
}

/* The driver is kept waiting until the transfer has ended, and no longer. */
static void waits_for_transfer(void)
{
	struct t_region r = fresh(granule);
	struct t_held h = t_hold(r.p, 16384);
	long long before = t_now_ms(), took;
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, let_go_later, &h));
	CHECK_EQ(t_reclaim(0, r.addr), 1);
	took = t_now_ms() - before;
	pthread_join(thread, NULL);
	CHECK(took >= 250 && took < 3000 * t_slow());
	CHECK_EQ(t_counter(0, "reclaim_timeouts"), 0);
	t_expect_idle(0);
	CHECK_EQ(t_unmap(&r), 0);
	munmap(r.p, r.length);
	t_free(r.addr);
}

/* A transfer that does not end in time: the memory is poisoned until it does. */
static void transfer_outlasts(void)
{
	struct t_region r = fresh(2 * granule), again;
	struct t_held h = t_hold((char *)r.p + granule, 4096);
	long long before = t_now_ms(), timeouts = t_counter(0, "reclaim_timeouts"), took;

	drain_within(200);
	CHECK_EQ(t_reclaim(0, r.addr), 1);
	drain_within(5000 * t_slow());
	took = t_now_ms() - before;
	CHECK(took >= 200 && took < 2000 * t_slow());
	CHECK_EQ(t_counter(0, "reclaim_timeouts"), timeouts + 1);
	CHECK_EQ(t_counter(0, "zombie_bytes"), 2 * granule);
	expect_dead(&r);

	again = r;
	again.length = granule;
	again.addr += granule;
	again.p = t_mmap(fd, granule);
	CHECK_EQ(t_map(&again), -EBUSY);
	CHECK_EQ(t_unmap(&r), 0);
	CHECK_EQ(t_state(&r), PHXFS_REGION_DRAINING);
	CHECK_EQ(t_map(&r), -EBUSY);
	CHECK_EQ(t_unmap(&r), -ENOENT);
	t_let_go(&h);
	t_expect_idle(0);
	CHECK_EQ(t_state(&r), PHXFS_REGION_EMPTY);
	CHECK_EQ(t_map(&again), 0);
	t_unregister(&again);
	munmap(r.p, r.length);
	t_free(r.addr);
	t_expect_idle(0);
}

/* Two registrations of one allocation: neither callback waits for the other's mapping. */
static void twice_registered(void)
{
	struct t_region a = fresh(granule), b = t_register(fd, 0, a.addr, granule);
	long long before = t_now_ms();

	CHECK_EQ(t_reclaim(0, a.addr), 2);
	CHECK(t_now_ms() - before < 2000 * t_slow());
	CHECK_EQ(t_counter(0, "reclaim_timeouts"), 0);
	expect_dead(&a);
	expect_dead(&b);
	CHECK_EQ(t_unmap(&a), 0);
	CHECK_EQ(t_unmap(&b), 0);
	munmap(a.p, granule);
	munmap(b.p, granule);
	t_free(a.addr);
	t_expect_idle(0);
}

static void atomic_context(void)
{
	struct t_region r = fresh(granule);

	t_fault(0, T_FAULT_RECLAIM_ATOMIC, 0, 1, 0);
	CHECK_EQ(t_reclaim(0, r.addr), 1);
	for (int i = 0; i < 500 && t_state(&r) != PHXFS_REGION_RECLAIMED; i++)
		usleep(10000);
	expect_dead(&r);
	t_expect_idle(0);
	CHECK_EQ(t_unmap(&r), 0);
	munmap(r.p, granule);
	t_free(r.addr);
}

/* UNMAP while a transfer is under way: the pin outlives the registration, not the transfer. */
static void unmap_under_transfer(void)
{
	struct t_region r = fresh(granule), other;
	struct t_held h = t_hold(r.p, 4096);

	CHECK_EQ(t_unmap(&r), 0);
	CHECK_EQ(t_state(&r), PHXFS_REGION_DRAINING);
	CHECK_EQ(t_counter(0, "zombie_bytes"), granule);
	CHECK_EQ(t_counter(0, "regions"), 0);
	/* the memory may be registered anew meanwhile: no harm was done to it */
	other = t_register(fd, 0, r.addr, granule);
	t_unregister(&other);
	CHECK_EQ(munmap(r.p, granule), 0);
	usleep(200000);
	CHECK(t_counter(0, "zombie_bytes") >= (long long)granule);
	t_let_go(&h);
	t_expect_idle(0);
	t_free(r.addr);
}

/* A driver that refuses to unpin at first. */
static void unpin_fails(void)
{
	struct t_region r = fresh(granule);

	t_fault(0, T_FAULT_PUT, 0, 2, EBUSY);
	t_unregister(&r);
	t_expect_idle(0);
	t_free(r.addr);
}

/* Tables that no sane driver would report, and refusals. */
static void bad_tables(void)
{
	static const struct {
		unsigned int kind;
		int64_t arg;
		int want;
	} faults[] = {
		{ T_FAULT_PIN, ENOMEM, -ENOMEM },
		{ T_FAULT_PIN, EINVAL, -EINVAL },
		{ T_FAULT_PIN_SILENT, 0, -EIO },
		{ T_FAULT_PIN_OUTSIDE, 3, -ENXIO },
		{ T_FAULT_PIN_UNALIGNED, 1, -EINVAL },	/* STAGING; FULL takes any page */
		{ T_FAULT_PIN_NULL, 2, -ENOMEM },
		{ T_FAULT_PIN_SHORT, 1, -EIO },
		{ T_FAULT_PIN_VERSION, 0x00030000, -EOPNOTSUPP },
		{ T_FAULT_PIN_PAGE_SIZE, 3000, -EIO },
		{ T_FAULT_PIN_PAGE_SIZE, 2048, -EIO },
		{ T_FAULT_PIN_PAGE_SIZE, 4096, -EIO },
	};
	struct t_region r = { .fd = fd, .length = 2 * MIB };

	r.addr = t_alloc(0, r.length, T_LAYOUT_HUGE);
	r.p = t_mmap(fd, r.length);
	for (unsigned int i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		if (faults[i].kind == T_FAULT_PIN_UNALIGNED && !t_is_staging())
			continue;
		t_fault(0, faults[i].kind, 0, 1, faults[i].arg);
		CHECK_EQ(t_map(&r), faults[i].want);
		CHECK_EQ(t_state(&r), PHXFS_REGION_EMPTY);
		t_expect_idle(0);
	}
	CHECK_EQ(t_map(&r), 0);
	t_unregister(&r);
	t_free(r.addr);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "idle", idle },
		{ "freed-first", freed_first },
		{ "under-transfers", under_transfers },
		{ "during-map", during_map },
		{ "racing-map", racing_map },
		{ "racing-unmap", racing_unmap },
		{ "waits-for-transfer", waits_for_transfer },
		{ "twice-registered", twice_registered },
		{ "unmap-under-transfer", unmap_under_transfer },
		{ "unpin-fails", unpin_fails },
		{ "bad-tables", bad_tables },
		{ "transfer-outlasts", transfer_outlasts },
		{ "atomic-context", atomic_context },
		{ 0 }
	};

	CHECK(argc >= 2);
	disk = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
	CHECK(disk >= 0);
	t_set_parameter("phxfs_sim", "persistent", "N");
	drain_within(5000 * t_slow());
	fd = t_open(0);
	granule = t_granule();
	return t_main(argc - 1, argv + 1, cases);
}
