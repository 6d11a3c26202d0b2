// SPDX-License-Identifier: Apache-2.0
#include "tp.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* The tests fork with threads running, on purpose. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0:second_deadlock_stack=1:allocator_may_return_null=1";
}

const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=1:allocator_may_return_null=1";
}

/* -------------------------------------------------------------------- checks */

void tp_fail(const char *file, int line, const char *fmt, ...)
{
	char text[1024];
	const char *base = strrchr(file, '/');
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s:%d: %s\n  last error: \"%s\"\n", base ? base + 1 : file, line, text,
		flagcxP2pLastError());
	fflush(NULL);
	_exit(1);
}

void tp_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(NULL);
	_exit(77);
}

void tp_eq(const char *file, int line, const char *got_text, const char *want_text,
	   long long got, long long want)
{
	if (got != want)
		tp_fail(file, line, "%s is %lld, not %s (%lld)", got_text, got, want_text, want);
}

bool tp_sanitized(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return true;
#else
	return false;
#endif
}

long tp_scale(long n)
{
	const char *scale = getenv("PHX_TEST_SCALE");
	double f = scale ? atof(scale) : 1.0;
	long v = (long)((double)n * (tp_sanitized() ? f / 4 : f));

	return v > 0 ? v : 1;
}

double tp_slow(void)
{
	const char *slow = getenv("PHX_TEST_SLOW");

	return slow ? atof(slow) : 1.0;
}

int tp_ms(int ms)
{
	return (int)(ms * tp_slow());
}

double tp_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void tp_sleep(double seconds)
{
	struct timespec ts = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
	};

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

