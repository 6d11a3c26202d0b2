/* SPDX-License-Identifier: Apache-2.0 */
/*
 * t_world.h - pairs of equal files and equal memory, one of each for the
 * library and one for the oracle
 *
 * The oracle is pread(2) and pwrite(2) on a buffered descriptor. After every
 * step counts, errno values, memory (with what lies around the request) and
 * files must be the same on both sides.
 */
#ifndef T_WORLD_H
#define T_WORLD_H

#include "t_file.h"

#define W_PAIRS 4
#define W_MEMS 3 /* two registrations and plain host memory */
#define W_MAX_OPS 48

struct w_pair {
	int fd;         /* the library's file, maybe O_DIRECT */
	int oracle;     /* its twin, the same flags without O_DIRECT */
	int look;       /* buffered, read-only, of the library's file */
	int look_oracle;
	bool memory;    /* on tmpfs */
	bool sparse;    /* begins with a hole beyond 4 GiB */
	int flags;
	char name[2][32];
};

struct w_mem {
	struct t_region r;
	uint8_t *oracle; /* r.len bytes */
	int device;      /* as given in a request; -1: host */
};

struct w_op {
	bool write;
	struct w_pair *pair;
	struct w_mem *mem;
	size_t at;     /* in mem */
	size_t len;
	off_t offset;  /* in the file */
	ssize_t got;   /* the library's result */
	ssize_t want;  /* the oracle's */
};

struct world {
	struct t_rand rand;
	struct w_pair pair[W_PAIRS];
	struct w_mem mem[W_MEMS];
	struct w_op ops[W_MAX_OPS];
	int n_ops;
	bool big;         /* files and requests beyond 1 GiB */
	bool strict;      /* PHX_PATH=direct: -EOPNOTSUPP may be right */
	uint64_t moved[2][2]; /* [host?][write?]: bytes that the library reported */
	uint64_t tag;     /* seed of the next write's pattern */
	size_t mem_size;
};

void w_start(struct world *w, uint64_t seed, const char *prefix, size_t mem_size);
void w_end(struct world *w);
/* Gives a pair new flags, or new files altogether. */
void w_reopen(struct world *w, struct w_pair *p);
/* A length, a file offset and a place in memory as users and borders have them. */
size_t w_length(struct world *w, size_t max);
off_t w_offset(struct world *w, const struct w_pair *p);
size_t w_place(struct world *w, const struct w_pair *p, off_t offset, size_t room);
/* Fills both sides' source of a write with bytes never used before. */
void w_source(struct world *w, struct w_op *op);
/* Lets the oracle do op and compares the results. */
void w_oracle(struct world *w, struct w_op *op);
/* Is -EOPNOTSUPP right under PHX_PATH=direct? Only when something is not aligned. */
bool w_may_refuse(const struct w_op *op);
/* Compares memory and file, with what lies around the request. */
void w_compare(struct world *w, const struct w_op *op);
/* Everything, in full. */
void w_check_all(struct world *w);
void w_context(const struct world *w, const struct w_op *op, const char *call);

#endif
