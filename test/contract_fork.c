// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of fork(2). */
#include <sys/wait.h>

#include "t_fuse.h"

struct shared {
	struct t_region r;
	int fd;
	phxfs_queue_t *q;
	phxfs_batch_t *b;
	phxfs_io_req_t reqs[4];
	bool held;
};

static void start(struct shared *s)
{
	t_region(&s->r, 0, 16 * T_PAGE);
	s->fd = t_file("f", 16 * T_PAGE, 1, O_RDWR);
	for (size_t i = 0; i < 4; i++)
		s->reqs[i] = (phxfs_io_req_t){ .fd = s->fd, .buf = s->r.p,
					       .buf_offset = (off_t)(i * T_PAGE), .nbytes = T_PAGE,
					       .f_offset = (off_t)(i * T_PAGE) };
	/* the pool's threads run before the fork */
	T_EQ(phxfs_read_batch(s->reqs, 4), 0);
}

static void use_everything(void *arg)
{
	struct shared *s = arg;
	struct phxfs_completion out[4];
	phxfs_queue_t *q;
	phxfs_batch_t *b;
	void *p;

	t_set(s->r.p, 0, s->r.len);
	T_EQ(phxfs_read(s->fd, 0, s->r.p, 0, (ssize_t)s->r.len, 0), s->r.len);
	T_PATTERN(s->r.p, s->r.len, 1, 0);
	t_set(s->r.p, 0, s->r.len);
	T_EQ(phxfs_read_batch(s->reqs, 4), 0);
	T_PATTERN(s->r.p, 4 * T_PAGE, 1, 0);
	b = phxfs_batch_submit_read(s->reqs, 4);
	T_CHECK(b);
	T_EQ(phxfs_batch_wait(b), 0);
	T_EQ(phxfs_queue_create(4, &q), 0);
	T_EQ(phxfs_queue_submit(q, PHXFS_OP_READ, s->reqs, NULL, 4), 4);
	T_EQ(phxfs_queue_wait(q, out, 4, 4, NULL), 4);
	T_EQ(phxfs_queue_destroy(q), 0);
	T_EQ(phxfs_mem_alloc(0, 3 * T_PAGE, &p), 0);
	T_EQ(phxfs_regmem(0, p, T_PAGE, NULL), 0);
	T_EQ(phxfs_read(s->fd, 0, p, 0, T_PAGE, 0), T_PAGE);
	T_EQ(phxfs_deregmem(0, p, T_PAGE), 0);
	T_EQ(phxfs_mem_free(0, p), 0);
	T_CHECK(*phxfs_io_engine_name());
}

static void everything_works_in_a_child(void)
{
	struct shared s;

	start(&s);
	for (int i = 0; i < 5; i++)
		T_EQ(t_in_child(use_everything, &s), 0);
	use_everything(&s);
	t_region_free(&s.r);
}

/* The child has lost the registrations, may make its own, and disturbs nothing. */
static void start_anew(void *arg)
{
	struct phxfs_stats st = { .size = sizeof(st) };
	struct shared *s = arg, own = { .fd = s->fd };

	T_EQ(phxfs_read(s->fd, 0, s->r.p, 0, T_PAGE, 0), -EFAULT);
	T_EQ(phxfs_write(s->fd, 0, s->r.p, 0, T_PAGE, 0), -EFAULT);
	T_EQ(phxfs_read_batch(s->reqs, 4), 4);
	T_EQ(s->reqs[0].result, -EFAULT);
	T_EQ(phxfs_deregmem(0, s->r.p, s->r.len), -EINVAL);
	T_EQ(phxfs_stats(0, &st), 0);
	T_EQ(st.registrations, 0);

	t_map(&own.r, 0, 16 * T_PAGE);
	T_EQ(phxfs_regmem(0, own.r.p, own.r.len, NULL), 0);
	for (size_t i = 0; i < 4; i++) {
		own.reqs[i] = s->reqs[i];
		own.reqs[i].buf = own.r.p;
	}
	use_everything(&own);
	T_EQ(phxfs_deregmem(0, own.r.p, own.r.len), 0);
	t_unmap(&own.r);
	T_EQ(phxfs_close(0), 0);
	T_EQ(phxfs_close(0), -ENODEV);
}

