/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake driver share. */
#ifndef CUDA_FAKE_H
#define CUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fakecuda.h"

/* PCI bus of the first device; each further one is 16 on. */
#ifndef FAKE_BUS
#define FAKE_BUS 0x3b
#endif

#define API __attribute__((visibility("default")))

enum {
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	DEINITIALIZED = 4,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	INVALID_HANDLE = 400,
	NOT_READY = 600,
	ALREADY_REGISTERED = 712,
	ILLEGAL_ADDRESS = 700,
	NOT_SUPPORTED = 801,
	CAPTURE_UNSUPPORTED = 900,
	CAPTURE_INVALIDATED = 901,
};

#define MAX_DEVICES 8

/* A context's way to the copy engines: copies pass in the order of their queueing. */
#define CHANNELS 4

struct channel {
	unsigned long queued, passed; /* protected by: fake_lock */
};

struct context {
	int device;
	int retained;       /* of a primary context; protected by: fake_lock */
	_Atomic int broken; /* the error that every call gets, once a copy failed */
	unsigned int streams; /* protected by: fake_lock */
	struct channel channels[CHANNELS];
};

struct stream {
	struct context *context;
	struct channel *channel;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct work *first, **last;  /* protected by: lock */
	unsigned long queued, done;  /* protected by: lock */
	bool capturing;
	_Atomic int failure; /* of a copy that did not break the context: AscendCL's */
	struct stream *next;
};

/* Something a stream does. */
struct work {
	struct work *next;
	int (*run)(struct work *work); /* 0, or the error that breaks the context */
	uintptr_t dst, src;
	size_t n;
	void (*fn)(void *arg);
	void *arg;
	uint64_t *word, value;
	int byte;
	struct channel *channel; /* of a copy */
	unsigned long turn;
};

struct event {
	struct context *context;
	struct stream *stream; /* NULL: never recorded */
	unsigned long target;  /* of stream->done */
};

/* A run of addresses with memory behind it, host's or device's. */
struct block {
	struct block *next;
	uintptr_t base;
	size_t len;
	char *backing;     /* where the bytes are; device memory's base is PROT_NONE */
	int fd;            /* of the bytes, with FAKE_CUDA_DMABUF; else 0 */
	bool host;
	bool piece;        /* mapped into a range that was reserved */
	int device;
	uint64_t id;
	uintptr_t range;   /* the addresses reserved for it */
	size_t range_len;
	void *map;         /* what munmap() takes back, but for pieces */
	size_t map_len;
};

extern pthread_mutex_t fake_lock;

/* Counts the call of @name; what it must fail with, or 0. */
API int fake_call(const char *name);
/* The same, for calls that a graph being recorded forbids. */
API int fake_unsafe_call(const char *name);
API int fake_chance(const char *name);
API struct context *fake_current(void);
int fake_context_error(struct context *context);
int fake_device_count(void);
size_t fake_device_memory(void);
/* Streams can wait for and write words. */
bool fake_has_words(void);
/* The block that @addr lies in, or NULL; with fake_lock held. */
struct block *fake_find(uintptr_t addr);
/* Copies between any two addresses; 0 or the error. */
API int fake_copy(uintptr_t dst, uintptr_t src, size_t n);
int fake_fill(uintptr_t dst, int byte, size_t n);
API bool fake_is_pinned(uintptr_t addr, size_t n);
API bool fake_is_device(uintptr_t addr);
void fake_count_memory(struct fakecuda_state *out);
void fake_count_streams(struct fakecuda_state *out);

#endif
