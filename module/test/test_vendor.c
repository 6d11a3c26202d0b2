// SPDX-License-Identifier: GPL-2.0-only
/*
 * The acceptance list of a vendor's backend, over a fake driver of the vendor's
 * (sim/fake_*.c): pin and unpin, wherever memory lies; everything that a driver can get
 * wrong; forced reclaim where the vendor has it; death of the process, and of the device,
 * which has to be asked for alone.
 * Usage: test_vendor VENDOR DISK DEV [CASE...]
 */
#include "kmod_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK	(2 * MIB)

static const struct vendor {
	const char *name, *driver;
	bool reclaims;
	int silent;		/* what a success without a result becomes */
	const char *unknown[4];	/* versions of its tables */
	const char *known[4];	/* the last one is the fake driver's */
} vendors[] = {
	{ "nvidia", "phxsim_nvidia", false, -EIO, { "0", "0x00010001", "0x00030000" },
	  { "0x00010002", "0x00010003", "0x00020001", "0x00020000" } },
	{ "amd", "phxsim_amd", false, -EINVAL, { NULL }, { NULL } },
	{ "huawei", "phxsim_huawei", true, -EIO, { "0", "2" }, { "1" } },
	{ "metax", "phxsim_metax", true, -EINVAL, { NULL }, { NULL } },
};

static struct vendor vendor;
static int fd, disk, dev;
static off_t place;	/* on the disk: two of us may run at once */

/* The fake driver holds no table any more, nor phxfs anything. */
static void expect_clean(void)
{
	t_expect_idle(dev);
	for (int i = 0; i < 3000 && t_parameter(vendor.driver, "tables"); i++)
		usleep(10000);
	CHECK_EQ(t_parameter(vendor.driver, "tables"), 0);
}

static int try_map(uint64_t addr, uint64_t length)
{
	struct t_region r = { .fd = fd, .dev = dev, .addr = addr, .length = length };
	int err;

	r.p = t_mmap(fd, length);
	CHECK(r.p);
	err = t_map(&r);
	CHECK_EQ(munmap(r.p, length), 0);
	return err;
}

static void transfer(struct t_region *r, uint64_t seed)
{
	char *p = t_aligned(r->length);

	t_fill_host(p, r->length, seed);
	CHECK_EQ(pwrite(disk, p, r->length, place), r->length);
	CHECK_EQ(pread(disk, r->p, r->length, place), r->length);
	CHECK(t_device_has(r->addr, r->length, seed));
	t_fill_device(r->addr, r->length, seed + 1);
	CHECK_EQ(pwrite(disk, r->p, r->length, place), r->length);
	CHECK_EQ(pread(disk, p, r->length, place), r->length);
	CHECK(t_host_has(p, r->length, seed + 1));
	free(p);
}

static void round_trip(unsigned int layout, uint64_t length)
{
	uint64_t addr = t_alloc(dev, length, layout);
	struct t_region r = t_register(fd, dev, addr, length);

	transfer(&r, addr + length + layout);
	t_unregister(&r);
	t_free(addr);
}

/* The staging pool is of whole, aligned pieces of 2 MiB. */
static void cannot_be_staged(unsigned int layout)
{
	uint64_t addr = t_alloc(dev, 2 * BLOCK, layout);

	CHECK_EQ(try_map(addr, 2 * BLOCK), -EINVAL);
	t_free(addr);
}

static void layouts(void)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	CHECK(!strcmp(q.backend, vendor.name));
	CHECK_EQ(q.features, vendor.reclaims ? PHXFS_F_RECLAIM : PHXFS_F_LONGTERM);
	round_trip(T_LAYOUT_HUGE, BLOCK);
	round_trip(T_LAYOUT_HUGE, 3 * BLOCK);
	round_trip(T_LAYOUT_SUBSPANS, 3 * BLOCK);
	round_trip(T_LAYOUT_REVERSED, 3 * BLOCK);
	if (!t_is_staging()) {
		round_trip(T_LAYOUT_HUGE, 64 * KIB);
		round_trip(T_LAYOUT_FRAGMENTED, 5 * 64 * KIB);
		round_trip(T_LAYOUT_MISALIGNED, BLOCK + 64 * KIB);
	} else {
		cannot_be_staged(T_LAYOUT_FRAGMENTED);
		cannot_be_staged(T_LAYOUT_MISALIGNED);
	}
	expect_clean();
}

