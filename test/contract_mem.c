// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of registrations, device memory and pointers. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "t_fuse.h"

static struct phxfs_stats stats(int device)
{
	struct phxfs_stats s = { .size = sizeof(s) };

	T_EQ(phxfs_stats(device, &s), 0);
	return s;
}

static void registrations_keep_the_64_kib_rules(void)
{
	struct t_region r;
	void *target = (void *)1;

	t_map(&r, 0, 8 * T_PAGE);
	T_EQ(phxfs_regmem(0, r.p, T_PAGE, &target), -ENODEV); /* not open */
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_regmem(0, NULL, T_PAGE, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p, 0, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p + 1, T_PAGE, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p + 4096, T_PAGE, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p, T_PAGE - 1, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p, T_PAGE + 4096, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p, 1, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, (void *)-T_PAGE, 2 * T_PAGE, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p, -T_PAGE, &target), -EINVAL);
	T_EQ(phxfs_regmem(0, r.p, SIZE_MAX & ~(T_PAGE - 1), &target), -EINVAL);
	T_CHECK(target == (void *)1);
	T_EQ(stats(0).registrations, 0);
	T_EQ(phxfs_regmem(0, r.p, T_PAGE, &target), 0);
	t_target(&r, target);
	T_EQ(phxfs_regmem(0, r.p + T_PAGE, T_PAGE, NULL), 0);
	T_EQ(stats(0).registrations, 2);
	T_EQ(stats(0).registered_bytes, 2 * T_PAGE);
	T_EQ(phxfs_close(0), 0);
}

static void memory_that_is_not_there_cannot_be_registered(void)
{
	struct t_region r;

	T_EQ(phxfs_open(0), 0);
	t_map(&r, 0, 4 * T_PAGE);
	T_EQ(munmap(r.p + 2 * T_PAGE, 4096), 0); /* a hole of one page */
	T_EQ(phxfs_regmem(0, r.p, 4 * T_PAGE, NULL), -EFAULT);
	T_EQ(phxfs_regmem(0, r.p + 2 * T_PAGE, T_PAGE, NULL), -EFAULT);
	T_EQ(phxfs_regmem(0, (void *)T_PAGE, T_PAGE, NULL), -EFAULT);
	T_CHECK(strstr(phxfs_last_error(), "EFAULT"));
	T_EQ(stats(0).registrations, 0);
	T_EQ(phxfs_regmem(0, r.p, 2 * T_PAGE, NULL), 0);
	T_EQ(phxfs_close(0), 0);
}

/* Beyond the end of an allocation, or nothing at all. */
static void what_is_no_memory_of_the_device_cannot_be_registered(void)
{
	struct t_region host;
	uint8_t *p;

	if (t_on_host())
		t_skip("any memory is a HOST device's");
	T_EQ(phxfs_open(0), 0);
	p = t_alloc(0, 4 * T_PAGE);
	t_map(&host, -1, T_PAGE);
	T_EQ(phxfs_regmem(0, host.p, T_PAGE, NULL), -EFAULT);
	T_EQ(phxfs_regmem(0, p, 5 * T_PAGE, NULL), -EFAULT);
	T_EQ(phxfs_regmem(0, p + 3 * T_PAGE, 2 * T_PAGE, NULL), -EFAULT);
	T_EQ(phxfs_regmem(0, (void *)T_PAGE, T_PAGE, NULL), -EFAULT);
	T_CHECK(strstr(phxfs_last_error(), "EFAULT"));
	T_EQ(stats(0).registrations, 0);
	T_EQ(phxfs_regmem(0, p, 4 * T_PAGE, NULL), 0);
	T_EQ(phxfs_close(0), 0);
	t_free(0, p);
	t_unmap(&host);
}

