// SPDX-License-Identifier: GPL-2.0-only
/*
 * The call surface of phxfs.ko: every argument of every call, every order of calls, other
 * processes.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int fd;
static uint64_t granule;

static void refuse(const struct t_region *r, struct phxfs_ioctl_map arg, int want, int line)
{
	int got = t_ioctl(r->fd, PHXFS_IOCTL_MAP, &arg);

	if (got != want)
		t_fail(__FILE__, line, "MAP gives %d, not %d", got, want);
	CHECK_EQ(t_state(r), PHXFS_REGION_EMPTY);
}

#define REFUSED(r, field, value, want)                       \
	do {                                                 \
		struct phxfs_ioctl_map arg_ = t_args(r);     \
		arg_.field = (value);                        \
		refuse(r, arg_, want, __LINE__);             \
	} while (0)

static void map_arguments(void)
{
	struct t_region r = { .fd = fd, .length = 2 * granule };

	r.addr = t_alloc(0, r.length, T_LAYOUT_HUGE);
	r.p = t_mmap(fd, r.length);
	CHECK(r.p);
	REFUSED(&r, dev_id, 1, -EINVAL);
	REFUSED(&r, dev_id, UINT64_MAX, -EINVAL);
	REFUSED(&r, n_vaddr, 0, -EINVAL);
	REFUSED(&r, n_vaddr, r.addr + 4096, -EINVAL);
	REFUSED(&r, n_vaddr, UINT64_MAX - 0xffff, -EINVAL);
	REFUSED(&r, n_vaddr, r.addr + granule, -EINVAL);	/* past the allocation */
	REFUSED(&r, n_vaddr, 0x10000, -EINVAL);			/* no device memory */
	REFUSED(&r, n_size, 0, -EINVAL);
	REFUSED(&r, n_size, granule, -EINVAL);
	REFUSED(&r, n_size, UINT64_MAX, -EINVAL);
	REFUSED(&r, c_size, 0, -EINVAL);
	REFUSED(&r, c_size, granule, -EINVAL);
	REFUSED(&r, c_vaddr, 0, -EFAULT);
	REFUSED(&r, c_vaddr, (uintptr_t)r.p + granule, -EINVAL);
	REFUSED(&r, c_vaddr, (uintptr_t)&r & ~0xffffull, -EFAULT);
	REFUSED(&r, c_vaddr, UINT64_MAX & ~0xffffull, -EFAULT);

	struct phxfs_ioctl_map both = t_args(&r);

	both.n_size = both.c_size = 4096;
	refuse(&r, both, -EINVAL, __LINE__);
	both.n_size = both.c_size = granule;
	refuse(&r, both, -EINVAL, __LINE__);
	both.n_size = both.c_size = 4 * granule;
	refuse(&r, both, -EINVAL, __LINE__);
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_MAP, NULL), -EFAULT);
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_MAP, (void *)-8), -EFAULT);

	CHECK_EQ(t_map(&r), 0);
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

static void unmap_arguments(void)
{
	struct t_region r = t_register(fd, 0, t_alloc(0, 2 * granule, T_LAYOUT_HUGE), 2 * granule);
	struct phxfs_ioctl_map good = t_args(&r), arg;

#define REFUSED_UNMAP(field, value, want)                                    \
	do {                                                                 \
		arg = good;                                                  \
		arg.field = (value);                                         \
		CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_UNMAP, &arg), want);        \
		CHECK_EQ(t_state(&r), PHXFS_REGION_LIVE);                    \
	} while (0)

	REFUSED_UNMAP(dev_id, 7, -EINVAL);
	REFUSED_UNMAP(n_vaddr, r.addr + granule, -EINVAL);
	REFUSED_UNMAP(n_vaddr, 0, -EINVAL);
	REFUSED_UNMAP(n_size, granule, -EINVAL);
	REFUSED_UNMAP(c_size, granule, -EINVAL);
	REFUSED_UNMAP(c_vaddr, 0, -EFAULT);
	REFUSED_UNMAP(c_vaddr, good.c_vaddr + granule, -EINVAL);
	arg = good;
	arg.c_size = arg.n_size = granule;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_UNMAP, &arg), -EINVAL);
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_UNMAP, NULL), -EFAULT);
	CHECK_EQ(t_state(&r), PHXFS_REGION_LIVE);
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

