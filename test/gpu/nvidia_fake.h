/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's controls; devices and buffers. */
#ifndef NVIDIA_FAKE_H
#define NVIDIA_FAKE_H

#include <phoenix.h>

#include "connectors/devconnector.h"
#include "driver.h"
#include "fake/fakecuda.h"
#include "gpu.h"

#define PAGE PHXFS_DEVICE_PAGE
#define MIB (1UL << 20)

struct fake_controls {
	void (*state)(const char *call, int device, struct fakecuda_state *out);
	void (*fail)(const char *call, int result, unsigned int nth, bool all);
	void (*tear_down)(bool gone);
	void (*hold)(bool hold);
};

extern struct fake_controls fake;

/* Loads the fake driver into cu and its controls into fake. */
void load(void);
struct fakecuda_state state(const char *call, int device);
/* The library's device for the driver's device @ordinal, opened. */
int device(int ordinal);
void *alloc(int id, size_t len);
void *registered(int id, size_t len);
/* Allocates, registers, reads, writes, copies, and lets go again. */
void everything_once(int id);

#define CASE(fn, ...) { .name = #fn, .run = fn, ##__VA_ARGS__ }

#endif
