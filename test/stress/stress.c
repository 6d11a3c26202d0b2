// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stress.h"

#define SKIPPED 77

void stress_fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "%s:%d: ", file, line);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	_exit(1);
}

void stress_skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	_exit(SKIPPED);
}

static void set_environment(const char *env)
{
	char *copy = strdup(env ? env : ""), *save, *item;

	setenv("PHX_CONNECTOR", "host", 1);
	for (item = strtok_r(copy, " ", &save); item; item = strtok_r(NULL, " ", &save))
		putenv(strdup(item));
	free(copy);
}

/* The status of a case, run by executing this program again. */
static int run_case(const char *program, const struct stress_case *c)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return 1;
	if (!pid) {
		set_environment(c->env);
		alarm((unsigned int)(c->seconds ? c->seconds : 60));
		execl(program, program, "--case", c->name, (char *)NULL);
		_exit(1);
	}
	while (waitpid(pid, &status, 0) < 0)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool chosen(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strncmp(name, argv[i], strlen(argv[i])))
			return true;
	}
	return argc < 2;
}

int stress_main(int argc, char **argv, const struct stress_case *cases, size_t n)
{
	int failed = 0;

	if (argc == 3 && !strcmp(argv[1], "--case")) {
		for (size_t i = 0; i < n; i++) {
			if (!strcmp(cases[i].name, argv[2])) {
				cases[i].run();
				return 0;
			}
		}
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t start = stress_now_ms();
		int status;

		if (!chosen(cases[i].name, argc, argv))
			continue;
		status = run_case("/proc/self/exe", &cases[i]);
		printf("%-7s %s (%s) %llu ms\n",
		       status == 0 ? "ok" : status == SKIPPED ? "skipped" : "FAILED",
		       cases[i].name,
		       status == 128 + SIGALRM ? "hung" : cases[i].env ? cases[i].env : "",
		       (unsigned long long)(stress_now_ms() - start));
		failed += status != 0 && status != SKIPPED;
	}
	return failed ? 1 : 0;
}

unsigned char stress_byte(uint64_t at)
{
	return (unsigned char)((at * 0x9e3779b97f4a7c15ULL) >> 56);
}

int stress_file(size_t size, int flags)
{
	char name[] = "stress-XXXXXX", path[64];
	unsigned char block[65536];
	int fd = mkstemp(name), again;

	CHECK(fd >= 0);
	for (size_t at = 0; at < size;) {
		size_t n = size - at < sizeof(block) ? size - at : sizeof(block);

		for (size_t i = 0; i < n; i++)
			block[i] = stress_byte(at + i);
		CHECK(write(fd, block, n) == (ssize_t)n);
		at += n;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	if (again < 0 && errno == EINVAL && (flags & O_DIRECT)) {
		unlink(name);
		stress_skip("no O_DIRECT in the current directory");
	}
	CHECK(again >= 0);
	CHECK(!unlink(name));
	close(fd);
	return again;
}

void *stress_memory(size_t len)
{
	void *memory;

	EQ(phxfs_open(0), 0);
	EQ(phxfs_mem_alloc(0, len, &memory), 0);
	EQ(phxfs_regmem(0, memory, (len + 65535) & ~65535UL, NULL), 0);
	return memory;
}

bool stress_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}

uint64_t stress_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void stress_sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

long stress_seconds(long n)
{
	const char *text = getenv("PHX_TEST_SECONDS");

	return text && atol(text) > 0 ? atol(text) : n;
}