static void refuse_mmap(uint64_t length, int prot, int flags, off_t offset, int want, int line)
{
	void *p = mmap(NULL, length, prot, flags, fd, offset);

	if (p != MAP_FAILED || errno != want)
		t_fail(__FILE__, line, "mmap gives %p, errno %d, not %d", p, errno, want);
}

static void mmap_arguments(void)
{
	int rw = PROT_READ | PROT_WRITE;

	refuse_mmap(4096, rw, MAP_SHARED, 0, EINVAL, __LINE__);
	refuse_mmap(8192, rw, MAP_SHARED, 0, EINVAL, __LINE__);
	refuse_mmap(65536 + 4096, rw, MAP_SHARED, 0, EINVAL, __LINE__);
	refuse_mmap(65536, rw, MAP_SHARED, 15 * 4096, EINVAL, __LINE__);
	refuse_mmap(65536, rw, MAP_SHARED, 65536, EINVAL, __LINE__);
	refuse_mmap(65536, rw, MAP_PRIVATE, 0, EINVAL, __LINE__);
	refuse_mmap(65536, rw | PROT_EXEC, MAP_SHARED, 0, EINVAL, __LINE__);
	refuse_mmap(0, rw, MAP_SHARED, 0, EINVAL, __LINE__);

	void *p = t_mmap(fd, 65536);

	CHECK(p);
	CHECK(mprotect(p, 65536, PROT_READ | PROT_EXEC) < 0 && errno == EACCES);
	CHECK(mremap(p, 65536, 131072, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK(t_faults(p));
	/* not registered: a transfer gets -EFAULT */
	CHECK(read(open("/dev/zero", O_RDONLY | O_CLOEXEC), p, 4096) < 0 && errno == EFAULT);
	CHECK_EQ(munmap(p, 65536), 0);
}

static void query(void)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	struct {
		struct phxfs_ioctl_query q;
		char more[16];
	} big = { .q.size = sizeof(big) };

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	CHECK_EQ(q.size, sizeof(q));
	CHECK_EQ(q.abi, PHXFS_ABI_VERSION);
	CHECK_EQ(q.map_mode, t_counter(0, "map_mode"));
	CHECK_EQ(q.dev_id, 0);
	CHECK_EQ(q.page_size, 65536);
	CHECK_EQ(q.reg_align, PHXFS_REG_ALIGN);
	CHECK_EQ(q.span_align, t_is_staging() ? PHXFS_SPAN_ALIGN : 0);
	CHECK_EQ(q.bar, 2);
	CHECK(q.window_size >= 64 * MIB);
	CHECK(!strcmp(q.backend, "sim"));
	CHECK(!strncmp(q.pci_bdf, "0000:", 5));

	/* a caller that knows more than the module */
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &big), 0);
	CHECK_EQ(big.q.size, sizeof(q));
	CHECK_EQ(big.q.window_size, q.window_size);
	big.q.size = sizeof(big);
	big.q.flags = 0;
	big.more[3] = 1;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &big), -EINVAL);
	/* the same number with another size in it is the same call */
	q.size = sizeof(q);
	CHECK_EQ(t_ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, PHXFS_IOC_MAGIC, 3, 4), &q), 0);

	q.size = sizeof(q) - 1;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), -EINVAL);
	q.size = 0;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), -EINVAL);
	q.size = 4097;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), -EINVAL);
	q.size = sizeof(q);
	q.flags = 1;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), -EINVAL);
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, NULL), -EFAULT);
}

/* A struct whose end is missing, and one that cannot be written to. */
static void query_faults(void)
{
	struct phxfs_ioctl_query *q;
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	CHECK_EQ(munmap(p + 4096, 4096), 0);
	q = (void *)(p + 4096 - sizeof(*q) + 8);
	q->size = sizeof(*q);
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, q), -EFAULT);
	q = (void *)p;
	*q = (struct phxfs_ioctl_query){ .size = sizeof(*q) };
	CHECK_EQ(mprotect(p, 4096, PROT_READ), 0);
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, q), -EFAULT);
	CHECK_EQ(munmap(p, 4096), 0);
}

