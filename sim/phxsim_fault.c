// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim: faults on demand, per device.
 */
#include <linux/delay.h>
#include <linux/errno.h>
#include <linux/sched.h>

#include "phxsim.h"

int phxsim_fault_set(struct phxsim_dev *dev, const struct phxsim_fault *f)
{
	if (f->kind >= PHXSIM_FAULT_COUNT || f->pad)
		return -EINVAL;
	spin_lock(&dev->fault_lock);
	dev->fault[f->kind] = *f;
	spin_unlock(&dev->fault_lock);
	return 0;
}

bool phxsim_fault_hit(struct phxsim_dev *dev, enum phxsim_fault_kind kind, u64 *arg)
{
	struct phxsim_fault *f = &dev->fault[kind];
	bool hit = false;

	spin_lock(&dev->fault_lock);
	if (f->count && f->skip) {
		f->skip--;
	} else if (f->count) {
		if (f->count != PHXSIM_FAULT_FOREVER)
			f->count--;
		*arg = f->arg;
		hit = true;
	}
	spin_unlock(&dev->fault_lock);
	return hit;
}

/* 0, or the negative errno the fault asks for */
int phxsim_fault_errno(struct phxsim_dev *dev, enum phxsim_fault_kind kind)
{
	u64 err;

	if (!phxsim_fault_hit(dev, kind, &err))
		return 0;
	return err && err <= MAX_ERRNO ? -(int)err : -EIO;
}

int phxsim_fault_delay(struct phxsim_dev *dev, enum phxsim_fault_kind kind)
{
	u64 ms;

	if (phxsim_fault_hit(dev, kind, &ms) && msleep_interruptible(ms))
		return -EINTR;
	return 0;
}