static void an_exact_duplicate_is_counted(void)
{
	int fd = t_file("f", T_PAGE, 1, O_RDONLY);
	struct t_region r;

	t_region(&r, 0, 2 * T_PAGE);
	for (int i = 0; i < 2; i++) {
		void *target = NULL;

		T_EQ(phxfs_regmem(0, r.p, r.len, &target), 0);
		t_target(&r, target);
	}
	T_EQ(stats(0).registrations, 1);
	T_EQ(stats(0).registered_bytes, 2 * T_PAGE);
	for (int i = 0; i < 3; i++) {
		T_EQ(phxfs_read(fd, 0, r.p, 0, T_PAGE, 0), T_PAGE);
		T_EQ(phxfs_deregmem(0, r.p, r.len), 0);
	}
	T_EQ(phxfs_read(fd, 0, r.p, 0, T_PAGE, 0), -EFAULT);
	T_EQ(phxfs_deregmem(0, r.p, r.len), -EINVAL);
	T_EQ(stats(0).registrations, 0);
	T_EQ(phxfs_close(0), 0);
}

static void any_other_overlap_is_refused(void)
{
	struct t_region r;
	uint8_t *mid;

	t_map(&r, 0, 16 * T_PAGE);
	mid = r.p + 4 * T_PAGE;
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_regmem(0, mid, 4 * T_PAGE, NULL), 0);
	for (size_t from = 0; from < 12; from++) {
		for (size_t n = 1; from + n <= 12; n++) {
			bool overlaps = from < 8 && from + n > 4;
			bool same = from == 4 && n == 4;
			int rc = phxfs_regmem(0, r.p + from * T_PAGE, n * T_PAGE, NULL);

			t_context("pages %zu to %zu over 4 to 8", from, from + n);
			T_EQ(rc, overlaps && !same ? -EINVAL : 0);
			/* what was refused left nothing, what was granted goes */
			T_EQ(phxfs_deregmem(0, r.p + from * T_PAGE, n * T_PAGE), rc);
			T_EQ(stats(0).registrations, 1);
		}
	}
	T_EQ(phxfs_deregmem(0, mid, 4 * T_PAGE), 0);
	T_EQ(phxfs_close(0), 0);
}

static void deregistration_needs_the_exact_range(void)
{
	struct t_region r;

	t_region(&r, 0, 4 * T_PAGE);
	T_EQ(phxfs_deregmem(0, r.p, 3 * T_PAGE), -EINVAL);
	T_EQ(phxfs_deregmem(0, r.p + T_PAGE, 3 * T_PAGE), -EINVAL);
	T_EQ(phxfs_deregmem(0, r.p, 5 * T_PAGE), -EINVAL);
	T_EQ(phxfs_deregmem(0, r.p + T_PAGE, T_PAGE), -EINVAL);
	T_EQ(phxfs_deregmem(0, NULL, 0), -EINVAL);
	T_EQ(phxfs_deregmem(0, r.p, 0), -EINVAL);
	T_EQ(phxfs_deregmem(0, r.p + 1, 4 * T_PAGE), -EINVAL);
	T_CHECK(strstr(phxfs_last_error(), "EINVAL"));
	t_region_free(&r);
}

static void deregistration_waits_for_transfers(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	int fd = t_fuse_open(fs, O_RDONLY), other = t_file("f", T_PAGE, 1, O_RDONLY);
	struct t_call transfer, dereg, rereg;
	struct t_transfer x;
	struct t_region r;

	t_region(&r, 0, T_MIB);
	x = (struct t_transfer){ .fd = fd, .buf = r.p, .len = T_MIB };
	t_fuse_hold(fs);
	t_call(&transfer, t_transfer, &x);
	t_fuse_held(fs, 1);
	t_call(&dereg, t_deregister, &r);
	/* refused from the moment of the call, in every form */
	T_WAIT(!t_registered(other, 0, r.p));
	T_EQ(phxfs_read(other, 0, r.p, 0, T_PAGE, 0), -EFAULT);
	T_STILL_RUNNING(&dereg);
	T_EQ(phxfs_readv(other, 0, &(struct phxfs_iov){ r.p, T_PAGE }, 1, 0), -EFAULT);
	T_EQ(phxfs_deregmem(0, r.p, r.len), -EINVAL);
	/* the same range again waits for the old one to be gone */
	t_call(&rereg, t_reregister, &r);
	T_STILL_RUNNING(&rereg);
	T_CHECK(!dereg.done && !transfer.done);
	t_fuse_release(fs);
	T_EQ(t_join(&transfer), T_MIB);
	T_EQ(t_join(&dereg), 0);
	T_EQ(t_join(&rereg), 0);
	T_PATTERN(r.p, T_MIB, 7, 0);
	T_EQ(phxfs_read(other, 0, r.p, 0, T_PAGE, 0), T_PAGE);
	t_region_free(&r);
}

