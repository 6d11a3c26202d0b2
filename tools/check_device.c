// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of connectors and devices. Each device is opened, and a page of its
 * memory is allocated, filled, read back, registered and deregistered, so that
 * a PASS means it was seen to work.
 */
#include "findings.h"

#include <errno.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Host memory that one mapped 4 KiB page of a BAR costs in FULL mode. */
#define PAGE_STRUCT_BYTES 64u

static void check_connectors(struct findings *f)
{
	struct phxfs_connector_info info = { .size = sizeof(info) };
	const char *asked = getenv("PHX_CONNECTOR");
	char name[WORD_MAX];
	enum verdict verdict;
	bool seen = !asked || !strcmp(asked, "auto");
	int i;

	for (i = 0; phxfs_connector_info(i, &info) == 0; i++) {
		seen |= asked && !strcmp(asked, info.name);
		if (info.status == 0) {
			find_add(f, VERDICT_PASS, "connector", info.name, "%d device%s%s%s",
				 info.devices, info.devices == 1 ? "" : "s", *info.text ? "; " : "",
				 info.text);
			continue;
		}
		/* a vendor that is not here is no fault, unless it was asked for */
		verdict = asked && !strcmp(asked, info.name) ? VERDICT_FAIL : VERDICT_INFO;
		find_add(f, verdict, "connector", info.name, "%s: %s",
			 errno_name(name, -info.status), info.text);
	}
	if (!seen)
		find_add(f, VERDICT_FAIL, "connector", asked, "not built into this library");
}

static bool module_loaded(const char *sysfs)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/module/phxfs", sysfs);
	return access(path, F_OK) == 0;
}

static void check_module(struct findings *f, const char *sysfs)
{
	int mode = phxfs_get_map_mode();
	struct finding *x;

	if (mode == PHXFS_MODE_FULL || mode == PHXFS_MODE_STAGING) {
		find_add(f, VERDICT_PASS, "module", "phxfs.ko", "loaded, map mode %s",
			 mode_name(mode));
	} else if (mode == PHXFS_MODE_BOUNCE && module_loaded(sysfs)) {
		find_add(f, VERDICT_WARN, "module", "phxfs.ko", "loaded, and serves no device");
	} else if (mode == PHXFS_MODE_BOUNCE) {
		x = find_add(f, VERDICT_WARN, "module", "phxfs.ko",
			     "not loaded: data goes through host memory");
		find_cure(x, "modprobe phxfs");
	} else {
		find_add(f, VERDICT_INFO, "module", "phxfs.ko",
			 "not needed: there is no accelerator");
	}
}

/* Returns 0, or -errno with the step that failed. */
static int exercise(int device, const char **step)
{
	unsigned char *host = malloc(2 * PHXFS_DEVICE_PAGE);
	unsigned char *back = host + PHXFS_DEVICE_PAGE;
	struct buffer b;
	size_t i;
	int rc;

	*step = "allocate host memory";
	if (!host)
		return -ENOMEM;
	rc = buffer_get(&b, device, PHXFS_DEVICE_PAGE, step);
	if (rc)
		goto out_free;
	for (i = 0; i < PHXFS_DEVICE_PAGE; i++) {
		host[i] = (unsigned char)(i * 7 + (i >> 8));
		back[i] = (unsigned char)~host[i];
	}
	*step = "copy to the device";
	rc = buffer_store(&b, 0, host, PHXFS_DEVICE_PAGE);
	if (rc)
		goto out_put;
	*step = "copy from the device";
	rc = buffer_load(&b, 0, back, PHXFS_DEVICE_PAGE);
	if (rc)
		goto out_put;
	*step = "compare what came back";
	rc = memcmp(host, back, PHXFS_DEVICE_PAGE) ? -EIO : 0;
out_put:
	buffer_put(&b);
out_free:
	free(host);
	return rc;
}

/* What would make a better mode of this one. */
static void cure_mode(struct finding *x, const struct phxfs_device_info *info, const char *sysfs)
{
	if (info->mode == PHXFS_MODE_STAGING)
		find_cure(x, "for FULL load phxfs.ko with phxfs_map_mode=0");
	else if (info->mode == PHXFS_MODE_BOUNCE && !module_loaded(sysfs))
		find_cure(x, "modprobe phxfs");
	else if (info->mode == PHXFS_MODE_BOUNCE)
		find_cure(x, "load phxfs-%s.ko, name the device in gpus=; "
			     "dmesg says why it is left alone", info->vendor);
}