/* Part of an allocation, and what is none. */
static void ranges(void)
{
	uint64_t addr = t_alloc(dev, 4 * BLOCK, T_LAYOUT_HUGE);
	struct t_region r = t_register(fd, dev, addr + BLOCK, 2 * BLOCK), again;

	transfer(&r, 7);
	again = t_register(fd, dev, addr, BLOCK);
	transfer(&again, 8);
	t_unregister(&again);
	transfer(&r, 9);
	t_unregister(&r);
	CHECK(try_map(addr + 3 * BLOCK, 2 * BLOCK) < 0);	/* past its end */
	CHECK(try_map(0x10000000, BLOCK) < 0);
	t_free(addr);
	CHECK(try_map(addr, BLOCK) < 0);
	expect_clean();
}

static void refused(uint64_t addr, unsigned int kind, uint64_t arg, int want)
{
	int err;

	t_fault(dev, kind, 0, 1, arg);
	err = try_map(addr, 2 * BLOCK);
	if (want)
		CHECK_EQ(err, want);
	CHECK(err < 0);
	t_fault(dev, kind, 0, 0, 0);
	expect_clean();
}

/* Each way in which a driver can fail, or lie. */
static void faults(void)
{
	uint64_t addr = t_alloc(dev, 2 * BLOCK, T_LAYOUT_HUGE);

	refused(addr, T_FAULT_PIN, ENOMEM, -ENOMEM);
	refused(addr, T_FAULT_PIN, EBUSY, -EBUSY);
	refused(addr, T_FAULT_PIN_SILENT, 0, vendor.silent);
	refused(addr, T_FAULT_PIN_OUTSIDE, 3, -ENXIO);
	refused(addr, T_FAULT_PIN_OUTSIDE, 63, -ENXIO);
	refused(addr, T_FAULT_PIN_NULL, 0, -ENOMEM);
	refused(addr, T_FAULT_PIN_NULL, 5, -ENOMEM);
	refused(addr, T_FAULT_PIN_SHORT, 1, -EIO);
	if (strcmp(vendor.name, "amd"))
		refused(addr, T_FAULT_PIN_PAGE_SIZE, 12345, 0);
	CHECK_EQ(try_map(addr, 2 * BLOCK), 0);
	t_free(addr);
	expect_clean();
}

static void version(uint64_t addr, const char *value, int want)
{
	if (!value)
		return;
	t_set_parameter(vendor.driver, "version", value);
	CHECK_EQ(try_map(addr, BLOCK), want);
}

static void versions(void)
{
	uint64_t addr = t_alloc(dev, BLOCK, T_LAYOUT_HUGE);

	for (size_t i = 0; i < sizeof(vendor.unknown) / sizeof(vendor.unknown[0]); i++)
		version(addr, vendor.unknown[i], -EOPNOTSUPP);
	for (size_t i = 0; i < sizeof(vendor.known) / sizeof(vendor.known[0]); i++)
		version(addr, vendor.known[i], 0);
	t_free(addr);
	expect_clean();
}

/* A driver that is busy when a pin is put: it is put again. */
static void put_again(void)
{
	uint64_t addr = t_alloc(dev, BLOCK, T_LAYOUT_HUGE);
	struct t_region r = t_register(fd, dev, addr, BLOCK);

	if (!strcmp(vendor.name, "metax"))
		t_set_parameter(vendor.driver, "busy", "3");
	else
		t_fault(dev, T_FAULT_PUT, 0, 3, EBUSY);
	t_unregister(&r);
	expect_clean();
	t_fault(dev, T_FAULT_PUT, 0, 0, 0);
	t_free(addr);
}

/* What only one of them does. */
static void peculiar(void)
{
	uint64_t addr = t_alloc(dev, BLOCK, T_LAYOUT_HUGE);

	if (!strcmp(vendor.name, "nvidia")) {
		/* coherent memory is in no BAR */
		t_set_parameter(vendor.driver, "flags", "1");
		CHECK_EQ(try_map(addr, BLOCK), -EOPNOTSUPP);
		t_set_parameter(vendor.driver, "flags", "0");
	} else if (!strcmp(vendor.name, "amd")) {
		t_set_parameter(vendor.driver, "iova", "Y");
		CHECK_EQ(try_map(addr, BLOCK), -ENXIO);
		t_set_parameter(vendor.driver, "iova", "N");
		t_set_parameter(vendor.driver, "silent", "Y");
		CHECK_EQ(try_map(addr + BLOCK, BLOCK), -EINVAL);
		t_set_parameter(vendor.driver, "silent", "N");
	} else if (!strcmp(vendor.name, "metax")) {
		t_set_parameter(vendor.driver, "page_size", "3000");
		CHECK_EQ(try_map(addr, BLOCK), -EOPNOTSUPP);
		t_set_parameter(vendor.driver, "page_size", "4096");
		CHECK_EQ(try_map(addr, BLOCK), 0);
		t_set_parameter(vendor.driver, "page_size", "0");
	}
	t_free(addr);
	expect_clean();
}