static void dropping_a_duplicate_does_not_wait(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	int fd = t_fuse_open(fs, O_RDONLY);
	struct t_transfer x;
	struct t_call transfer;
	struct t_region r;

	t_region(&r, 0, T_MIB);
	T_EQ(phxfs_regmem(0, r.p, r.len, NULL), 0);
	x = (struct t_transfer){ .fd = fd, .buf = r.p, .len = T_MIB };
	t_fuse_hold(fs);
	t_call(&transfer, t_transfer, &x);
	t_fuse_held(fs, 1);
	T_EQ(phxfs_deregmem(0, r.p, r.len), 0);
	T_CHECK(!transfer.done);
	t_fuse_release(fs);
	T_EQ(t_join(&transfer), T_MIB);
	t_region_free(&r);
}

/* Once deregistered, nothing moves into the buffer any more. */
static void nothing_moves_after_deregistration(void)
{
	int fd = t_file("f", 4 * T_MIB, 1, O_RDONLY);

	for (long round = t_scale(60); round > 0; round--) {
		struct t_transfer x = { .fd = fd, .len = 4 * T_MIB };
		struct t_call transfer;
		struct t_region r;
		long got;

		t_region(&r, 0, 4 * T_MIB);
		x.buf = r.p;
		t_call(&transfer, t_transfer, &x);
		if (round % 3)
			t_sleep_ms(round % 3 - 1);
		T_EQ(phxfs_deregmem(0, r.p, r.len), 0);
		t_set(r.p, 0x5a, r.len);
		got = t_join(&transfer);
		T_CHECK(got == -EFAULT || got == 4 * (long)T_MIB);
		T_ALL(r.p, r.len, 0x5a);
		t_unmap(&r);
		T_EQ(phxfs_close(0), 0);
	}
}

static void threads_share_one_registration(void)
{
	struct t_call calls[8];
	struct t_region r;

	T_EQ(phxfs_open(0), 0);
	t_map(&r, 0, T_MIB);
	r.device = 0;
	for (long round = t_scale(100); round > 0; round--) {
		for (int i = 0; i < 8; i++)
			t_call(&calls[i], t_reregister, &r);
		for (int i = 0; i < 8; i++)
			T_EQ(t_join(&calls[i]), 0);
		T_EQ(stats(0).registrations, 1);
		for (int i = 0; i < 8; i++)
			t_call(&calls[i], t_deregister, &r);
		for (int i = 0; i < 8; i++)
			T_EQ(t_join(&calls[i]), 0);
		T_EQ(stats(0).registrations, 0);
		T_EQ(phxfs_deregmem(0, r.p, r.len), -EINVAL);
	}
	T_EQ(phxfs_close(0), 0);
}

static void a_transfer_stays_inside_one_registration(void)
{
	int rd = t_file("f", T_MIB, 1, O_RDONLY), wr = t_open("g", O_RDWR | O_CREAT);
	struct t_region r;

	T_EQ(phxfs_open(0), 0);
	t_map(&r, 0, 16 * T_PAGE);
	/* two that touch, one apart */
	T_EQ(phxfs_regmem(0, r.p + T_PAGE, T_PAGE, NULL), 0);
	T_EQ(phxfs_regmem(0, r.p + 2 * T_PAGE, T_PAGE, NULL), 0);
	T_EQ(phxfs_regmem(0, r.p + 4 * T_PAGE, T_PAGE, NULL), 0);
	for (size_t at = 0; at < 6 * T_PAGE; at += T_PAGE / 2) {
		for (size_t n = T_PAGE / 2; n <= 3 * T_PAGE; n += T_PAGE / 2) {
			size_t first = at / T_PAGE, last = (at + n - 1) / T_PAGE;
			bool good = first == last && (first == 1 || first == 2 || first == 4);
			ssize_t want = good ? (ssize_t)n : -EFAULT;

			t_context("%zu bytes at +%zu", n, at);
			T_EQ(phxfs_read(rd, 0, r.p + at, 0, (ssize_t)n, 0), want);
			T_EQ(phxfs_write(wr, 0, r.p + at, 0, (ssize_t)n, 0), want);
			/* named from elsewhere: the sum counts, not where buf points */
			T_EQ(phxfs_read(rd, 0, r.p, (off_t)at, (ssize_t)n, 0), want);
			if (!good)
				continue;
			T_PATTERN(r.p + at, n, 1, 0);
			t_set(r.p + at, T_GUARD, n);
		}
	}
	T_ALL(r.p, r.len, T_GUARD);
	T_EQ(phxfs_close(0), 0);
}

