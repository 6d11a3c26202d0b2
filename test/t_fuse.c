// SPDX-License-Identifier: Apache-2.0
/*
 * The server speaks the kernel's FUSE protocol itself: one thread, which
 * keeps the requests that it holds back in a list and answers them later, so
 * that no held request stops another.
 */
#include "t_fuse.h"

#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define MAX_IO (1u << 20)
#define MAX_HELD 4096

struct held {
	uint64_t unique;
	uint64_t offset;
	uint32_t len;
	bool write;
	uint8_t *data; /* of a write */
};

struct server {
	struct t_fuse *fs;
	int dev;
	int n_held;
	struct held held[MAX_HELD];
};

static void reply(struct server *s, uint64_t unique, int error, const void *data, size_t len)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + len), .error = -error, .unique = unique,
	};
	struct iovec iov[2] = { { &out, sizeof(out) }, { (void *)data, len } };

	/* a request whose caller was killed is gone: ENOENT */
	if (writev(s->dev, iov, len ? 2 : 1) < 0 && errno != ENOENT && errno != EINTR)
		_exit(errno == ENODEV ? 0 : 1);
}

static void fill_attr(struct server *s, uint64_t node, struct fuse_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->ino = node;
	attr->nlink = 1;
	attr->blksize = 4096;
	attr->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666;
	attr->size = node == FUSE_ROOT_ID ? 0 : s->fs->size;
	attr->blocks = (attr->size + 511) / 512;
}

static void answer_init(struct server *s, uint64_t unique, const struct fuse_init_in *in)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = 31,
		.max_readahead = in->max_readahead,
		/*
		 * ASYNC_DIO: without it io_uring issues a request within its
		 * submission, so that a held one would hold the submitter, and
		 * continues a short one at the wrong place (seen on 6.18).
		 */
		.flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO,
		.max_background = MAX_HELD,
		.congestion_threshold = MAX_HELD,
		.max_write = MAX_IO,
		.time_gran = 1,
		.max_pages = MAX_IO / 4096,
	};

	out.flags &= in->flags;
	reply(s, unique, 0, &out, sizeof(out));
}

static void answer_lookup(struct server *s, uint64_t unique, const char *name)
{
	struct fuse_entry_out out = { .nodeid = 2 };

	if (strcmp(name, "f") != 0) {
		reply(s, unique, ENOENT, NULL, 0);
		return;
	}
	fill_attr(s, 2, &out.attr);
	reply(s, unique, 0, &out, sizeof(out));
}

static void answer_getattr(struct server *s, uint64_t unique, uint64_t node)
{
	struct fuse_attr_out out = { 0 };

	fill_attr(s, node, &out.attr);
	reply(s, unique, 0, &out, sizeof(out));
}

static void answer_setattr(struct server *s, uint64_t unique, uint64_t node,
			   const struct fuse_setattr_in *in)
{
	if (in->valid & FATTR_SIZE) {
		uint64_t old = s->fs->size;

		if (in->size > T_FUSE_ROOM) {
			reply(s, unique, EFBIG, NULL, 0);
			return;
		}
		if (in->size < old)
			memset(s->fs->data + in->size, 0, old - in->size);
		s->fs->size = in->size;
	}
	answer_getattr(s, unique, node);
}

static void answer_open(struct server *s, uint64_t unique, uint64_t node)
{
	struct fuse_open_out out = {
		.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES,
	};
	int error = 0;

	s->fs->opens++;
	if (s->fs->open_error && s->fs->open_skip-- <= 0)
		error = s->fs->open_error;
	reply(s, unique, error, &out, error ? 0 : sizeof(out));
}

static bool injected_error(struct t_fuse *fs, uint64_t offset, int *error)
{
	if (!fs->error || !fs->error_count || offset < fs->error_from ||
	    (fs->error_to && offset >= fs->error_to))
		return false;
	*error = fs->error;
	if (fs->error_count > 0)
		fs->error_count--;
	return true;
}

static void answer_data(struct server *s, const struct held *h)
{
	struct t_fuse *fs = s->fs;
	uint64_t len = h->len;
	int error = 0;

	if (injected_error(fs, h->offset, &error)) {
		reply(s, h->unique, error, NULL, 0);
		return;
	}
	if (fs->cut && len > fs->cut)
		len = fs->cut;
	if (!h->write) {
		if (h->offset >= fs->size)
			len = 0;
		else if (len > fs->size - h->offset)
			len = fs->size - h->offset;
		reply(s, h->unique, 0, fs->data + h->offset, len);
		return;
	}
	if (h->offset >= T_FUSE_ROOM || len > T_FUSE_ROOM - h->offset) {
		reply(s, h->unique, ENOSPC, NULL, 0);
		return;
	}
	memcpy(fs->data + h->offset, h->data, len);
	if (h->offset + len > fs->size)
		fs->size = h->offset + len;
	reply(s, h->unique, 0, &(struct fuse_write_out){ .size = (uint32_t)len },
	      sizeof(struct fuse_write_out));
}

static bool is_held(const struct t_fuse *fs, const struct held *h)
{
	return fs->gate && (h->write || !fs->writes_only) && h->offset >= fs->gate_from &&
	       (!fs->gate_to || h->offset < fs->gate_to);
}

static void take_data(struct server *s, struct held *h)
{
	struct t_fuse *fs = s->fs;

	if (h->write) {
		int at = fs->order_len;

		if (at < (int)(sizeof(fs->order) / sizeof(fs->order[0]))) {
			fs->order[at] = h->offset;
			fs->order_len = at + 1;
		}
		fs->writes++;
	} else {
		fs->reads++;
	}
	if (!is_held(fs, h) || s->n_held == MAX_HELD) {
		answer_data(s, h);
		return;
	}
	if (h->write) {
		uint8_t *copy = malloc(h->len);

		if (!copy)
			_exit(1);
		memcpy(copy, h->data, h->len);
		h->data = copy;
	}
	s->held[s->n_held++] = *h;
	fs->waiting = s->n_held;
}

