// SPDX-License-Identifier: Apache-2.0
#include "t.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <phoenix.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/*
 * The library is meant to be used across fork(), with threads on both sides;
 * impossible sizes are asked for on purpose.
 */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0:allocator_may_return_null=1:second_deadlock_stack=1";
}

const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1:detect_leaks=1";
}

static _Thread_local char context[512];

void t_context(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(context, sizeof(context), fmt, ap);
	va_end(ap);
}

void t_fail(const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	const char *base = strrchr(file, '/');
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s:%d: %s\n", base ? base + 1 : file, line, text);
	if (context[0])
		fprintf(stderr, "  in: %s\n", context);
	fprintf(stderr, "  last error: \"%s\"\n", phxfs_last_error());
	fflush(NULL);
	_exit(1);
}

void t_eq(const char *file, int line, const char *got_text, const char *want_text,
	  long long got, long long want)
{
	if (got != want)
		t_fail(file, line, "%s is %lld, not %s (%lld)", got_text, got, want_text, want);
}

void t_one_of(const char *file, int line, const char *text, long long got, const int *list)
{
	char want[256] = "";

	for (int i = 0; list[i]; i++) {
		size_t len = strlen(want);

		if (got == list[i])
			return;
		snprintf(want + len, sizeof(want) - len, " %d", list[i]);
	}
	t_fail(file, line, "%s is %lld, none of%s", text, got, want);
}

void t_skip(const char *fmt, ...)
{
	va_list ap;

	fputs("  skipped: ", stdout);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(NULL);
	_exit(77);
}

bool t_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return true;
#else
	return false;
#endif
}

long t_scale(long n)
{
	const char *s = getenv("PHX_TEST_SCALE");
	double scale = s ? strtod(s, NULL) : 1;

	if (scale <= 0)
		scale = 1;
	if (t_sanitized())
		scale /= 4;
	return n * scale < 1 ? 1 : (long)(n * scale);
}

const char *t_path(void)
{
	const char *s = getenv("PHX_PATH");

	return s && *s ? s : "auto";
}

bool t_path_is(const char *name)
{
	return strcmp(t_path(), name) == 0;
}

static const char *connector(void)
{
	const char *s = getenv("PHX_TEST_CONNECTOR");

	return s && *s ? s : "host";
}

bool t_on_host(void)
{
	return strcmp(connector(), "host") == 0;
}

int t_fd_count(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	if (!dir)
		T_FAIL("/proc/self/fd: %s", strerror(errno));
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", ".." and the directory itself */
}

static long field_kib(const char *file, const char *key)
{
	FILE *f = fopen(file, "re");
	char line[256];
	long kib = -1;

	if (!f)
		T_FAIL("%s: %s", file, strerror(errno));
	while (kib < 0 && fgets(line, sizeof(line), f))
		if (strncmp(line, key, strlen(key)) == 0)
			kib = strtol(line + strlen(key), NULL, 10);
	fclose(f);
	return kib;
}

long t_rss_kib(void)
{
	return field_kib("/proc/self/status", "VmRSS:");
}

long t_available_kib(void)
{
	return field_kib("/proc/meminfo", "MemAvailable:");
}

uint64_t t_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

void t_sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000L };

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

