// SPDX-License-Identifier: Apache-2.0
/* phxsim: devices, allocation layouts, pointers, copies, process and device death. */
#include "sim_test.h"

#include <signal.h>
#include <sys/mman.h>

static void devices_come_in_bdf_order(void **state)
{
	char bdf[16], last[16] = "", tiny[4];
	uint64_t total, avail;
	int count, i;

	assert_int_equal(phxsim_init(), 0);
	assert_int_equal(phxsim_device_count(&count), 0);
	assert_int_equal(count, atoi(getenv("PHX_ACCELS")));
	for (i = 0; i < count; i++) {
		assert_int_equal(phxsim_device_bdf(i, bdf, sizeof(bdf)), 0);
		assert_true(strcmp(last, bdf) < 0);
		strcpy(last, bdf);
		assert_int_equal(phxsim_device_memory(i, &total, &avail), 0);
		assert_int_equal(total, avail);
	}
	assert_int_equal(phxsim_device_bdf(0, tiny, sizeof(tiny)), -ENOSPC);
	assert_int_equal(phxsim_device_bdf(count, bdf, sizeof(bdf)), -ENODEV);
	assert_int_equal(phxsim_device_bdf(-1, bdf, sizeof(bdf)), -ENODEV);
}

static void layouts_are_what_they_say(void **state)
{
	static const unsigned int layouts[] = {
		PHXSIM_MEM_HUGE,     PHXSIM_MEM_FRAGMENTED, PHXSIM_MEM_SUBSPANS,
		PHXSIM_MEM_REVERSED, PHXSIM_MEM_MISALIGNED,
	};
	const uint32_t n = 8 * MIB / PAGE, block = HUGE / PAGE;
	uint64_t at[8 * MIB / PAGE], total, avail;
	unsigned int i;
	uint32_t k, breaks;
	void *p;

	for (i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		p = sim_alloc(0, 8 * MIB, layouts[i]);
		assert_int_equal((uintptr_t)p % HUGE, 0);
		assert_int_equal(phxsim_pointer_pages(p, at, n), 0);
		for (k = 1, breaks = 0; k < n; k++) {
			breaks += at[k] != at[k - 1] + PAGE;
			if (layouts[i] != PHXSIM_MEM_FRAGMENTED && k % block)
				assert_int_equal(at[k], at[k - 1] + PAGE);
		}
		switch (layouts[i]) {
		case PHXSIM_MEM_HUGE:
			assert_int_equal(breaks, 0);
			assert_int_equal(at[0] % HUGE, 0);
			break;
		case PHXSIM_MEM_FRAGMENTED:
			assert_int_equal(breaks, n - 1);
			break;
		case PHXSIM_MEM_SUBSPANS:
			assert_int_equal(breaks, n / block - 1);
			assert_true(at[block] > at[0] + HUGE);
			assert_int_equal(at[block] % HUGE, 0);
			break;
		case PHXSIM_MEM_REVERSED:
			assert_int_equal(breaks, n / block - 1);
			assert_true(at[block] < at[0]);
			break;
		case PHXSIM_MEM_MISALIGNED:
			assert_int_equal(breaks, 0);
			assert_int_equal(at[0] % HUGE, PAGE);
			break;
		}
		assert_int_equal(phxsim_mem_free(p), 0);
	}
	assert_int_equal(phxsim_device_memory(0, &total, &avail), 0);
	assert_int_equal(total, avail);
}