static void an_accelerators_memory_stays_with_the_parent(void)
{
	struct shared s;

	if (t_on_host())
		t_skip("there is none");
	start(&s);
	for (int i = 0; i < 3; i++)
		T_EQ(t_in_child(start_anew, &s), 0);
	use_everything(&s);
	t_region_free(&s.r);
}

static void grandchildren(void *arg)
{
	use_everything(arg);
	T_EQ(t_in_child(use_everything, arg), 0);
	use_everything(arg);
}

static void a_childs_child_works_too(void)
{
	struct shared s;

	start(&s);
	T_EQ(t_in_child(grandchildren, &s), 0);
	t_region_free(&s.r);
}

static void take_down(void *arg)
{
	struct shared *s = arg;

	T_EQ(phxfs_deregmem(0, s->r.p, s->r.len), 0);
	T_EQ(phxfs_close(0), 0);
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_regmem(0, s->r.p, s->r.len, NULL), 0);
	use_everything(s);
	T_EQ(phxfs_close(0), 0);
	T_EQ(phxfs_close(0), -ENODEV);
}

static void what_a_child_closes_stays_open_in_the_parent(void)
{
	struct shared s;

	start(&s);
	T_EQ(t_in_child(take_down, &s), 0);
	use_everything(&s);
	t_region_free(&s.r);
}

/* Queue and batch are the parent's; the child can only free them. */
static void refuse_inherited(void *arg)
{
	struct shared *s = arg;
	struct phxfs_completion out[4];

	T_EQ(phxfs_queue_submit(s->q, PHXFS_OP_READ, s->reqs, NULL, 1), -ECHILD);
	T_CHECK(strstr(phxfs_last_error(), "ECHILD"));
	T_EQ(phxfs_queue_wait(s->q, out, 0, 4, NULL), -ECHILD);
	T_EQ(phxfs_queue_wait(s->q, out, 1, 4, NULL), -ECHILD);
	T_EQ(phxfs_queue_cancel(s->q, NULL), -ECHILD);
	T_EQ(phxfs_queue_eventfd(s->q), -ECHILD);
	T_EQ(phxfs_queue_destroy(s->q), -ECHILD);
	if (s->held)
		T_EQ(phxfs_batch_destroy(s->b), -ECHILD);
	else
		T_EQ(phxfs_batch_wait(s->b), -ECHILD);
	use_everything(s);
}

static void inherited_queues_and_batches_are_echild(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	struct phxfs_completion out[4];
	phxfs_io_req_t slow[2];
	struct shared s;
	int fd;

	start(&s);
	fd = t_fuse_open(fs, O_RDONLY);
	for (size_t i = 0; i < 2; i++)
		slow[i] = (phxfs_io_req_t){ .fd = fd, .buf = s.r.p,
					    .buf_offset = (off_t)((8 + i) * T_PAGE),
					    .nbytes = T_PAGE };
	for (int round = 0; round < 2; round++) {
		s.held = round;
		t_fuse_hold(fs);
		T_EQ(phxfs_queue_create(4, &s.q), 0);
		T_EQ(phxfs_queue_submit(s.q, PHXFS_OP_READ, slow, NULL, 1), 1);
		s.b = phxfs_batch_submit_read(slow + 1, 1);
		T_CHECK(s.b);
		t_fuse_held(fs, 1);
		T_EQ(t_in_child(refuse_inherited, &s), 0);
		/* to the parent nothing has happened */
		t_fuse_release(fs);
		T_EQ(phxfs_queue_wait(s.q, out, 1, 4, NULL), 1);
		T_EQ(out[0].result, T_PAGE);
		T_EQ(phxfs_batch_wait(s.b), 0);
		T_EQ(phxfs_queue_destroy(s.q), 0);
	}
	T_PATTERN(s.r.p + 8 * T_PAGE, T_PAGE, 7, 0);
	t_region_free(&s.r);
}