uint64_t t_rand(struct t_rand *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

uint64_t t_below(struct t_rand *r, uint64_t n)
{
	return n ? t_rand(r) % n : 0;
}

static void *call_main(void *arg)
{
	struct t_call *c = arg;

	c->begun = true;
	c->result = c->fn(c->arg);
	c->done = true;
	return NULL;
}

void t_call(struct t_call *c, long (*fn)(void *arg), void *arg)
{
	c->fn = fn;
	c->arg = arg;
	c->begun = false;
	c->done = false;
	if (pthread_create(&c->thread, NULL, call_main, c))
		T_FAIL("pthread_create");
}

long t_join(struct t_call *c)
{
	pthread_join(c->thread, NULL);
	return c->result;
}

int t_in_child(void (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid;

	fflush(NULL);
#ifdef __SANITIZE_ADDRESS__
	/* its allocator stays locked in a child if a worker is in it just now */
	t_sleep_ms(30);
#endif
	pid = fork();
	if (pid < 0)
		T_FAIL("fork: %s", strerror(errno));
	if (pid == 0) {
		fn(arg);
		fflush(NULL);
		_exit(0);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			T_FAIL("waitpid: %s", strerror(errno));
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* One repetition of a case: what its environment adds. */
struct variant {
	const char *label;
	const char *env;
};

static const struct variant no_variant[] = { { "", "" }, { NULL, NULL } };

static const struct variant path_variants[] = {
	{ "auto", "PHX_PATH=auto" },
	{ "direct", "PHX_PATH=direct" },
	{ "staging", "PHX_PATH=staging PHX_STAGING_SIZE_MB=8" },
	{ "bounce", "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1" },
	{ NULL, NULL },
};

static const struct variant engine_variants[] = {
	{ "io_uring", "PHX_IO_ENGINE=io_uring" },
	{ "sync", "PHX_IO_ENGINE=sync" },
	{ NULL, NULL },
};

static void put_env(const char *list)
{
	char copy[512], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", list ? list : "");
	for (char *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save)) {
		char *eq = strchr(s, '=');

		*eq = '\0';
		setenv(s, eq + 1, 1);
	}
}

static void clear_env(void)
{
	static const char *const names[] = { "PHX_PATH", "PHX_STAGING_SIZE_MB", "PHX_IO_ENGINE",
					     "PHXFS_IO_ENGINE", "PHX_IO_WORKERS", "PHX_CONNECTOR",
					     "PHX_HOST_DEVICES", "PHX_STATS", "PHX_LOG" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
	setenv("PHX_CONNECTOR", connector(), 1);
	if (!t_on_host()) /* the default may be more than the device has */
		setenv("PHX_STAGING_SIZE_MB", "16", 1);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

/* A folder for the case's files, on a file system that knows O_DIRECT if it can be. */
static void make_dir(char *dir, size_t size)
{
	const char *base = getenv("PHX_TEST_DIR");

	snprintf(dir, size, "%s/phx-test-XXXXXX", base ? base : "/var/tmp");
	if (!mkdtemp(dir)) {
		fprintf(stderr, "%s: %s\n", dir, strerror(errno));
		exit(1);
	}
	setenv("T_DIR", dir, 1);
}

/* Under a sanitizer, and where the guest's rig says so, all takes longer. */
static unsigned int patience(int seconds)
{
	const char *s = getenv("PHX_SLOW");
	int slow = s ? atoi(s) : 1;

	return (unsigned int)(seconds * (slow > 1 ? slow : 1) * (t_sanitized() ? 4 : 1));
}

static int spawn(const struct t_case *c, const struct variant *path,
		 const struct variant *engine)
{
	int status, limit = c->timeout ? c->timeout : 60;
	char dir[256];
	pid_t pid;

	make_dir(dir, sizeof(dir));
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		char seconds[16];

		setpgid(0, 0);
		clear_env();
		put_env(path->env);
		put_env(engine->env);
		put_env(c->env);
		snprintf(seconds, sizeof(seconds), "%u", patience(limit));
		execl("/proc/self/exe", program_invocation_name, "--case", c->name, seconds,
		      (char *)NULL);
		_exit(126);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 1;
	kill(-pid, SIGKILL); /* what the case left running */
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	if (WIFSIGNALED(status)) {
		fprintf(stderr, "  killed: %s\n",
			WTERMSIG(status) == SIGALRM ? "out of time" : strsignal(WTERMSIG(status)));
		return 128 + WTERMSIG(status);
	}
	return WEXITSTATUS(status);
}

static int run_one(char **argv, const struct t_case *cases, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(cases[i].name, argv[2]) != 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm((unsigned int)atoi(argv[3]));
		cases[i].run();
		fflush(NULL);
		return 0;
	}
	return 126;
}

int t_alone(void (*fn)(void), int timeout)
{
	char dir[256];
	int status;
	pid_t pid;

	setenv("PHX_CONNECTOR", connector(), 0);
	make_dir(dir, sizeof(dir));
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(patience(timeout));
		fn();
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return 1;
	kill(-pid, SIGKILL);
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	if (WIFSIGNALED(status)) {
		fprintf(stderr, "killed: %s\n", strsignal(WTERMSIG(status)));
		return 1;
	}
	return WEXITSTATUS(status);
}

static bool wanted(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (strncmp(name, argv[i], strlen(argv[i])) == 0)
			return true;
	return argc < 2;
}

static bool wanted_variant(const struct variant *v)
{
	const char *list = getenv("PHX_TEST_VARIANTS"), *at = list;
	size_t len = strlen(v->label);

	if (!list || !len)
		return true;
	for (; (at = strstr(at, v->label)); at += len)
		if ((at == list || at[-1] == ' ') && (at[len] == ' ' || !at[len]))
			return true;
	return false;
}

int t_main(int argc, char **argv, const struct t_case *cases, size_t n)
{
	int passed = 0, failed = 0, skipped = 0;

	if (argc == 4 && strcmp(argv[1], "--case") == 0)
		return run_one(argv, cases, n);
	for (size_t i = 0; i < n; i++) {
		const struct t_case *c = &cases[i];
		const struct variant *p = c->flags & T_PATHS ? path_variants : no_variant;

		if (!wanted(argc, argv, c->name))
			continue;
		if (c->host && !t_on_host()) {
			printf("skip %s: %s\n", c->name, c->host);
			skipped++;
			continue;
		}
		for (; p->label; p++) {
			const struct variant *e = c->flags & T_ENGINES ? engine_variants :
									 no_variant;

			for (; e->label; e++) {
				uint64_t start = t_now_ns();
				int rc;

				if (!wanted_variant(p) || !wanted_variant(e))
					continue;
				rc = spawn(c, p, e);
				passed += rc == 0;
				skipped += rc == 77;
				failed += rc != 0 && rc != 77;
				printf("%s %s%s%s%s%s (%.2f s)\n",
				       rc == 0 ? "ok" : rc == 77 ? "skip" : "FAIL", c->name,
				       *p->label ? " path=" : "", p->label,
				       *e->label ? " engine=" : "", e->label,
				       (double)(t_now_ns() - start) / 1e9);
			}
		}
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	if (failed || passed + skipped == 0)
		return 1;
	return passed ? 0 : 77;
}