static void sizes_and_offsets_that_wrap_are_invalid(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDWR);
	struct t_region r;

	t_region(&r, 0, 4 * T_PAGE);
	for (int device = -1; device <= 0; device++) {
		t_context("device %d", device);
		T_EQ(phxfs_read(fd, device, r.p, 0, -1, 0), -EINVAL);
		T_EQ(phxfs_read(fd, device, r.p, 0, INT64_MIN, 0), -EINVAL);
		T_EQ(phxfs_read(fd, device, r.p, -1, 100, 0), -EINVAL);
		T_EQ(phxfs_read(fd, device, r.p, INT64_MIN, 100, 0), -EINVAL);
		T_EQ(phxfs_read(fd, device, r.p, 0, 100, -1), -EINVAL);
		T_EQ(phxfs_read(fd, device, r.p, 0, 100, INT64_MIN), -EINVAL);
		T_EQ(phxfs_read(fd, device, r.p, 0, 100, INT64_MAX - 50), -EINVAL);
		T_EQ(phxfs_write(fd, device, r.p, 0, -1, 0), -EINVAL);
		T_EQ(phxfs_write(fd, device, r.p, -1, 100, 0), -EINVAL);
		T_EQ(phxfs_write(fd, device, r.p, 0, 100, -1), -EINVAL);
		T_EQ(phxfs_write(fd, device, r.p, 0, 100, INT64_MAX - 50), -EINVAL);
		/* the address itself wraps */
		T_ONE_OF(phxfs_read(fd, device, r.p, INT64_MAX, INT64_MAX, 0), -EFAULT, -EINVAL);
		T_ONE_OF(phxfs_read(fd, device, (void *)-4096L, 4096, 100, 0), -EFAULT, -EINVAL);
	}
	T_EQ(phxfs_read(fd, 0, r.p, INT64_MAX, 100, 0), -EFAULT);
	T_EQ(phxfs_read(fd, 0, r.p, 0, INT64_MAX, 0), -EFAULT);
	T_ALL(r.p, r.len, T_GUARD);
	T_EQ(t_size(fd), T_MIB);
	t_file_pattern(fd, 0, T_MIB, 1, 0);
	t_region_free(&r);
}

static void device_memory_is_64_kib_aligned_and_whole(void)
{
	static const size_t lens[] = { 1, 4096, 65535, 65536, 65537, 3 * 65536, 5000000 };
	uint8_t *p[7];

	for (int i = 0; i < 7; i++) {
		p[i] = t_alloc(0, lens[i]);
		T_EQ((uintptr_t)p[i] % T_PAGE, 0);
		t_set(p[i], i, (lens[i] + T_PAGE - 1) / T_PAGE * T_PAGE);
	}
	for (int i = 0; i < 7; i++) {
		size_t whole = (lens[i] + T_PAGE - 1) / T_PAGE * T_PAGE;

		T_ALL(p[i], whole, i);
		T_EQ(phxfs_pointer_device(p[i]), 0);
		T_EQ(phxfs_pointer_device(p[i] + whole - 1), 0);
		t_free(0, p[i]);
		T_EQ(phxfs_pointer_device(p[i]), -ENOENT);
		T_EQ(phxfs_mem_free(0, p[i]), -EINVAL);
	}
}

