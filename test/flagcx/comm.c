// SPDX-License-Identifier: Apache-2.0
/* Communicators: ranks as processes, windows, puts and gets; what is not supported. */
#include "flagcx.h"
#include "tp.h"

#define WINDOW (256 * 1024)

static void id_hex(const flagcxUniqueId *id, char *out)
{
	for (size_t i = 0; i < sizeof(*id); i++)
		sprintf(out + 2 * i, "%02x", (unsigned char)id->internal[i]);
}

static void id_unhex(const char *hex, flagcxUniqueId *id)
{
	for (size_t i = 0; i < sizeof(*id); i++) {
		unsigned int byte;

		TP_EQ(sscanf(hex + 2 * i, "%2x", &byte), 1);
		id->internal[i] = (char)byte;
	}
}

/* Rank r writes its id's bytes into slot r of everyone's second window, batched. */
static void put_everywhere(flagcxComm_t comm, int nranks, int rank)
{
	enum { PARTS = 8 };
	size_t part = WINDOW / 2 / (size_t)nranks / PARTS;
	size_t src[PARTS], dst[PARTS], size[PARTS];
	int first[PARTS], second[PARTS];

	for (int peer = 0; peer < nranks; peer++) {
		for (size_t i = 0; i < PARTS; i++) {
			src[i] = i * part;
			dst[i] = ((size_t)rank * PARTS + i) * part;
			size[i] = part;
			first[i] = 0;
			second[i] = 1;
		}
		TP_EQ(flagcxBatchPut(comm, peer, src, dst, size, first, second, PARTS),
		      flagcxSuccess);
	}
}

static void role_rank(int argc, char **argv)
{
	int rank = atoi(argv[0]), nranks = atoi(argv[1]);
	uint8_t *a = tp_alloc(WINDOW), *b = tp_alloc(WINDOW);
	size_t part = WINDOW / 2 / (size_t)nranks / 8 * 8;
	flagcxUniqueId id;
	flagcxComm_t comm;

	id_unhex(argv[2], &id);
	TP_EQ(flagcxCommInitRank(&comm, nranks, &id, rank), flagcxSuccess);
	tp_fill(a, (uint64_t)rank + 1, 0, WINDOW);
	TP_EQ(flagcxOneSideRegister(comm, a, WINDOW), flagcxSuccess);
	TP_EQ(flagcxOneSideRegister(comm, b, WINDOW), flagcxSuccess);
	put_everywhere(comm, nranks, rank);
	tp_answer("put");
	tp_line(); /* all have put */
	for (int r = 0; r < nranks; r++)
		TP_EQ(tp_differs(b + (size_t)r * part, (uint64_t)r + 1, 0, part), -1);
	for (int r = 0; r < nranks; r++) {
		TP_EQ(flagcxGet(comm, r, 1000, WINDOW / 2, 5000, 0, 1), flagcxSuccess);
		TP_EQ(tp_differs(b + WINDOW / 2, (uint64_t)r + 1, 1000, 5000), -1);
	}
	TP_EQ(flagcxPut(comm, nranks, 0, 0, 1, 0, 1), flagcxInvalidArgument);
	TP_EQ(flagcxPut(comm, 0, 0, 0, 1, 0, 2), flagcxInvalidUsage);
	TP_EQ(flagcxPut(comm, 0, 0, WINDOW, 1, 0, 1), flagcxInvalidUsage);
	TP_EQ(flagcxPut(comm, 0, WINDOW - 1, 0, 2, 0, 1), flagcxInvalidUsage);
	TP_EQ(flagcxPut(comm, 0, 0, 0, SIZE_MAX, 0, 1), flagcxInvalidUsage);
	TP_CHECK(strstr(flagcxGetErrorString(flagcxInvalidUsage), "beyond its window"));
	TP_EQ(flagcxBatchPut(comm, 0, NULL, NULL, NULL, NULL, NULL, 0), flagcxSuccess);
	TP_EQ(flagcxBatchPut(comm, 0, NULL, NULL, NULL, NULL, NULL, 1), flagcxInvalidArgument);
	tp_answer("got");
	tp_line();
	TP_EQ(flagcxCommDestroy(comm), flagcxSuccess);
	TP_EQ(flagcxCommDestroy(comm), flagcxInvalidArgument);
	tp_answer("gone");
	tp_line();
}

static void hear_all(struct tp_peer **p, int n, const char *what)
{
	for (int i = 0; i < n; i++)
		TP_CHECK(!strcmp(tp_hear(p[i], 30), what));
	for (int i = 0; i < n; i++)
		tp_say(p[i], "go");
}