size_t tp_rss(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long total = 0, resident = 0;

	if (!f || fscanf(f, "%lu %lu", &total, &resident) != 2)
		TP_FAIL("/proc/self/statm");
	fclose(f);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

double tp_cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

double tp_thread_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int count_dir(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	if (!d)
		TP_FAIL("%s", path);
	while (readdir(d))
		n++;
	closedir(d);
	return n - 3; /* "." and ".." and, for descriptors, the directory's own */
}

int tp_fds(void)
{
	return count_dir("/proc/self/fd");
}

int tp_threads(void)
{
	return count_dir("/proc/self/task") + 1;
}

/* ------------------------------------------------------------------- content */

static uint64_t word(uint64_t seed, uint64_t index)
{
	uint64_t z = (seed << 40) + index * 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	return z ^ (z >> 27);
}

void tp_fill(void *buf, uint64_t seed, uint64_t off, size_t len)
{
	uint8_t *p = buf;

	for (size_t i = 0; i < len;) {
		uint64_t w = word(seed, (off + i) / 8);
		size_t skip = (off + i) % 8, n = 8 - skip;

		n = n < len - i ? n : len - i;
		memcpy(p + i, (uint8_t *)&w + skip, n);
		i += n;
	}
}

int64_t tp_differs(const void *buf, uint64_t seed, uint64_t off, size_t len)
{
	const uint8_t *p = buf;

	for (size_t i = 0; i < len;) {
		uint64_t w = word(seed, (off + i) / 8);
		size_t skip = (off + i) % 8, n = 8 - skip;

		n = n < len - i ? n : len - i;
		if (memcmp(p + i, (uint8_t *)&w + skip, n)) {
			while (p[i] == ((uint8_t *)&w)[skip]) {
				i++;
				skip++;
			}
			return (int64_t)i;
		}
		i += n;
	}
	return -1;
}

static size_t pages(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (len + page - 1) / page * page;
}

void *tp_alloc(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *p = mmap(NULL, pages(len) + page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED || munmap(p + pages(len), page))
		TP_FAIL("mmap of %zu bytes", len);
	return p + pages(len) - len;
}

void tp_free(void *buf, size_t len)
{
	munmap((uint8_t *)buf - (pages(len) - len), pages(len));
}

/* --------------------------------------------------------------------- peers */

static char self[4096];

static void set_env(const char *env)
{
	char copy[1024], *save, *word_;

	if (!env)
		return;
	snprintf(copy, sizeof(copy), "%s", env);
	for (word_ = strtok_r(copy, " ", &save); word_; word_ = strtok_r(NULL, " ", &save)) {
		char *eq = strchr(word_, '=');

		*eq = '\0';
		setenv(word_, eq + 1, 1);
	}
}

void tp_enter(const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		_exit(126);
	close(fd);
}

static struct tp_peer *spawn(const char *netns, const char *env, const char *role, va_list ap)
{
	struct tp_peer *p = calloc(1, sizeof(*p));
	char *argv[32] = { self, (char *)"--role", (char *)role };
	int in[2], out[2], argc = 3;

	while ((argv[argc] = va_arg(ap, char *)) != NULL)
		argc++;
	if (!p || pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
		TP_FAIL("pipe");
	p->pid = fork();
	if (p->pid < 0)
		TP_FAIL("fork"); /* never a kill(-1) later */
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		if (netns)
			tp_enter(netns);
		set_env(getenv("TP_PEER_ENV")); /* for every peer of a run */
		set_env(env);
		execv(self, argv);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	p->in = in[1];
	p->out = out[0];
	return p;
}

struct tp_peer *tp_spawn(const char *env, const char *role, ...)
{
	struct tp_peer *p;
	va_list ap;

	va_start(ap, role);
	p = spawn(NULL, env, role, ap);
	va_end(ap);
	return p;
}

struct tp_peer *tp_spawn_in(const char *netns, const char *env, const char *role, ...)
{
	struct tp_peer *p;
	va_list ap;

	va_start(ap, role);
	p = spawn(netns, env, role, ap);
	va_end(ap);
	return p;
}

void tp_say(struct tp_peer *p, const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
	va_end(ap);
	text[n++] = '\n';
	if (write(p->in, text, (size_t)n) != n)
		TP_FAIL("peer %d does not listen", (int)p->pid);
}

char *tp_hear(struct tp_peer *p, double seconds)
{
	static char line[65536];
	double until = tp_now() + seconds * tp_slow();

	for (;;) {
		char *end = memchr(p->buf, '\n', p->len);
		struct pollfd f = { .fd = p->out, .events = POLLIN };
		ssize_t n;

		if (end) {
			size_t len = (size_t)(end - p->buf);

			memcpy(line, p->buf, len);
			line[len] = '\0';
			p->len -= len + 1;
			memmove(p->buf, end + 1, p->len);
			return line;
		}
		if (tp_now() > until)
			TP_FAIL("peer %d said nothing for %g s", (int)p->pid, seconds);
		if (poll(&f, 1, 50) <= 0)
			continue;
		n = read(p->out, p->buf + p->len, sizeof(p->buf) - p->len);
		if (n <= 0)
			TP_FAIL("peer %d has ended", (int)p->pid);
		p->len += (size_t)n;
	}
}

static int reap(struct tp_peer *p)
{
	int status = 0;

	waitpid(p->pid, &status, 0);
	close(p->in);
	close(p->out);
	free(p);
	return status;
}

void tp_kill(struct tp_peer *p, int signal_)
{
	kill(p->pid, signal_);
	reap(p);
}

void tp_quit(struct tp_peer *p, double seconds)
{
	double until = tp_now() + seconds * tp_slow();
	siginfo_t info = { 0 };
	int status;

	tp_say(p, "quit");
	while (!info.si_pid && tp_now() < until) {
		waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT);
		tp_sleep(0.001);
	}
	if (!info.si_pid)
		TP_FAIL("peer %d did not quit in %g s", (int)p->pid, seconds);
	status = reap(p);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		TP_FAIL("a peer ended with status %#x", (unsigned int)status);
}

char *tp_line(void)
{
	static char line[65536];

	if (!fgets(line, sizeof(line), stdin))
		return NULL;
	line[strcspn(line, "\n")] = '\0';
	return line;
}

void tp_answer(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

/* --------------------------------------------------------------------- running */

static int run_case(const struct tp_case *c)
{
	double until, start = tp_now();
	int limit = (int)((c->timeout ? c->timeout : 60) * (tp_sanitized() ? 4 : 1) * tp_slow());
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return 1; /* never a kill of group 1 later */

	if (pid == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		set_env(c->env);
		execl(self, self, "--case", c->name, (char *)NULL);
		_exit(127);
	}
	until = start + limit;
	while (waitpid(pid, &status, WNOHANG) == 0 && tp_now() < until)
		tp_sleep(0.005);
	if (tp_now() >= until) {
		printf("FAIL %s: still running after %d s\n", c->name, limit);
		kill(-pid, SIGKILL);
		waitpid(pid, &status, 0);
		return 1;
	}
	kill(-pid, SIGKILL); /* peers that a failed case left behind */
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		printf("skip %s\n", c->name);
		return 77;
	}
	if (WIFEXITED(status) && !WEXITSTATUS(status)) {
		printf("ok   %s (%.1f s)\n", c->name, tp_now() - start);
		return 0;
	}
	printf("FAIL %s: status %#x\n", c->name, (unsigned int)status);
	return 1;
}

static bool named(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strncmp(name, argv[i], strlen(argv[i])))
			return true;
	return argc < 2;
}

