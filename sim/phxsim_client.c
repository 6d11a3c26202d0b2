// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim-client: a module that pins, so that the pin API can be tested from user
 * space: /dev/phxsim-client, ABI in phxsim-client.h. Pins belong to the file.
 *
 * entry->lock is what the pin contract asks of a client: the page table may be
 * read only while the callback cannot return.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/xarray.h>

#include "phxsim-client.h"
#include "phxsim-p2p.h"

struct entry {
	spinlock_t lock;
	bool reclaimed;		/* under lock */
	bool atomic;		/* the callback came in atomic context */
	struct phxsim_page_table *pt;	/* valid under lock and !reclaimed */
	u64 va;
	u32 flags;
	int put_error;		/* under lock: the callback's, if it put */
};

struct client {
	struct mutex lock;	/* one call at a time; never held in the callback */
	struct xarray entries;
};

static void reclaimed(void *data)
{
	struct entry *e = data;
	unsigned long flags;
	bool atomic = irqs_disabled();
	int put_error = 0;

	if (e->flags & PHXSIM_CLIENT_PUT_IN_CALLBACK)
		put_error = phxsim_p2p_put_pages(e->va, e->pt);
	spin_lock_irqsave(&e->lock, flags);
	e->put_error = put_error;
	e->reclaimed = true;
	e->atomic = atomic;
	spin_unlock_irqrestore(&e->lock, flags);
}

static int unpin(struct entry *e)
{
	if (e->flags & PHXSIM_CLIENT_PERSISTENT)
		return phxsim_p2p_put_pages_persistent(e->va, e->pt);
	/* may race with the callback: then it does nothing */
	return phxsim_p2p_put_pages(e->va, e->pt);
}

static int client_pin(struct client *c, struct phxsim_client_pin *arg)
{
	struct entry *e;
	u32 handle;
	int ret;

	if (arg->flags & ~(PHXSIM_CLIENT_PERSISTENT | PHXSIM_CLIENT_PUT_IN_CALLBACK))
		return -EINVAL;
	e = kzalloc(sizeof(*e), GFP_KERNEL);
	if (!e)
		return -ENOMEM;
	spin_lock_init(&e->lock);
	e->va = arg->va;
	e->flags = arg->flags;
	ret = xa_alloc(&c->entries, &handle, e, xa_limit_31b, GFP_KERNEL);
	if (ret)
		goto err_free;
	if (e->flags & PHXSIM_CLIENT_PERSISTENT)
		ret = phxsim_p2p_get_pages_persistent(arg->va, arg->len, &e->pt, 0);
	else
		ret = phxsim_p2p_get_pages(arg->va, arg->len, &e->pt, reclaimed, e);
	if (!ret && !e->pt)
		ret = -ENODATA;
	if (ret)
		goto err_erase;
	spin_lock_irq(&e->lock);
	if (!e->reclaimed) {
		arg->version = e->pt->version;
		arg->page_size = e->pt->page_size;
		arg->entries = e->pt->entries;
	}
	spin_unlock_irq(&e->lock);
	arg->handle = handle;
	return 0;

err_erase:
	xa_erase(&c->entries, handle);
err_free:
	kfree(e);
	return ret;
}

static int client_unpin(struct client *c, u32 handle)
{
	struct entry *e = xa_load(&c->entries, handle);
	int ret;

	if (!e)
		return -ENOENT;
	ret = unpin(e);
	if (ret)
		return ret;
	xa_erase(&c->entries, handle);
	kfree(e);
	return 0;
}

static int client_state(struct client *c, struct phxsim_client_state *arg)
{
	struct entry *e = xa_load(&c->entries, arg->handle);

	if (!e)
		return -ENOENT;
	spin_lock_irq(&e->lock);
	arg->reclaimed = e->reclaimed;
	arg->atomic = e->atomic;
	arg->put_error = e->put_error;
	arg->addr = 0;
	if (!e->reclaimed && arg->index < e->pt->entries)
		arg->addr = e->pt->addr[arg->index];
	spin_unlock_irq(&e->lock);
	return 0;
}

static long client_ioctl(struct file *filp, unsigned int cmd, unsigned long uarg)
{
	struct client *c = filp->private_data;
	union {
		struct phxsim_client_pin pin;
		struct phxsim_client_state state;
		__u32 handle;
	} u = {};
	unsigned int size = _IOC_SIZE(cmd);
	long ret;

	if (size > sizeof(u) || copy_from_user(&u, (void __user *)uarg, size))
		return -EFAULT;
	mutex_lock(&c->lock);
	switch (cmd) {
	case PHXSIM_CLIENT_PIN:
		ret = client_pin(c, &u.pin);
		break;
	case PHXSIM_CLIENT_UNPIN:
		ret = client_unpin(c, u.handle);
		break;
	case PHXSIM_CLIENT_STATE:
		ret = client_state(c, &u.state);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&c->lock);
	if (!ret && (_IOC_DIR(cmd) & _IOC_READ) && copy_to_user((void __user *)uarg, &u, size))
		ret = -EFAULT;
	return ret;
}

static int client_open(struct inode *inode, struct file *filp)
{
	struct client *c = kzalloc(sizeof(*c), GFP_KERNEL);

	if (!c)
		return -ENOMEM;
	mutex_init(&c->lock);
	xa_init_flags(&c->entries, XA_FLAGS_ALLOC);
	filp->private_data = c;
	return 0;
}

static int client_release(struct inode *inode, struct file *filp)
{
	struct client *c = filp->private_data;
	unsigned long handle;
	struct entry *e;

	xa_for_each(&c->entries, handle, e) {
		unpin(e);
		kfree(e);
	}
	xa_destroy(&c->entries);
	kfree(c);
	return 0;
}

static const struct file_operations client_fops = {
	.owner		= THIS_MODULE,
	.open		= client_open,
	.release	= client_release,
	.unlocked_ioctl	= client_ioctl,
};

static struct miscdevice client_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "phxsim-client",
	.fops	= &client_fops,
};
module_misc_device(client_misc);

MODULE_DESCRIPTION("Test client of the software accelerator's pin API");
MODULE_LICENSE("GPL");
