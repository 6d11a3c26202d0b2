/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the NVIDIA connector share. */
#ifndef NVIDIA_CARD_H
#define NVIDIA_CARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "devconnector.h"
#include "nvidia_driver.h"

#ifndef NVIDIA_NAME
#define NVIDIA_NAME "nvidia"
#define NVIDIA_VENDOR "NVIDIA"
#define NVIDIA_RUNTIME "CUDA"
#endif

#define NVIDIA_LANES 16

/*
 * A copy queued behind something that a stream waits for occupies one of the
 * four places that a copy engine has for channels, with our context too.
 */
#ifndef NVIDIA_HELD_STREAMS
#define NVIDIA_HELD_STREAMS 3
#endif

struct nvidia_queue;

struct nvidia_card {
	int handle; /* the driver's name of the device */
	char bdf[16];
	/* The making of what follows, which then stays: */
	pthread_mutex_t lock;
	_Atomic(struct cu_context *) context; /* NULL: not needed yet */
	/* A second one, for copies while a stream is held: its channels are ours alone. */
	_Atomic(struct cu_context *) own;
	/* The connector's slots, and those for complete copies; [1]: in our own context. */
	_Atomic(struct nvidia_queue *) queues[2][DEVCONN_SLOTS + NVIDIA_LANES];
	uint64_t *words[2];     /* in pinned memory: one for each queue */
	atomic_int held;        /* transfers in users' streams */
};

/* What nvidia_enter() changed and nvidia_leave() puts back. */
struct nvidia_visit {
	struct nvidia_card *card;
	int capture_mode;
	bool own;  /* in our own context */
	bool gone; /* the driver has been torn down, at exit, and all memory with it */
};

/* The card of a phxfs device; NULL: it is no NVIDIA GPU. */
struct nvidia_card *nvidia_card(int device);

/* Make the device's context current; 0 or -errno. */
int nvidia_enter(int device, struct nvidia_visit *visit);
/* The same, in our own context if that is there. */
int nvidia_enter_own(int device, struct nvidia_visit *visit);
void nvidia_leave(struct nvidia_visit *visit);

/* Host memory that the driver has pinned; within a visit. */
int nvidia_pin(size_t len, void **addr);

int nvidia_copy_dtod(int device, void *dst, const void *src, size_t n);
int nvidia_copy_htod(int device, void *dst, const void *src, size_t n);
int nvidia_copy_dtoh(int device, void *dst, const void *src, size_t n);
int nvidia_copy_dtod_async(int device, int slot, void *dst, const void *src, size_t n);
int nvidia_copy_htod_async(int device, int slot, void *dst, const void *src, size_t n);
int nvidia_copy_dtoh_async(int device, int slot, void *dst, const void *src, size_t n);
int nvidia_queue_sync(int device, int slot);
int nvidia_event_record(int device, int slot, void **event);
int nvidia_event_done(int device, void *event);
int nvidia_event_wait(int device, void *event);
void nvidia_event_free(int device, void *event);

int nvidia_stream_held(int device, int change);
int nvidia_launch_host_func(void *stream, void (*fn)(void *arg), void *arg);
int nvidia_stream_wait(void *stream, uint64_t *word, uint64_t value);
int nvidia_stream_signal(void *stream, uint64_t *word, uint64_t value);

/* Ranges for the profiler, if PHX_NVTX=1 asks for them and there is one. */
void nvidia_range_push(const char *name);
void nvidia_range_pop(void);

#endif