static void check_mode(struct findings *f, const char *object,
		       const struct phxfs_device_info *info, const char *sysfs)
{
	enum verdict verdict = info->mode == PHXFS_MODE_BOUNCE ? VERDICT_WARN :
			       info->mode == PHXFS_MODE_HOST   ? VERDICT_INFO :
								 VERDICT_PASS;
	char word[WORD_MAX];
	struct finding *x;

	x = find_add(f, verdict, "device", object, "mode %s%s%s", mode_name(info->mode),
		     *info->reason ? ": " : "", info->reason);
	cure_mode(x, info, sysfs);
	if (info->mode != PHXFS_MODE_FULL || !info->memory_bytes)
		return;
	x = find_add(f, VERDICT_INFO, "device", object,
		     "mode full costs up to %s of host memory",
		     size_word(word, info->memory_bytes / 4096 * PAGE_STRUCT_BYTES));
	find_cure(x, "load phxfs.ko with the staging map mode where that is too much");
}

/* An IOMMU that translates keeps storage from reaching the device directly. */
static void check_iommu(struct findings *f, const char *object, const char *bdf, const char *sysfs)
{
	char type[64];
	struct finding *x;

	if (!read_line(type, sizeof(type), "%s/bus/pci/devices/%s/iommu_group/type", sysfs, bdf)) {
		find_add(f, VERDICT_PASS, "device", object, "no IOMMU in its way");
	} else if (!strcmp(type, "identity")) {
		find_add(f, VERDICT_PASS, "device", object, "IOMMU passes through");
	} else {
		x = find_add(f, VERDICT_WARN, "device", object,
			     "IOMMU translates (type %s): peer-to-peer DMA may be refused", type);
		find_cure(x, "boot with iommu=pt");
	}
}

static void check_bar(struct findings *f, const char *object,
		      const struct phxfs_device_info *info, const char *sysfs)
{
	unsigned long long start, end, flags, most = 0;
	char path[512], line[256], word[WORD_MAX], cost[WORD_MAX];
	struct finding *x;
	FILE *file;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/resource", sysfs, info->bdf);
	file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%llx %llx %llx", &start, &end, &flags) == 3 && end > start &&
		    end - start + 1 > most)
			most = end - start + 1;
	fclose(file);
	size_word(word, most);
	if (info->memory_bytes && most < info->memory_bytes) {
		x = find_add(f, VERDICT_WARN, "device", object,
			     "largest BAR is %s, smaller than its memory: not all of it can be "
			     "mapped",
			     word);
		find_cure(x, "enable resizable BAR (above 4G decoding) in the firmware");
	} else {
		x = find_add(f, VERDICT_PASS, "device", object,
			     "largest BAR is %s: to map all of it (FULL) costs up to %s of host "
			     "memory",
			     word, size_word(cost, most / 4096 * PAGE_STRUCT_BYTES));
	}
	json_uint(find_data(x), "bar_bytes", most);
}

static void check_device(struct findings *f, int device, const char *sysfs)
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	char object[32], memory[WORD_MAX], error[WORD_MAX];
	const char *step = "";
	struct finding *x;
	int rc;

	snprintf(object, sizeof(object), "device %d", device);
	rc = phxfs_device_info(device, &info);
	if (rc) {
		find_add(f, VERDICT_INFO, "device", object, "%s", phxfs_last_error());
		return;
	}
	x = find_add(f, VERDICT_INFO, "device", object, "%s, %s%s%s%s%s", info.vendor, info.name,
		     *info.bdf ? ", PCI " : "", info.bdf, info.memory_bytes ? ", " : "",
		     info.memory_bytes ? size_word(memory, info.memory_bytes) : "");
	cJSON_AddStringToObject(find_data(x), "vendor", info.vendor);
	cJSON_AddStringToObject(find_data(x), "bdf", info.bdf);
	cJSON_AddStringToObject(find_data(x), "mode", mode_name(info.mode));
	json_uint(find_data(x), "memory_bytes", info.memory_bytes);
	json_uint(find_data(x), "staging_bytes", info.staging_bytes);
	json_uint(find_data(x), "page_size", info.page_size);

	check_mode(f, object, &info, sysfs);
	if (*info.bdf) {
		check_bus(f, object, info.vendor, info.bdf, sysfs);
		check_iommu(f, object, info.bdf, sysfs);
		check_bar(f, object, &info, sysfs);
	}
	rc = exercise(device, &step);
	if (rc)
		find_add(f, VERDICT_FAIL, "device", object, "cannot %s: %s (%s)", step,
			 errno_name(error, -rc), phxfs_last_error());
	else
		find_add(f, VERDICT_PASS, "device", object,
			 "opens, allocates, copies both ways, registers");
}

void check_devices(struct findings *f, const char *sysfs)
{
	int i, n;

	check_connectors(f);
	check_module(f, sysfs);
	n = phxfs_device_count();
	if (n <= 0)
		find_cure(find_add(f, VERDICT_FAIL, "device", "", "there is none"),
			  "see the lines on connectors, or PHX_CONNECTOR=host");
	for (i = 0; i < n; i++)
		check_device(f, i, sysfs);
}