/* Answers what the gate no longer holds; the order of arrival is kept. */
static void let_go(struct server *s)
{
	int kept = 0;

	for (int i = 0; i < s->n_held; i++) {
		struct held *h = &s->held[i];

		if (is_held(s->fs, h)) {
			s->held[kept++] = *h;
			continue;
		}
		answer_data(s, h);
		if (h->write)
			free(h->data);
	}
	s->n_held = kept;
	s->fs->waiting = kept;
}

/* A signal came to the caller: its held request ends with EINTR. */
static void interrupt(struct server *s, uint64_t unique)
{
	for (int i = 0; i < s->n_held; i++) {
		if (s->held[i].unique != unique)
			continue;
		reply(s, unique, EINTR, NULL, 0);
		if (s->held[i].write)
			free(s->held[i].data);
		s->held[i] = s->held[--s->n_held];
		s->fs->waiting = s->n_held;
		return;
	}
}

static void take_request(struct server *s, const uint8_t *buf)
{
	const struct fuse_in_header *in = (const void *)buf;
	const void *arg = buf + sizeof(*in);
	struct held h = { .unique = in->unique };

	switch (in->opcode) {
	case FUSE_INIT:
		answer_init(s, in->unique, arg);
		break;
	case FUSE_LOOKUP:
		answer_lookup(s, in->unique, arg);
		break;
	case FUSE_GETATTR:
		answer_getattr(s, in->unique, in->nodeid);
		break;
	case FUSE_SETATTR:
		answer_setattr(s, in->unique, in->nodeid, arg);
		break;
	case FUSE_OPEN:
		answer_open(s, in->unique, in->nodeid);
		break;
	case FUSE_READ:
		h.offset = ((const struct fuse_read_in *)arg)->offset;
		h.len = ((const struct fuse_read_in *)arg)->size;
		take_data(s, &h);
		break;
	case FUSE_WRITE:
		h.offset = ((const struct fuse_write_in *)arg)->offset;
		h.len = ((const struct fuse_write_in *)arg)->size;
		h.write = true;
		h.data = (uint8_t *)arg + sizeof(struct fuse_write_in);
		take_data(s, &h);
		break;
	case FUSE_INTERRUPT:
		interrupt(s, ((const struct fuse_interrupt_in *)arg)->unique);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
	case FUSE_FSYNC:
		reply(s, in->unique, 0, NULL, 0);
		break;
	default:
		reply(s, in->unique, ENOSYS, NULL, 0);
	}
}

static void serve(struct server *s)
{
	uint8_t *buf = aligned_alloc(4096, MAX_IO + 8192);

	while (buf) {
		struct pollfd p[2] = { { s->dev, POLLIN, 0 }, { s->fs->wake, POLLIN, 0 } };
		uint64_t count;
		ssize_t n;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents & POLLIN && read(s->fs->wake, &count, sizeof(count)) > 0) {
			let_go(s);
			/* says so: the gate's new state is in force */
			s->fs->wake_seen += (uint32_t)count;
		}
		if (!(p[0].revents & (POLLIN | POLLERR)))
			continue;
		n = read(s->dev, buf, MAX_IO + 8192);
		if (n < 0 && errno == ENODEV)
			break; /* unmounted */
		if (n > 0)
			take_request(s, buf);
	}
	_exit(0);
}

static void start_server(struct t_fuse *fs, int dev)
{
	pid_t parent = getpid();

	fs->server = fork();
	if (fs->server < 0)
		T_FAIL("fork: %s", strerror(errno));
	if (fs->server == 0) {
		struct server *s = calloc(1, sizeof(*s));

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!s || getppid() != parent)
			_exit(1);
		s->fs = fs;
		s->dev = dev;
		serve(s);
	}
	close(dev);
}

struct t_fuse *t_fuse_start(size_t size, uint64_t seed)
{
	size_t total = sizeof(struct t_fuse) + T_FUSE_ROOM;
	struct t_fuse *fs = mmap(NULL, total, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char options[128];
	int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	T_CHECK(fs != MAP_FAILED && size <= T_FUSE_ROOM);
	if (dev < 0)
		t_skip("no FUSE: %s", strerror(errno));
	t_own_mounts();
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u,"
		 "allow_other", dev, geteuid(), getegid());
	t_mount("phxtest", "fuse", "fuse", options);
	fs->data = (uint8_t *)(fs + 1);
	fs->size = size;
	t_fill(fs->data, size, seed, 0);
	fs->wake = eventfd(0, EFD_CLOEXEC);
	T_CHECK(fs->wake >= 0);
	start_server(fs, dev);
	return fs;
}

int t_fuse_open(struct t_fuse *fs, int flags)
{
	return t_open("fuse/f", flags);
}

/* Returns when the server has seen the change. */
static void wake(struct t_fuse *fs)
{
	uint32_t before = fs->wake_seen;
	uint64_t one = 1;

	T_EQ(write(fs->wake, &one, sizeof(one)), sizeof(one));
	T_WAIT(fs->wake_seen != before);
}

void t_fuse_hold(struct t_fuse *fs)
{
	fs->gate = 1;
	wake(fs);
}

void t_fuse_release(struct t_fuse *fs)
{
	fs->gate = 0;
	wake(fs);
}

void t_fuse_held(struct t_fuse *fs, int n)
{
	T_WAIT(fs->waiting >= n);
}

void t_fuse_fail(struct t_fuse *fs, int error, int count)
{
	fs->error_count = count;
	fs->error = error;
}