/* Every file of the device's class directory can be read, and tells a line. */
static void sysfs(void)
{
	static const char *const files[] = {
		"abi", "pci_bdf", "map_mode", "backend", "page_size", "status", "bar",
		"p2p_distance", "mapped_bytes", "page_struct_bytes", "pinned_bytes",
		"zombie_bytes", "regions", "maps", "unmaps", "reclaims", "reclaim_timeouts",
	};
	char path[128], line[256];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		FILE *f;

		snprintf(path, sizeof(path), "/sys/class/%s/%s0/%s", PHXFS_CLASS, PHXFS_DEV_PREFIX,
			 files[i]);
		f = fopen(path, "re");
		CHECK(f);
		CHECK(fgets(line, sizeof(line), f) && strlen(line) > 1);
		fclose(f);
	}
	CHECK_EQ(t_counter(0, "abi"), PHXFS_ABI_VERSION);
	/* a struct page for each page that is mapped for the kernel */
	CHECK_EQ(t_counter(0, "page_struct_bytes") % (t_counter(0, "mapped_bytes") / 4096 ?: 1), 0);
	CHECK_EQ(t_counter(0, "page_struct_bytes") > 0, t_counter(0, "mapped_bytes") > 0);
}

static void unknown_calls(void)
{
	struct phxfs_ioctl_map arg = { 0 };

	CHECK_EQ(t_ioctl(fd, _IOW(PHXFS_IOC_MAGIC, 9, struct phxfs_ioctl_map), &arg), -ENOTTY);
	CHECK_EQ(t_ioctl(fd, _IOW(PHXFS_IOC_MAGIC, 1, char[64]), &arg), -ENOTTY);
	CHECK_EQ(t_ioctl(fd, _IOWR(PHXFS_IOC_MAGIC, 1, struct phxfs_ioctl_map), &arg), -ENOTTY);
	CHECK_EQ(t_ioctl(fd, _IOW('V', 1, struct phxfs_ioctl_map), &arg), -ENOTTY);
	CHECK_EQ(t_ioctl(fd, _IOR(PHXFS_IOC_MAGIC, 3, struct phxfs_ioctl_query), &arg), -ENOTTY);
	CHECK(lseek(fd, 0, SEEK_SET) < 0 && errno == ESPIPE);
}

static void region_query(void)
{
	struct t_region r = { .fd = fd, .length = granule };
	struct phxfs_ioctl_region q = { .size = sizeof(q) };

	r.addr = t_alloc(0, granule, T_LAYOUT_HUGE);
	r.p = t_mmap(fd, granule);
	CHECK_EQ(t_state(&r), PHXFS_REGION_EMPTY);
	q.c_vaddr = (uintptr_t)r.p + 4097;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_REGION, &q), 0);
	CHECK_EQ(q.n_vaddr | q.n_size | q.pieces | q.features | q.page_size, 0);
	CHECK_EQ(t_map(&r), 0);
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_REGION, &q), 0);
	CHECK_EQ(q.state, PHXFS_REGION_LIVE);
	CHECK_EQ(q.n_vaddr, r.addr);
	CHECK_EQ(q.n_size, r.length);
	CHECK_EQ(q.pieces, 1);
	CHECK_EQ(q.page_size, 65536);
	CHECK_EQ(q.features, PHXFS_F_LONGTERM);
	q.flags = 1;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_REGION, &q), -EINVAL);
	q.flags = 0;
	q.c_vaddr = (uintptr_t)&q;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_REGION, &q), -EFAULT);
	q.size = 8;
	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_REGION, &q), -EINVAL);
	t_unregister(&r);
	t_free(r.addr);
}

