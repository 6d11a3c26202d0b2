// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of a device's place: its kernel driver and what the module's back end needs of it,
 * and the way over PCI between it and the disks. Only sysfs and /proc are read.
 */
#include "findings.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIG_BYTES 4096
#define EXTENDED_BEGIN 0x100u
#define CAPABILITY_ACS 0x000du
#define ACS_CONTROL 6u
#define ACS_REDIRECTS 0x000cu /* requests, completions */
#define MOST_DISKS 16

/* What phxfs-<vendor>.ko needs of the vendor's driver. */
static const struct vendor {
	const char *name;   /* the connector's */
	const char *driver; /* NULL: its name differs */
	const char *symbols[6];
	const char *cure;
} vendors[] = {
	{ "nvidia", "nvidia",
	  { "nvidia_p2p_get_pages", "nvidia_p2p_put_pages", "nvidia_p2p_free_page_table" },
	  "install NVIDIA's driver, 550 or newer (the open kernel modules), and load nvidia.ko" },
	{ "amd", "amdgpu", { "amdkfd_query_rdma_interface" },
	  "install ROCm's amdgpu driver (amdgpu-dkms): the kernel's own has no such function" },
	{ "huawei", NULL, { "hal_kernel_p2p_get_pages", "hal_kernel_p2p_put_pages" },
	  "install a newer Ascend HDK driver" },
	{ "metax", NULL,
	  { "metax_p2p_acquire_mem", "metax_p2p_get_mem", "metax_p2p_put_mem",
	    "metax_p2p_get_bus_offset", "metax_p2p_get_page_size", "metax_p2p_release_mem" },
	  "install a newer MetaX driver" },
	{ "sim", NULL, { "phxsim_p2p_get_pages", "phxsim_p2p_put_pages" }, "load phxsim.ko" },
};

/* ----------------------------------------------------------------- the driver */

static const struct vendor *find_vendor(const char *name)
{
	for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
		if (!strcmp(vendors[i].name, name))
			return &vendors[i];
	return NULL;
}

static bool is_symbol(const char *line, const char *name)
{
	const char *at = strstr(line, name);
	char after = at ? at[strlen(name)] : 0;

	return at && at > line && at[-1] == ' ' && (after == '\t' || after == '\n' || !after);
}

/* The first symbol that no module has; NULL: all are there, or it cannot be told. */
static const char *missing_symbol(const struct vendor *v, const char *sysfs)
{
	static const struct vendor *last; /* the list is long */
	static const char *answer;
	bool seen[6] = { false };
	char line[512], path[512];
	FILE *file;
	int i;

	if (v == last)
		return answer;
	/* loaded, it has them all */
	snprintf(path, sizeof(path), "%s/module/phxfs_%s", sysfs, v->name);
	if (access(path, F_OK) == 0)
		return NULL;
	if (strcmp(sysfs, "/sys"))
		snprintf(path, sizeof(path), "%s/kallsyms", sysfs);
	else
		snprintf(path, sizeof(path), "/proc/kallsyms");
	file = fopen(path, "re");
	if (!file)
		return NULL;
	while (fgets(line, sizeof(line), file))
		for (i = 0; i < 6 && v->symbols[i]; i++)
			seen[i] |= is_symbol(line, v->symbols[i]);
	fclose(file);
	last = v;
	answer = NULL;
	for (i = 0; i < 6 && v->symbols[i] && !answer; i++)
		answer = seen[i] ? NULL : v->symbols[i];
	return answer;
}

/* The driver that is bound to a PCI device; "" for none. */
static void bound_driver(char *name, size_t size, const char *bdf, const char *sysfs)
{
	char path[512], target[PATH_MAX];
	const char *base;
	ssize_t n;

	*name = 0;
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/driver", sysfs, bdf);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return;
	target[n] = 0;
	base = strrchr(target, '/');
	snprintf(name, size, "%.60s", base ? base + 1 : target);
}

static void check_driver(struct findings *f, const char *object, const char *vendor,
			 const char *bdf, const char *sysfs)
{
	const struct vendor *v = find_vendor(vendor);
	const char *symbol;
	struct finding *x;
	char driver[64];

	bound_driver(driver, sizeof(driver), bdf, sysfs);
	if (!v)
		return;
	if (!*driver) {
		x = find_add(f, VERDICT_WARN, "device", object, "no kernel driver is bound to it");
		find_cure(x, "%s", v->cure);
		return;
	}
	if (v->driver && strcmp(driver, v->driver)) {
		x = find_add(f, VERDICT_WARN, "device", object,
			     "bound to the driver %s, not to %s: phxfs-%s.ko leaves it alone",
			     driver, v->driver, v->name);
		find_cure(x, "%s", v->cure);
		return;
	}
	symbol = missing_symbol(v, sysfs);
	if (symbol) {
		x = find_add(f, VERDICT_WARN, "device", object,
			     "driver %s lacks %s: phxfs-%s.ko cannot use it", driver, symbol,
			     v->name);
		find_cure(x, "%s", v->cure);
	} else {
		find_add(f, VERDICT_PASS, "device", object,
			 "driver %s has what phxfs-%s.ko needs", driver, v->name);
	}
}

/* ------------------------------------------------------------------- the way */

/* Where the file @name in @folder of sysfs really is. */
static bool real_path(char *out, const char *sysfs, const char *folder, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/%s", sysfs, folder, name);
	return realpath(path, out) != NULL;
}

/*
 * Two places below /sys/devices/pciDDDD:BB. *shared: the last bridge that both are below, ""
 * for none; false: not even the root complex is.
 */
