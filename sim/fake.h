/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the fake vendor drivers share. Each is a PCI driver of the vendor's name, to which a
 * test binds an accelerator by driver_override; the device then has the vendor's PCI ids
 * until it is unbound. Behind it is phxsim, whose faults and reclaims show through in the
 * vendor's own terms.
 */
#ifndef PHXSIM_FAKE_H
#define PHXSIM_FAKE_H

#include <linux/delay.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "phxsim-p2p.h"

int phxsim_probe(struct pci_dev *pdev, const struct pci_device_id *id);
void phxsim_remove(struct pci_dev *pdev);

static inline void fake_ids(struct pci_dev *pdev, u16 vendor, u16 device, u32 class)
{
	pdev->vendor = vendor;
	pdev->device = device;
	pdev->class = class;
}

static inline int fake_probe(struct pci_dev *pdev, u16 vendor, u16 device, u32 class)
{
	int err = phxsim_probe(pdev, NULL);

	if (!err)
		fake_ids(pdev, vendor, device, class);
	return err;
}

static inline void fake_remove(struct pci_dev *pdev)
{
	phxsim_remove(pdev);
	/* ivshmem's */
	fake_ids(pdev, PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110, PCI_CLASS_MEMORY_RAM << 8);
}

/* No ids: only driver_override binds it. */
static const struct pci_device_id fake_no_ids[] = { {} };

/*
 * A pin. The vendor's table is in the struct around it. References: the client's, until it
 * puts, and one while reclaimed() or a put is under way.
 */
struct fake_pin {
	struct kref ref;
	struct list_head node;		/* protected by: fake_lock, as the next */
	bool reclaimed;			/* its callback has begun */
	struct task_struct *in_callback;	/* compared only */
	void (*tell)(struct fake_pin *pin);	/* NULL: it cannot be taken back */
	void (*free)(struct fake_pin *pin);
	struct phxsim_page_table *sim;	/* not to be looked at once reclaimed */
	u64 va;
	u64 len;
	u64 page_size;
	u32 n;
	u64 *addr;			/* copied: NULL where phxsim reported nothing */
};

static LIST_HEAD(fake_pins);
static DEFINE_MUTEX(fake_lock);

/* hold=Y stops before a callback that is decided: "held" counts those that wait. */
static bool fake_hold;
module_param_named(hold, fake_hold, bool, 0644);
static atomic_t fake_held = ATOMIC_INIT(0);
module_param_named(held, fake_held.counter, int, 0444);

static inline void fake_pin_release(struct kref *ref)
{
	struct fake_pin *pin = container_of(ref, struct fake_pin, ref);

	kvfree(pin->addr);
	pin->free(pin);
}

/* phxsim's callback: process context, phxsim's lock held, as a real driver's. */
static inline void fake_reclaimed(void *data)
{
	struct fake_pin *pin = data;

	kref_get(&pin->ref);
	mutex_lock(&fake_lock);
	pin->reclaimed = true;
	pin->in_callback = current;
	mutex_unlock(&fake_lock);
	atomic_inc(&fake_held);
	while (READ_ONCE(fake_hold))
		usleep_range(5000, 10000);
	atomic_dec(&fake_held);
	pin->tell(pin);
	mutex_lock(&fake_lock);
	pin->in_callback = NULL;
	mutex_unlock(&fake_lock);
	kref_put(&pin->ref, fake_pin_release);
}

static inline void fake_put(struct fake_pin *pin)
{
	kref_put(&pin->ref, fake_pin_release);
}

/* The client's reference goes; false: it had gone. */
static inline bool fake_forget(struct fake_pin *pin)
{
	bool there;

	mutex_lock(&fake_lock);
	there = !list_empty(&pin->node);
	list_del_init(&pin->node);
	mutex_unlock(&fake_lock);
	if (there)
		fake_put(pin);
	return there;
}

/* Copy what phxsim reports; false: it has taken it back already, or only pretended. */
static inline bool fake_copy(struct fake_pin *pin, u32 room)
{
	bool there;

	mutex_lock(&fake_lock);
	there = !pin->reclaimed && pin->sim;
	if (there) {
		pin->page_size = pin->sim->page_size;
		pin->n = min(pin->sim->entries, room);
		memcpy(pin->addr, pin->sim->addr, pin->n * sizeof(u64));
	}
	mutex_unlock(&fake_lock);
	return there;
}

/*
 * @pin->tell and ->free are set, and nothing else. 1: pinned, the pages are in addr. 0: there
 * is no page: phxsim pretended (PHXSIM_FAULT_PIN_SILENT), or has called back already. With
 * both the client has its reference, and the caller one for as long as it looks at @pin. An
 * error has freed @pin.
 */
static inline int fake_pin(struct fake_pin *pin, u64 va, u64 len)
{
	u32 room = DIV_ROUND_UP_ULL(len, 65536);
	bool there;
	int err;

	kref_init(&pin->ref);
	kref_get(&pin->ref);
	pin->va = va;
	pin->len = len;
	mutex_lock(&fake_lock);
	list_add(&pin->node, &fake_pins);
	mutex_unlock(&fake_lock);
	pin->addr = kvcalloc(room, sizeof(u64), GFP_KERNEL);
	if (!pin->addr)
		err = -ENOMEM;
	else if (pin->tell)
		err = phxsim_p2p_get_pages(va, len, &pin->sim, fake_reclaimed, pin);
	else
		err = phxsim_p2p_get_pages_persistent(va, len, &pin->sim, 0);
	if (err) {
		fake_forget(pin);
		fake_put(pin);
		return err;
	}
	there = fake_copy(pin, room);
	if (!pin->sim)
		fake_forget(pin);
	return there;
}

/* Is it one of ours? With a reference. */
static inline struct fake_pin *fake_find(bool (*is)(struct fake_pin *pin, const void *what),
					 const void *what)
{
	struct fake_pin *pin, *found = NULL;

	mutex_lock(&fake_lock);
	list_for_each_entry(pin, &fake_pins, node) {
		if (!is(pin, what))
			continue;
		kref_get(&pin->ref);
		found = pin;
		break;
	}
	mutex_unlock(&fake_lock);
	return found;
}

/* Unpin; waits for a callback under way, as most real drivers' locks make a put wait. */
static inline int fake_unpin(struct fake_pin *pin)
{
	if (!pin->sim)
		return 0;
	return pin->tell ? phxsim_p2p_put_pages(pin->va, pin->sim) :
			   phxsim_p2p_put_pages_persistent(pin->va, pin->sim);
}

#endif