static void device_memory_errors_are_the_documented_ones(void)
{
	static int plain;
	void *p = (void *)1, *q;

	T_EQ(phxfs_mem_alloc(0, 0, &p), -EINVAL);
	T_EQ(phxfs_mem_alloc(0, 1, NULL), -EINVAL);
	T_EQ(phxfs_mem_alloc(0, SIZE_MAX, &p), -ENOMEM);
	T_EQ(phxfs_mem_alloc(0, SIZE_MAX - T_PAGE, &p), -ENOMEM);
	T_EQ(phxfs_mem_alloc(0, SIZE_MAX / 2, &p), -ENOMEM);
	T_CHECK(p == (void *)1);
	T_EQ(phxfs_mem_free(0, NULL), 0);
	T_EQ(phxfs_mem_free(0, &plain), -EINVAL);

	p = t_alloc(1, 2 * T_PAGE);
	T_EQ(phxfs_pointer_device(p), 1);
	T_EQ(phxfs_mem_free(0, p), -EINVAL);
	T_EQ(phxfs_mem_free(1, (char *)p + T_PAGE), -EINVAL);
	T_EQ(phxfs_mem_free(1, (char *)p + 1), -EINVAL);

	T_EQ(phxfs_open(1), 0);
	T_EQ(phxfs_open(0), 0);
	/* another device's memory */
	T_EQ(phxfs_regmem(0, p, T_PAGE, &q), -EFAULT);
	T_EQ(phxfs_regmem(1, (char *)p + T_PAGE, T_PAGE, &q), 0);
	T_EQ(phxfs_mem_free(1, p), -EBUSY);
	T_CHECK(strstr(phxfs_last_error(), "EBUSY"));
	t_set(p, 1, 2 * T_PAGE); /* still there */
	T_EQ(phxfs_deregmem(1, (char *)p + T_PAGE, T_PAGE), 0);
	t_free(1, p);
	T_EQ(phxfs_close(1), 0);
	T_EQ(phxfs_close(0), 0);
}

/* The vendor's own allocator knows nothing of registrations. */
static void reused_addresses_are_registered_anew(void)
{
	int (*alloc)(int dev, size_t size, unsigned int layout, void **ptr);
	int (*release)(void *ptr);
	int fd = t_file("f", 2 * T_MIB, 5, O_RDONLY | O_DIRECT);
	void *lib = t_on_host() ? NULL : dlopen("libphxsim.so", RTLD_NOW), *p, *again;
	uint8_t *back = malloc(2 * T_MIB);

	if (!lib)
		t_skip("frees memory by the runtime of the software accelerator");
	*(void **)&alloc = dlsym(lib, "phxsim_mem_alloc");
	*(void **)&release = dlsym(lib, "phxsim_mem_free");
	T_EQ(phxfs_open(0), 0);
	T_EQ(alloc(0, 2 * T_MIB, 0, &p), 0);
	T_EQ(phxfs_regmem(0, p, 2 * T_MIB, NULL), 0);
	T_EQ(release(p), 0);
	T_EQ(alloc(0, 2 * T_MIB, 0, &again), 0);
	T_CHECK(again == p);
	T_EQ(phxfs_regmem(0, p, 2 * T_MIB, NULL), 0);
	T_EQ(stats(0).registrations, 1);
	T_EQ(phxfs_read(fd, 0, p, 0, 2 * T_MIB, 0), 2 * T_MIB);
	T_EQ(phxfs_memcpy_from(0, back, p, 2 * T_MIB), 0);
	T_PATTERN(back, 2 * T_MIB, 5, 0);
	T_EQ(phxfs_deregmem(0, p, 2 * T_MIB), 0);
	T_EQ(stats(0).registrations, 1); /* of the first */
	T_EQ(phxfs_deregmem(0, p, 2 * T_MIB), 0);
	T_EQ(stats(0).registrations, 0);
	T_EQ(release(p), 0);
	T_EQ(phxfs_close(0), 0);
	free(back);
}