/* map and unmap in every order */
static void orders(void)
{
	uint64_t addr = t_alloc(0, 2 * granule, T_LAYOUT_HUGE);
	struct t_region r = { .fd = fd, .addr = addr, .length = granule };

	r.p = t_mmap(fd, granule);
	CHECK_EQ(t_unmap(&r), -ENOENT);		/* UNMAP first */
	CHECK_EQ(t_map(&r), 0);
	CHECK_EQ(t_map(&r), -EEXIST);		/* MAP twice */
	CHECK_EQ(t_state(&r), PHXFS_REGION_LIVE);
	CHECK_EQ(t_unmap(&r), 0);
	CHECK_EQ(t_unmap(&r), -ENOENT);		/* UNMAP twice */
	CHECK(t_faults(r.p));
	r.addr = addr + granule;
	CHECK_EQ(t_map(&r), 0);			/* MAP again, of other memory */
	CHECK(!t_faults(r.p));
	CHECK_EQ(munmap(r.p, granule), 0);	/* munmap without UNMAP */
	CHECK_EQ(t_unmap(&r), -EFAULT);
	t_expect_idle(0);

	r.p = t_mmap(fd, granule);		/* munmap without MAP */
	CHECK_EQ(munmap(r.p, granule), 0);
	CHECK_EQ(t_map(&r), -EFAULT);

	/* the same memory, twice at once */
	struct t_region a = t_register(fd, 0, addr, granule), b = t_register(fd, 0, addr, granule);

	CHECK_EQ(t_counter(0, "pinned_bytes"), 2 * granule);
	t_fill_device(addr, granule, 7);
	CHECK(t_host_has(a.p, granule, 7));
	t_unregister(&a);
	CHECK(t_host_has(b.p, granule, 7));
	CHECK_EQ(t_counter(0, "zombie_bytes"), 0);
	t_unregister(&b);
	/* overlapping */
	a = t_register(fd, 0, addr, 2 * granule);
	b = t_register(fd, 0, addr + granule, granule);
	t_unregister(&a);
	CHECK(!t_faults(b.p));
	t_unregister(&b);
	t_free(addr);
	t_expect_idle(0);
}

/* close, then use, then munmap: the mapping works on */
static void close_before_munmap(void)
{
	uint64_t addr = t_alloc(0, granule, T_LAYOUT_HUGE);

	t_fill_device(addr, granule, 3);
	for (int i = 0; i < 100; i++) {
		struct t_region r = t_register(t_open(0), 0, addr, granule);

		CHECK_EQ(close(r.fd), 0);
		CHECK(t_host_has(r.p, i ? 64 : granule, 3));
		CHECK_EQ(munmap(r.p, r.length), 0);
	}
	t_expect_idle(0);
	t_free(addr);
}

