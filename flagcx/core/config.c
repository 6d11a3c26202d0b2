// SPDX-License-Identifier: Apache-2.0
/*
 * One row a setting: name, kind, range, default, place. The environment wins
 * over ~/.flagcx.conf, that over /etc/flagcx.conf. What is out of range is
 * refused in favour of the default and said so once.
 *
 * Settings in force are an immutable object behind an atomic pointer; a clamp
 * publishes a new one and keeps the old, since callers may hold it.
 *
 * Lock: config_lock serialises publishing.
 */
#include "config.h"
#include "common.h"

#include <ctype.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

enum kind { KIND_INT, KIND_SIZE, KIND_U8, KIND_BOOL, KIND_TEXT, KIND_CHOICE };

struct choice {
	const char *name;
	int value;
};

struct row {
	const char *name;
	enum kind kind;
	int64_t min, max, def;
	size_t place; /* offset in struct p2p_config */
	const char *help;
	const struct choice *choices; /* KIND_CHOICE, and numbers that must be in a list */
};

static const struct choice mtu_choices[] = {
	{ "512", 512 }, { "1024", 1024 }, { "2048", 2048 }, { "4096", 4096 }, { NULL, 0 },
};
static const struct choice transport_choices[] = {
	{ "auto", P2P_TRANSPORT_AUTO }, { "ibrc", P2P_TRANSPORT_IBRC },
	{ "tcp", P2P_TRANSPORT_TCP }, { NULL, 0 },
};
static const struct choice family_choices[] = {
	{ "", 0 }, { "AF_INET", AF_INET }, { "AF_INET6", AF_INET6 }, { NULL, 0 },
};

#define G(field) offsetof(struct p2p_config, g.field)
#define C(field) offsetof(struct p2p_config, field)