/* The last close removes what lay in it. */
static void device_memory_can_be_freed_after_close(void)
{
	void *p;

	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_mem_alloc(0, T_PAGE, &p), 0);
	T_EQ(phxfs_regmem(0, p, T_PAGE, NULL), 0);
	T_EQ(phxfs_mem_free(0, p), -EBUSY);
	T_EQ(phxfs_close(0), 0);
	T_EQ(phxfs_pointer_device(p), 0);
	T_EQ(phxfs_mem_free(0, p), 0);
}

static void device_memory_is_given_back(void)
{
	long before, after;
	void *p;

	/* together more than a device of the tests has */
	for (int i = 0; i < 10; i++) {
		p = t_alloc(0, 64 * T_MIB);
		if (i < 3)
			t_set(p, 1, 64 * T_MIB);
		t_free(0, p);
		if (i == 0)
			before = t_rss_kib();
	}
	after = t_rss_kib();
	/* a sanitizer keeps freed memory for a while */
	T_CHECK(t_sanitized() || after - before < 8 * 1024);
}

static void copies_reach_device_memory_and_back(void)
{
	uint8_t out[5000], in[5000];
	uint8_t *p;

	p = t_alloc(0, T_PAGE);
	t_set(p, T_GUARD, T_PAGE);
	t_fill(out, sizeof(out), 3, 0);
	T_EQ(phxfs_memcpy_to(0, p + 77, out, sizeof(out)), 0);
	T_PATTERN(p + 77, sizeof(out), 3, 0);
	T_ALL(p, 77, T_GUARD);
	T_ALL(p + 77 + sizeof(out), T_PAGE - 77 - sizeof(out), T_GUARD);
	T_EQ(phxfs_memcpy_from(0, in, p + 77, sizeof(in)), 0);
	T_EQ(memcmp(in, out, sizeof(in)), 0);
	T_EQ(phxfs_memcpy_to(0, p, out, 0), 0);
	T_EQ(phxfs_memcpy_to(0, NULL, out, 1), -EINVAL);
	T_EQ(phxfs_memcpy_to(0, p, NULL, 1), -EINVAL);
	T_EQ(phxfs_memcpy_from(0, NULL, p, 1), -EINVAL);
	T_EQ(phxfs_memcpy_from(0, in, NULL, 1), -EINVAL);
	t_free(0, p);
}

static void pointers_know_their_device(void)
{
	struct t_region r;
	int stack;

	T_EQ(phxfs_pointer_device(NULL), -ENOENT);
	T_EQ(phxfs_pointer_device(&stack), -ENOENT);
	T_EQ(phxfs_pointer_device((void *)-1L), -ENOENT);
	t_region(&r, 1, 2 * T_PAGE);
	T_EQ(phxfs_pointer_device(r.p), 1);
	T_EQ(phxfs_pointer_device(r.p + r.len - 1), 1);
	if (t_on_host()) { /* elsewhere something may lie beside it */
		T_EQ(phxfs_pointer_device(r.p + r.len), -ENOENT);
		T_EQ(phxfs_pointer_device(r.p - 1), -ENOENT);
	}
	T_EQ(phxfs_regmem(1, r.p, r.len, NULL), 0);
	T_EQ(phxfs_deregmem(1, r.p, r.len), 0);
	T_EQ(phxfs_pointer_device(r.p), 1);
	t_region_free(&r);
	T_EQ(phxfs_pointer_device(r.p), -ENOENT);
}