static void ranks_meet_and_move_windows(void)
{
	enum { N = 4 };
	struct tp_peer *p[N];
	flagcxUniqueId id;
	char hex[2 * sizeof(id) + 1], rank[16];

	TP_EQ(flagcxGetUniqueId(&id), flagcxSuccess);
	id_hex(&id, hex);
	for (int i = N - 1; i >= 0; i--) {
		snprintf(rank, sizeof(rank), "%d", i);
		p[i] = tp_spawn(NULL, "rank", rank, "4", hex, NULL);
	}
	hear_all(p, N, "put");
	hear_all(p, N, "got");
	hear_all(p, N, "gone");
	for (int i = 0; i < N; i++)
		tp_kill(p[i], 0);
}

static void one_rank_is_a_communicator(void)
{
	uint8_t *a = tp_alloc(4096);
	flagcxUniqueId id;
	flagcxComm_t comm;

	TP_EQ(flagcxGetUniqueId(&id), flagcxSuccess);
	TP_EQ(flagcxCommInitRank(&comm, 1, &id, 0), flagcxSuccess);
	TP_EQ(flagcxOneSideRegister(comm, a, 4096), flagcxSuccess);
	tp_fill(a, 3, 0, 100);
	TP_EQ(flagcxPut(comm, 0, 0, 1000, 100, 0, 0), flagcxSuccess);
	TP_EQ(tp_differs(a + 1000, 3, 0, 100), -1);
	TP_EQ(flagcxCommDestroy(comm), flagcxSuccess);
}

/* The meeting point goes as soon as it has told all: which of its streams ends first is chance. */
static void a_meeting_that_ends_at_once_is_heard(void)
{
	for (int i = 0; i < 60; i++) {
		flagcxUniqueId id;
		flagcxComm_t comm;

		TP_EQ(flagcxGetUniqueId(&id), flagcxSuccess);
		TP_EQ(flagcxCommInitRank(&comm, 1, &id, 0), flagcxSuccess);
		TP_EQ(flagcxCommDestroy(comm), flagcxSuccess);
	}
}

static void bad_ids_and_ranks_are_refused(void)
{
	flagcxUniqueId id = { "" };
	flagcxComm_t comm;

	TP_EQ(flagcxCommInitRank(&comm, 1, &id, 0), flagcxInvalidArgument);
	TP_EQ(flagcxGetUniqueId(NULL), flagcxInvalidArgument);
	TP_EQ(flagcxGetUniqueId(&id), flagcxSuccess);
	TP_EQ(flagcxCommInitRank(&comm, 1, &id, 1), flagcxInvalidArgument);
	TP_EQ(flagcxCommInitRank(&comm, 0, &id, 0), flagcxInvalidArgument);
	TP_EQ(flagcxCommInitRank(NULL, 1, &id, 0), flagcxInvalidArgument);
	TP_EQ(flagcxOneSideRegister((flagcxComm_t)0x77, &id, 1), flagcxInvalidArgument);
}

/* Callers look these up and call them with any arguments. */
extern flagcxResult_t flagcxAllReduce(void);
extern flagcxResult_t flagcxWaitCounter(void);

static void the_rest_is_not_supported(void)
{
	flagcxDeviceHandle_t h = NULL;
	int version = 0;

	TP_EQ(flagcxAllReduce(), flagcxNotSupported);
	TP_EQ(flagcxWaitCounter(), flagcxNotSupported);
	TP_CHECK(strstr(flagcxGetErrorString(flagcxNotSupported), "not supported"));
	TP_CHECK(!strcmp(flagcxGetErrorString(flagcxSuccess), "no error"));
	TP_CHECK(!strcmp(flagcxGetErrorString((flagcxResult_t)77), "unknown result"));
	TP_EQ(flagcxDeviceHandleInit(&h), flagcxSuccess);
	for (int i = 0; i < 28; i++)
		TP_CHECK(((void **)h)[i] != NULL);
	TP_EQ(flagcxDeviceHandleFree(h), flagcxSuccess);
	TP_EQ(flagcxGetVersion(&version), flagcxSuccess);
	TP_CHECK(version > 10000);
}

static const struct tp_case cases[] = {
	TP_CASE(ranks_meet_and_move_windows),
	TP_CASE(one_rank_is_a_communicator),
	TP_CASE(a_meeting_that_ends_at_once_is_heard),
	TP_CASE(bad_ids_and_ranks_are_refused),
	TP_CASE(the_rest_is_not_supported),
};
static const struct tp_role roles[] = { { "rank", role_rank } };

TP_MAIN(cases, roles)