static const struct row rows[] = {
	{ "FLAGCX_P2P_QPS_PER_CONN", KIND_INT, 1, 32, 4, G(qpsPerConn),
	  "paths (queue pairs or TCP streams) to a peer", NULL },
	{ "FLAGCX_P2P_WORKERS_PER_POOL", KIND_INT, 1, 8, 2, G(workersPerPool),
	  "threads of an engine that move data", NULL },
	{ "FLAGCX_P2P_SHARD_COUNT", KIND_INT, 1, 64, 8, G(shardCount),
	  "parts of the queue of waiting slices", NULL },
	{ "FLAGCX_P2P_CQ_DEPTH", KIND_SIZE, 1, 1 << 20, 4096, G(sharedCqDepth),
	  "entries of a completion queue", NULL },
	{ "FLAGCX_P2P_MAX_WR_PER_POST", KIND_SIZE, 1, 1024, 64, G(maxWrPerPost),
	  "slices posted together", NULL },
	{ "FLAGCX_P2P_MAX_REQUESTS", KIND_SIZE, 1, 1 << 16, 256, G(maxRequests),
	  "posts to a peer that may wait for their answer", NULL },
	{ "FLAGCX_P2P_BATCH_POLL_SIZE", KIND_SIZE, 1, 256, 32, G(batchPollSize),
	  "completions or events taken at once", NULL },
	{ "FLAGCX_P2P_READ_BATCH_WINDOW", KIND_SIZE, 1, 256, 8, G(readBatchWindow),
	  "read posts on a path that may wait for their answer", NULL },
	{ "FLAGCX_P2P_SLICE_SIZE", KIND_SIZE, 1 << 10, 1 << 26, 64 * 1024, G(sliceSize),
	  "bytes of a slice under the connector policy", NULL },
	{ "FLAGCX_P2P_FRAGMENT_LIMIT", KIND_SIZE, 0, 1 << 26, 4 * 1024, G(fragmentLimit),
	  "bytes up to which a tail joins the last slice, at most the slice size", NULL },
	{ "FLAGCX_P2P_MAX_SGE", KIND_SIZE, 1, 32, 4, G(maxSge),
	  "scatter/gather entries of a queue pair", NULL },
	{ "FLAGCX_P2P_MAX_INLINE", KIND_SIZE, 0, 1024, 64, G(maxInline),
	  "bytes sent inside a work request", NULL },
	{ "FLAGCX_P2P_IB_PORT", KIND_U8, 1, 255, 1, G(ibPort), "port of the RDMA device", NULL },
	{ "FLAGCX_P2P_GID_INDEX", KIND_INT, -1, 255, -1, G(gidIndex),
	  "GID of the port; -1: chosen", NULL },
	{ "FLAGCX_P2P_MTU", KIND_INT, 512, 4096, 4096, G(mtuLength),
	  "the most bytes of an RDMA packet", mtu_choices },
	{ "FLAGCX_P2P_IB_TC", KIND_INT, -1, 255, -1, G(ibTrafficClass),
	  "traffic class; -1: not set", NULL },
	{ "FLAGCX_P2P_RETRY_CNT", KIND_INT, 0, 7, 7, G(retryCnt),
	  "retries of a queue pair", NULL },
	{ "FLAGCX_P2P_NOTIF_MAX_PEERS", KIND_INT, 1, 1024, 64, G(notifMaxPeers),
	  "peers of an engine at once", NULL },
	{ "FLAGCX_P2P_DEST_DEV_AFFINITY", KIND_BOOL, 0, 1, 0, G(enableDestDeviceAffinity),
	  "prefer the device nearest to the destination", NULL },
	{ "FLAGCX_P2P_TRANSPORT", KIND_CHOICE, 0, 0, P2P_TRANSPORT_AUTO, C(transport),
	  "auto, ibrc or tcp", transport_choices },
	{ "FLAGCX_P2P_PORT", KIND_INT, 0, 65535, 0, C(port), "listening port; 0: any", NULL },
	{ "FLAGCX_P2P_SECRET", KIND_TEXT, 0, sizeof(((struct p2p_config *)0)->secret), 0,
	  C(secret), "secret that peers must share", NULL },
	{ "FLAGCX_P2P_LIVENESS_MS", KIND_INT, 200, 600000, 4000, C(liveness_ms),
	  "silence after which a peer counts as dead", NULL },
	{ "FLAGCX_P2P_CONNECT_MS", KIND_INT, 100, 600000, 10000, C(connect_ms),
	  "the longest a connect tries", NULL },
	{ "FLAGCX_P2P_STALL_MS", KIND_INT, 500, 3600000, 30000, C(stall_ms),
	  "no progress this long fails what is under way", NULL },
	{ "FLAGCX_P2P_ZEROCOPY", KIND_INT, 0, 2, 1, C(zerocopy),
	  "TCP sends without a copy: 0 never, 1 to other hosts while the kernel can, 2 always",
	  NULL },
	{ "FLAGCX_P2P_SHARED_CQ", KIND_BOOL, 0, 1, 0, C(shared_cq),
	  "workers share the engine's completion queues instead of having their own", NULL },
	{ "FLAGCX_IB_HCA", KIND_TEXT, 0, sizeof(((struct p2p_config *)0)->hca), 0, C(hca),
	  "RDMA devices as NAME[:PORT],...; ^ excludes, = is exact; empty: the nearest", NULL },
	{ "FLAGCX_IB_TIMEOUT", KIND_INT, 1, 31, 14, C(ib_timeout),
	  "a packet counts as lost after 4.096 us x 2^this", NULL },
	{ "FLAGCX_IB_SL", KIND_INT, 0, 15, 0, C(ib_sl), "service level", NULL },
	{ "FLAGCX_IB_PKEY", KIND_INT, 0, 65535, 0, C(ib_pkey), "index of the partition key", NULL },
	{ "FLAGCX_SOCKET_IFNAME", KIND_TEXT, 0, sizeof(((struct p2p_config *)0)->ifname), 0,
	  C(ifname), "interface name, address or CIDR; ^ excludes, = is exact", NULL },
	{ "FLAGCX_SOCKET_FAMILY", KIND_CHOICE, 0, 0, 0, C(family),
	  "AF_INET or AF_INET6; empty: IPv4 first", family_choices },
};

