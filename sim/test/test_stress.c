// SPDX-License-Identifier: Apache-2.0
/*
 * phxsim under everything at once, for argv[1] seconds (5): processes that
 * allocate, copy and verify, pin both ways, reclaim each other's pins, free under
 * their own pins, and are killed in the middle. Afterwards nothing may be left.
 */
#include "sim_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#define WORKERS	4
#define SLOTS	8

static int seconds_to_run = 5;
static char *shared[SLOTS];		/* of this process, of every thread */
static atomic_int failures;

static void expect(int ok, const char *what, int ret)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %d\n", what, ret);
	atomic_fetch_add(&failures, 1);
}

static unsigned int next(unsigned int *seed)
{
	*seed = *seed * 1103515245 + 12345;
	return *seed >> 16;
}

/* Memory only this thread uses: its contents are checked. */
static void verify_round(unsigned int *seed)
{
	size_t n = 8 + next(seed) % (300 * KIB) / 8 * 8;
	uint64_t sum = SUM0, key = next(seed);
	unsigned int layout = next(seed) % PHXSIM_LAYOUT_COUNT;
	char *host = malloc(n);
	void *p, *q;
	int ret;

	ret = phxsim_mem_alloc(0, n, layout, &p);
	expect(!ret || ret == -ENOMEM, "alloc", ret);
	if (ret)
		goto out_free_host;
	ret = phxsim_mem_alloc(0, n, PHXSIM_MEM_FRAGMENTED, &q);
	expect(!ret || ret == -ENOMEM, "alloc", ret);
	if (ret)
		goto out_free_device;
	ret = phxsim_fill(p, key, n);
	expect(!ret, "fill", ret);
	ret = phxsim_memcpy_dtod(q, p, n);
	expect(!ret, "copy", ret);
	ret = phxsim_memcpy_dtoh(host, q, n);
	expect(!ret, "copy", ret);
	ret = phxsim_checksum(p, n, &sum);
	expect(!ret && sum == phxsim_checksum_host(host, n, SUM0), "contents", ret);
	expect(((uint64_t *)host)[n / 8 - 1] == phxsim_pattern(key, n / 8 - 1), "pattern", 0);
	ret = phxsim_mem_free(q);
	expect(!ret, "free", ret);
out_free_device:
	ret = phxsim_mem_free(p);
	expect(!ret, "free", ret);
out_free_host:
	free(host);
}

/* Memory all threads use: any of these may find it gone, none may break. */
static void shared_round(int fd, unsigned int *seed)
{
	unsigned int slot = next(seed) % SLOTS;
	char *p = __atomic_load_n(&shared[slot], __ATOMIC_ACQUIRE);
	struct phxsim_client_pin pin;
	uint32_t n;
	void *q;
	int ret;

	switch (next(seed) % 5) {
	case 0:
		if (!phxsim_mem_alloc(0, 4 * PAGE, 0, &q) &&
		    !__atomic_compare_exchange_n(&shared[slot], &(char *){ NULL }, q, 0,
						 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			phxsim_mem_free(q);
		break;
	case 1:
		p = __atomic_exchange_n(&shared[slot], NULL, __ATOMIC_ACQ_REL);
		if (p) {
			ret = phxsim_mem_free(p);
			expect(!ret, "free of shared", ret);
		}
		break;
	case 2:
		ret = phxsim_reclaim(0, 0, p, &n);
		expect(!ret, "reclaim", ret);
		break;
	default:
		if (!p || client_pin(fd, p, 2 * PAGE, next(seed) % 2, &pin))
			break;
		if (next(seed) % 2)
			usleep(next(seed) % 500);
		ret = client_unpin(fd, pin.handle);
		expect(!ret, "unpin", ret);
	}
}

static void *work(void *arg)
{
	unsigned int seed = (uintptr_t)arg;
	time_t end = time(NULL) + seconds_to_run;
	int fd = open("/dev/phxsim-client", O_RDWR | O_CLOEXEC);

	expect(fd >= 0, "open", errno);
	while (time(NULL) < end) {
		verify_round(&seed);
		shared_round(fd, &seed);
		shared_round(fd, &seed);
	}
	close(fd);
	return NULL;
}

static int worker(unsigned int id)
{
	pthread_t thread[3];
	uintptr_t i;

	for (i = 0; i < 3; i++)
		if (pthread_create(&thread[i], NULL, work, (void *)(id * 16 + i + 1)))
			return 1;
	for (i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	return atomic_load(&failures) ? 1 : 0;
}

/* Starts short-lived workers and kills them at work. */
static int killer(void)
{
	time_t end = time(NULL) + seconds_to_run;
	unsigned int seed = 99;
	int status;
	pid_t pid;

	while (time(NULL) < end) {
		pid = fork();
		if (!pid)
			_exit(worker(next(&seed)));
		next(&seed);
		usleep(50000 + next(&seed) % 200000);
		kill(pid, SIGKILL);
		if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
			return 1;
	}
	return 0;
}

static void nothing_is_left_after_chaos(void **state)
{
	pid_t pid[WORKERS + 1];
	int status, i;

	for (i = 0; i <= WORKERS; i++) {
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (!pid[i])
			_exit(i < WORKERS ? worker(i + 1) : killer());
	}
	for (i = 0; i <= WORKERS; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(sim_sysfs(0, "used_bytes"), 0);
	assert_int_equal(sim_sysfs(0, "pins"), 0);
	assert_int_equal(sim_sysfs(0, "persistent_pins"), 0);
	assert_int_equal(sim_sysfs(0, "pinned_bytes"), 0);
	assert_true(sim_sysfs(0, "reclaims") > 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_left_after_chaos),
	};

	if (argc > 1)
		seconds_to_run = atoi(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