static void allocation_refuses_nonsense(void **state)
{
	uint64_t total, off;
	void *p = (void *)1, *small;

	assert_int_equal(phxsim_device_memory(0, &total, NULL), 0);
	assert_int_equal(phxsim_mem_alloc(0, 0, 0, &p), -EINVAL);
	assert_int_equal(phxsim_mem_alloc(0, PAGE, PHXSIM_LAYOUT_COUNT, &p), -EINVAL);
	assert_int_equal(phxsim_mem_alloc(0, total + 1, 0, &p), -ENOMEM);
	assert_int_equal(phxsim_mem_alloc(0, SIZE_MAX, 0, &p), -ENOMEM);
	assert_int_equal(phxsim_mem_alloc(99, PAGE, 0, &p), -ENODEV);
	assert_ptr_equal(p, (void *)1);

	small = sim_alloc(0, 1, 0);
	assert_int_equal(phxsim_mem_alloc(0, total, 0, &p), -ENOMEM);
	assert_int_equal(phxsim_pointer_pages(small, &off, 2), -EINVAL);
	assert_int_equal(phxsim_mem_free((char *)small + 1), -EINVAL);
	assert_int_equal(phxsim_mem_free(small), 0);
	assert_int_equal(phxsim_mem_free(small), -EINVAL);
	assert_int_equal(phxsim_mem_free(&total), -EINVAL);

	p = sim_alloc(0, total, 0);
	assert_int_equal(phxsim_mem_free(p), 0);
}

static void a_pointer_knows_its_allocation(void **state)
{
	struct phxsim_pointer a, b;
	char *p = sim_alloc(0, 3 * PAGE, 0), *q;

	assert_int_equal(phxsim_pointer_query(p + PAGE + 5, &a), 0);
	assert_ptr_equal(a.base, p);
	assert_int_equal(a.size, 3 * PAGE);
	assert_int_equal(a.dev, 0);
	assert_int_equal(phxsim_pointer_query(p - 1, &b), -EINVAL);
	assert_int_equal(phxsim_pointer_query(p + 3 * PAGE, &b), -EINVAL);
	assert_int_equal(phxsim_pointer_query(&a, &b), -EINVAL);
	assert_int_equal(phxsim_pointer_query(NULL, &b), -EINVAL);

	/* a reused address is another allocation */
	assert_int_equal(phxsim_mem_free(p), 0);
	q = sim_alloc(0, 3 * PAGE, 0);
	assert_ptr_equal(p, q);
	assert_int_equal(phxsim_pointer_query(q, &b), 0);
	assert_true(a.id != b.id);
	assert_int_equal(phxsim_mem_free(q), 0);
}

static int touch(void *p)
{
	signal(SIGSEGV, SIG_DFL);	/* not cmocka's */
	return *(volatile char *)p;
}

static void a_device_pointer_is_no_cpu_pointer(void **state)
{
	void *p = sim_alloc(0, PAGE, 0);

	assert_int_equal(in_child(touch, p), 128 + SIGSEGV);
	assert_int_equal(phxsim_mem_free(p), 0);
}

/* Out, moved on the device, back, at every odd place, over every layout. */
static void copies_are_exact(void **state)
{
	static const size_t sizes[] = { 1, 7, 4096, PAGE - 1, PAGE + 1, 3 * MIB + 13 };
	const size_t room = 4 * MIB;
	unsigned char *host = malloc(room), *back = malloc(room);
	unsigned int layout, i;
	size_t k, n, off;
	char *a, *b;

	for (k = 0; k < room; k++)
		host[k] = phxsim_pattern(7, k);
	for (layout = PHXSIM_MEM_HUGE; layout <= PHXSIM_MEM_MISALIGNED; layout++) {
		a = sim_alloc(0, room, layout);
		b = sim_alloc(0, room, PHXSIM_MEM_FRAGMENTED);
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			n = sizes[i];
			off = 13 * i + 1;
			assert_int_equal(phxsim_memset(a, 0xaa, room), 0);
			assert_int_equal(phxsim_memset(b, 0xbb, room), 0);
			assert_int_equal(phxsim_memcpy_htod(a + off, host, n), 0);
			assert_int_equal(phxsim_memcpy_dtod(b + 2 * off, a + off, n), 0);
			assert_int_equal(phxsim_memcpy_dtoh(back, b + 2 * off - 1, n + 2), 0);
			assert_int_equal(back[0], 0xbb);
			assert_memory_equal(back + 1, host, n);
			assert_int_equal(back[n + 1], 0xbb);
		}
		assert_int_equal(phxsim_mem_free(a), 0);
		assert_int_equal(phxsim_mem_free(b), 0);
	}
	free(host);
	free(back);
}

