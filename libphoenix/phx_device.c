// SPDX-License-Identifier: Apache-2.0
/*
 * Finding, describing, opening and closing devices.
 *
 * Every connector of the list (or the one that PHX_CONNECTOR names) is asked
 * for its devices. Those that phxfs.ko serves, matched by PCI address, have the
 * module's number and mode; the others follow in PCI order. HOST devices are
 * made only when no accelerator was found, or when they were asked for by name.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "phx_config.h"
#include "phx_device.h"
#include "phx_error.h"
#include "phx_init.h"
#include "phx_kernel.h"
#include "phx_path.h"
#include "phx_sized.h"
#include "phx_staging.h"
#include "phx_stats.h"

#define MAX_CONNECTORS 8

struct phx_device *phx_devices[PHX_MAX_DEVICES];

/* Written by phx_device_init() only. */
static int device_total;
static struct connector {
	const char *name;
	int status;
	int count;
	char text[160];
} connectors[MAX_CONNECTORS];
static int connector_total;

/* ------------------------------------------------------------- discovery */

static bool asked_for(const struct devconn_ops *ops)
{
	return phx_config.connector &&
	       !strcmp(phx_connector_names[phx_config.connector - 1], ops->name);
}

static void start_connector(const struct devconn_ops *ops)
{
	struct connector *c = &connectors[connector_total++];

	c->name = ops->name;
	if (phx_config.connector && !asked_for(ops)) {
		c->status = -ECANCELED;
		snprintf(c->text, sizeof(c->text), "not tried: PHX_CONNECTOR=%s",
			 phx_connector_names[phx_config.connector - 1]);
		return;
	}
	if (ops == &host_connector && !asked_for(ops) && device_total) {
		c->status = -ECANCELED;
		snprintf(c->text, sizeof(c->text), "not needed: there is an accelerator");
		return;
	}
	c->status = ops->init(c->text, sizeof(c->text));
	c->count = c->status ? 0 : ops->device_count();
}

/*
 * Devices need no memory of the heap: one that could not be had on the first
 * call would be missing for the rest of the process.
 */
static struct phx_device *new_device(const struct devconn_ops *ops, int ordinal)
{
	static struct phx_device storage[PHX_MAX_DEVICES];
	struct phx_device *dev = &storage[device_total];

	dev->ops = ops;
	dev->ordinal = ordinal;
	dev->kernel_fd = -1;
	pthread_mutex_init(&dev->lock, NULL);
	pthread_cond_init(&dev->changed, NULL);
	return dev;
}

static void add_device(struct phx_device **found, const struct devconn_ops *ops, int ordinal)
{
	struct phx_device *dev;

	if (device_total == PHX_MAX_DEVICES)
		return;
	dev = new_device(ops, ordinal);
	if (!ops->device_describe(ordinal, &dev->about))
		found[device_total++] = dev;
}

/* PCI order; devices without an address keep their vendor's order, last. */
static int by_bdf(const void *a, const void *b)
{
	const struct phx_device *x = *(struct phx_device *const *)a;
	const struct phx_device *y = *(struct phx_device *const *)b;

	if (!x->about.bdf[0] != !y->about.bdf[0])
		return x->about.bdf[0] ? -1 : 1;
	if (strcmp(x->about.bdf, y->about.bdf))
		return strcmp(x->about.bdf, y->about.bdf);
	return x->ordinal - y->ordinal;
}

/* The module serves @dev (or tries to): its number and mode are the module's. */
static void join(struct phx_device *dev, const struct phx_kernel_node *node)
{
	dev->id = node->number;
	if (strcmp(node->status, "ok")) {
		dev->mode = PHXFS_MODE_BOUNCE;
		snprintf(dev->reason, sizeof(dev->reason), "phxfs.ko: %s", node->status);
		return;
	}
	dev->mode = node->map_mode;
	if (dev->mode == PHXFS_MODE_STAGING)
		snprintf(dev->reason, sizeof(dev->reason),
			 "phxfs.ko is loaded with phxfs_map_mode=1 (STAGING)");
}

static bool add_bare(struct phx_device **found, const struct phx_kernel_node *node)
{
	struct phx_device *dev;

	/* Without the vendor's copies only a FULL mapping is of use. */
	if (device_total == PHX_MAX_DEVICES || node->map_mode != PHXFS_MODE_FULL ||
	    strcmp(node->status, "ok"))
		return false;
	dev = new_device(&bare_connector, node->number);
	memcpy(dev->about.bdf, node->bdf, sizeof(dev->about.bdf));
	snprintf(dev->about.name, sizeof(dev->about.name), "%s device", node->backend);
	join(dev, node);
	snprintf(dev->reason, sizeof(dev->reason), "no runtime of its vendor was found");
	found[device_total++] = dev;
	return true;
}

