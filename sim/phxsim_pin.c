// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim: pins, and their forced reclaim. See phxsim-p2p.h for the contract.
 *
 * A pin with a callback hangs on its allocation's list and ends by put_pages or
 * by reclaim, whichever takes phxsim_api first; the other finds it gone. A
 * persistent pin only holds its reference and ends by its put.
 */
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "phxsim.h"

struct pin {
	struct phxsim_page_table pt;	/* what the caller sees */
	struct hlist_node hash;		/* pins, by address of pt */
	struct list_head link;		/* alloc->pins; empty if persistent */
	struct phxsim_alloc *a;
	u64 va;
	u32 pages;
	void (*free_cb)(void *data);	/* NULL: persistent */
	void *data;
};

static DEFINE_HASHTABLE(pins, 8);		/* under phxsim_api */
static struct task_struct *in_callback;		/* the task that runs a callback */
static DEFINE_SPINLOCK(atomic_callback);
atomic64_t phxsim_stale_puts = ATOMIC64_INIT(0);

/* A callback that calls back in would wait for the lock it holds. */
static int enter(void)
{
	if (WARN_ON_ONCE(READ_ONCE(in_callback) == current))
		return -EDEADLK;
	might_sleep();
	mutex_lock(&phxsim_api);
	return 0;
}

static void pin_destroy(struct pin *p)
{
	struct phxsim_dev *dev = p->a->dev;

	lockdep_assert_held(&phxsim_api);
	hash_del(&p->hash);
	list_del_init(&p->link);
	dev->pinned_pages -= p->pages;
	if (p->free_cb) {
		dev->pins--;
	} else {
		WRITE_ONCE(dev->persistent, dev->persistent - 1);
		wake_up_all(&dev->unpinned);
	}
	/* the table's pages may be another's from here on */
	phxsim_alloc_put(p->a);
	kvfree(p->pt.addr);
	kfree(p);
}

/* --- reclaim ------------------------------------------------------------------ */

static void reclaim(struct pin *p)
{
	struct phxsim_dev *dev = p->a->dev;
	unsigned long flags;
	u64 arg;

	lockdep_assert_held(&phxsim_api);
	phxsim_fault_delay(dev, PHXSIM_FAULT_RECLAIM_DELAY);
	dev->reclaims++;
	/* a put that comes now waits for the lock and then finds nothing */
	hash_del(&p->hash);
	list_del_init(&p->link);
	WRITE_ONCE(in_callback, current);
	if (phxsim_fault_hit(dev, PHXSIM_FAULT_RECLAIM_ATOMIC, &arg)) {
		spin_lock_irqsave(&atomic_callback, flags);
		p->free_cb(p->data);
		spin_unlock_irqrestore(&atomic_callback, flags);
	} else {
		p->free_cb(p->data);
	}
	WRITE_ONCE(in_callback, NULL);
	pin_destroy(p);
}

u32 phxsim_reclaim_alloc(struct phxsim_alloc *a)
{
	u32 n = 0;

	lockdep_assert_held(&phxsim_api);
	for (; !list_empty(&a->pins); n++)
		reclaim(list_first_entry(&a->pins, struct pin, link));
	return n;
}

static u32 reclaim_ctx(struct phxsim_ctx *ctx, struct phxsim_dev *dev, u64 va)
{
	struct phxsim_alloc *a;
	struct rb_node *node;
	u32 n = 0;

	/* phxsim_api keeps the tree: changes hold it as well as ctx->lock */
	for (node = rb_first(&ctx->allocs); node; node = rb_next(node)) {
		a = rb_entry(node, struct phxsim_alloc, node);
		if (a->dev != dev)
			continue;
		if (!va || va - a->va < (u64)a->pages << PHXSIM_PAGE_SHIFT)
			n += phxsim_reclaim_alloc(a);
	}
	return n;
}

void phxsim_reclaim_dev(struct phxsim_dev *dev)
{
	struct phxsim_ctx *ctx;

	lockdep_assert_held(&phxsim_api);
	list_for_each_entry(ctx, &phxsim_contexts, link)
		reclaim_ctx(ctx, dev, 0);
}

int phxsim_reclaim(struct phxsim_file *file, struct phxsim_reclaim *r)
{
	struct phxsim_ctx *ctx = file->ctx;
	struct pid *pid = NULL;
	int ret = 0;

	if (r->pid)
		pid = find_get_pid(r->pid);
	mutex_lock(&phxsim_api);
	if (r->pid)
		ctx = pid ? phxsim_ctx_find(pid) : NULL;
	if (ctx)
		r->callbacks = reclaim_ctx(ctx, file->dev, r->va);
	else
		ret = -ESRCH;
	mutex_unlock(&phxsim_api);
	put_pid(pid);
	return ret;
}

/* --- pin ---------------------------------------------------------------------- */

/* Make the table as wrong as the faults ask for. */
static void spoil(struct phxsim_dev *dev, struct phxsim_page_table *pt)
{
	u64 arg;

	if (phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_OUTSIDE, &arg) && arg < pt->entries)
		pt->addr[arg] = dev->phys + dev->size + (arg << PHXSIM_PAGE_SHIFT);
	if (phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_UNALIGNED, &arg) && arg < pt->entries)
		pt->addr[arg] += 4096;
	if (phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_NULL, &arg) && arg < pt->entries)
		pt->addr[arg] = 0;
	if (phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_SHORT, &arg) && arg < pt->entries)
		pt->entries -= arg;
	if (phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_VERSION, &arg))
		pt->version = arg;
	if (phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_PAGE_SIZE, &arg))
		pt->page_size = arg;
}