static void partial_munmap(void)
{
	struct t_region r = t_register(fd, 0, t_alloc(0, 2 * granule, T_LAYOUT_HUGE), 2 * granule);
	char *p = r.p;

	t_fill_device(r.addr, r.length, 11);
	CHECK_EQ(munmap(p + 65536 / 2, 4096), 0);	/* a hole: two VMAs */
	CHECK(t_faults(p + 65536 / 2));
	CHECK(!t_faults(p));
	CHECK(!t_faults(p + 65536 / 2 + 4096));
	CHECK_EQ(t_unmap(&r), -EINVAL);			/* no longer what was registered */
	CHECK_EQ(t_counter(0, "regions"), 1);
	CHECK_EQ(madvise(p, 4096, MADV_DONTNEED), 0);
	CHECK(t_host_has(p, 4096, 11));			/* comes back by a fault */
	CHECK_EQ(munmap(p, 65536 / 2), 0);
	CHECK_EQ(t_counter(0, "regions"), 1);
	CHECK_EQ(munmap(p, r.length), 0);
	t_expect_idle(0);

	/* moved: the region follows its pages */
	r = t_register(fd, 0, r.addr, 2 * granule);
	p = mremap(r.p, r.length, r.length, MREMAP_MAYMOVE | MREMAP_FIXED,
		   mmap(NULL, r.length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	CHECK(p != MAP_FAILED);
	CHECK(t_host_has(p, 4096, 11));
	CHECK_EQ(t_unmap(&r), -EFAULT);
	r.p = p;
	t_unregister(&r);
	t_free(r.addr);
	t_expect_idle(0);
}

static int child_of_fork(void *arg)
{
	struct t_region *r = arg, own = *r;
	struct phxfs_ioctl_query q = { .size = sizeof(q) };

	CHECK(t_faults(r->p));			/* not inherited */
	CHECK_EQ(t_map(r), -EPERM);
	CHECK_EQ(t_unmap(r), -EPERM);
	CHECK_EQ(t_state(r), -EPERM);
	CHECK(!t_mmap(r->fd, r->length) && errno == EPERM);
	CHECK_EQ(t_ioctl(r->fd, PHXFS_IOCTL_QUERY, &q), 0);
	/* its own descriptor, but its parent's memory: the driver refuses */
	own.fd = t_open(0);
	own.p = t_mmap(own.fd, own.length);
	CHECK(own.p);
	CHECK_EQ(t_map(&own), -EINVAL);
	return 42;
}

static void forked(void)
{
	struct t_region r = t_register(t_open(0), 0, t_alloc(0, granule, T_LAYOUT_HUGE), granule);

	t_fill_device(r.addr, granule, 5);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(t_in_child(child_of_fork, &r), 42);
	CHECK(t_host_has(r.p, granule, 5));
	CHECK_EQ(t_counter(0, "regions"), 1);
	t_unregister(&r);
	close(r.fd);
	t_free(r.addr);
	t_expect_idle(0);
}

/* The child registers, then dies; the parent still holds the descriptor it got from it. */
static int sender(void *arg)
{
	int sock = *(int *)arg, fds[1] = { t_open(0) };
	struct t_region r = t_register(fds[0], 0, t_alloc(0, granule, T_LAYOUT_HUGE), granule);
	char control[CMSG_SPACE(sizeof(fds))] = { 0 };
	struct iovec iov = { .iov_base = &r, .iov_len = sizeof(r) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(c), fds, sizeof(fds));
	CHECK_EQ(sendmsg(sock, &msg, 0), sizeof(r));
	CHECK_EQ(read(sock, control, 1), 1);
	return 7;
}

static void passed_descriptor(void)
{
	int socks[2], status, got;
	struct t_region r;
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { .iov_base = &r, .iov_len = sizeof(r) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	pid_t pid;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
	pid = fork();
	if (!pid)
		_exit(sender(&socks[1]));
	CHECK_EQ(recvmsg(socks[0], &msg, 0), sizeof(r));
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(got));
	r.fd = got;
	CHECK_EQ(t_unmap(&r), -EPERM);
	CHECK_EQ(t_map(&r), -EPERM);
	CHECK_EQ(t_state(&r), -EPERM);
	CHECK(!t_mmap(got, granule) && errno == EPERM);
	CHECK_EQ(t_ioctl(got, PHXFS_IOCTL_QUERY, &q), 0);
	CHECK_EQ(t_counter(0, "regions"), 1);
	CHECK_EQ(write(socks[0], "", 1), 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(WEXITSTATUS(status), 7);
	t_expect_idle(0);	/* though the descriptor is still open here */
	close(got);
	close(socks[0]);
	close(socks[1]);
}

/* Many registrations: no address is handed out twice, and all end with the process. */
static int many_child(void *arg)
{
	enum { COUNT = 200 };
	uint64_t addr = t_alloc(0, 4 * granule, T_LAYOUT_HUGE);
	struct t_region r[COUNT];

	(void)arg;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < COUNT; i++)
			r[i] = t_register(fd = round ? fd : t_open(0), 0, addr + i % 4 * granule,
					  granule);
		CHECK_EQ(t_counter(0, "regions"), COUNT);
		for (int i = 0; i < COUNT && round < 2; i++)
			t_unregister(&r[(i * 7) % COUNT]);
	}
	return 0;
}

static void many(void)
{
	CHECK_EQ(t_in_child(many_child, NULL), 0);
	t_expect_idle(0);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "map-arguments", map_arguments },
		{ "unmap-arguments", unmap_arguments },
		{ "mmap-arguments", mmap_arguments },
		{ "query", query },
		{ "query-faults", query_faults },
		{ "sysfs", sysfs },
		{ "unknown-calls", unknown_calls },
		{ "region-query", region_query },
		{ "orders", orders },
		{ "close-before-munmap", close_before_munmap },
		{ "partial-munmap", partial_munmap },
		{ "forked", forked },
		{ "passed-descriptor", passed_descriptor },
		{ "many", many },
		{ 0 }
	};

	fd = t_open(0);
	granule = t_granule();
	return t_main(argc, argv, cases);
}