static void copies_stay_inside(void **state)
{
	char *p = sim_alloc(0, PAGE + 100, 0), host[200];

	assert_int_equal(phxsim_memcpy_htod(p + PAGE, host, 100), 0);
	assert_int_equal(phxsim_memcpy_htod(p + PAGE, host, 101), -EFAULT);
	assert_int_equal(phxsim_memcpy_htod(p + 2 * PAGE, host, 1), -EFAULT);
	assert_int_equal(phxsim_memcpy_dtoh(host, p - 1, 1), -EFAULT);
	assert_int_equal(phxsim_memcpy_dtoh(NULL, p, 1), -EFAULT);
	assert_int_equal(phxsim_memcpy_dtod(p, host, 1), -EFAULT);
	assert_int_equal(phxsim_memcpy_dtod(p, p + 200, SIZE_MAX), -EFAULT);
	assert_int_equal(phxsim_memcpy_htod(p, host, 0), 0);
	assert_int_equal(phxsim_fill(p + 4, 1, 8), -EINVAL);
	assert_int_equal(phxsim_mem_free(p), 0);
}

static void fill_and_checksum_agree_with_the_host(void **state)
{
	const size_t n = 2 * MIB + PAGE + 24;
	uint64_t *host = malloc(n), sum = SUM0;
	char *p = sim_alloc(0, n + 8, PHXSIM_MEM_FRAGMENTED);
	size_t i;

	assert_int_equal(phxsim_fill(p + 8, 42, n), 0);
	assert_int_equal(phxsim_memcpy_dtoh(host, p + 8, n), 0);
	for (i = 0; i < n / 8; i++)
		assert_int_equal(host[i], phxsim_pattern(42, i));
	assert_int_equal(phxsim_checksum(p + 8, n - 3, &sum), 0);
	assert_int_equal(sum, phxsim_checksum_host(host, n - 3, SUM0));
	assert_int_equal(phxsim_memset(p + n / 2, 1, 1), 0);
	sum = SUM0;
	assert_int_equal(phxsim_checksum(p + 8, n - 3, &sum), 0);
	assert_true(sum != phxsim_checksum_host(host, n - 3, SUM0));
	assert_int_equal(phxsim_checksum(p + 4, 8, &sum), -EINVAL);
	assert_int_equal(phxsim_mem_free(p), 0);
	free(host);
}

static void two_devices_share_one_address_space(void **state)
{
	char *a, *b, host[64] = "across", back[64];
	struct phxsim_pointer info;
	int count;

	assert_int_equal(phxsim_device_count(&count), 0);
	if (count < 2)
		skip();
	a = sim_alloc(0, PAGE, 0);
	b = sim_alloc(1, PAGE, 0);
	assert_ptr_not_equal(a, b);
	assert_int_equal(phxsim_pointer_query(b, &info), 0);
	assert_int_equal(info.dev, 1);
	assert_int_equal(phxsim_memcpy_htod(a, host, 64), 0);
	assert_int_equal(phxsim_memcpy_dtod(b, a, 64), 0);
	assert_int_equal(phxsim_memcpy_dtoh(back, b, 64), 0);
	assert_memory_equal(host, back, 64);
	assert_int_equal(phxsim_mem_free(a), 0);
	assert_int_equal(phxsim_mem_free(b), 0);
}

static int child_starts_anew(void *parents)
{
	struct phxsim_pointer info;
	char byte = 1;
	void *p;

	if (phxsim_memcpy_dtoh(&byte, parents, 1) != -EFAULT)
		return 1;
	if (phxsim_pointer_query(parents, &info) != -EINVAL)
		return 2;
	if (phxsim_mem_free(parents) != -EINVAL)
		return 3;
	/* same address as the parent's, other memory */
	if (phxsim_mem_alloc(0, PAGE, 0, &p) || p != parents)
		return 4;
	if (phxsim_memset(p, 9, PAGE))
		return 5;
	return 0;	/* and leaves it to the driver */
}