static struct pin *pin_create(struct phxsim_alloc *a, u64 va, u64 len)
{
	u32 first = (va - a->va) >> PHXSIM_PAGE_SHIFT, i;
	struct pin *p = kzalloc(sizeof(*p), GFP_KERNEL);

	if (!p)
		return NULL;
	p->pages = len >> PHXSIM_PAGE_SHIFT;
	p->pt.addr = kvmalloc_array(p->pages, sizeof(u64), GFP_KERNEL);
	if (!p->pt.addr) {
		kfree(p);
		return NULL;
	}
	for (i = 0; i < p->pages; i++)
		p->pt.addr[i] = a->dev->phys + ((u64)a->page[first + i] << PHXSIM_PAGE_SHIFT);
	p->pt.version = PHXSIM_P2P_VERSION;
	p->pt.page_size = PHXSIM_PAGE_SIZE;
	p->pt.entries = p->pages;
	INIT_LIST_HEAD(&p->link);
	p->a = a;
	p->va = va;
	return p;
}

/* Takes over the caller's reference to the allocation. */
static int pin_alloc(struct phxsim_alloc *a, u64 va, u64 len, struct phxsim_page_table **pt,
		     void (*free_cb)(void *data), void *data)
{
	struct phxsim_dev *dev = a->dev;
	struct pin *p;
	u64 arg;
	int ret;

	if (len > a->va + ((u64)a->pages << PHXSIM_PAGE_SHIFT) - va)
		return -EINVAL;
	if (dev->dead)
		return -ENODEV;
	ret = phxsim_fault_errno(dev, PHXSIM_FAULT_PIN);
	if (!ret && !free_cb)
		ret = phxsim_fault_errno(dev, PHXSIM_FAULT_PERSISTENT);
	if (ret)
		return ret;
	p = pin_create(a, va, len);
	if (!p)
		return -ENOMEM;
	kref_get(&a->ref);
	p->free_cb = free_cb;
	p->data = data;
	hash_add(pins, &p->hash, (unsigned long)&p->pt);
	dev->pinned_pages += p->pages;
	if (free_cb) {
		list_add_tail(&p->link, &a->pins);
		dev->pins++;
	} else {
		WRITE_ONCE(dev->persistent, dev->persistent + 1);
	}
	spoil(dev, &p->pt);
	if (phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_SILENT, &arg)) {
		pin_destroy(p);
		return 0;
	}
	*pt = &p->pt;
	if (free_cb && phxsim_fault_hit(dev, PHXSIM_FAULT_PIN_RECLAIM, &arg))
		reclaim(p);
	return 0;
}

static int get_pages(u64 va, u64 len, struct phxsim_page_table **pt,
		     void (*free_cb)(void *data), void *data)
{
	struct phxsim_alloc *a = NULL;
	struct phxsim_ctx *ctx;
	int ret;

	if (!pt || !len || (va | len) & (PHXSIM_PAGE_SIZE - 1))
		return -EINVAL;
	ret = enter();
	if (ret)
		return ret;
	ctx = phxsim_ctx_find(task_tgid(current));
	if (ctx)
		a = phxsim_alloc_find(ctx, va);
	ret = -EINVAL;
	if (a) {
		phxsim_fault_delay(a->dev, PHXSIM_FAULT_PIN_DELAY);
		ret = pin_alloc(a, va, len, pt, free_cb, data);
	}
	mutex_unlock(&phxsim_api);
	if (a)
		phxsim_alloc_put(a);
	return ret;
}

static int put_pages(u64 va, struct phxsim_page_table *pt, bool persistent)
{
	struct pin *p, *found = NULL;
	int ret;

	ret = enter();
	if (ret)
		return ret;
	hash_for_each_possible(pins, p, hash, (unsigned long)pt) {
		if (&p->pt == pt && p->va == va && !p->free_cb == persistent) {
			found = p;
			break;
		}
	}
	if (!found) {
		atomic64_inc(&phxsim_stale_puts);
	} else {
		ret = phxsim_fault_errno(found->a->dev, PHXSIM_FAULT_PUT);
		if (!ret)
			pin_destroy(found);
	}
	mutex_unlock(&phxsim_api);
	return ret;
}

int phxsim_p2p_get_pages(u64 va, u64 len, struct phxsim_page_table **pt,
			 void (*free_cb)(void *data), void *data)
{
	return free_cb ? get_pages(va, len, pt, free_cb, data) : -EINVAL;
}
EXPORT_SYMBOL_GPL(phxsim_p2p_get_pages);

int phxsim_p2p_put_pages(u64 va, struct phxsim_page_table *pt)
{
	return put_pages(va, pt, false);
}
EXPORT_SYMBOL_GPL(phxsim_p2p_put_pages);

int phxsim_p2p_get_pages_persistent(u64 va, u64 len, struct phxsim_page_table **pt, u32 flags)
{
	return flags ? -EINVAL : get_pages(va, len, pt, NULL, NULL);
}
EXPORT_SYMBOL_GPL(phxsim_p2p_get_pages_persistent);

int phxsim_p2p_put_pages_persistent(u64 va, struct phxsim_page_table *pt)
{
	return put_pages(va, pt, true);
}
EXPORT_SYMBOL_GPL(phxsim_p2p_put_pages_persistent);