/* Match the module's nodes with the devices found; mode, and id where served. */
static void join_module(struct phx_device **found, bool *served)
{
	struct phx_kernel_node nodes[PHX_MAX_DEVICES];
	int n = phx_kernel_scan(nodes, PHX_MAX_DEVICES), total = device_total;

	for (int k = 0; k < n; k++) {
		int i = 0;

		if (nodes[k].number < 0 || nodes[k].number >= PHX_MAX_DEVICES || !nodes[k].bdf[0])
			continue;
		while (i < total && strcmp(found[i]->about.bdf, nodes[k].bdf))
			i++;
		if (i < total) {
			join(found[i], &nodes[k]);
			served[i] = true;
		} else if (!phx_config.connector && add_bare(found, &nodes[k])) {
			served[device_total - 1] = true;
		}
	}
}

static void set_mode_without_module(struct phx_device *dev)
{
	if (dev->ops == &host_connector) {
		dev->mode = PHXFS_MODE_HOST;
		snprintf(dev->reason, sizeof(dev->reason), "%s",
			 phx_config.connector ? "PHX_CONNECTOR=host" :
						"no accelerator found on this machine");
		return;
	}
	dev->mode = PHXFS_MODE_BOUNCE;
	snprintf(dev->reason, sizeof(dev->reason), "phxfs.ko does not serve this device");
}

/* Devices that the module does not number come behind those that it does. */
static void number_devices(struct phx_device **found, const bool *served)
{
	int next = 0;

	for (int i = 0; i < device_total; i++) {
		if (!served[i])
			continue;
		phx_devices[found[i]->id] = found[i];
		next = found[i]->id >= next ? found[i]->id + 1 : next;
	}
	for (int i = 0; i < device_total; i++) {
		if (served[i])
			continue;
		while (phx_device_find(next % PHX_MAX_DEVICES))
			next++;
		found[i]->id = next % PHX_MAX_DEVICES;
		set_mode_without_module(found[i]);
		phx_devices[found[i]->id] = found[i];
	}
}

static void ask_connector(struct phx_device **found, const struct devconn_ops *ops)
{
	struct connector *c = &connectors[connector_total];

	start_connector(ops);
	for (int n = 0; n < c->count; n++)
		add_device(found, ops, n);
}

/* PHX_CONNECTOR names a vendor that this build has no connector for. */
static void note_missing_connector(void)
{
	struct connector *c = &connectors[connector_total];

	if (!phx_config.connector || connector_total == MAX_CONNECTORS)
		return;
	c->name = phx_connector_names[phx_config.connector - 1];
	for (int i = 0; devconn_list[i]; i++) {
		if (!strcmp(devconn_list[i]->name, c->name))
			return;
	}
	c->status = -ENOENT;
	snprintf(c->text, sizeof(c->text), "this library was built without it");
	connector_total++;
	phx_log(PHXFS_LOG_WARN, "PHX_CONNECTOR=%s: this library was built without it", c->name);
}

void phx_device_init(void)
{
	struct phx_device *found[PHX_MAX_DEVICES], *dev;
	bool served[PHX_MAX_DEVICES] = { false };

	phx_path_host = phx_path_choose(PHXFS_MODE_HOST);
	for (int i = 0; devconn_list[i] && connector_total < MAX_CONNECTORS; i++) {
		if (devconn_list[i] != &host_connector)
			ask_connector(found, devconn_list[i]);
	}
	qsort(found, (size_t)device_total, sizeof(found[0]), by_bdf);
	join_module(found, served);
	if (connector_total < MAX_CONNECTORS)
		ask_connector(found, &host_connector);
	note_missing_connector();
	number_devices(found, served);
	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		dev->path = phx_path_choose(dev->mode);
		atomic_store(&phx_stats->gauges[dev->id + 1].present, 1);
		phx_log(PHXFS_LOG_INFO, "device %d: %s %s %s: %s", dev->id, dev->ops->name,
			dev->about.bdf, dev->about.name, dev->reason);
	}
}

struct phx_device *phx_device_next(int device_id)
{
	for (int i = device_id < 0 ? 0 : device_id; i < PHX_MAX_DEVICES; i++) {
		if (phx_devices[i])
			return phx_devices[i];
	}
	return NULL;
}

static const struct devconn_ops *profiled(void)
{
	struct phx_device *dev = phx_config.nvtx ? phx_device_next(0) : NULL;

	return dev ? dev->ops : &host_connector;
}

