/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_fuse.h - a file system that does what a test tells it
 *
 * One file, "f", in memory that the test sees too, served by a process of
 * its own. Its data requests can be held back (a slow device), cut short,
 * or failed, which reaches the library through every engine, as a real file
 * system's results would.
 */
#ifndef T_FUSE_H
#define T_FUSE_H

#include <stdatomic.h>

#include "t_file.h"

#define T_FUSE_ROOM (64 * T_MIB)

/* Shared by the test and the server. A request matches [from, to). */
struct t_fuse {
	_Atomic int gate;          /* 1: matching data requests wait */
	_Atomic int writes_only;   /* the gate is for writes only */
	_Atomic uint64_t gate_from;
	_Atomic uint64_t gate_to;  /* 0: the end */
	_Atomic uint32_t cut;      /* longest transfer of one request; 0: any */
	_Atomic int error;         /* answered instead of data ... */
	_Atomic int error_count;   /* ... this many times; -1: for ever ... */
	_Atomic uint64_t error_from; /* ... to requests that begin at or after this */
	_Atomic uint64_t error_to;
	_Atomic int open_error;    /* answered to open ... */
	_Atomic int open_skip;     /* ... after this many more good ones */
	_Atomic int waiting;       /* requests held at the gate now */
	_Atomic uint64_t size;     /* of the file */
	_Atomic uint32_t opens;
	_Atomic uint32_t reads;    /* requests that came */
	_Atomic uint32_t writes;
	_Atomic int order_len;     /* offsets of the writes, in order of arrival */
	_Atomic uint64_t order[1024];
	int wake;                  /* eventfd: the plan changed */
	_Atomic uint32_t wake_seen; /* how often the server has looked */
	pid_t server;
	uint8_t *data;             /* T_FUSE_ROOM bytes */
};

/* Mounts in the case's own namespace and fills the file; skips when not allowed. */
struct t_fuse *t_fuse_start(size_t size, uint64_t seed);
int t_fuse_open(struct t_fuse *fs, int flags);
void t_fuse_hold(struct t_fuse *fs);
void t_fuse_release(struct t_fuse *fs);
/* Waits until n requests are held. */
void t_fuse_held(struct t_fuse *fs, int n);
/* The next count data requests fail with this errno. */
void t_fuse_fail(struct t_fuse *fs, int error, int count);

#endif
