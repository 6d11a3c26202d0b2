// SPDX-License-Identifier: GPL-2.0-only
/*
 * How device memory may lie in the BAR: in pieces, in any order, misaligned; which struct
 * pages exist meanwhile. Usage: test_layout FILE [CASE...]
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK	(2 * MIB)

static int fd, file;
static bool staging;

static int try_map(uint64_t addr, uint64_t length)
{
	struct t_region r = { .fd = fd, .addr = addr, .length = length };
	int err;

	r.p = t_mmap(fd, length);
	CHECK(r.p);
	err = t_map(&r);
	munmap(r.p, length);
	t_expect_counter(0, "zombie_bytes", 0);
	t_expect_counter(0, "pinned_bytes", 0);
	return err;
}

/* Every block of a region gets its own data: a wrong address shows. */
static void check_blocks(const struct t_region *r)
{
	uint64_t step = 64 * KIB, i;
	char *p = t_aligned(r->length);

	for (i = 0; i < r->length / step; i++)
		t_fill_host(p + i * step, step, i + 1);
	CHECK_EQ(pwrite(file, p, r->length, 0), r->length);
	CHECK_EQ(pread(file, r->p, r->length, 0), r->length);
	for (i = 0; i < r->length / step; i++)
		CHECK(t_device_has(r->addr + i * step, step, i + 1));
	for (i = 0; i < r->length / step; i++)
		t_fill_device(r->addr + i * step, step, i + 1000);
	CHECK_EQ(pwrite(file, r->p, r->length, 0), r->length);
	CHECK_EQ(pread(file, p, r->length, 0), r->length);
	for (i = 0; i < r->length / step; i++)
		CHECK(t_host_has(p + i * step, step, i + 1000));
	free(p);
}

