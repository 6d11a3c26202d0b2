// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-p2p-client.ko: a client of the in-kernel service, for tests.
 *
 * /dev/phxfs_p2p_client takes commands by write and answers each by the next read:
 *   register ADDR LENGTH   "HANDLE N IOADDR..."
 *   watch HANDLE           from now on a revocation is counted
 *   valid HANDLE           "0" or "1"
 *   reenter                make the next revocation call deregister, which must refuse
 *   revoked                "COUNT RESULT": revocations, and what that call returned
 *   deregister HANDLE      ""
 * A command that fails makes the write fail with its errno.
 */
#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "../phxfs-p2p.h"

static DEFINE_MUTEX(lock);
static char answer[PAGE_SIZE];		/* protected by: lock */
static size_t answer_length;		/* protected by: lock */
static u64 watched;
static atomic_t revocations;
static bool reenter;
static int reenter_result;

static void on_revoke(void *arg)
{
	atomic_inc(&revocations);
	if (READ_ONCE(reenter))
		WRITE_ONCE(reenter_result, phxfs_p2p_deregister(watched));
}

static __printf(1, 2) void say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	answer_length += vscnprintf(answer + answer_length, sizeof(answer) - answer_length,
				    fmt, args);
	va_end(args);
}

static int do_register(u64 addr, u64 length)
{
	const u64 *ioaddrs;
	u64 handle;
	u32 n, i;
	int err = phxfs_p2p_register(addr, length, &handle, &ioaddrs, &n);

	if (err)
		return err;
	say("%#llx %u", handle, n);
	for (i = 0; i < n; i++)
		say(" %#llx", ioaddrs[i]);
	say("\n");
	return 0;
}

static int command(const char *line)
{
	u64 a, b;

	if (sscanf(line, "register %lli %lli", &a, &b) == 2)
		return do_register(a, b);
	if (sscanf(line, "deregister %lli", &a) == 1)
		return phxfs_p2p_deregister(a);
	if (sscanf(line, "watch %lli", &a) == 1) {
		watched = a;
		return phxfs_p2p_on_revoke(a, on_revoke, NULL);
	}
	if (sscanf(line, "valid %lli", &a) == 1) {
		say("%d\n", phxfs_p2p_valid(a));
		return 0;
	}
	if (!strncmp(line, "reenter", 7)) {
		WRITE_ONCE(reenter, true);
		return 0;
	}
	if (!strncmp(line, "revoked", 7)) {
		say("%d %d\n", atomic_read(&revocations), READ_ONCE(reenter_result));
		return 0;
	}
	return -EINVAL;
}

static ssize_t client_write(struct file *file, const char __user *buf, size_t n, loff_t *pos)
{
	char line[128];
	int err;

	if (n >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, buf, n))
		return -EFAULT;
	line[n] = 0;
	mutex_lock(&lock);
	answer_length = 0;
	err = command(line);
	mutex_unlock(&lock);
	return err ?: n;
}

static ssize_t client_read(struct file *file, char __user *buf, size_t n, loff_t *pos)
{
	ssize_t got;

	mutex_lock(&lock);
	got = min(n, answer_length);
	if (copy_to_user(buf, answer, got))
		got = -EFAULT;
	answer_length = 0;
	mutex_unlock(&lock);
	return got;
}

static const struct file_operations client_fops = {
	.owner	= THIS_MODULE,
	.read	= client_read,
	.write	= client_write,
};

static struct miscdevice client = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "phxfs_p2p_client",
	.fops	= &client_fops,
};
module_misc_device(client);

MODULE_DESCRIPTION("Test client of phxfs's in-kernel service");
MODULE_LICENSE("GPL");
