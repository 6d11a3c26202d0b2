// SPDX-License-Identifier: Apache-2.0
#include "t_world.h"

#include <sys/mman.h>
#include <sys/stat.h>

#define AROUND 8192          /* bytes checked on both sides of a request */
#define HOLE (5 * T_GIB + 7) /* where the data of a sparse file begins */

static ssize_t oracle_io(const struct w_op *op)
{
	uint8_t *buf = op->mem->oracle + op->at;
	int fd = op->pair->oracle;
	size_t done = 0;

	do {
		off_t offset = op->offset + (off_t)done;
		ssize_t n = op->write ? pwrite(fd, buf + done, op->len - done, offset) :
					pread(fd, buf + done, op->len - done, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return done ? (ssize_t)done : -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	} while (done < op->len);
	return (ssize_t)done;
}

static int open_twin(const struct world *w, const struct w_pair *p, int side, int flags)
{
	int fd = open(t_name(p->name[side]), flags | O_CLOEXEC, 0600);

	if (fd < 0)
		T_FAIL("open %s: %s", p->name[side], strerror(errno));
	return fd;
}

/* A memory file has no name: its twins are reached through /proc. */
static int reopen_fd(int fd, int flags)
{
	char link[64];
	int again;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	again = open(link, flags | O_CLOEXEC);
	if (again < 0)
		T_FAIL("open %s: %s", link, strerror(errno));
	return again;
}

static int random_flags(struct world *w, const struct w_pair *p)
{
	static const int modes[] = { O_RDWR, O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY };
	int flags = modes[t_below(&w->rand, 6)];

	if (t_below(&w->rand, 2))
		flags |= O_DIRECT;
	if (t_below(&w->rand, 5) == 0 && !p->sparse)
		flags |= O_APPEND;
	if (t_below(&w->rand, 12) == 0)
		flags |= O_SYNC;
	return flags;
}

static void close_pair(struct w_pair *p)
{
	close(p->fd);
	close(p->oracle);
}

static void open_pair(struct world *w, struct w_pair *p)
{
	p->flags = random_flags(w, p);
	if (p->memory) {
		p->fd = reopen_fd(p->look, p->flags & ~O_DIRECT);
		/* older kernels know no O_DIRECT on tmpfs */
		if (p->flags & O_DIRECT &&
		    fcntl(p->fd, F_SETFL, fcntl(p->fd, F_GETFL) | O_DIRECT) < 0)
			p->flags &= ~O_DIRECT;
		p->oracle = reopen_fd(p->look_oracle, p->flags & ~O_DIRECT);
		return;
	}
	p->fd = open(t_name(p->name[0]), p->flags | O_CLOEXEC);
	if (p->fd < 0 && errno == EINVAL) {
		p->flags &= ~O_DIRECT;
		p->fd = open_twin(w, p, 0, p->flags);
	}
	if (p->fd < 0)
		T_FAIL("open %s: %s", p->name[0], strerror(errno));
	p->oracle = open_twin(w, p, 1, p->flags & ~O_DIRECT);
}

static void fill_pair(struct world *w, struct w_pair *p)
{
	size_t size = w_length(w, 3 * T_MIB);
	off_t base = p->sparse ? (off_t)HOLE : 0;
	uint8_t *buf = malloc(size + 1);

	T_CHECK(buf);
	t_fill(buf, size, ++w->tag, 0);
	for (int side = 0; side < 2; side++) {
		int fd = reopen_fd(side ? p->look_oracle : p->look, O_RDWR);

		t_pwrite(fd, buf, size, base);
		/* a hole in the middle and one at the end */
		if (w->big)
			T_EQ(ftruncate(fd, base + 3 * (off_t)T_GIB + 5), 0);
		else if (w->tag % 2)
			T_EQ(ftruncate(fd, base + (off_t)(size + size / 3)), 0);
		if (!p->memory && w->tag % 3 == 0)
			fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				  base + (off_t)(size / 4), (off_t)(size / 4));
		close(fd);
	}
	free(buf);
}

static void make_pair(struct world *w, struct w_pair *p)
{
	p->memory = t_below(&w->rand, 4) == 0;
	p->sparse = t_below(&w->rand, 4) == 0;
	if (p->memory) {
		p->look = t_memfile(0, 0);
		p->look_oracle = t_memfile(0, 0);
	} else {
		for (int side = 0; side < 2; side++)
			close(open_twin(w, p, side, O_RDWR | O_CREAT | O_TRUNC));
		p->look = open_twin(w, p, 0, O_RDONLY);
		p->look_oracle = open_twin(w, p, 1, O_RDONLY);
	}
	fill_pair(w, p);
	open_pair(w, p);
}

