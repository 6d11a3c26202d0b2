// SPDX-License-Identifier: Apache-2.0
/* Huawei's management library: where on the bus a device is, by its logic number. */
#include <stddef.h>
#include <stdio.h>

int cuDeviceGetPCIBusId(char *bdf, int len, int device);

struct pcie_info {
	unsigned int vendor, subvendor, device, subdevice;
	int domain;
	unsigned int bus, slot, function;
	unsigned char reserved[32];
};

/* The logic numbers of the fake's devices begin at 4. */
__attribute__((visibility("default"))) int dsmi_get_pcie_info_v2(int logic, struct pcie_info *out)
{
	char bdf[32];

	if (logic < 4 || cuDeviceGetPCIBusId(bdf, sizeof(bdf), logic - 4))
		return 1;
	*out = (struct pcie_info){ .vendor = 0x19e5, .device = 0xd802 };
	return sscanf(bdf, "%x:%x:%x.%x", (unsigned int *)&out->domain, &out->bus, &out->slot,
		      &out->function) == 4 ? 0 : 1;
}
