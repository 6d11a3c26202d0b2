// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

#define SKIPPED 77
#define TIMEOUT 300
#define FILE_BLOCK (1UL << 20)

static _Thread_local char context[512];

void gpu_context(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(context, sizeof(context), fmt, args);
	va_end(args);
}

void gpu_fail(const char *file, int line, const char *fmt, ...)
{
	va_list args;

	printf("\n  %s:%d: ", file, line);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n  %s%slast error: %s\n", context, *context ? "\n  " : "", phxfs_last_error());
	fflush(stdout);
	_exit(1);
}

void gpu_skip(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	fflush(stdout);
	_exit(SKIPPED);
}

void gpu_eq(const char *file, int line, const char *got_text, const char *want_text,
	    long long got, long long want)
{
	if (got != want)
		gpu_fail(file, line, "%s is %lld, not %s (%lld)", got_text, got, want_text, want);
}

void gpu_has(const char *file, int line, const char *text, const char *part)
{
	if (!strstr(text, part))
		gpu_fail(file, line, "\"%s\" has no \"%s\"", text, part);
}

struct phxfs_connector_info gpu_connector(const char *name)
{
	struct phxfs_connector_info info = { .size = sizeof(info) };

	for (int i = 0; !phxfs_connector_info(i, &info); i++) {
		if (!strcmp(info.name, name))
			return info;
	}
	gpu_fail(__FILE__, __LINE__, "no connector %s", name);
}

int gpu_in_child(void (*fn)(void))
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		alarm(TIMEOUT);
		fn();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct thread {
	void (*fn)(void *arg);
	void *arg;
};

static void *start(void *arg)
{
	struct thread *t = arg;

	t->fn(t->arg);
	return NULL;
}

void gpu_in_thread(void (*fn)(void *arg), void *arg)
{
	struct thread t = { fn, arg };
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, start, &t));
	CHECK(!pthread_join(thread, NULL));
}

uint64_t gpu_random(uint64_t *state)
{
	uint64_t x = (*state += 0x9e3779b97f4a7c15ULL);

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

uint64_t gpu_below(uint64_t *state, uint64_t n)
{
	return gpu_random(state) % n;
}

void gpu_pattern(void *buf, size_t len, uint64_t seed, uint64_t offset)
{
	unsigned char *to = buf;
	uint64_t state, word = 0;

	for (size_t i = 0; i < len; i++, offset++) {
		if (i == 0 || offset % 8 == 0) {
			state = seed + offset / 8;
			word = gpu_random(&state);
		}
		to[i] = (unsigned char)(word >> (offset % 8 * 8));
	}
}

int gpu_file(size_t size, uint64_t seed, int flags)
{
	const char *dir = getenv("TMPDIR");
	char name[256], again[64], *block = malloc(FILE_BLOCK);
	int fd, second;

	CHECK(block);
	snprintf(name, sizeof(name), "%s/gpu-test.XXXXXX", dir && *dir ? dir : ".");
	fd = mkstemp(name);
	if (fd < 0)
		gpu_fail(__FILE__, __LINE__, "%s: %s", name, strerror(errno));
	unlink(name);
	for (size_t at = 0; at < size; at += FILE_BLOCK) {
		size_t n = size - at < FILE_BLOCK ? size - at : FILE_BLOCK;

		gpu_pattern(block, n, seed, at);
		CHECK(pwrite(fd, block, n, (off_t)at) == (ssize_t)n);
	}
	free(block);
	if (!flags)
		return fd;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	second = open(again, O_RDWR | O_CLOEXEC | flags);
	if (second < 0)
		gpu_fail(__FILE__, __LINE__, "opening again with %#x: %s", (unsigned int)flags,
			 strerror(errno));
	close(fd);
	return second;
}

/* ---------------------------------------------------------------- running */

/* "A=B C=D" into the environment; "@" before a value stands for PHX_FAKE's. */
static void set_environment(const char *text)
{
	char *copy = strdup(text ? text : ""), *rest = copy, *word, whole[512];
	const char *fake = getenv("PHX_FAKE");

	while ((word = strsep(&rest, " "))) {
		char *value = strchr(word, '=');

		if (!value)
			continue;
		*value++ = 0;
		snprintf(whole, sizeof(whole), "%s%s", *value == '@' && fake ? fake : "",
			 *value == '@' ? value + 1 : value);
		setenv(word, whole, 1);
	}
	free(copy);
}

static int run_case(const char *self, const struct gpu_case *c)
{
	pid_t pid;
	int status;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		return 1;
	if (!pid) {
		set_environment(c->env);
		execl(self, self, "--run", c->name, NULL);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) != pid)
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool chosen(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], name, strlen(argv[i])))
			return true;
	}
	return argc < 2;
}

int gpu_main(int argc, char **argv, const struct gpu_case *cases, size_t n)
{
	int passed = 0, failed = 0, skipped = 0;

	if (argc == 3 && !strcmp(argv[1], "--run")) {
		for (size_t i = 0; i < n; i++) {
			if (strcmp(cases[i].name, argv[2]))
				continue;
			alarm(TIMEOUT);
			cases[i].run();
			return 0; /* through exit(), which a driver watches */
		}
		return 127;
	}
	for (size_t i = 0; i < n; i++) {
		int status;

		if (!chosen(argc, argv, cases[i].name))
			continue;
		printf("%s: ", cases[i].name);
		status = run_case("/proc/self/exe", &cases[i]);
		printf("%s\n", !status ? "ok" : status == SKIPPED ? " - skipped" : "FAILED");
		if (status && status != SKIPPED)
			printf("  ended with %d\n", status);
		passed += !status;
		skipped += status == SKIPPED;
		failed += status && status != SKIPPED;
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed || !(passed + skipped) ? 1 : 0;
}
