// SPDX-License-Identifier: GPL-2.0-only
/*
 * The in-kernel service, through its test client phxfs-p2p-client.ko.
 * Usage: test_service [CASE...]; sets persistent= itself, unbinds device 0.
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <unistd.h>

#define PAGE	(64 * KIB)

static int client;
static char answer[4096];

/* The answer's length, or -errno. */
static int say(const char *verb, unsigned long long a, unsigned long long b)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s %#llx %#llx", verb, a, b);
	ssize_t got;

	if (write(client, line, n) < 0)
		return -errno;
	got = read(client, answer, sizeof(answer) - 1);
	CHECK(got >= 0);
	answer[got] = 0;
	return got;
}

static uint64_t bar_base(void)
{
	char path[] = "/sys/class/" PHXFS_CLASS "/" PHXFS_DEV_PREFIX "0/bar";
	unsigned long long base = 0;
	FILE *f = fopen(path, "r");

	CHECK(f);
	CHECK_EQ(fscanf(f, "%*d %llx", &base), 1);
	fclose(f);
	return base;
}

/* Registers, checks every address, gives the handle. */
static unsigned long long export(uint64_t addr, uint64_t length)
{
	unsigned long long handle, at;
	unsigned int n;
	int skip, err = say("register", addr, length);
	char *p = answer;

	if (err < 0)
		t_fail(__FILE__, __LINE__, "register: %d", err);
	CHECK_EQ(sscanf(p, "%llx %u%n", &handle, &n, &skip), 2);
	CHECK_EQ(n, length / PAGE);
	for (uint64_t i = 0; i < n; i++) {
		p += skip;
		CHECK_EQ(sscanf(p, " %llx%n", &at, &skip), 1);
		CHECK_EQ(at, bar_base() + t_bar_offset(addr + i * PAGE));
	}
	return handle;
}

static int valid(unsigned long long handle)
{
	CHECK_EQ(say("valid", handle, 0), 2);
	return answer[0] - '0';
}

static void revocations(int *count, int *result)
{
	CHECK(say("revoked", 0, 0) > 0);
	CHECK_EQ(sscanf(answer, "%d %d", count, result), 2);
}

static void addresses(void)
{
	static const unsigned int layouts[] = { T_LAYOUT_HUGE, T_LAYOUT_FRAGMENTED,
						T_LAYOUT_REVERSED };

	for (int i = 0; i < 3; i++) {
		uint64_t addr = t_alloc(0, 4 * MIB, layouts[i]);
		unsigned long long a = export(addr, 4 * MIB), b = export(addr + PAGE, PAGE);

		CHECK(a != b);
		CHECK_EQ(valid(a), 1);
		CHECK_EQ(say("deregister", a, 0), 0);
		CHECK_EQ(valid(a), 0);
		CHECK_EQ(valid(b), 1);
		CHECK_EQ(say("deregister", a, 0), -EINVAL);
		CHECK_EQ(say("deregister", b, 0), 0);
		t_free(addr);
	}
}

static void arguments(void)
{
	uint64_t addr = t_alloc(0, MIB, T_LAYOUT_HUGE);

	CHECK_EQ(say("register", 0, PAGE), -EINVAL);
	CHECK_EQ(say("register", addr, 0), -EINVAL);
	CHECK_EQ(say("register", addr + 4096, PAGE), -EINVAL);
	CHECK_EQ(say("register", addr, 4096), -EINVAL);
	CHECK_EQ(say("register", addr, 2 * MIB), -EINVAL);
	CHECK_EQ(say("register", 0x10000, PAGE), -EINVAL);
	CHECK_EQ(say("register", 0x7fffffffffff0000, 0x7fffffffffff0000), -EINVAL);
	CHECK_EQ(say("deregister", 1, 0), -EINVAL);
	CHECK_EQ(say("deregister", 0, 0), -EINVAL);
	CHECK_EQ(say("watch", 1, 0), -EINVAL);
	t_fault(0, T_FAULT_PIN, 0, 1, ENOMEM);
	CHECK_EQ(say("register", addr, MIB), -ENOMEM);
	t_fault(0, T_FAULT_PIN_OUTSIDE, 0, 1, 0);
	CHECK_EQ(say("register", addr, MIB), -ENXIO);
	t_fault(0, T_FAULT_PIN_OUTSIDE, 0, 1, 5);
	CHECK_EQ(say("register", addr, MIB), -ENXIO);
	t_fault(0, T_FAULT_PIN_SHORT, 0, 1, 1);
	CHECK_EQ(say("register", addr, MIB), -EIO);
	t_fault(0, T_FAULT_PIN_PAGE_SIZE, 0, 1, 3000);
	CHECK_EQ(say("register", addr, MIB), -EIO);
	t_fault(0, T_FAULT_PIN_VERSION, 0, 1, 0x50001);
	CHECK_EQ(say("register", addr, MIB), -EOPNOTSUPP);
	t_fault(0, T_FAULT_PIN_SILENT, 0, 1, 0);
	CHECK_EQ(say("register", addr, MIB), -EIO);
	t_set_parameter("phxfs_sim", "persistent", "N");
	t_fault(0, T_FAULT_PIN_RECLAIM, 0, 1, 0);
	CHECK_EQ(say("register", addr, MIB), -EFAULT);
	t_set_parameter("phxfs_sim", "persistent", "Y");
	CHECK_EQ(say("deregister", export(addr, MIB), 0), 0);
	t_free(addr);
}