int tp_main(int argc, char **argv, const struct tp_case *cases, size_t n,
	    const struct tp_role *roles, size_t n_roles)
{
	int failed = 0, passed = 0;
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (len < 0)
		return 1;
	signal(SIGPIPE, SIG_IGN);
	if (argc > 2 && !strcmp(argv[1], "--role")) {
		for (size_t i = 0; i < n_roles; i++)
			if (!strcmp(roles[i].name, argv[2])) {
				roles[i].run(argc - 3, argv + 3);
				return 0;
			}
		return 127;
	}
	if (argc > 2 && !strcmp(argv[1], "--case")) {
		for (size_t i = 0; i < n; i++)
			if (!strcmp(cases[i].name, argv[2])) {
				cases[i].run();
				return 0;
			}
		return 127;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < n; i++) {
		int rc;

		if (!named(cases[i].name, argc, argv))
			continue;
		rc = run_case(&cases[i]);
		failed += rc == 1;
		passed += rc == 0;
	}
	if (failed)
		return 1;
	return passed ? 0 : 77;
}

/* -------------------------------------------------- the server every test uses */

struct server {
	FlagcxP2pEngine *engine;
	uint8_t *mem;
	size_t size;
	FlagcxP2pMr mr;
};

static void say_desc(struct server *s, const char *word_)
{
	char desc[FLAGCX_P2P_DESC_SIZE];
	char hex[2 * FLAGCX_P2P_DESC_SIZE + 1];

	TP_OK(flagcxP2pEnginePrepareDesc(s->engine, s->mr, s->mem, s->size, desc));
	for (int i = 0; i < FLAGCX_P2P_DESC_SIZE; i++)
		sprintf(hex + 2 * i, "%02x", (unsigned char)desc[i]);
	tp_answer("%s %d %llu %zu %s", word_, flagcxP2pEngineGetRpcPort(s->engine),
		  (unsigned long long)(uintptr_t)s->mem, s->size, hex);
}

static void server_notifs(struct server *s)
{
	FlagcxP2pNotif n[64];
	int got, total = 0;
	unsigned long long bytes = 0;

	while ((got = flagcxP2pEngineGetNotifsV(s->engine, n, 64)) > 0) {
		total += got;
		for (int i = 0; i < got; i++) {
			bytes += n[i].msg_len;
			flagcxP2pNotifFree(&n[i]);
		}
	}
	tp_answer("notifs %d %llu", total, bytes);
}

static bool server_command(struct server *s, char *line)
{
	unsigned long long seed, off, len;

	if (sscanf(line, "fill %llu", &seed) == 1) {
		tp_fill(s->mem, seed, 0, s->size);
		tp_answer("filled");
	} else if (sscanf(line, "check %llu %llu %llu", &seed, &off, &len) == 3) {
		tp_answer("differs %lld", (long long)tp_differs(s->mem + off, seed, off, len));
	} else if (!strcmp(line, "notifs")) {
		server_notifs(s);
	} else if (!strcmp(line, "dereg")) {
		flagcxP2pEngineMrDestroy(s->engine, s->mr);
		tp_answer("gone");
	} else if (!strcmp(line, "reg")) {
		s->mr = tp_reg(s->engine, s->mem, s->size);
		say_desc(s, "desc");
	} else if (!strcmp(line, "stats")) {
		FlagcxP2pStats st = tp_stats(s->engine);

		tp_answer("stats %u %llu %llu %llu", st.connections,
			  (unsigned long long)st.served_write_bytes,
			  (unsigned long long)st.served_read_bytes,
			  (unsigned long long)st.served_refused);
	} else if (!strcmp(line, "cpu")) {
		tp_answer("cpu %f", tp_cpu());
	} else if (!strcmp(line, "quit")) {
		return false;
	} else {
		TP_FAIL("server: %s?", line);
	}
	return true;
}