static void a_forked_child_has_its_own_memory(void **state)
{
	void *p = sim_alloc(0, PAGE, 0);
	long long used = sim_sysfs(0, "used_bytes");
	char byte = 0;

	assert_int_equal(phxsim_memset(p, 5, PAGE), 0);
	assert_int_equal(in_child(child_starts_anew, p), 0);
	assert_int_equal(phxsim_memcpy_dtoh(&byte, p, 1), 0);
	assert_int_equal(byte, 5);
	assert_int_equal(sim_sysfs(0, "used_bytes"), used);
	assert_int_equal(phxsim_mem_free(p), 0);
}

static void a_raw_descriptor_is_useless_to_another_process(void **state)
{
	int fd = open("/dev/phxsim0", O_RDWR), status;
	struct phxsim_info info;
	pid_t pid;

	assert_true(fd >= 0);
	pid = fork();
	if (!pid)
		_exit(ioctl(fd, PHXSIM_IOC_INFO, &info) == -1 && errno == EPERM ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fd);
}

static int alloc_and_die(void *unused)
{
	void *p;

	if (phxsim_mem_alloc(0, 4 * MIB, 0, &p) || phxsim_mem_alloc(0, PAGE, 0, &p))
		return 1;
	raise(SIGKILL);
	return 2;
}

static void death_frees_memory(void **state)
{
	long long used = sim_sysfs(0, "used_bytes");

	assert_int_equal(in_child(alloc_and_die, NULL), 128 + SIGKILL);
	assert_int_equal(sim_sysfs(0, "used_bytes"), used);
}

static void reset_frees_memory(void **state)
{
	long long used = sim_sysfs(0, "used_bytes");
	void *p = sim_alloc(0, PAGE, 0);

	assert_int_equal(phxsim_device_reset(0), 0);
	assert_int_equal(phxsim_mem_free(p), -EINVAL);
	assert_int_equal(sim_sysfs(0, "used_bytes"), used);
	assert_int_equal(phxsim_device_reset(77), -ENODEV);
}

static void unknown_calls_are_refused(void **state)
{
	int fd = open("/dev/phxsim0", O_RDWR);
	struct phxsim_copy copy = { .kind = PHXSIM_DTOD, .pad = 1 };
	struct phxsim_fault fault = { .kind = PHXSIM_FAULT_COUNT };

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, _IO('V', 200), 0), -1);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(ioctl(fd, _IOW('V', 2, char[4000]), &copy), -1);
	assert_int_equal(errno, ENOTTY);
	assert_int_equal(ioctl(fd, PHXSIM_IOC_COPY, &copy), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ioctl(fd, PHXSIM_IOC_FAULT, &fault), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ioctl(fd, PHXSIM_IOC_INFO, NULL), -1);
	assert_int_equal(errno, EFAULT);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(devices_come_in_bdf_order),
		cmocka_unit_test(layouts_are_what_they_say),
		cmocka_unit_test(allocation_refuses_nonsense),
		cmocka_unit_test(a_pointer_knows_its_allocation),
		cmocka_unit_test(a_device_pointer_is_no_cpu_pointer),
		cmocka_unit_test(copies_are_exact),
		cmocka_unit_test(copies_stay_inside),
		cmocka_unit_test(fill_and_checksum_agree_with_the_host),
		cmocka_unit_test(two_devices_share_one_address_space),
		cmocka_unit_test(a_forked_child_has_its_own_memory),
		cmocka_unit_test(a_raw_descriptor_is_useless_to_another_process),
		cmocka_unit_test(death_frees_memory),
		cmocka_unit_test(reset_frees_memory),
		cmocka_unit_test(unknown_calls_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