static void reclaimed(void)
{
	uint64_t addr = t_alloc(0, MIB, T_LAYOUT_HUGE);
	unsigned long long quiet, watched;
	int before, after, result;

	t_set_parameter("phxfs_sim", "persistent", "N");
	quiet = export(addr, PAGE);
	watched = export(addr + PAGE, PAGE);
	CHECK_EQ(say("watch", watched, 0), 0);
	CHECK_EQ(say("reenter", 0, 0), 0);
	revocations(&before, &result);
	CHECK_EQ(t_reclaim(0, addr), 2);
	revocations(&after, &result);
	CHECK_EQ(after, before + 1);
	CHECK_EQ(result, -EDEADLK);
	CHECK_EQ(valid(quiet) + valid(watched), 0);
	CHECK_EQ(say("watch", quiet, 0), -ESTALE);
	CHECK_EQ(say("deregister", quiet, 0), -ESTALE);
	CHECK_EQ(say("deregister", watched, 0), -ESTALE);
	CHECK_EQ(say("deregister", watched, 0), -EINVAL);
	t_set_parameter("phxfs_sim", "persistent", "Y");
	t_free(addr);
}

static void injected(void)
{
	uint64_t addr = t_alloc(0, MIB, T_LAYOUT_HUGE);
	char text[16];
	int n = 0, err;

	do {
		snprintf(text, sizeof(text), "%d", ++n);
		t_set_parameter("phxfs", "inject", text);
		err = say("register", addr, MIB);
		if (err < 0)
			CHECK_EQ(err, -ENOMEM);
	} while (err < 0);
	t_set_parameter("phxfs", "inject", "0");
	CHECK(n > 4);
	unsigned long long handle = strtoull(answer, NULL, 16);

	CHECK_EQ(say("deregister", handle, 0), 0);
	t_free(addr);
}

/* The device goes: the client is told, its pin goes, the handle is stale. */
static void unbound(void)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	uint64_t addr = t_alloc(0, MIB, T_LAYOUT_HUGE);
	unsigned long long handle = export(addr, MIB);
	int before, after, result, fd = t_open(0);

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	close(fd);
	CHECK_EQ(say("watch", handle, 0), 0);
	revocations(&before, &result);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/unbind", q.pci_bdf);
	revocations(&after, &result);
	CHECK_EQ(after, before + 1);
	CHECK_EQ(valid(handle), 0);
	CHECK_EQ(say("deregister", handle, 0), -ESTALE);
	CHECK_EQ(say("register", addr, PAGE), -ENODEV);
	t_write_sysfs("/sys/bus/pci/drivers/phxsim/bind", q.pci_bdf);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "addresses", addresses },
		{ "arguments", arguments },
		{ "reclaimed", reclaimed },
		{ "injected", injected },
		{ "unbound", unbound },
		{ 0 }
	};

	client = open("/dev/phxfs_p2p_client", O_RDWR | O_CLOEXEC);
	CHECK(client >= 0);
	return t_main(argc, argv, cases);
}