void tp_role_server(int argc, char **argv)
{
	struct server s = { .size = strtoull(argv[0], NULL, 0) };
	FlagcxP2pEngineOptions o = { .size = sizeof(o), .port = atoi(argv[1]) };
	char *line;

	s.mem = tp_alloc(s.size);
	tp_fill(s.mem, 1, 0, s.size);
	TP_OK(flagcxP2pEngineCreateWith(&o, &s.engine));
	s.mr = tp_reg(s.engine, s.mem, s.size);
	TP_OK(flagcxP2pEngineStartRpcServer(s.engine));
	say_desc(&s, "server");
	while ((line = tp_line()) != NULL && server_command(&s, line))
		;
	flagcxP2pEngineDestroy(s.engine);
	tp_free(s.mem, s.size);
}

static void read_desc(struct tp_server *s, const char *word_, double seconds)
{
	char *line = tp_hear(s->peer, seconds), kind[32], hex[2 * FLAGCX_P2P_DESC_SIZE + 1];
	unsigned long long addr, size;
	char desc[FLAGCX_P2P_DESC_SIZE];

	if (sscanf(line, "%31s %d %llu %llu %128s", kind, &s->port, &addr, &size, hex) != 5 ||
	    strcmp(kind, word_))
		TP_FAIL("server said %s", line);
	s->addr = addr;
	s->size = size;
	for (int i = 0; i < FLAGCX_P2P_DESC_SIZE; i++) {
		unsigned int byte;

		sscanf(hex + 2 * i, "%2x", &byte);
		desc[i] = (char)byte;
	}
	flagcxP2pDeserializeRdmaDesc(desc, &s->desc);
}

void tp_serve_in(struct tp_server *s, const char *netns, const char *ip, size_t size, int port,
		 const char *env)
{
	char size_text[32], port_text[16];

	snprintf(size_text, sizeof(size_text), "%zu", size);
	snprintf(port_text, sizeof(port_text), "%d", port);
	s->peer = netns ? tp_spawn_in(netns, env, "server", size_text, port_text, NULL) :
			  tp_spawn(env, "server", size_text, port_text, NULL);
	read_desc(s, "server", 30);
	snprintf(s->session, sizeof(s->session), "%s:%d", ip ? ip : "127.0.0.1", s->port);
}

void tp_serve(struct tp_server *s, size_t size, int port, const char *env)
{
	tp_serve_in(s, NULL, NULL, size, port, env);
}

void tp_server_check(struct tp_server *s, uint64_t seed, uint64_t off, uint64_t len)
{
	long long at = -2;

	tp_say(s->peer, "check %llu %llu %llu", (unsigned long long)seed, (unsigned long long)off,
	       (unsigned long long)len);
	if (sscanf(tp_hear(s->peer, 60), "differs %lld", &at) != 1 || at != -1)
		TP_FAIL("the server's memory differs at %lld of %llu bytes from %llu", at,
			(unsigned long long)len, (unsigned long long)off);
}

void tp_server_fill(struct tp_server *s, uint64_t seed)
{
	tp_say(s->peer, "fill %llu", (unsigned long long)seed);
	tp_hear(s->peer, 60);
}

FlagcxP2pRdmaDesc tp_desc(const struct tp_server *s, uint64_t off, uint64_t len)
{
	FlagcxP2pRdmaDesc d = s->desc;

	TP_OK(flagcxP2pEngineUpdateDesc(&d, d.addr + off, (uint32_t)len));
	return d;
}

