// SPDX-License-Identifier: GPL-2.0-only
#include "kmod_test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SUM0 0xcbf29ce484222325ull

void t_fail(const char *file, int line, const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "%s:%d: ", file, line);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	/* not exit(): in a child the parent's buffers are not ours to flush */
	_exit(1);
}

int t_main(int argc, char **argv, const struct t_case *cases)
{
	for (const struct t_case *c = cases; c->name; c++) {
		bool wanted = argc < 2;

		for (int i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], c->name);
		if (!wanted)
			continue;
		c->run();
		printf("ok %s\n", c->name);
		fflush(stdout);
	}
	return 0;
}

/* --- ABI ---------------------------------------------------------------------------------- */

int t_open(int dev)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/" PHXFS_DEV_PREFIX "%d", dev);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		t_fail(__FILE__, __LINE__, "%s: %s", path, strerror(errno));
	return fd;
}

int t_ioctl(int fd, unsigned long cmd, void *arg)
{
	int ret = ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

void *t_mmap(int fd, uint64_t length)
{
	void *p = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

struct phxfs_ioctl_map t_args(const struct t_region *r)
{
	return (struct phxfs_ioctl_map){
		.dev_id = r->dev,
		.c_vaddr = (uintptr_t)r->p,
		.c_size = r->length,
		.n_vaddr = r->addr,
		.n_size = r->length,
		/* what an older library leaves on its stack */
		.end_addr = 0xdeadbeefdeadbeefull,
		.sbuf_block = 0xdeadbeef,
	};
}

int t_map(const struct t_region *r)
{
	struct phxfs_ioctl_map arg = t_args(r);

	return t_ioctl(r->fd, PHXFS_IOCTL_MAP, &arg);
}

int t_unmap(const struct t_region *r)
{
	struct phxfs_ioctl_map arg = t_args(r);

	return t_ioctl(r->fd, PHXFS_IOCTL_UNMAP, &arg);
}

static int query_region(const struct t_region *r, struct phxfs_ioctl_region *q)
{
	*q = (struct phxfs_ioctl_region){ .size = sizeof(*q), .c_vaddr = (uintptr_t)r->p };
	return t_ioctl(r->fd, PHXFS_IOCTL_REGION, q);
}

int t_state(const struct t_region *r)
{
	struct phxfs_ioctl_region q;
	int err = query_region(r, &q);

	return err ? err : (int)q.state;
}

int t_pieces(const struct t_region *r)
{
	struct phxfs_ioctl_region q;

	CHECK_EQ(query_region(r, &q), 0);
	return q.pieces;
}

uint64_t t_features(const struct t_region *r)
{
	struct phxfs_ioctl_region q;

	CHECK_EQ(query_region(r, &q), 0);
	return q.features;
}

bool t_is_staging(void)
{
	return t_parameter("phxfs", "phxfs_map_mode") == PHXFS_MAP_MODE_STAGING;
}

uint64_t t_granule(void)
{
	return t_is_staging() ? PHXFS_SPAN_ALIGN : PHXFS_REG_ALIGN;
}

struct t_region t_register(int fd, int dev, uint64_t addr, uint64_t length)
{
	struct t_region r = { .fd = fd, .dev = dev, .addr = addr, .length = length };

	r.p = t_mmap(fd, length);
	CHECK(r.p);
	CHECK_EQ(t_map(&r), 0);
	return r;
}

void t_unregister(struct t_region *r)
{
	CHECK_EQ(t_unmap(r), 0);
	CHECK_EQ(munmap(r->p, r->length), 0);
	r->p = NULL;
}

/* --- sysfs ---------------------------------------------------------------------------------- */

static bool read_number(const char *path, long long *value)
{
	FILE *f = fopen(path, "r");
	char text[64];
	bool ok;

	if (!f)
		return false;
	ok = fgets(text, sizeof(text), f) != NULL;
	fclose(f);
	if (ok && (text[0] == 'Y' || text[0] == 'N'))
		*value = text[0] == 'Y';
	else if (ok)
		ok = sscanf(text, "%lld", value) == 1;
	return ok;
}

long long t_counter(int dev, const char *name)
{
	long long value = 0;
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/" PHXFS_CLASS "/" PHXFS_DEV_PREFIX "%d/%s", dev,
		 name);
	if (!read_number(path, &value))
		t_fail(__FILE__, __LINE__, "%s cannot be read", path);
	return value;
}

void t_expect_counter(int dev, const char *name, long long value)
{
	long long got = 0;

	for (int i = 0; i < 500 * t_slow(); i++) {
		got = t_counter(dev, name);
		if (got == value)
			return;
		usleep(10000);
	}
	t_fail(__FILE__, __LINE__, "device %d: %s stays %lld, not %lld", dev, name, got, value);
}

void t_expect_idle(int dev)
{
	t_expect_counter(dev, "regions", 0);
	t_expect_counter(dev, "pinned_bytes", 0);
	t_expect_counter(dev, "zombie_bytes", 0);
	if (t_is_staging())
		t_expect_counter(dev, "mapped_bytes", 0);
}

static void parameter_path(char *path, size_t size, const char *module, const char *name)
{
	snprintf(path, size, "/sys/module/%s/parameters/%s", module, name);
}

void t_write_sysfs(const char *path, const char *text)
{
	int f = open(path, O_WRONLY | O_CLOEXEC);

	CHECK(f >= 0);
	if (write(f, text, strlen(text)) < 0)
		t_fail(__FILE__, __LINE__, "%s: %s", path, strerror(errno));
	close(f);
}

void t_set_parameter(const char *module, const char *name, const char *value)
{
	char path[128];
	FILE *f;

	parameter_path(path, sizeof(path), module, name);
	f = fopen(path, "w");
	if (!f || fputs(value, f) < 0 || fclose(f))
		t_fail(__FILE__, __LINE__, "%s: cannot write '%s'", path, value);
}

long long t_parameter(const char *module, const char *name)
{
	long long value = 0;
	char path[128];

	parameter_path(path, sizeof(path), module, name);
	if (!read_number(path, &value))
		t_fail(__FILE__, __LINE__, "%s cannot be read", path);
	return value;
}

/* --- device memory: the accelerator's runtime, by dlopen like any vendor's ------------------- */

static void *sim(const char *name)
{
	static void *handle;
	void *f;

	if (!handle)
		handle = dlopen("libphxsim.so", RTLD_NOW);
	if (!handle)
		t_fail(__FILE__, __LINE__, "%s", dlerror());
	f = dlsym(handle, name);
	if (!f)
		t_fail(__FILE__, __LINE__, "%s", dlerror());
	return f;
}

int t_try_alloc(int dev, uint64_t length, unsigned int layout, uint64_t *addr)
{
	int (*call)(int, size_t, unsigned int, void **) = sim("phxsim_mem_alloc");
	void *p = NULL;
	int err = call(dev, length, layout, &p);

	*addr = (uintptr_t)p;
	return err;
}

uint64_t t_alloc(int dev, uint64_t length, unsigned int layout)
{
	uint64_t addr;

	CHECK_EQ(t_try_alloc(dev, length, layout, &addr), 0);
	return addr;
}

int t_try_free(uint64_t addr)
{
	int (*call)(void *) = sim("phxsim_mem_free");

	return call((void *)(uintptr_t)addr);
}

void t_free(uint64_t addr)
{
	CHECK_EQ(t_try_free(addr), 0);
}

void t_expect_unused(int dev)
{
	long long used = 0;
	char path[64];

	/* by its sysfs: to open it would be a use */
	snprintf(path, sizeof(path), "/sys/class/misc/phxsim%d/used_bytes", dev);
	for (int i = 0; i < 500 * t_slow(); i++) {
		CHECK(read_number(path, &used));
		if (!used)
			return;
		usleep(10000);
	}
	t_fail(__FILE__, __LINE__, "phxsim%d: %lld bytes stay in use", dev, used);
}

int t_try_fault(int dev, unsigned int kind, uint32_t skip, uint32_t count, uint64_t arg)
{
	int (*call)(int, unsigned int, uint32_t, uint32_t, uint64_t) = sim("phxsim_fault");

	return call(dev, kind, skip, count, arg);
}

void t_fault(int dev, unsigned int kind, uint32_t skip, uint32_t count, uint64_t arg)
{
	CHECK_EQ(t_try_fault(dev, kind, skip, count, arg), 0);
}

static int reclaim(int dev, uint64_t addr, uint32_t *callbacks)
{
	int (*call)(int, int, const void *, uint32_t *) = sim("phxsim_reclaim");

	*callbacks = 0;
	return call(dev, 0, (void *)(uintptr_t)addr, callbacks);
}

uint32_t t_reclaim(int dev, uint64_t addr)
{
	uint32_t callbacks;

	CHECK_EQ(reclaim(dev, addr, &callbacks), 0);
	return callbacks;
}

int t_try_reclaim(int dev, uint64_t addr)
{
	uint32_t callbacks;

	return reclaim(dev, addr, &callbacks);
}

uint64_t t_bar_offset(uint64_t addr)
{
	int (*call)(const void *, uint64_t *, uint32_t) = sim("phxsim_pointer_pages");
	uint64_t offset = 0;

	CHECK_EQ(call((void *)(uintptr_t)addr, &offset, 1), 0);
	return offset;
}

uint64_t t_available(int dev)
{
	int (*call)(int, uint64_t *, uint64_t *) = sim("phxsim_device_memory");
	uint64_t available = 0;

	CHECK_EQ(call(dev, NULL, &available), 0);
	return available;
}

void t_fill_device(uint64_t addr, uint64_t length, uint64_t seed)
{
	int (*call)(void *, uint64_t, size_t) = sim("phxsim_fill");

	CHECK_EQ(call((void *)(uintptr_t)addr, seed, length), 0);
}

void t_fill_host(void *p, uint64_t length, uint64_t seed)
{
	uint64_t (*word)(uint64_t, uint64_t) = sim("phxsim_pattern");
	uint64_t *words = p;

	for (uint64_t i = 0; i < length / 8; i++)
		words[i] = word(seed, i);
}

bool t_host_has(const void *p, uint64_t length, uint64_t seed)
{
	uint64_t (*word)(uint64_t, uint64_t) = sim("phxsim_pattern");
	const uint64_t *words = p;

	for (uint64_t i = 0; i < length / 8; i++)
		if (words[i] != word(seed, i))
			return false;
	return true;
}

bool t_device_has(uint64_t addr, uint64_t length, uint64_t seed)
{
	int (*device)(const void *, size_t, uint64_t *) = sim("phxsim_checksum");
	uint64_t (*host)(const void *, size_t, uint64_t) = sim("phxsim_checksum_host");
	uint64_t sum = SUM0, want;
	void *p = t_aligned(length);

	CHECK_EQ(device((void *)(uintptr_t)addr, length, &sum), 0);
	t_fill_host(p, length, seed);
	want = host(p, length, SUM0);
	free(p);
	return sum == want;
}

/* --- time, chance ----------------------------------------------------------------------------- */

long long t_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

long t_setting(const char *name, long otherwise)
{
	const char *text = getenv(name);
	char *end = NULL;
	long value = otherwise;

	if (text && *text)
		value = strtol(text, &end, 10);
	if ((end && *end) || value < 0)
		t_fail(__FILE__, __LINE__, "%s=%s is no number", name, text);
	return value;
}

int t_slow(void)
{
	long slow = t_setting("PHX_SLOW", 1);

	return slow < 1 ? 1 : slow;
}

uint64_t t_random(uint64_t *state, uint64_t below)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return below ? (x ^ (x >> 31)) % below : 0;
}

/* --- processes, transfers --------------------------------------------------------------------- */

void *t_aligned(uint64_t length)
{
	void *p = aligned_alloc(4096, (length + 4095) & ~4095ull);

	CHECK(p);
	return p;
}

int t_in_child(int (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid)
		_exit(fn(arg));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
	siglongjmp(fault_jump, sig);
}

bool t_faults(const volatile void *p)
{
	struct sigaction act = { .sa_handler = on_fault }, bus, segv;
	volatile bool faulted = true;

	sigaction(SIGBUS, &act, &bus);
	sigaction(SIGSEGV, &act, &segv);
	if (!sigsetjmp(fault_jump, 1)) {
		(void)*(const volatile char *)p;
		faulted = false;
	}
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return faulted;
}

struct t_held t_hold(void *p, uint64_t length)
{
	struct iovec iov = { .iov_base = p, .iov_len = length };
	struct t_held h;

	CHECK_EQ(pipe(h.pipe), 0);
	CHECK_EQ(vmsplice(h.pipe[1], &iov, 1, 0), length);
	return h;
}

void t_let_go(struct t_held *h)
{
	close(h->pipe[1]);
	close(h->pipe[0]);
}