void phx_range_push(const char *name)
{
	profiled()->range_push(name);
}

void phx_range_pop(void)
{
	profiled()->range_pop();
}

int phx_device_missing(int device_id, const char *step)
{
	return phx_fail(-ENODEV, step, "phx check lists the devices", "device %d of %d", device_id,
			device_total);
}

/* ------------------------------------------------------------ description */

int phxfs_device_count(void)
{
	phx_init();
	return device_total;
}

int phxfs_device_mode(int device_id)
{
	struct phx_device *dev;

	phx_init();
	dev = phx_device_find(device_id);
	return dev ? dev->mode : phx_device_missing(device_id, "device_mode");
}

int phxfs_get_map_mode(void)
{
	struct phx_device *dev;
	int mode = PHXFS_MODE_HOST;

	phx_init();
	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1)
		mode = dev->mode < mode ? dev->mode : mode;
	return mode;
}

int phxfs_find_device(const char *vendor, int ordinal)
{
	struct phx_device *dev;

	if (!vendor || ordinal < 0)
		return phx_fail(-EINVAL, "find_device", "name a vendor and a number from 0",
				"%s device %d", vendor ? vendor : "NULL", ordinal);
	phx_init();
	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		if (dev->ordinal == ordinal && !strcasecmp(dev->ops->name, vendor))
			return dev->id;
	}
	return phx_fail(-ENODEV, "find_device", "phx check lists the devices", "%s device %d",
			vendor, ordinal);
}

/* One to @digits hexadecimal digits, then @end. */
static const char *hex_field(const char *text, int digits, char end, unsigned int *value)
{
	int n = 0;

	for (*value = 0; isxdigit((unsigned char)text[n]) && n < digits; n++)
		*value = *value * 16 + (unsigned int)(isdigit((unsigned char)text[n]) ?
							      text[n] - '0' :
							      tolower(text[n]) - 'a' + 10);
	return n && text[n] == end ? text + n + !!end : NULL;
}

/* "3B:00.0" or "0000:3b:00.0" -> "0000:3b:00.0". */
static int normal_bdf(const char *text, char *out, size_t size)
{
	unsigned int domain = 0, bus, slot, function;
	const char *colon = strchr(text, ':');

	if (colon && strchr(colon + 1, ':'))
		text = hex_field(text, 8, ':', &domain);
	if (text)
		text = hex_field(text, 2, ':', &bus);
	if (text)
		text = hex_field(text, 2, '.', &slot);
	if (text)
		text = hex_field(text, 1, '\0', &function);
	if (!text || slot > 31 || function > 7)
		return -EINVAL;
	snprintf(out, size, "%04x:%02x:%02x.%x", domain, bus, slot, function);
	return 0;
}

int phxfs_find_device_bdf(const char *bdf)
{
	struct phx_device *dev;
	char wanted[32];

	if (!bdf || normal_bdf(bdf, wanted, sizeof(wanted)))
		return phx_fail(-EINVAL, "find_device_bdf", "write it as 0000:3b:00.0", "\"%s\"",
				bdf ? bdf : "NULL");
	phx_init();
	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		if (!strcmp(dev->about.bdf, wanted))
			return dev->id;
	}
	return phx_fail(-ENODEV, "find_device_bdf", "phx check lists the devices", "%s", wanted);
}

int devconn_find_bdf(const char *bdf)
{
	struct phx_device *dev;
	char wanted[32];

	if (normal_bdf(bdf, wanted, sizeof(wanted)))
		return -1;
	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		if (!strcmp(dev->about.bdf, wanted))
			return dev->id;
	}
	return -1;
}

int devconn_ordinal(int device)
{
	struct phx_device *dev = phx_device_find(device);

	return dev ? dev->ordinal : -ENODEV;
}

int phxfs_device_info(int device_id, struct phxfs_device_info *info)
{
	struct phxfs_device_info out;
	struct phx_device *dev;
	int err;

	err = phx_check_size(info, PHX_SIZE_UPTO(struct phxfs_device_info, reason), "device_info");
	if (err)
		return err;
	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "device_info");
	out = (struct phxfs_device_info){
		.mode = dev->mode,
		.page_size = dev->ops->page_size,
		.memory_bytes = dev->about.memory_bytes,
		.staging_bytes = phx_staging_size_of(dev),
		.ordinal = dev->ordinal,
	};
	pthread_mutex_lock(&dev->lock);
	out.clients = (int32_t)dev->clients;
	pthread_mutex_unlock(&dev->lock);
	snprintf(out.vendor, sizeof(out.vendor), "%s", dev->ops->name);
	memcpy(out.name, dev->about.name, sizeof(out.name));
	memcpy(out.bdf, dev->about.bdf, sizeof(out.bdf));
	memcpy(out.reason, dev->reason, sizeof(out.reason));
	phx_fill(info, &out, sizeof(out));
	return 0;
}

