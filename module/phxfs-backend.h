/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a vendor backend gives to phxfs.ko: one const table of operations, registered by its
 * own module, phxfs-<vendor>.ko. Several backends live side by side; each PCI device is
 * served by the one whose ids match it.
 *
 * Rules that every operation keeps
 *   - get_pages and put_pages run in process context, may sleep, and are never called under
 *     mmap_lock or with a lock of phxfs held that free_cb takes; only the backend's own
 *     semaphore is, which keeps the two apart, and the lock of the list of backends when a
 *     device goes. get_pages runs in the process whose device memory it is.
 *   - get_n_pages and get_phys_addrs only read memory that get_pages prepared. They must not
 *     wait for a lock that the vendor's driver holds around free_cb, nor call into it.
 *   - free_cb(data) may come from the moment get_pages is entered, in any context, at most
 *     once per pin, and never after put_pages has returned or get_pages has failed. It may
 *     sleep (up to the module parameter drain_ms) unless the caller cannot; when it returns
 *     the vendor may reuse the memory. After it, phxfs calls free_page_table exactly once
 *     and never put_pages. A put_pages already under way when free_cb comes is legal: the
 *     backend then only frees its own structures. No get_pages runs beside a put_pages.
 */
#ifndef PHXFS_BACKEND_H
#define PHXFS_BACKEND_H

#include <linux/mod_devicetable.h>
#include <linux/module.h>
#include <linux/types.h>

/* A backend built against another layout of the table is refused. */
#define PHXFS_P2P_ABI	1

/* phxfs_page_table.flags */
#define PHXFS_PT_PERSISTENT	(1U << 0)	/* this pin cannot be taken back: no free_cb */
#define PHXFS_PT_RECLAIMED	(1U << 1)	/* taken back before get_pages could read it */
/* set by phxfs before free_page_table: transfers go on, they could not be waited for */
#define PHXFS_PT_UNDRAINED	(1U << 2)

/* phxfs_p2p_ops.flags */
/* pins are persistent as a rule; may be set by init, and lets a device have 2 MiB pages */
#define PHXFS_P2P_PERSISTENT	(1U << 0)
#define PHXFS_P2P_ATOMIC_CB	(1U << 1)	/* free_cb may come in atomic context */

/**
 * struct phxfs_page_table - one pin
 * @priv: the backend's own
 * @page_size: bytes of a device page of this allocation; 0 = that of the ops
 * @flags: PHXFS_PT_*
 *
 * Allocated by get_pages, freed by put_pages or free_page_table.
 */
struct phxfs_page_table {
	void *priv;
	u64 page_size;
	u32 flags;
};

/**
 * struct phxfs_p2p_ops - a vendor backend
 * @abi: PHXFS_P2P_ABI
 * @flags: PHXFS_P2P_*
 * @name: for logs and sysfs, at most 31 characters
 * @owner: the backend's module
 * @ids: PCI devices it serves, ends with a zero entry
 * @driver: name of the PCI driver the device must be bound to; NULL = any
 * @page_size: bytes of a device page: a power of two, at least PAGE_SIZE
 * @init: called once by phxfs_p2p_register_backend(); may be NULL
 * @exit: undoes @init; may be NULL
 * @get_pages: pin [@vaddr, @vaddr + @length); 0 and *@pt set, or -errno
 * @put_pages: unpin and free @pt
 * @get_n_pages: entries of @pt
 * @get_phys_addrs: CPU physical address of each page; @n equals get_n_pages()
 * @free_page_table: free @pt after free_cb came for it; the pin itself is gone
 */
struct phxfs_p2p_ops {
	u32 abi;
	u32 flags;
	const char *name;
	struct module *owner;
	const struct pci_device_id *ids;
	const char *driver;
	u64 page_size;

	int (*init)(void);
	void (*exit)(void);
	int (*get_pages)(u64 vaddr, u64 length, struct phxfs_page_table **pt,
			 void (*free_cb)(void *data), void *data);
	void (*put_pages)(u64 vaddr, struct phxfs_page_table *pt);
	u32 (*get_n_pages)(struct phxfs_page_table *pt);
	int (*get_phys_addrs)(struct phxfs_page_table *pt, u64 *addrs, u32 n);
	void (*free_page_table)(struct phxfs_page_table *pt);
};

/*
 * Registering discovers the backend's devices and creates their nodes; it succeeds with no
 * device present. Unregistering is for the backend's module_exit: its use count is zero
 * then, so no descriptor and no pin is left.
 */
int phxfs_p2p_register_backend(const struct phxfs_p2p_ops *ops);
void phxfs_p2p_unregister_backend(const struct phxfs_p2p_ops *ops);

#endif /* PHXFS_BACKEND_H */
