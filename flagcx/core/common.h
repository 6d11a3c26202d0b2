/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small tools that every file of the engine uses: time, lists, last error,
 * log, futex waits. Nothing here knows what an engine is.
 */
#ifndef P2P_COMMON_H
#define P2P_COMMON_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define p2p_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
#define P2P_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define P2P_MIN(a, b) ((a) < (b) ? (a) : (b))
#define P2P_MAX(a, b) ((a) > (b) ? (a) : (b))

#define P2P_NS_PER_MS 1000000ull

static inline uint64_t p2p_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* A ring with a head: an element is in at most one list by one link. */
struct p2p_list {
	struct p2p_list *next, *prev;
};

static inline void p2p_list_init(struct p2p_list *head)
{
	head->next = head->prev = head;
}

static inline bool p2p_list_empty(const struct p2p_list *head)
{
	return head->next == head;
}

static inline void p2p_list_add_tail(struct p2p_list *head, struct p2p_list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Leaves the link empty, so that it may be taken out again harmlessly. */
static inline void p2p_list_del(struct p2p_list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	p2p_list_init(link);
}

/* Move everything from one list to the end of another. */
static inline void p2p_list_splice_tail(struct p2p_list *to, struct p2p_list *from)
{
	if (p2p_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	p2p_list_init(from);
}

#define p2p_list_entry(link, type, member) p2p_container_of(link, type, member)

/*
 * Around accesses to registered memory. Its users are ordered by what the
 * programs at both ends tell each other over the network, which no tool in one
 * process sees: the thread sanitizer must not judge them.
 */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static inline void p2p_foreign_begin(void)
{
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void p2p_foreign_end(void)
{
	AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void p2p_foreign_begin(void)
{
}

static inline void p2p_foreign_end(void)
{
}
#endif

/* ------------------------------------------------------------------ error.c */

enum { P2P_LOG_WARN = 1, P2P_LOG_INFO = 2 };

/* Keep the reason for this thread and return err (negative). */
__attribute__((format(printf, 2, 3))) int p2p_fail(int err, const char *fmt, ...);
/* Name of an errno value, "E?" when unknown. err may have either sign. */
const char *p2p_errno_name(int err);

bool p2p_log_wanted(int level);
__attribute__((format(printf, 2, 3))) void p2p_log_write(int level, const char *fmt, ...);

#define p2p_warn(...)                                      \
	do {                                               \
		if (p2p_log_wanted(P2P_LOG_WARN))          \
			p2p_log_write(P2P_LOG_WARN, __VA_ARGS__); \
	} while (0)
#define p2p_info(...)                                      \
	do {                                               \
		if (p2p_log_wanted(P2P_LOG_INFO))          \
			p2p_log_write(P2P_LOG_INFO, __VA_ARGS__); \
	} while (0)

/* ------------------------------------------------------------------ futex.c */

/*
 * Wait while *word == seen, at most until deadline_ns (CLOCK_MONOTONIC; 0: no
 * limit). Returns 0 when it may have changed, -ETIMEDOUT.
 */
int p2p_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);
void p2p_futex_wake_all(_Atomic uint32_t *word);

#endif /* P2P_COMMON_H */