/* The driver takes registered memory back, between transfers, in one, and during MAP. */
static void forced_reclaim(void)
{
	uint64_t addr = t_alloc(dev, BLOCK, T_LAYOUT_HUGE);
	struct t_region r = t_register(fd, dev, addr, BLOCK);
	struct t_held h;

	CHECK_EQ(t_reclaim(dev, addr), 1);
	CHECK_EQ(t_state(&r), PHXFS_REGION_RECLAIMED);
	CHECK(t_faults(r.p));
	CHECK_EQ(pread(disk, r.p, 4096, 0), -1);
	CHECK_EQ(errno, EFAULT);
	t_unregister(&r);
	expect_clean();

	r = t_register(fd, dev, addr, BLOCK);
	h = t_hold(r.p, 4096);
	CHECK_EQ(t_unmap(&r), 0);
	CHECK_EQ(t_state(&r), PHXFS_REGION_DRAINING);
	t_let_go(&h);
	CHECK_EQ(munmap(r.p, r.length), 0);
	expect_clean();

	t_fault(dev, T_FAULT_PIN_RECLAIM, 0, 1, 0);
	CHECK_EQ(try_map(addr, BLOCK), -EFAULT);
	expect_clean();
	t_free(addr);
}

/* Transfers that outlast the driver's patience: it is told, where it can be. */
static void reclaim_times_out(void)
{
	uint64_t addr = t_alloc(dev, BLOCK, T_LAYOUT_HUGE);
	struct t_region r = t_register(fd, dev, addr, BLOCK);
	struct t_held h = t_hold(r.p, 4096);

	t_set_parameter("phxfs", "drain_ms", "100");
	CHECK_EQ(t_reclaim(dev, addr), 1);
	t_set_parameter("phxfs", "drain_ms", "5000");
	if (!strcmp(vendor.name, "metax"))
		CHECK_EQ(t_parameter(vendor.driver, "last_reclaim"), -ETIMEDOUT);
	t_let_go(&h);
	t_unregister(&r);
	t_free(addr);
	expect_clean();
}

static void *take_back(void *arg)
{
	t_reclaim(dev, *(uint64_t *)arg);
	return NULL;
}

/*
 * The driver decides to call back, and the pin is put before it does: it holds no lock that
 * would make one wait for the other.
 */
static void called_back_late(void)
{
	uint64_t addr = t_alloc(dev, BLOCK, T_LAYOUT_HUGE);
	struct t_region r = t_register(fd, dev, addr, BLOCK);
	pthread_t thread;

	t_set_parameter(vendor.driver, "hold", "Y");
	CHECK_EQ(pthread_create(&thread, NULL, take_back, &addr), 0);
	for (int i = 0; i < 6000 && !t_parameter(vendor.driver, "held"); i++)
		usleep(5000);
	CHECK_EQ(t_parameter(vendor.driver, "held"), 1);
	t_unregister(&r);
	t_expect_idle(dev);
	t_set_parameter(vendor.driver, "hold", "N");
	CHECK_EQ(pthread_join(thread, NULL), 0);
	t_free(addr);
	expect_clean();
}

/* Persistent pins outlive the memory's owner's wish to have it back. */
static void no_reclaim(void)
{
	uint64_t addr = t_alloc(dev, BLOCK, T_LAYOUT_HUGE);
	struct t_region r = t_register(fd, dev, addr, BLOCK);

	CHECK_EQ(t_reclaim(dev, addr), 0);
	CHECK_EQ(t_state(&r), PHXFS_REGION_LIVE);
	CHECK_EQ(t_features(&r), PHXFS_F_LONGTERM);
	transfer(&r, 3);
	t_unregister(&r);
	t_free(addr);
	expect_clean();
}