static bool common_way(const char *a, const char *b, char *shared, size_t size)
{
	const char *root = strstr(a, "/pci"), *end, *last = NULL;
	size_t i, n = 0;

	*shared = 0;
	if (!root)
		return false;
	for (i = 0; a[i] && a[i] == b[i]; i++)
		if (a[i] == '/')
			n = i;
	/* at a name's end in both */
	if ((!a[i] || a[i] == '/') && (!b[i] || b[i] == '/'))
		n = i;
	end = a + n;
	if (end <= root)
		return false;
	for (const char *c = root + 1; c < end; c++)
		if (*c == '/')
			last = c + 1;
	if (last)
		snprintf(shared, size, "%.*s", (int)(end - last), last);
	return true;
}

/* Does the bridge send peers' traffic up to the root? -1: not to be read. */
static int redirects(const char *bdf, const char *sysfs)
{
	unsigned char config[CONFIG_BYTES];
	unsigned int at = EXTENDED_BEGIN, seen = 0;
	char path[512];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/config", sysfs, bdf);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = pread(fd, config, sizeof(config), 0);
	close(fd);
	/* without the privilege only the first 64 bytes come */
	if (n <= 64)
		return -1;
	while (at >= EXTENDED_BEGIN && at + ACS_CONTROL + 2 <= (size_t)n && seen++ < 96) {
		unsigned int id = config[at] | (unsigned int)config[at + 1] << 8;
		unsigned int next = (unsigned int)(config[at + 2] >> 4) |
				    (unsigned int)config[at + 3] << 4;

		if (id == CAPABILITY_ACS)
			return (config[at + ACS_CONTROL] & ACS_REDIRECTS) != 0;
		at = next;
	}
	return 0;
}

/* Every bridge between the root and @path; the first that redirects, or cannot be read. */
static int check_bridges(const char *path, const char *sysfs, char *bridge, size_t size)
{
	const char *c = strstr(path, "/pci");
	int worst = 0;

	c = c ? strchr(c + 1, '/') : NULL;
	while (c && strchr(c + 1, '/')) {
		const char *end = strchr(c + 1, '/');
		char bdf[32];
		int state;

		snprintf(bdf, sizeof(bdf), "%.*s", (int)(end - c - 1), c + 1);
		state = redirects(bdf, sysfs);
		if (state > 0 || (state < 0 && !worst)) {
			worst = state;
			snprintf(bridge, size, "%s", bdf);
		}
		if (state > 0)
			break;
		c = end;
	}
	return worst;
}

static void check_acs(struct findings *f, const char *object, const char *path,
		      const char *sysfs)
{
	char bridge[32] = "";
	int state = check_bridges(path, sysfs, bridge, sizeof(bridge));
	struct finding *x;

	if (state > 0) {
		x = find_add(f, VERDICT_WARN, "device", object,
			     "ACS redirects at bridge %s: peer-to-peer traffic goes up to the root "
			     "complex",
			     bridge);
		find_cure(x, "turn ACS off in the firmware, or clear it with setpci, unless "
			     "virtual machines need it");
	} else if (state < 0) {
		x = find_add(f, VERDICT_INFO, "device", object,
			     "ACS of bridge %s cannot be read", bridge);
		find_cure(x, "run phx check as root");
	} else {
		find_add(f, VERDICT_PASS, "device", object, "no ACS redirection above it");
	}
}

static void check_disk(struct findings *f, const char *object, const char *path,
		       const char *disk, const char *disk_path)
{
	char bridge[32];
	struct finding *x;

	if (!common_way(path, disk_path, bridge, sizeof(bridge))) {
		x = find_add(f, VERDICT_WARN, "device", object,
			     "%s is below another root complex: transfers cross between "
			     "processors, slowly or not at all",
			     disk);
		find_cure(x, "move one of them to the other's slots");
	} else if (*bridge) {
		find_add(f, VERDICT_PASS, "device", object, "shares bridge %s with %s", bridge,
			 disk);
	} else {
		x = find_add(f, VERDICT_INFO, "device", object,
			     "shares the root complex with %s, and no switch: the root complex "
			     "has to forward",
			     disk);
		find_cure(x, "a slot below one PCIe switch, if transfers are slow");
	}
}

/* A disk's name in sysfs, "nvme0"; nvme0n1 and such are below it. */
static int is_controller(const struct dirent *e)
{
	return !strncmp(e->d_name, "nvme", 4);
}

static void check_disks(struct findings *f, const char *object, const char *path,
			const char *sysfs)
{
	char dir[512], device[300], disk_path[PATH_MAX];
	struct dirent **disks;
	int i, n;

	snprintf(dir, sizeof(dir), "%s/class/nvme", sysfs);
	n = scandir(dir, &disks, is_controller, versionsort);
	for (i = 0; i < n; i++) {
		snprintf(device, sizeof(device), "%s/device", disks[i]->d_name);
		if (i < MOST_DISKS && real_path(disk_path, sysfs, "class/nvme", device))
			check_disk(f, object, path, disks[i]->d_name, disk_path);
		free(disks[i]);
	}
	if (n >= 0)
		free(disks);
}

void check_bus(struct findings *f, const char *object, const char *vendor, const char *bdf,
	       const char *sysfs)
{
	char path[PATH_MAX];

	check_driver(f, object, vendor, bdf, sysfs);
	if (!real_path(path, sysfs, "bus/pci/devices", bdf))
		return;
	check_acs(f, object, path, sysfs);
	check_disks(f, object, path, sysfs);
}