static void compare_file(const struct world *w, const struct w_pair *p, off_t from, off_t to)
{
	enum { STEP = 1 << 18 };
	static _Thread_local uint8_t a[STEP], b[STEP];
	off_t size = t_size(p->look);

	if (size != t_size(p->look_oracle))
		T_FAIL("file size %lld, not %lld", (long long)size,
		       (long long)t_size(p->look_oracle));
	from = from < 0 ? 0 : from;
	to = to > size ? size : to;
	for (; from < to; from += STEP) {
		size_t n = to - from < STEP ? (size_t)(to - from) : STEP;

		t_pread(p->look, a, n, from);
		t_pread(p->look_oracle, b, n, from);
		if (memcmp(a, b, n) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			if (a[i] != b[i])
				T_FAIL("file byte %lld is %02x, not %02x",
				       (long long)from + (long long)i, a[i], b[i]);
	}
}

static void compare_mem(const struct w_mem *m, size_t from, size_t to)
{
	enum { STEP = 1 << 20 };
	static _Thread_local uint8_t got[STEP];

	to = to > m->r.len ? m->r.len : to;
	for (; from < to; from += STEP) {
		size_t n = to - from < STEP ? to - from : STEP;

		t_get(got, m->r.p + from, n);
		if (memcmp(got, m->oracle + from, n) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			if (got[i] != m->oracle[from + i])
				T_FAIL("memory byte %zu is %02x, not %02x", from + i, got[i],
				       m->oracle[from + i]);
	}
}

void w_start(struct world *w, uint64_t seed, const char *prefix, size_t mem_size)
{
	memset(w, 0, sizeof(*w));
	w->rand.state = seed;
	w->strict = t_path_is("direct");
	w->mem_size = mem_size;
	w->big = mem_size > T_GIB;
	for (int i = 0; i < W_MEMS; i++) {
		struct w_mem *m = &w->mem[i];

		m->device = i < W_MEMS - 1 ? 0 : -1;
		if (m->device >= 0)
			t_region(&m->r, m->device, mem_size);
		else
			t_map(&m->r, -1, mem_size);
		m->oracle = mmap(NULL, mem_size, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		T_CHECK(m->oracle != MAP_FAILED);
		if (!w->big) /* else both are zero, and stay unpopulated */
			t_get(m->oracle, m->r.p, mem_size);
	}
	for (int i = 0; i < W_PAIRS; i++) {
		struct w_pair *p = &w->pair[i];

		snprintf(p->name[0], sizeof(p->name[0]), "%s-%d-lib", prefix, i);
		snprintf(p->name[1], sizeof(p->name[1]), "%s-%d-oracle", prefix, i);
		make_pair(w, p);
	}
}

void w_reopen(struct world *w, struct w_pair *p)
{
	close_pair(p);
	if (t_below(&w->rand, 3) == 0) {
		close(p->look);
		close(p->look_oracle);
		make_pair(w, p);
	} else {
		open_pair(w, p);
	}
}

size_t w_length(struct world *w, size_t max)
{
	static const size_t units[] = { 512, 4096, 65536, 262144 };
	size_t n;

	switch (t_below(&w->rand, 8)) {
	case 0:
		n = 1 + t_below(&w->rand, 600);
		break;
	case 1:
	case 2: /* whole blocks */
		n = units[t_below(&w->rand, 4)] * (1 + t_below(&w->rand, 24));
		break;
	case 3:
	case 4: /* whole blocks and a little */
		n = units[t_below(&w->rand, 4)] * (1 + t_below(&w->rand, 24)) +
		    t_below(&w->rand, 3) - 1;
		break;
	case 5:
		n = t_below(&w->rand, max + 1);
		break;
	default:
		n = t_below(&w->rand, 70000);
	}
	return n > max ? max - t_below(&w->rand, 3) : n;
}

off_t w_offset(struct world *w, const struct w_pair *p)
{
	off_t size = t_size(p->look);
	off_t n = 0;

	switch (t_below(&w->rand, 6)) {
	case 0:
		break;
	case 1: /* about the end */
		n = size - (off_t)t_below(&w->rand, 9000) + 300;
		break;
	case 2:
	case 3:
		n = (off_t)(t_below(&w->rand, 900) * 4096);
		break;
	case 4:
		n = (off_t)(t_below(&w->rand, 6000) * 512 + t_below(&w->rand, 3)) - 1;
		break;
	default:
		n = (off_t)t_below(&w->rand, 4 * T_MIB);
	}
	if (p->sparse && n < (off_t)HOLE / 2 && t_below(&w->rand, 2))
		n += (off_t)HOLE / 4096 * 4096;
	return n < 0 ? 0 : n;
}

/* Often congruent with the file offset, so that the bulk can go direct. */
size_t w_place(struct world *w, const struct w_pair *p, off_t offset, size_t room)
{
	size_t at;

	switch (t_below(&w->rand, 4)) {
	case 0:
		at = t_below(&w->rand, room);
		break;
	case 1:
		at = t_below(&w->rand, room) / 4096 * 4096;
		break;
	case 2:
		at = t_below(&w->rand, room) / 512 * 512 + (size_t)(offset % 512);
		break;
	default:
		at = t_below(&w->rand, room) / 4096 * 4096 + (size_t)(offset % 4096);
	}
	return at >= room ? room - 1 : at;
}

void w_source(struct world *w, struct w_op *op)
{
	w->tag++;
	t_fill(op->mem->r.p + op->at, op->len, w->tag, 0);
	t_fill(op->mem->oracle + op->at, op->len, w->tag, 0);
}

bool w_may_refuse(const struct w_op *op)
{
	size_t align = 4096;

	if (!(op->pair->flags & O_DIRECT))
		return false;
	return op->pair->flags & O_APPEND || op->offset % (off_t)align || op->len % align ||
	       (uintptr_t)(op->mem->r.p + op->at) % align ||
	       /* the end of the file lies within the request */
	       (!op->write && t_size(op->pair->look) % (off_t)align);
}

/*
 * At the end of a file O_DIRECT may clear what lies between the end and the
 * end of the request; phoenix.h says so.
 */
static void allow_cleared(const struct w_op *op)
{
	uint8_t *want = op->mem->oracle + op->at, *got;

	if (op->write || op->got < 0 || !(op->pair->flags & O_DIRECT))
		return;
	got = malloc(op->len + 1);
	T_CHECK(got);
	t_get(got, op->mem->r.p + op->at, op->len);
	for (size_t i = (size_t)op->got; i < op->len; i++)
		if (got[i] == 0)
			want[i] = 0;
	free(got);
}

void w_oracle(struct world *w, struct w_op *op)
{
	if (w->strict && op->got == -EOPNOTSUPP) {
		if (!w_may_refuse(op))
			T_FAIL("refused under PHX_PATH=direct without need");
		op->want = -EOPNOTSUPP; /* nothing may have changed: the oracle does nothing */
	} else {
		op->want = oracle_io(op);
		T_EQ(op->got, op->want);
	}
	allow_cleared(op);
	if (op->got > 0)
		w->moved[op->mem->device < 0][op->write] += (uint64_t)op->got;
}

void w_compare(struct world *w, const struct w_op *op)
{
	size_t from = op->at > AROUND ? op->at - AROUND : 0;

	compare_mem(op->mem, from, op->at + op->len + AROUND);
	if (!op->write)
		return;
	if (op->pair->flags & O_APPEND) {
		off_t size = t_size(op->pair->look);

		compare_file(w, op->pair, size - (off_t)op->len - AROUND, size);
	} else {
		compare_file(w, op->pair, op->offset - AROUND,
			     op->offset + (off_t)op->len + AROUND);
	}
}

void w_check_all(struct world *w)
{
	t_context("the full comparison");
	for (int i = 0; i < W_MEMS; i++)
		compare_mem(&w->mem[i], 0, w->mem[i].r.len);
	for (int i = 0; i < W_PAIRS; i++) {
		const struct w_pair *p = &w->pair[i];
		off_t size = t_size(p->look), edge = w->big ? 16 * (off_t)T_MIB : size;

		if (p->sparse && !w->big) {
			compare_file(w, p, 0, 16 * (off_t)T_MIB);
			compare_file(w, p, (off_t)HOLE - 16 * (off_t)T_MIB, size);
			continue;
		}
		compare_file(w, p, 0, edge);
		compare_file(w, p, size - edge, size);
	}
}

void w_context(const struct world *w, const struct w_op *op, const char *call)
{
	static const char *const modes[] = { " RDONLY", " WRONLY", "" };
	int f = op->pair->flags;

	t_context("%s %s fd%s%s%s%s%s%s size %lld, device %d, buffer +%zu (%p), %zu bytes at %lld",
		  call, op->write ? "write" : "read",
		  modes[f & O_ACCMODE],
		  f & O_DIRECT ? " DIRECT" : "", f & O_APPEND ? " APPEND" : "",
		  f & O_SYNC ? " SYNC" : "", op->pair->memory ? " tmpfs" : "",
		  op->pair->sparse ? " sparse" : "", (long long)t_size(op->pair->look),
		  op->mem->device, op->at, (void *)(op->mem->r.p + op->at), op->len,
		  (long long)op->offset);
}

void w_end(struct world *w)
{
	w_check_all(w);
	for (int i = 0; i < W_PAIRS; i++) {
		close_pair(&w->pair[i]);
		close(w->pair[i].look);
		close(w->pair[i].look_oracle);
	}
	for (int i = 0; i < W_MEMS; i++) {
		if (w->mem[i].device >= 0)
			t_region_free(&w->mem[i].r);
		else
			t_unmap(&w->mem[i].r);
		munmap(w->mem[i].oracle, w->mem_size);
	}
}
