// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-misuse.ko: does once, when it is loaded, what a kernel that watches itself must
 * notice. Only vm/selftest loads it.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

static char *what = "";
module_param(what, charp, 0444);

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);

static void lose(void)
{
	/* not kept anywhere; of an odd size, to be known again */
	void *p = kmalloc(200, GFP_KERNEL);

	if (p)
		memset(p, 0x5a, 200);
	OPTIMIZER_HIDE_VAR(p);
}

static void use_freed(void)
{
	char *p = kmalloc(64, GFP_KERNEL);

	if (!p)
		return;
	kfree(p);
	OPTIMIZER_HIDE_VAR(p);
	WRITE_ONCE(*p, 1);
}

static void lock_both_ways(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static int __init misuse_init(void)
{
	int i;

	if (!strcmp(what, "lose"))
		for (i = 0; i < 10; i++)
			lose();
	else if (!strcmp(what, "use-freed"))
		use_freed();
	else if (!strcmp(what, "lock-both-ways"))
		lock_both_ways();
	else
		return -EINVAL;
	return 0;
}

static void __exit misuse_exit(void)
{
}

module_init(misuse_init);
module_exit(misuse_exit);

MODULE_DESCRIPTION("Mistakes, to test what notices them");
MODULE_LICENSE("GPL");