int phxfs_connector_info(int index, struct phxfs_connector_info *info)
{
	struct phxfs_connector_info out;
	int err;

	err = phx_check_size(info, PHX_SIZE_UPTO(struct phxfs_connector_info, text),
			     "connector_info");
	if (err)
		return err;
	phx_init();
	if (index < 0 || index >= connector_total)
		return phx_fail(-ENOENT, "connector_info", NULL, "connector %d of %d", index,
				connector_total);
	out = (struct phxfs_connector_info){
		.status = connectors[index].status,
		.devices = connectors[index].count,
	};
	snprintf(out.name, sizeof(out.name), "%s", connectors[index].name);
	memcpy(out.text, connectors[index].text, sizeof(out.text));
	phx_fill(info, &out, sizeof(out));
	return 0;
}

/* --------------------------------------------------------- open and close */

int phx_device_open_node(struct phx_device *dev)
{
	int err = 0;

	if (dev->kernel_fd >= 0 ||
	    (dev->mode != PHXFS_MODE_FULL && dev->mode != PHXFS_MODE_STAGING))
		return 0;
	dev->kernel_fd = phx_kernel_open(dev->id, dev->mode, dev->about.bdf);
	if (dev->kernel_fd < 0) {
		err = dev->kernel_fd;
		dev->kernel_fd = -1;
		return err;
	}
	if (dev->path == PHXFS_PATH_STAGING && dev->mode == PHXFS_MODE_STAGING)
		err = phx_staging_prepare(dev);
	if (err) {
		close(dev->kernel_fd);
		dev->kernel_fd = -1;
	}
	return err;
}

static void close_node(struct phx_device *dev)
{
	if (dev->kernel_fd < 0)
		return;
	phx_staging_drop(dev);
	close(dev->kernel_fd);
	dev->kernel_fd = -1;
}

int phxfs_open(int device_id)
{
	struct phx_device *dev;
	int err = 0;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "open");
	pthread_mutex_lock(&dev->lock);
	if (dev->state == PHX_DEVICE_DRAINING) {
		err = phx_fail(-EBUSY, "open", "its last close is still draining: try again",
			       "device %d", device_id);
	} else {
		err = dev->clients ? 0 : phx_device_open_node(dev);
		if (!err) {
			dev->state = PHX_DEVICE_OPEN;
			dev->clients++;
		}
	}
	pthread_mutex_unlock(&dev->lock);
	return err;
}

int phxfs_close(int device_id)
{
	struct phx_device *dev;
	int err = 0;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "close");
	pthread_mutex_lock(&dev->lock);
	if (dev->state == PHX_DEVICE_CLOSED) {
		err = phx_fail(-ENODEV, "close", "one close for each open", "device %d is not open",
			       device_id);
	} else if (dev->state == PHX_DEVICE_DRAINING) {
		err = phx_fail(-EBUSY, "close", "its last close is still draining", "device %d",
			       device_id);
	} else if (--dev->clients == 0) {
		dev->state = PHX_DEVICE_DRAINING;
		phx_mem_remove_all(dev);
		close_node(dev);
		dev->state = PHX_DEVICE_CLOSED;
		pthread_cond_broadcast(&dev->changed);
	}
	pthread_mutex_unlock(&dev->lock);
	return err;
}

/* ------------------------------------------------------------------- fork */

void phx_device_fork_prepare(void)
{
	for (int i = 0; i < PHX_MAX_DEVICES; i++) {
		if (phx_devices[i])
			pthread_mutex_lock(&phx_devices[i]->lock);
	}
}

void phx_device_fork_parent(void)
{
	for (int i = PHX_MAX_DEVICES - 1; i >= 0; i--) {
		if (phx_devices[i])
			pthread_mutex_unlock(&phx_devices[i]->lock);
	}
}

void phx_device_fork_child(void)
{
	for (int i = PHX_MAX_DEVICES - 1; i >= 0; i--) {
		struct phx_device *dev = phx_devices[i];

		if (!dev)
			continue;
		pthread_cond_init(&dev->changed, NULL);
		phx_mem_fork_child(dev);
		if (dev->kernel_fd >= 0) {
			close(dev->kernel_fd); /* the module serves only who opened it */
			dev->kernel_fd = -1;
		}
		if (dev->state == PHX_DEVICE_DRAINING)
			dev->state = PHX_DEVICE_CLOSED;
		pthread_mutex_unlock(&dev->lock);
	}
}