static void ten_thousand_registrations_are_told_apart(void)
{
	enum { MOST = 10000 };
	int fd = t_file("f", 4096, 1, O_RDONLY);
	size_t order[MOST], n = t_on_host() ? MOST : 600;
	struct t_rand rand = { 5 };
	struct t_region r;

	T_EQ(phxfs_open(0), 0);
	t_map(&r, 0, 2 * n * T_PAGE); /* every other page is registered */
	for (size_t i = 0; i < n; i++)
		order[i] = i;
	for (size_t i = n - 1; i > 0; i--) {
		size_t j = t_below(&rand, i + 1), x = order[i];

		order[i] = order[j];
		order[j] = x;
	}
	for (size_t i = 0; i < n; i++)
		T_EQ(phxfs_regmem(0, r.p + 2 * order[i] * T_PAGE, T_PAGE, NULL), 0);
	T_EQ(stats(0).registrations, n);
	T_EQ(stats(0).registered_bytes, n * T_PAGE);
	for (size_t i = 1; i < n; i += 7) {
		uint8_t *p = r.p + 2 * i * T_PAGE;

		T_EQ(phxfs_pointer_device(p), 0);
		T_EQ(phxfs_pointer_device(p + T_PAGE - 1), 0);
		if (t_on_host()) {
			T_EQ(phxfs_pointer_device(p + T_PAGE), -ENOENT);
			T_EQ(phxfs_pointer_device(p - 1), -ENOENT);
		}
		T_EQ(phxfs_read(fd, 0, p + T_PAGE - 4096, 0, 4096, 0), 4096);
		T_EQ(phxfs_read(fd, 0, p + T_PAGE - 4095, 0, 4096, 0), -EFAULT);
		T_EQ(phxfs_read(fd, 0, p - 1, 0, 2, 0), -EFAULT);
		T_EQ(phxfs_regmem(0, p - T_PAGE, 2 * T_PAGE, NULL), -EINVAL);
	}
	for (size_t i = 0; i < n; i++)
		T_EQ(phxfs_deregmem(0, r.p + 2 * order[n - 1 - i] * T_PAGE, T_PAGE), 0);
	T_EQ(stats(0).registrations, 0);
	T_EQ(phxfs_close(0), 0);
}

static void an_address_tells_its_allocation(void)
{
	struct phxfs_pointer_info info = { .size = sizeof(info) };
	char on_stack[16];
	void *p;

	T_EQ(phxfs_mem_alloc(0, 3 * T_PAGE, &p), 0);
	T_EQ(phxfs_pointer_info((char *)p + T_PAGE + 5, 1, &info), 0);
	T_EQ(info.device, 0);
	T_CHECK(info.base == (uintptr_t)p);
	T_EQ(info.length, 3 * T_PAGE);
	T_EQ(phxfs_pointer_info(on_stack, 1, &info), -ENOENT);
	T_EQ(phxfs_pointer_info(p, 1, NULL), -EINVAL);
	info.size = 4;
	T_EQ(phxfs_pointer_info(p, 1, &info), -EINVAL);
	T_EQ(phxfs_mem_free(0, p), 0);
}

static const struct t_case cases[] = {
	T_CASE(an_address_tells_its_allocation),
	T_CASE(registrations_keep_the_64_kib_rules),
	T_CASE(memory_that_is_not_there_cannot_be_registered,
	       .host = "makes a hole in memory by munmap"),
	T_CASE(what_is_no_memory_of_the_device_cannot_be_registered),
	T_CASE(an_exact_duplicate_is_counted, .flags = T_PATHS),
	T_CASE(any_other_overlap_is_refused),
	T_CASE(deregistration_needs_the_exact_range),
	T_CASE(deregistration_waits_for_transfers, .flags = T_PATHS | T_ENGINES),
	T_CASE(dropping_a_duplicate_does_not_wait, .flags = T_PATHS),
	T_CASE(nothing_moves_after_deregistration, .flags = T_PATHS),
	T_CASE(threads_share_one_registration),
	T_CASE(a_transfer_stays_inside_one_registration, .flags = T_PATHS),
	T_CASE(sizes_and_offsets_that_wrap_are_invalid, .flags = T_PATHS),
	T_CASE(device_memory_is_64_kib_aligned_and_whole),
	T_CASE(device_memory_errors_are_the_documented_ones, .env = "PHX_HOST_DEVICES=2"),
	T_CASE(reused_addresses_are_registered_anew),
	T_CASE(device_memory_can_be_freed_after_close),
	T_CASE(device_memory_is_given_back),
	T_CASE(copies_reach_device_memory_and_back),
	T_CASE(pointers_know_their_device, .env = "PHX_HOST_DEVICES=2"),
	T_CASE(ten_thousand_registrations_are_told_apart),
};

T_MAIN(cases)