#define ROWS P2P_ARRAY_SIZE(rows)

/* Other names of settings, looked at where the first is not set. */
static const struct {
	const char *name, *also;
} aliases[] = {
	{ "FLAGCX_P2P_GID_INDEX", "FLAGCX_IB_GID_INDEX" },
	{ "FLAGCX_P2P_IB_TC", "FLAGCX_IB_TC" },
	{ "FLAGCX_P2P_RETRY_CNT", "FLAGCX_IB_RETRY_CNT" },
};

struct snapshot {
	struct p2p_config config;
	struct snapshot *older; /* kept reachable: callers may still read it */
	char source[ROWS][96];
};

static pthread_mutex_t config_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct snapshot *) current;

int p2p_config_find(const char *text, const char *name, char *out, size_t size)
{
	size_t want = strlen(name);
	const char *line, *end, *eq, *p;

	for (line = text; line && *line; line = *end ? end + 1 : end) {
		end = line + strcspn(line, "\n");
		while (line < end && isspace((unsigned char)*line))
			line++;
		if (line == end || *line == '#')
			continue;
		eq = memchr(line, '=', (size_t)(end - line));
		if (!eq)
			continue;
		for (p = eq; p > line && isspace((unsigned char)p[-1]); p--)
			;
		if ((size_t)(p - line) != want || memcmp(line, name, want))
			continue;
		for (eq++; eq < end && isspace((unsigned char)*eq); eq++)
			;
		for (p = end; p > eq && isspace((unsigned char)p[-1]); p--)
			;
		if ((size_t)(p - eq) >= size)
			return -E2BIG;
		memcpy(out, eq, (size_t)(p - eq));
		out[p - eq] = '\0';
		return 1;
	}
	return 0;
}

static void put_number(struct p2p_config *c, const struct row *r, int64_t v)
{
	char *at = (char *)c + r->place;

	switch (r->kind) {
	case KIND_SIZE:
		*(size_t *)at = (size_t)v;
		break;
	case KIND_U8:
		*(uint8_t *)at = (uint8_t)v;
		break;
	case KIND_BOOL:
		*(bool *)at = v != 0;
		break;
	default:
		*(int *)at = (int)v;
	}
}

static int64_t get_number(const struct p2p_config *c, const struct row *r)
{
	const char *at = (const char *)c + r->place;

	switch (r->kind) {
	case KIND_SIZE:
		return (int64_t) * (const size_t *)at;
	case KIND_U8:
		return *(const uint8_t *)at;
	case KIND_BOOL:
		return *(const bool *)at;
	default:
		return *(const int *)at;
	}
}

/* A number with an optional K, M or G, as people write sizes. */
static int parse_number(const char *text, int64_t *out)
{
	char *end;
	long long v;
	int shift = 0;

	errno = 0;
	v = strtoll(text, &end, 0);
	if (errno || end == text)
		return -EINVAL;
	switch (toupper((unsigned char)*end)) {
	case 'K': shift = 10; break;
	case 'M': shift = 20; break;
	case 'G': shift = 30; break;
	}
	if (shift)
		end++;
	while (isspace((unsigned char)*end))
		end++;
	if (*end || v > INT64_MAX >> shift || v < -(INT64_MAX >> shift))
		return -EINVAL;
	*out = (int64_t)((uint64_t)v << shift);
	return 0;
}

static int set_row(struct p2p_config *c, const struct row *r, const char *text)
{
	int64_t v;

	if (r->kind == KIND_TEXT) {
		if (strlen(text) >= (size_t)r->max)
			return -E2BIG;
		strcpy((char *)c + r->place, text); /* length checked above */
		return 0;
	}
	if (r->choices) {
		for (const struct choice *ch = r->choices; ch->name; ch++)
			if (!strcasecmp(ch->name, text)) {
				put_number(c, r, ch->value);
				return 0;
			}
		return -EINVAL;
	}
	if (parse_number(text, &v))
		return -EINVAL;
	if (v < r->min || v > r->max)
		return -ERANGE;
	put_number(c, r, v);
	return 0;
}