/* A transfer that runs in the parent holds nothing in the child. */
static void drain_in_child(void *arg)
{
	struct shared *s = arg;

	T_EQ(phxfs_deregmem(0, s->r.p, s->r.len), 0);
	T_EQ(phxfs_close(0), 0);
}

static void the_parents_transfers_do_not_hold_the_child(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	struct t_transfer x;
	struct t_call c;
	struct shared s;

	start(&s);
	x = (struct t_transfer){ .fd = t_fuse_open(fs, O_RDONLY), .buf = s.r.p, .len = T_MIB };
	t_fuse_hold(fs);
	t_call(&c, t_transfer, &x);
	t_fuse_held(fs, 1);
	T_EQ(t_in_child(drain_in_child, &s), 0);
	T_CHECK(!c.done);
	t_fuse_release(fs);
	T_EQ(t_join(&c), T_MIB);
	T_PATTERN(s.r.p, T_MIB, 7, 0);
	t_region_free(&s.r);
}

/* Nobody finishes the parent's close here: busy would be for ever. */
static void open_again(void *arg)
{
	struct shared *s = arg;

	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_regmem(0, s->r.p, s->r.len, NULL), 0);
	use_everything(s);
	T_EQ(phxfs_deregmem(0, s->r.p, s->r.len), 0);
	T_EQ(phxfs_close(0), 0);
}

static long close_0(void *arg)
{
	return phxfs_close(0);
}

static void a_close_that_drains_in_the_parent_is_over_in_the_child(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	struct t_transfer x;
	struct t_call c, closing;
	struct shared s;

	start(&s);
	x = (struct t_transfer){ .fd = t_fuse_open(fs, O_RDONLY), .buf = s.r.p, .len = T_MIB };
	t_fuse_hold(fs);
	t_call(&c, t_transfer, &x);
	t_fuse_held(fs, 1);
	t_call(&closing, close_0, NULL);
	T_STILL_RUNNING(&closing);
	T_EQ(t_in_child(open_again, &s), 0);
	t_fuse_release(fs);
	T_EQ(t_join(&c), T_MIB);
	T_EQ(t_join(&closing), 0);
}

/* Threads of the parent sit in every lock of the library at the time of fork. */
struct noise {
	struct shared *s;
	_Atomic bool stop;
	int kind;
};

static long noise(void *arg)
{
	struct noise *n = arg;
	phxfs_io_req_t req = n->s->reqs[n->kind % 4];
	struct phxfs_stats st = { .size = sizeof(st) };
	struct phxfs_completion out;
	struct t_region own;
	phxfs_queue_t *q;
	void *p;

	t_map(&own, 0, 4 * T_PAGE);
	while (!n->stop) {
		switch (n->kind) {
		case 0:
			T_EQ(phxfs_regmem(0, own.p, own.len, NULL), 0);
			T_EQ(phxfs_deregmem(0, own.p, own.len), 0);
			break;
		case 1:
			T_EQ(phxfs_read_batch(&req, 1), 0);
			break;
		case 2:
			T_EQ(phxfs_open(0), 0);
			T_EQ(phxfs_close(0), 0);
			T_EQ(phxfs_open(1), 0);
			T_EQ(phxfs_close(1), 0);
			break;
		case 3:
			T_EQ(phxfs_queue_create(4, &q), 0);
			T_EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &req, NULL, 1), 1);
			T_EQ(phxfs_queue_wait(q, &out, 1, 1, NULL), 1);
			T_EQ(phxfs_queue_destroy(q), 0);
			break;
		case 4:
			T_EQ(phxfs_mem_alloc(0, 1, &p), 0);
			T_EQ(phxfs_mem_free(0, p), 0);
			T_EQ(phxfs_stats(0, &st), 0);
			phxfs_pointer_device(p);
			break;
		default:
			T_EQ(phxfs_read(n->s->fd, 0, n->s->r.p, 1, 4000, 1), 4000);
			T_EQ(phxfs_read(-1, 0, n->s->r.p, 0, 10, 0), -EBADF);
		}
	}
	return 0;
}