static void reclaim(void)
{
	if (vendor.reclaims) {
		forced_reclaim();
		reclaim_times_out();
		called_back_late();
		return;
	}
	no_reclaim();
	if (strcmp(vendor.name, "nvidia"))
		return;
	/* as on MIG, and with the backend's own parameter */
	t_set_parameter(vendor.driver, "persistent", "N");
	forced_reclaim();
	reclaim_times_out();
	t_set_parameter(vendor.driver, "persistent", "Y");
	t_set_parameter("phxfs_nvidia", "persistent", "N");
	forced_reclaim();
	t_set_parameter("phxfs_nvidia", "persistent", "Y");
}

/* A child with registrations that is killed in a transfer, again and again. */
static void killed(void)
{
	for (int i = 0; i < 6; i++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (!pid) {
			uint64_t addr = t_alloc(dev, 2 * BLOCK, T_LAYOUT_HUGE);
			struct t_region r = t_register(t_open(dev), dev, addr, 2 * BLOCK);

			for (;;)
				if (pread(disk, r.p, r.length, 0) != (ssize_t)r.length)
					_exit(1);
		}
		for (int w = 0; w < 6000 && !t_counter(dev, "pinned_bytes"); w++)
			usleep(5000);
		CHECK(t_counter(dev, "pinned_bytes") > 0);
		usleep(i * 7000);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status));
		expect_clean();
	}
}

/* Transfers until the device goes, which they notice, and nothing else. */
static int reads_to_the_end(void *arg)
{
	uint64_t addr = t_alloc(dev, 2 * BLOCK, T_LAYOUT_HUGE);
	struct t_region r = t_register(t_open(dev), dev, addr, 2 * BLOCK);
	ssize_t n;

	(void)arg;
	do {
		n = pread(disk, r.p, r.length, place);
	} while (n == (ssize_t)r.length);
	if (n < 0)
		CHECK_EQ(errno, EFAULT);
	CHECK_EQ(t_state(&r), PHXFS_REGION_RECLAIMED);
	CHECK(t_faults(r.p));
	CHECK_EQ(t_unmap(&r), 0);
	CHECK_EQ(munmap(r.p, r.length), 0);
	return 0;
}

static int after_rebind(void *arg)
{
	const char *node = arg;

	for (int i = 0; i < 3000 && access(node, F_OK); i++)
		usleep(10000);
	fd = t_open(dev);
	round_trip(T_LAYOUT_HUGE, BLOCK);
	expect_clean();
	return 0;
}

/* The vendor's driver lets the device go under a transfer, and takes it again. */
static void unbound(void)
{
	struct phxfs_ioctl_query q = { .size = sizeof(q) };
	char path[128], node[64];
	pid_t pid;
	int status;

	CHECK_EQ(t_ioctl(fd, PHXFS_IOCTL_QUERY, &q), 0);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/driver/unbind", q.pci_bdf);
	snprintf(node, sizeof(node), "/dev/" PHXFS_DEV_PREFIX "%d", dev);
	CHECK_EQ(close(fd), 0);
	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(reads_to_the_end(NULL));
	for (int i = 0; i < 6000 && !t_counter(dev, "regions"); i++)
		usleep(5000);
	CHECK_EQ(t_counter(dev, "regions"), 1);
	t_write_sysfs(path, q.pci_bdf);
	CHECK(access(node, F_OK) < 0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(t_parameter(vendor.driver, "tables"), 0);
	t_write_sysfs("/sys/bus/pci/drivers_probe", q.pci_bdf);
	CHECK_EQ(t_in_child(after_rebind, node), 0);
}

int main(int argc, char **argv)
{
	static const struct t_case cases[] = {
		{ "layouts", layouts },
		{ "ranges", ranges },
		{ "faults", faults },
		{ "versions", versions },
		{ "peculiar", peculiar },
		{ "puts", put_again },
		{ "reclaim", reclaim },
		{ "killed", killed },
		{ 0 }
	};
	static const struct t_case alone[] = { { "unbound", unbound }, { 0 } };

	CHECK(argc >= 4);
	for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
		if (!strcmp(vendors[i].name, argv[1]))
			vendor = vendors[i];
	CHECK(vendor.name);
	disk = open(argv[2], O_RDWR | O_DIRECT | O_CLOEXEC);
	CHECK(disk >= 0);
	dev = atoi(argv[3]);
	place = (off_t)dev * 32 * MIB;
	fd = t_open(dev);
	if (argc == 5 && !strcmp(argv[4], alone[0].name))
		return t_main(argc - 3, argv + 3, alone);
	return t_main(argc - 3, argv + 3, cases);
}