static void set_default(struct p2p_config *c, const struct row *r)
{
	if (r->kind == KIND_TEXT)
		*((char *)c + r->place) = '\0';
	else
		put_number(c, r, r->def);
}

int p2p_config_transport(const char *text)
{
	for (const struct choice *ch = transport_choices; ch->name; ch++)
		if (!strcasecmp(ch->name, text))
			return ch->value;
	return -EINVAL;
}

static const char *const file_names[2] = { "~/.flagcx.conf", "/etc/flagcx.conf" };

/* What a name is set to: 1 found, 0 not, -E2BIG. */
static int look(const char *name, const char *(*lookup)(const char *),
		const char *const files[2], char *buf, size_t size, const char **text,
		const char **from)
{
	int rc;

	*text = lookup ? lookup(name) : NULL;
	*from = "environment";
	rc = *text ? 1 : 0;
	for (int i = 0; !rc && i < 2; i++) {
		if (!files[i])
			continue;
		rc = p2p_config_find(files[i], name, buf, size);
		*text = buf;
		*from = file_names[i];
	}
	return rc;
}

static void read_row(struct p2p_config *c, const struct row *r,
		     const char *(*lookup)(const char *), const char *const files[2],
		     char *source, size_t source_size)
{
	char buf[512] = "";
	const char *text, *from;
	int rc = look(r->name, lookup, files, buf, sizeof(buf), &text, &from);

	for (size_t i = 0; !rc && i < P2P_ARRAY_SIZE(aliases); i++)
		if (!strcmp(aliases[i].name, r->name))
			rc = look(aliases[i].also, lookup, files, buf, sizeof(buf), &text, &from);
	set_default(c, r);
	if (!rc) {
		snprintf(source, source_size, "default");
		return;
	}
	if (rc > 0)
		rc = set_row(c, r, text);
	if (!rc) {
		snprintf(source, source_size, "%s", from);
		return;
	}
	snprintf(source, source_size, "%s, refused: default used", from);
	p2p_warn("%s=%s (%s) is not one of its values (%s): default used", r->name,
		 r->kind == KIND_TEXT ? "..." : text, from, r->help);
}

static void read_all(struct snapshot *s, const char *(*lookup)(const char *),
		     const char *const files[2])
{
	FlagcxP2pGlobalConfig *g = &s->config.g;

	for (size_t i = 0; i < ROWS; i++)
		read_row(&s->config, &rows[i], lookup, files, s->source[i],
			 sizeof(s->source[i]));
	/* the one bound that depends on another setting */
	if (g->fragmentLimit > g->sliceSize) {
		p2p_warn("FLAGCX_P2P_FRAGMENT_LIMIT=%zu is above the slice size %zu: lowered to it",
			 g->fragmentLimit, g->sliceSize);
		g->fragmentLimit = g->sliceSize;
	}
}

void p2p_config_read(struct p2p_config *c, const char *(*lookup)(const char *),
		     const char *const files[2])
{
	static const char *const none[2];
	struct snapshot s = { 0 };

	read_all(&s, lookup, files ? files : none);
	*c = s.config;
}

/* A configuration file's text; NULL when there is none. */
static char *slurp(const char *path)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t n;

	if (!f)
		return NULL;
	text = calloc(1, 65536);
	if (text) {
		n = fread(text, 1, 65535, f);
		text[n] = '\0';
	}
	fclose(f);
	return text;
}

static const char *env_lookup(const char *name)
{
	return getenv(name);
}

static struct snapshot *load(void)
{
	struct snapshot *s = calloc(1, sizeof(*s));
	const char *home = getenv("HOME");
	char path[4096];
	char *files[2] = { NULL, NULL };

	if (!s)
		return NULL;
	if (home && (size_t)snprintf(path, sizeof(path), "%s/.flagcx.conf", home) < sizeof(path))
		files[0] = slurp(path);
	files[1] = slurp("/etc/flagcx.conf");
	read_all(s, env_lookup, (const char *const *)files);
	free(files[0]);
	free(files[1]);
	return s;
}