static void fork_while_other_threads_hold_locks(void)
{
	struct noise n[6];
	struct t_call c[6];
	struct shared s;

#ifdef __SANITIZE_ADDRESS__
	t_skip("AddressSanitizer's allocator may be locked for ever in such a child");
#endif
	start(&s);
	for (int i = 0; i < 6; i++) {
		n[i] = (struct noise){ .s = &s, .kind = i };
		t_call(&c[i], noise, &n[i]);
	}
	for (long i = t_scale(60); i > 0; i--)
		T_EQ(t_in_child(use_everything, &s), 0);
	for (int i = 0; i < 6; i++) {
		n[i].stop = true;
		T_EQ(t_join(&c[i]), 0);
	}
	use_everything(&s);
	t_region_free(&s.r);
}

static void first_use(void *arg)
{
	struct shared s;

	start(&s);
	use_everything(&s);
	t_region_free(&s.r);
}

static void the_first_use_may_be_in_a_child(void)
{
	T_EQ(t_in_child(first_use, NULL), 0);
	T_EQ(t_in_child(first_use, NULL), 0);
	first_use(NULL);
}

static void the_childs_exit_leaves_the_parents_io_alone(void)
{
	struct t_fuse *fs = t_fuse_start(8 * T_MIB, 7);
	phxfs_io_req_t reqs[8];
	struct t_region r;
	phxfs_batch_t *b;
	int fd = t_fuse_open(fs, O_RDONLY);

	t_region(&r, 0, 8 * T_MIB);
	for (size_t i = 0; i < 8; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .buf_offset = (off_t)(i * T_MIB),
					    .nbytes = T_MIB, .f_offset = (off_t)(i * T_MIB) };
	t_fuse_hold(fs);
	b = phxfs_batch_submit_read(reqs, 8);
	T_CHECK(b);
	t_fuse_held(fs, 1);
	for (int i = 0; i < 8; i++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			if (t_on_host())
				memset(r.p, 0x5a, r.len); /* all inherited memory */
			exit(0);
		}
		T_EQ(waitpid(pid, &status, 0), pid);
		T_EQ(status, 0);
	}
	t_fuse_release(fs);
	T_EQ(phxfs_batch_wait(b), 0);
	T_PATTERN(r.p, r.len, 7, 0);
	t_region_free(&r);
}

/* Why a case is for HOST devices: there a child has its copy of registered memory. */
#define COPIED "a child goes on with inherited memory"

static const struct t_case cases[] = {
	T_CASE(everything_works_in_a_child, .flags = T_PATHS | T_ENGINES, .host = COPIED),
	T_CASE(everything_works_in_a_child, .host = COPIED, .env = "PHX_POLL_KB=64"),
	T_CASE(a_childs_child_works_too, .flags = T_ENGINES, .host = COPIED),
	T_CASE(an_accelerators_memory_stays_with_the_parent, .flags = T_PATHS | T_ENGINES),
	T_CASE(what_a_child_closes_stays_open_in_the_parent, .flags = T_PATHS, .host = COPIED),
	T_CASE(inherited_queues_and_batches_are_echild, .flags = T_ENGINES, .host = COPIED),
	T_CASE(the_parents_transfers_do_not_hold_the_child, .flags = T_PATHS, .host = COPIED),
	T_CASE(a_close_that_drains_in_the_parent_is_over_in_the_child, .host = COPIED),
	T_CASE(fork_while_other_threads_hold_locks, .env = "PHX_HOST_DEVICES=2",
	       .flags = T_PATHS | T_ENGINES, .timeout = 120, .host = COPIED),
	T_CASE(the_first_use_may_be_in_a_child),
	T_CASE(the_childs_exit_leaves_the_parents_io_alone, .flags = T_ENGINES),
};

T_MAIN(cases)
