// SPDX-License-Identifier: GPL-2.0-only
/* phxsim-nvidia-rest: what phxsim-nvidia lacks. It does nothing, as in current drivers. */
#include <linux/module.h>

int nvidia_p2p_free_page_table(void *table);

int nvidia_p2p_free_page_table(void *table)
{
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_page_table);

MODULE_DESCRIPTION("The rest of NVIDIA's driver for other modules");
MODULE_LICENSE("GPL");