/* ------------------------------------------------------------------ shorthand */

FlagcxP2pEngine *tp_engine(void)
{
	FlagcxP2pEngine *e = flagcxP2pEngineCreate();

	TP_CHECK(e != NULL);
	return e;
}

FlagcxP2pConn *tp_connect(FlagcxP2pEngine *e, const struct tp_server *s)
{
	char host[80];
	FlagcxP2pConn *c;

	snprintf(host, sizeof(host), "%s", s->session);
	*strrchr(host, ':') = '\0';
	c = flagcxP2pEngineConnect(e, host, 0, s->port, false);
	TP_CHECK(c != NULL);
	return c;
}

FlagcxP2pMr tp_reg(FlagcxP2pEngine *e, const void *p, size_t len)
{
	FlagcxP2pMr mr = 0;

	TP_OK(flagcxP2pEngineReg(e, (uintptr_t)p, len, &mr));
	return mr;
}

FlagcxP2pStats tp_stats(FlagcxP2pEngine *e)
{
	FlagcxP2pStats s = { .size = sizeof(s) };

	TP_OK(flagcxP2pEngineStats(e, &s));
	return s;
}

void tp_gauges_zero(FlagcxP2pEngine *e)
{
	FlagcxP2pStats s = tp_stats(e);

	TP_EQ(s.in_flight, 0);
	TP_EQ(s.queued_slices, 0);
	TP_EQ(s.posted_slices, 0);
	TP_EQ(s.staging_busy, 0);
}

/* ------------------------------------------------------------ a healthy pair */

#define PAIR_BLOCK (1u << 20)

struct pair_arg {
	struct tp_pair *p;
	int i;
};

static void *pair_main(void *arg)
{
	struct pair_arg a = *(struct pair_arg *)arg;
	struct tp_pair *p = a.p;
	void *src = p->mem[a.i];
	size_t size = PAIR_BLOCK;

	free(arg);
	while (!p->stop) {
		TP_OK(flagcxP2pEngineWriteVectorSync(p->conn[a.i], &p->mr[a.i], &src, &size,
						     &p->desc, 1));
		p->n[a.i]++;
	}
	return NULL;
}

void tp_pair_start(struct tp_pair *p, FlagcxP2pEngine *e, const struct tp_server *well)
{
	memset(p, 0, sizeof(*p));
	p->engine[0] = e;
	p->engine[1] = tp_engine();
	p->desc = well->desc;
	for (int i = 0; i < 2; i++) {
		struct pair_arg *arg = malloc(sizeof(*arg));
		pthread_t t;

		*arg = (struct pair_arg){ p, i };
		p->mem[i] = tp_alloc(PAIR_BLOCK);
		p->mr[i] = tp_reg(p->engine[i], p->mem[i], PAIR_BLOCK);
		p->conn[i] = tp_connect(p->engine[i], well);
		TP_OK(pthread_create(&t, NULL, pair_main, arg));
		p->thread[i] = (unsigned long)t;
	}
	tp_sleep(0.3);
}

void tp_pair_moves(struct tp_pair *p)
{
	long ours = p->n[0], control = p->n[1];

	TP_WITHIN(30, p->n[0] >= ours + 100 && p->n[1] >= control + 100);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double tp_pair_share(struct tp_pair *p)
{
	double share[3];

	for (int i = 0; i < 3; i++) {
		long ours = p->n[0], control = p->n[1];

		tp_sleep(1);
		control = p->n[1] - control;
		share[i] = (double)(p->n[0] - ours) / (double)(control ? control : 1);
	}
	qsort(share, 3, sizeof(share[0]), by_value);
	return share[1];
}

void tp_pair_stop(struct tp_pair *p)
{
	p->stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join((pthread_t)p->thread[i], NULL);
	flagcxP2pEngineConnDestroy(p->conn[0]);
	flagcxP2pEngineDestroy(p->engine[1]);
	flagcxP2pEngineMrDestroy(p->engine[0], p->mr[0]);
	tp_free(p->mem[0], PAIR_BLOCK);
	tp_free(p->mem[1], PAIR_BLOCK);
}
