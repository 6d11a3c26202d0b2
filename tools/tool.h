/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subcommands of phx share: the table entry, argument parsing, words
 * for sizes and times, error lines, JSON, the progress line and buffers.
 *
 * Exit status of every subcommand: 0 done, 1 it failed or found a failure,
 * 2 the command line was wrong.
 */
#ifndef PHX_TOOL_H
#define PHX_TOOL_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define EXIT_OK 0
#define EXIT_FAILED 1
#define EXIT_USAGE 2
/* parse_options(): the help was asked for and printed */
#define PARSED_HELP (-1)

struct subcommand {
	const char *name;
	const char *summary; /* one line */
	const char *help;    /* what `phx help NAME` prints */
	int (*run)(int argc, char **argv);
	bool operands_last; /* options end at the first operand: the rest is another's */
};

extern const struct subcommand cmd_check;
extern const struct subcommand cmd_bench;
extern const struct subcommand cmd_cp;
extern const struct subcommand cmd_peer;
extern const struct subcommand cmd_run;
extern const struct subcommand cmd_stat;

/* ---------------------------------------------------------------- args.c */

enum opt_kind {
	OPT_FLAG,    /* bool *: no argument */
	OPT_SIZE,    /* uint64_t *: bytes, with K, M, G or T */
	OPT_UINT,    /* uint64_t *: a whole number */
	OPT_INT,     /* int *: a whole number, may be negative */
	OPT_SECONDS, /* double *: seconds */
	OPT_CHOICE,  /* const char **: one of choices */
	OPT_TEXT,    /* const char **: anything */
};

struct opt {
	const char *name;
	enum opt_kind kind;
	void *out;
	uint64_t min;                /* OPT_SIZE, OPT_UINT */
	uint64_t max;                /* OPT_SIZE, OPT_UINT; 0: no limit */
	const char *const *choices;  /* OPT_CHOICE: ends with NULL */
};

#define OPT_MAX 32

/* Reads argv by opts (ends with a NULL name); *first is the index of the first
 * operand. Returns EXIT_OK, EXIT_USAGE (said why) or PARSED_HELP. */
int parse_options(const struct subcommand *cmd, const struct opt *opts, int argc, char **argv,
		  int *first);

int parse_size(const char *text, uint64_t *bytes);
int parse_uint(const char *text, uint64_t *value);

/* Says what is wrong with the command line. Returns EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int usage_error(const struct subcommand *cmd,
						      const char *format, ...);

/* -------------------------------------------------------------- report.c */

#define WORD_MAX 32

/* Each writes into buf (at least WORD_MAX bytes) and returns it. */
const char *size_word(char *buf, uint64_t bytes);
const char *time_word(char *buf, double ns);
/* "EINVAL", or "errno 4711" */
const char *errno_name(char *buf, int error);

/* "phx NAME: ..." on standard error. Returns EXIT_FAILED. */
__attribute__((format(printf, 2, 3))) int failed(const struct subcommand *cmd, const char *format,
						 ...);
/* The same after a failed library call: adds phxfs_last_error(). */
__attribute__((format(printf, 3, 4))) int failed_call(const struct subcommand *cmd, int error,
						      const char *format, ...);

/* Whole numbers of any size; a cJSON number is a double. */
void json_uint(cJSON *object, const char *name, uint64_t value);
/* Prints the object on one line and frees it. False: it could not be built or written. */
bool json_print(cJSON *object);

/* "host", "full", ...: enum phxfs_mode, enum phxfs_path, enum phxfs_reason */
const char *mode_name(int mode);
const char *path_name(int path);
const char *reason_name(int reason);

/* One line that is rewritten in place; prints only where standard error is a terminal. */
struct progress {
	bool on;
	uint64_t start_ns;
	uint64_t last_ns;
	uint64_t last_bytes;
	bool drawn;
};

void progress_start(struct progress *p);
/* At most twice a second; total 0: not known. */
void progress_update(struct progress *p, uint64_t bytes, uint64_t total);
void progress_end(struct progress *p);

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* -------------------------------------------------------------- device.c */

/* A registered buffer on an open device; device < 0: plain host memory. */
struct buffer {
	void *addr;
	size_t len;
	int device;
};

/* Opens the device once more, allocates, registers. Returns 0 or -errno, with
 * *step saying which of these failed. */
int buffer_get(struct buffer *b, int device, size_t len, const char **step);
void buffer_put(struct buffer *b);
/* Copies between the buffer and host memory. */
int buffer_store(const struct buffer *b, size_t offset, const void *src, size_t n);
int buffer_load(const struct buffer *b, size_t offset, void *dst, size_t n);
/* Where the processor itself may read the buffer (host memory, HOST devices), else NULL. */
const void *buffer_view(const struct buffer *b, size_t offset);

/* For --engine, --path: must come before the first call of the library. */
int set_environment(const char *name, const char *value);

/* True: files on it live in memory, so that "direct" would measure nothing. */
bool is_memory_filesystem(long magic);
/* "ext4", ...; NULL: no name known */
const char *filesystem_name(long magic);

#endif
