// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim: the copy engine, a CPU loop over the driver's own
 * mappings of the BAR. A transfer is cut where pages are not neighbours, where the
 * mapping changes, and at MAX_STEP so that a killed process does not keep it going.
 */
#include <linux/minmax.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "phxsim.h"

#define MAX_STEP	(1u << 20)

/* A position in an allocation; step: bytes to the next break in the layout. */
struct cursor {
	struct phxsim_alloc *a;
	u64 offset;
};

static int cursor_open(struct cursor *c, struct phxsim_file *file, u64 va, u64 len)
{
	c->a = phxsim_alloc_find(file->ctx, va);
	if (!c->a)
		return -EFAULT;
	c->offset = va - c->a->va;
	if (c->offset > c->a->size || len > c->a->size - c->offset) {
		phxsim_alloc_put(c->a);
		return -EFAULT;
	}
	return 0;
}

static void *cursor_mem(const struct cursor *c)
{
	struct phxsim_dev *dev = c->a->dev;
	u64 at = (u64)c->a->page[c->offset >> PHXSIM_PAGE_SHIFT] << PHXSIM_PAGE_SHIFT;

	at += c->offset & (PHXSIM_PAGE_SIZE - 1);
	return at < dev->split ? dev->mem[0] + at : dev->mem[1] + (at - dev->split);
}

static u64 cursor_step(const struct cursor *c, u64 len)
{
	u32 i = c->offset >> PHXSIM_PAGE_SHIFT;
	u64 step = PHXSIM_PAGE_SIZE - (c->offset & (PHXSIM_PAGE_SIZE - 1));

	len = min_t(u64, len, MAX_STEP);
	for (; step < len && c->a->page[i + 1] == c->a->page[i] + 1; i++) {
		if ((u64)c->a->page[i + 1] << PHXSIM_PAGE_SHIFT == c->a->dev->split)
			break;
		step += PHXSIM_PAGE_SIZE;
	}
	return min(step, len);
}

/* May this piece run? Called under phxsim_srcu, which keeps the mapping. */
static int may_run(const struct cursor *c)
{
	if (READ_ONCE(c->a->dev->dead))
		return -ENODEV;
	if (fatal_signal_pending(current))
		return -EINTR;
	cond_resched();
	return 0;
}

static int copy_host(struct cursor *c, u64 host, u64 len, bool to_device)
{
	void __user *p = u64_to_user_ptr(host);
	unsigned long left;
	u64 step;
	int ret = 0, idx;

	for (; len && !ret; len -= step, p += step, c->offset += step) {
		step = cursor_step(c, len);
		idx = srcu_read_lock(&phxsim_srcu);
		ret = may_run(c);
		if (!ret) {
			left = to_device ? copy_from_user(cursor_mem(c), p, step) :
					   copy_to_user(p, cursor_mem(c), step);
			ret = left ? -EFAULT : 0;
		}
		srcu_read_unlock(&phxsim_srcu, idx);
	}
	return ret;
}

static int copy_device(struct cursor *d, struct cursor *s, u64 len)
{
	u64 step;
	int ret = 0, idx;

	for (; len && !ret; len -= step, d->offset += step, s->offset += step) {
		step = min(cursor_step(d, len), cursor_step(s, len));
		idx = srcu_read_lock(&phxsim_srcu);
		ret = may_run(d);
		if (!ret)
			ret = may_run(s);
		if (!ret)
			memmove(cursor_mem(d), cursor_mem(s), step);
		srcu_read_unlock(&phxsim_srcu, idx);
	}
	return ret;
}

static int copy_between(struct phxsim_file *file, const struct phxsim_copy *c)
{
	struct cursor d, s;
	int ret;

	ret = cursor_open(&d, file, c->dst, c->len);
	if (ret)
		return ret;
	ret = cursor_open(&s, file, c->src, c->len);
	if (ret)
		goto out_put_dst;
	ret = copy_device(&d, &s, c->len);
	phxsim_alloc_put(s.a);
out_put_dst:
	phxsim_alloc_put(d.a);
	return ret;
}

int phxsim_copy(struct phxsim_file *file, const struct phxsim_copy *c)
{
	bool to_device = c->kind == PHXSIM_HTOD;
	struct cursor cur;
	int ret;

	if (c->pad || c->kind < PHXSIM_HTOD || c->kind > PHXSIM_DTOD)
		return -EINVAL;
	ret = phxsim_fault_delay(file->dev, PHXSIM_FAULT_COPY_DELAY);
	if (!ret)
		ret = phxsim_fault_errno(file->dev, PHXSIM_FAULT_COPY);
	if (ret)
		return ret;
	if (c->kind == PHXSIM_DTOD)
		return copy_between(file, c);
	ret = cursor_open(&cur, file, to_device ? c->dst : c->src, c->len);
	if (ret)
		return ret;
	ret = copy_host(&cur, to_device ? c->src : c->dst, c->len, to_device);
	phxsim_alloc_put(cur.a);
	return ret;
}

static void fill_words(u64 *p, u64 n, u64 seed, u64 first)
{
	u64 i;

	for (i = 0; i < n; i++)
		p[i] = phxsim_word(seed, first + i);
}

int phxsim_fill(struct phxsim_file *file, const struct phxsim_fill *f)
{
	struct cursor c;
	u64 step, done;
	int ret, idx;

	if (f->pad || f->kind > PHXSIM_FILL_WORDS ||
	    (f->kind == PHXSIM_FILL_WORDS && ((f->va | f->len) & 7)))
		return -EINVAL;
	ret = cursor_open(&c, file, f->va, f->len);
	if (ret)
		return ret;
	for (done = 0; done < f->len && !ret; done += step, c.offset += step) {
		step = cursor_step(&c, f->len - done);
		idx = srcu_read_lock(&phxsim_srcu);
		ret = may_run(&c);
		if (!ret && f->kind == PHXSIM_FILL_WORDS)
			fill_words(cursor_mem(&c), step / 8, f->value, done / 8);
		else if (!ret)
			memset(cursor_mem(&c), (u8)f->value, step);
		srcu_read_unlock(&phxsim_srcu, idx);
	}
	phxsim_alloc_put(c.a);
	return ret;
}

int phxsim_checksum(struct phxsim_file *file, struct phxsim_checksum *s)
{
	u64 step, left = s->len;
	struct cursor c;
	int ret, idx;

	ret = cursor_open(&c, file, s->va, s->len);
	if (ret)
		return ret;
	/* so every piece but the last is whole words, and the sum is that of the whole */
	if (c.offset & 7)
		ret = -EINVAL;
	for (; left && !ret; left -= step, c.offset += step) {
		step = cursor_step(&c, left);
		idx = srcu_read_lock(&phxsim_srcu);
		ret = may_run(&c);
		if (!ret)
			s->sum = phxsim_sum(s->sum, cursor_mem(&c), step);
		srcu_read_unlock(&phxsim_srcu, idx);
	}
	phxsim_alloc_put(c.a);
	return ret;
}
