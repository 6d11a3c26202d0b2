// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a device says about itself: sysfs files (named in include/uapi/phxfs.h), and whether
 * anything can be mapped on it.
 */
#include <linux/cc_platform.h>
#include <linux/pci-p2pdma.h>
#include <linux/pci.h>
#include <linux/swiotlb.h>
#include <linux/sysfs.h>

#include "phxfs.h"

static struct phxfs_dev *to_phxfs(struct device *d)
{
	return container_of(d, struct phxfs_dev, device);
}

static u64 page_struct_bytes(struct phxfs_dev *dev)
{
	return PHYS_PFN(atomic64_read(&dev->count.mapped)) * sizeof(struct page);
}

#define PHXFS_ATTR(_name, _fmt, ...)                                                         \
	static ssize_t _name##_show(struct device *d, struct device_attribute *a, char *buf) \
	{                                                                                    \
		struct phxfs_dev *dev = to_phxfs(d);                                         \
		return sysfs_emit(buf, _fmt "\n", __VA_ARGS__);                              \
	}                                                                                    \
	static DEVICE_ATTR_RO(_name)

#define PHXFS_COUNTER(_name, _member)						\
	PHXFS_ATTR(_name, "%lld", (long long)atomic64_read(&dev->count._member))

PHXFS_ATTR(pci_bdf, "%s", dev->bdf);
PHXFS_ATTR(map_mode, "%d", dev->map_mode);
PHXFS_ATTR(backend, "%s", dev->ops->name);
PHXFS_ATTR(page_size, "%llu", dev->ops->page_size);
PHXFS_ATTR(status, "%s", dev->reason[0] ? dev->reason : "ok");
PHXFS_ATTR(bar, "%d %#llx %#llx", dev->bar, dev->base, dev->size);
PHXFS_ATTR(page_struct_bytes, "%llu", page_struct_bytes(dev));
PHXFS_COUNTER(mapped_bytes, mapped);
PHXFS_COUNTER(pinned_bytes, pinned);
PHXFS_COUNTER(zombie_bytes, zombie);
PHXFS_COUNTER(regions, regions);
PHXFS_COUNTER(maps, maps);
PHXFS_COUNTER(unmaps, unmaps);
PHXFS_COUNTER(reclaims, reclaims);
PHXFS_COUNTER(reclaim_timeouts, reclaim_timeouts);

static ssize_t abi_show(struct device *d, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", PHXFS_ABI_VERSION);
}
static DEVICE_ATTR_RO(abi);

static ssize_t p2p_distance_show(struct device *d, struct device_attribute *attr, char *buf)
{
	struct phxfs_dev *dev = to_phxfs(d);
	struct pci_dev *nvme = NULL;
	ssize_t n = 0;

	while ((nvme = pci_get_class(PCI_CLASS_STORAGE_EXPRESS, nvme))) {
		struct device *client = &nvme->dev;

		n += sysfs_emit_at(buf, n, "%s %d\n", pci_name(nvme),
				   pci_p2pdma_distance_many(dev->pdev, &client, 1, false));
	}
	return n;
}
static DEVICE_ATTR_RO(p2p_distance);

static struct attribute *phxfs_dev_attrs[] = {
	&dev_attr_abi.attr,
	&dev_attr_pci_bdf.attr,
	&dev_attr_map_mode.attr,
	&dev_attr_backend.attr,
	&dev_attr_page_size.attr,
	&dev_attr_status.attr,
	&dev_attr_bar.attr,
	&dev_attr_p2p_distance.attr,
	&dev_attr_mapped_bytes.attr,
	&dev_attr_page_struct_bytes.attr,
	&dev_attr_pinned_bytes.attr,
	&dev_attr_zombie_bytes.attr,
	&dev_attr_regions.attr,
	&dev_attr_maps.attr,
	&dev_attr_unmaps.attr,
	&dev_attr_reclaims.attr,
	&dev_attr_reclaim_timeouts.attr,
	NULL
};
ATTRIBUTE_GROUPS(phxfs_dev);

const struct attribute_group **phxfs_device_groups(void)
{
	return phxfs_dev_groups;
}

/*
 * Reasons for which transfers into the BAR would be wrong or bounced by the CPU behind our
 * back. Sets dev->reason if there is one.
 */
void phxfs_device_check(struct phxfs_dev *dev)
{
	const char *why = NULL;

	if (cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT) || cc_platform_has(CC_ATTR_MEM_ENCRYPT))
		why = "memory encryption (SEV, SME, TDX) is active: DMA into a BAR would go astray";
	else if (is_swiotlb_force_bounce(&dev->pdev->dev))
		why = "swiotlb=force: every transfer would be copied by the CPU";
	if (why)
		strscpy(dev->reason, why, sizeof(dev->reason));
}