static const char *row_text(const struct p2p_config *c, const struct row *r, char *buf,
			    size_t size)
{
	if (r->kind == KIND_TEXT) {
		const char *text = (const char *)c + r->place;

		/* a secret is never shown */
		return strstr(r->name, "SECRET") && *text ? "(set)" : text;
	}
	if (r->kind == KIND_CHOICE)
		for (const struct choice *ch = r->choices; ch->name; ch++)
			if (ch->value == get_number(c, r))
				return ch->name;
	snprintf(buf, size, "%" PRId64, get_number(c, r));
	return buf;
}

static void dump(const struct snapshot *s)
{
	char buf[32];

	if (!p2p_log_wanted(P2P_LOG_INFO))
		return;
	p2p_log_write(P2P_LOG_INFO, "=== FlagCX P2P GlobalConfig ===");
	for (size_t i = 0; i < ROWS; i++)
		p2p_log_write(P2P_LOG_INFO, "%s=%s (%s)", rows[i].name,
			      row_text(&s->config, &rows[i], buf, sizeof(buf)), s->source[i]);
}

static struct snapshot *get_snapshot(void)
{
	/* what stands when there is not even memory for the settings */
	static struct snapshot fallback;
	struct snapshot *s = atomic_load_explicit(&current, memory_order_acquire);

	if (s)
		return s;
	pthread_mutex_lock(&config_lock);
	s = atomic_load_explicit(&current, memory_order_relaxed);
	if (!s) {
		s = load();
		if (!s) {
			s = &fallback;
			p2p_config_read(&s->config, NULL, NULL);
		}
		atomic_store_explicit(&current, s, memory_order_release);
		dump(s);
	}
	pthread_mutex_unlock(&config_lock);
	return s;
}

const struct p2p_config *p2p_config_get(void)
{
	return &get_snapshot()->config;
}

const FlagcxP2pGlobalConfig *flagcxP2pGlobalConfigGet(void)
{
	return &get_snapshot()->config.g;
}

void flagcxP2pDumpGlobalConfig(void)
{
	dump(get_snapshot());
}

void flagcxP2pClampToDeviceLimits(uint32_t maxQpWr, uint32_t maxSge, uint32_t maxCqe,
				  uint32_t maxQp)
{
	struct snapshot *old, *s = malloc(sizeof(*s));
	FlagcxP2pGlobalConfig *g;

	if (!s)
		return;
	old = get_snapshot();
	pthread_mutex_lock(&config_lock);
	old = atomic_load_explicit(&current, memory_order_relaxed);
	*s = *old;
	s->older = old;
	g = &s->config.g;
	if (maxQpWr)
		g->maxWrPerPost = P2P_MIN(g->maxWrPerPost, maxQpWr);
	if (maxSge)
		g->maxSge = P2P_MIN(g->maxSge, maxSge);
	if (maxCqe)
		g->sharedCqDepth = P2P_MIN(g->sharedCqDepth, maxCqe);
	if (maxQp)
		g->qpsPerConn = (int)P2P_MIN((uint32_t)g->qpsPerConn, maxQp);
	if (!memcmp(&s->config, &old->config, sizeof(s->config)))
		free(s); /* nothing to lower: no new object, so that repeats cost nothing */
	else
		atomic_store_explicit(&current, s, memory_order_release);
	pthread_mutex_unlock(&config_lock);
}

int flagcxP2pConfigEach(int (*fn)(void *arg, const FlagcxP2pSetting *setting), void *arg)
{
	const struct snapshot *s = get_snapshot();
	char buf[32];
	int rc = 0;

	for (size_t i = 0; !rc && i < ROWS; i++) {
		FlagcxP2pSetting setting = {
			.name = rows[i].name,
			.value = row_text(&s->config, &rows[i], buf, sizeof(buf)),
			.source = s->source[i],
			.help = rows[i].help,
		};

		rc = fn(arg, &setting);
	}
	return rc;
}