static void layout(unsigned int kind, int pieces)
{
	struct t_region r = t_register(fd, 0, t_alloc(0, 4 * BLOCK, kind), 4 * BLOCK);

	CHECK_EQ(t_pieces(&r), pieces);
	if (staging)
		CHECK_EQ(t_counter(0, "mapped_bytes"), 4 * BLOCK);
	check_blocks(&r);
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

static void one_piece(void)
{
	layout(T_LAYOUT_HUGE, 1);
}

/* Kilobytes of page tables that this process has. */
static long page_tables(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kb = -1;

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmPTE: %ld", &kb);
	fclose(f);
	CHECK(kb >= 0);
	return kb;
}

/* 2 MiB pages are used where they can be, and nowhere else. */
static void huge(void)
{
	bool may = t_parameter("phxfs", "phxfs_huge");
	uint64_t length = 32 * BLOCK;
	long before = page_tables(), more;
	struct t_region r = t_register(fd, 0, t_alloc(0, length, T_LAYOUT_HUGE), length);

	more = page_tables() - before;
	CHECK(may ? more <= 16 : more >= 32 * 4);
	check_blocks(&r);
	/* a block that is cut loses its huge page, its rest stays right */
	t_fill_device(r.addr, length, 5);
	CHECK_EQ(munmap((char *)r.p + BLOCK + 4096, 4096), 0);
	CHECK(t_faults((char *)r.p + BLOCK + 4096));
	CHECK(t_host_has(r.p, BLOCK + 4096, 5));
	CHECK_EQ(madvise(r.p, BLOCK, MADV_DONTNEED), 0);
	CHECK_EQ(mprotect((char *)r.p + 3 * BLOCK, 8192, PROT_READ), 0);
	CHECK(t_host_has(r.p, BLOCK, 5));
	CHECK_EQ(pread(file, (char *)r.p + 3 * BLOCK + 8192, BLOCK, 0), BLOCK);
	CHECK_EQ(munmap(r.p, length), 0);
	t_expect_idle(0);

	/* a mapping that is not congruent with the memory */
	char *room = mmap(NULL, length + BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(room != MAP_FAILED);
	room = (char *)(((uintptr_t)room + BLOCK - 1) & ~(BLOCK - 1)) + 64 * KIB;
	r.length = 4 * BLOCK;
	r.p = mmap(room, r.length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(r.p == room);
	CHECK_EQ(t_map(&r), 0);
	check_blocks(&r);
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

/*
 * Where the kernel tracks writes (a checkpoint does), a huge page goes in unwritable: the
 * first write, and the first transfer, must end all the same.
 */
static void tracked_writes(void)
{
	struct t_region r = t_register(fd, 0, t_alloc(0, 4 * BLOCK, T_LAYOUT_HUGE), 4 * BLOCK);
	int refs = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	bool tracked = refs >= 0 && write(refs, "4", 1) == 1;

	alarm(60 * t_slow());
	t_fill_device(r.addr, r.length, 6);
	CHECK_EQ(madvise(r.p, r.length, MADV_DONTNEED), 0);
	CHECK_EQ(pread(file, (char *)r.p + BLOCK, BLOCK, 0), BLOCK);
	*(volatile char *)r.p = 1;
	CHECK_EQ(mprotect(r.p, r.length, PROT_READ), 0);
	CHECK_EQ(mprotect(r.p, r.length, PROT_READ | PROT_WRITE), 0);
	((volatile char *)r.p)[3 * BLOCK] = 1;
	check_blocks(&r);
	alarm(0);
	if (!tracked)
		printf("this kernel does not track writes\n");
	if (refs >= 0)
		close(refs);
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

/* A mapping that had small pages takes memory that could have huge ones. */
static void small_then_huge(void)
{
	uint64_t pieces = t_alloc(0, 8 * BLOCK, T_LAYOUT_FRAGMENTED);
	uint64_t whole = t_alloc(0, 8 * BLOCK, T_LAYOUT_HUGE);
	struct t_region r = { .fd = fd, .addr = pieces, .length = 8 * BLOCK };

	r.p = t_mmap(fd, r.length);
	CHECK(r.p);
	for (int i = 0; i < 4; i++) {
		bool fits = i % 2 || !staging;

		r.addr = i % 2 ? whole : pieces;
		CHECK_EQ(t_map(&r), fits ? 0 : -EINVAL);
		if (!fits)
			continue;
		check_blocks(&r);
		CHECK_EQ(t_unmap(&r), 0);
	}
	CHECK_EQ(munmap(r.p, r.length), 0);
	t_free(pieces);
	t_free(whole);
	t_expect_idle(0);
}

static void sub_spans(void)
{
	layout(T_LAYOUT_SUBSPANS, 4);
	layout(T_LAYOUT_REVERSED, 4);
}

static void fragmented(void)
{
	uint64_t addr = t_alloc(0, 2 * BLOCK, T_LAYOUT_FRAGMENTED);

	if (staging) {
		CHECK_EQ(try_map(addr, 2 * BLOCK), -EINVAL);
		t_expect_idle(0);
		t_free(addr);
		return;
	}
	t_free(addr);
	layout(T_LAYOUT_FRAGMENTED, 4 * BLOCK / (64 * KIB));
}

static void misaligned(void)
{
	uint64_t addr = t_alloc(0, 2 * BLOCK, T_LAYOUT_MISALIGNED);

	if (staging)
		CHECK_EQ(try_map(addr, 2 * BLOCK), -EINVAL);
	t_expect_idle(0);
	t_free(addr);
	if (!staging)
		layout(T_LAYOUT_MISALIGNED, 1);
}

/* STAGING: a piece must be whole, wherever the registration cuts it. */
static void cut_pieces(void)
{
	uint64_t addr = t_alloc(0, 4 * BLOCK, T_LAYOUT_SUBSPANS);
	int want = staging ? -EINVAL : 0;

	CHECK_EQ(try_map(addr, 64 * KIB), want);
	CHECK_EQ(try_map(addr, BLOCK + 64 * KIB), want);
	CHECK_EQ(try_map(addr + 64 * KIB, BLOCK), want);
	CHECK_EQ(try_map(addr + BLOCK - 64 * KIB, 64 * KIB), want);
	CHECK_EQ(try_map(addr + BLOCK, BLOCK), 0);
	CHECK_EQ(try_map(addr + BLOCK, 3 * BLOCK), 0);
	t_free(addr);
	t_expect_idle(0);
}

/* STAGING: registrations that overlap share struct pages, each ends them for nobody else. */
static void shared_spans(void)
{
	uint64_t addr = t_alloc(0, 8 * BLOCK, T_LAYOUT_HUGE);
	struct t_region low = t_register(fd, 0, addr, 4 * BLOCK), high, all;
	long long mapped = t_counter(0, "mapped_bytes");

	high = t_register(fd, 0, addr + 2 * BLOCK, 4 * BLOCK);
	if (staging) {
		CHECK_EQ(mapped, 4 * BLOCK);
		CHECK_EQ(t_counter(0, "mapped_bytes"), 6 * BLOCK);
	}
	all = t_register(fd, 0, addr, 8 * BLOCK);
	check_blocks(&high);
	t_unregister(&low);
	check_blocks(&high);
	check_blocks(&all);
	t_unregister(&high);
	check_blocks(&all);
	if (staging)
		CHECK_EQ(t_counter(0, "mapped_bytes"), 8 * BLOCK);
	t_unregister(&all);
	t_free(addr);
	t_expect_idle(0);
}

/* Random lengths at random places; what is live stays right. */
static void churn(void)
{
	enum { SLOTS = 12 };
	/* struct pages come and go with each in STAGING; the storms go on for longer */
	const int rounds = staging ? 100 : 400;
	uint64_t base = t_alloc(0, 32 * BLOCK, T_LAYOUT_SUBSPANS);
	struct t_region r[SLOTS] = { 0 };

	t_fill_device(base, 32 * BLOCK, 9);
	for (int i = 0; i < rounds; i++) {
		struct t_region *one = &r[rand() % SLOTS];
		uint64_t blocks = 1 + rand() % 6, at = rand() % (32 - blocks);

		if (one->p)
			t_unregister(one);
		*one = t_register(fd, 0, base + at * BLOCK, blocks * BLOCK);
		CHECK(!t_faults((char *)one->p + one->length - 1));
	}
	for (int i = 0; i < SLOTS; i++)
		if (r[i].p)
			t_unregister(&r[i]);
	CHECK(t_device_has(base, 32 * BLOCK, 9));
	t_free(base);
	t_expect_idle(0);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "one-piece", one_piece },
		{ "huge", huge },
		{ "tracked-writes", tracked_writes },
		{ "small-then-huge", small_then_huge },
		{ "sub-spans", sub_spans },
		{ "fragmented", fragmented },
		{ "misaligned", misaligned },
		{ "cut-pieces", cut_pieces },
		{ "shared-spans", shared_spans },
		{ "churn", churn },
		{ 0 }
	};

	CHECK(argc >= 2);
	file = open(argv[1], O_RDWR | O_DIRECT | O_CLOEXEC);
	CHECK(file >= 0);
	fd = t_open(0);
	staging = t_is_staging();
	return t_main(argc - 1, argv + 1, cases);
}
