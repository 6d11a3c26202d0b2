/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: flagcx_p2p.h
 *
 * One-sided transfers between the memories of two processes, on one host or
 * on two, in host or accelerator memory.
 *
 * The life of a transfer: create an engine, register memory, connect to a
 * peer's engine, read or write its memory, ask for the outcome. The peer's
 * program takes no part: its engine's own threads serve the request.
 *
 * Results. A call that returns int returns 0 (or a count) or a negative errno
 * value, one that returns a pointer returns NULL on failure; after a failure
 * flagcxP2pLastError() tells this thread what went wrong, with which object
 * and what helps. The library never prints (FLAGCX_DEBUG asks for it), exits
 * or aborts.
 *
 * Outcome. A transfer that has not moved every byte is FAILED or CANCELED,
 * never DONE. A WRITE is DONE when its bytes lie in the peer's memory (device
 * copy included); one that is not DONE may have left any part of them there.
 * A broken connection ends every transfer on it within
 * FLAGCX_P2P_LIVENESS_MS and fails every later call on it.
 *
 * Handles. Engines, connections, registrations and transfers are numbers with
 * a generation, also where the type is a pointer: using one that is gone is
 * answered with an error and does no harm.
 *
 * Threads. Every call may be made from any thread at any time. Engines share
 * nothing; several in one process do not disturb one another.
 *
 * fork. A child keeps nothing: every call on the parent's handles gives
 * -ECHILD there (or NULL), and the parent's connections do not notice it.
 *
 * Settings: environment, then ~/.flagcx.conf, then /etc/flagcx.conf (lines
 * NAME=VALUE). FLAGCX_P2P_* as in struct FlagcxP2pGlobalConfig, and
 *
 *   FLAGCX_P2P_TRANSPORT=auto|ibrc|tcp  tcp makes no verbs object; ibrc fails
 *                                      without a usable device
 *   FLAGCX_P2P_PORT=0                  listening port of the next engine; 0: any
 *   FLAGCX_P2P_SECRET=                 shared secret; peers without it are refused
 *   FLAGCX_P2P_LIVENESS_MS=4000        silence after which a peer counts as dead
 *   FLAGCX_P2P_CONNECT_MS=10000        the longest a connect tries
 *   FLAGCX_P2P_STALL_MS=30000          no progress this long fails a transfer
 *   FLAGCX_P2P_ZEROCOPY=1              TCP sends without a copy from 64 KiB on: 0 never,
 *                                      1 to other hosts while the kernel can, 2 always
 *   FLAGCX_P2P_SHARED_CQ=0             1: workers share the engine's completion queues
 *   FLAGCX_IB_HCA=                     RDMA devices, NAME[:PORT],...; ^ excludes, = is
 *                                      exact; empty: the nearest to the accelerator
 *   FLAGCX_IB_TIMEOUT=14               a packet is lost after 4.096 us x 2^this
 *   FLAGCX_IB_SL=0, FLAGCX_IB_PKEY=0   service level; index of the partition key
 *   FLAGCX_SOCKET_IFNAME=              interface name, address or CIDR to use
 *   FLAGCX_SOCKET_FAMILY=              AF_INET or AF_INET6 to advertise
 *   FLAGCX_DEBUG=                      WARN or INFO: log to standard error
 */
#ifndef FLAGCX_P2P_H_
#define FLAGCX_P2P_H_

#ifdef __cplusplus
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>
#else
#include <stdbool.h>
#endif
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FLAGCX_P2P_MSG_SIZE 256
#define FLAGCX_P2P_DESC_SIZE 64
#define FLAGCX_P2P_IPC_INFO_SIZE 128

#define FLAGCX_P2P_MUST_CHECK __attribute__((warn_unused_result))

/* What a default member value is in C++ and nothing in C. */
#ifdef __cplusplus
#define FLAGCX_P2P_INIT(value) = value
#else
#define FLAGCX_P2P_INIT(value)
#endif

typedef struct FlagcxP2pEngine FlagcxP2pEngine;
typedef struct FlagcxP2pConn FlagcxP2pConn;
typedef uint64_t FlagcxP2pMr;

/*
 * What an initiator must know of a remote buffer. Opaque but for addr and
 * size, which may be narrowed; everything else is written by PrepareDesc or
 * MakeDesc and must be passed on as it is. Bounds are checked at the target
 * against the registration, never against size.
 */
typedef struct FlagcxP2pRdmaDesc {
	uint64_t addr;    /* address in the remote process */
	uint32_t size;    /* length, low 32 bits */
	uint32_t rkey;    /* random key of the registration */
	uint32_t nmsgs;   /* length, high 32 bits */
	uint32_t rid;     /* index and generation of the registration */
	uint64_t idx;     /* incarnation of the engine that registered */
	char padding[32]; /* zero */
} FlagcxP2pRdmaDesc;

typedef struct FlagcxP2pNotifyMsg {
	char name[FLAGCX_P2P_MSG_SIZE]; /* who sends */
	char msg[FLAGCX_P2P_MSG_SIZE];  /* payload */
} FlagcxP2pNotifyMsg;

typedef struct FlagcxP2pMd {
	FlagcxP2pNotifyMsg notifyData;
} FlagcxP2pMd;

enum FlagcxP2pPolicy {
	FLAGCX_P2P_POLICY_NIXL = 0,      /* one slice an entry, cut only at the port's limit */
	FLAGCX_P2P_POLICY_CONNECTOR = 1, /* cut at sliceSize, a short tail joins its neighbour */
};

enum FlagcxP2pXferState {
	FLAGCX_P2P_XFER_PENDING = 0,
	FLAGCX_P2P_XFER_DONE = 1,     /* every byte moved */
	FLAGCX_P2P_XFER_FAILED = 2,   /* first_error says why */
	FLAGCX_P2P_XFER_CANCELED = 3, /* by XferCancel or ConnDestroy */
};

typedef struct FlagcxP2pXferInfo {
	uint32_t size;        /* IN: sizeof(struct FlagcxP2pXferInfo) */
	int32_t state;        /* enum FlagcxP2pXferState */
	uint64_t bytes_total;
	uint64_t bytes_done;  /* bytes of the entries that are complete */
	int32_t first_error;  /* -errno of the first failure, or 0 */
	int32_t quiet;        /* 1: local memory will not be touched any more */
	uint64_t first_failed; /* entry of the first failure; UINT64_MAX: none */
	uint64_t slices;      /* how many slices the transfer was cut into */
	uint64_t failed_slices;
} FlagcxP2pXferInfo;

/* ----------------------------------------------------------- configuration */

typedef struct FlagcxP2pGlobalConfig {
	int qpsPerConn FLAGCX_P2P_INIT(4);             /* _QPS_PER_CONN 1..32: paths to a peer */
	int workersPerPool FLAGCX_P2P_INIT(2);         /* _WORKERS_PER_POOL 1..8 */
	int shardCount FLAGCX_P2P_INIT(8);             /* _SHARD_COUNT 1..64 */
	size_t sharedCqDepth FLAGCX_P2P_INIT(4096);    /* _CQ_DEPTH 1..1M */
	size_t maxWrPerPost FLAGCX_P2P_INIT(64);       /* _MAX_WR_PER_POST 1..1024 */
	size_t maxRequests FLAGCX_P2P_INIT(256);       /* _MAX_REQUESTS 1..65536, of a peer */
	size_t batchPollSize FLAGCX_P2P_INIT(32);      /* _BATCH_POLL_SIZE 1..256 */
	size_t readBatchWindow FLAGCX_P2P_INIT(8);     /* _READ_BATCH_WINDOW 1..256, of a path */
	size_t sliceSize FLAGCX_P2P_INIT(64 * 1024);   /* _SLICE_SIZE 1K..64M */
	size_t fragmentLimit FLAGCX_P2P_INIT(4 * 1024); /* _FRAGMENT_LIMIT 0..sliceSize */
	size_t maxSge FLAGCX_P2P_INIT(4);              /* _MAX_SGE 1..32 */
	size_t maxInline FLAGCX_P2P_INIT(64);          /* _MAX_INLINE 0..1024 */
	uint8_t ibPort FLAGCX_P2P_INIT(1);             /* _IB_PORT 1..255 */
	int gidIndex FLAGCX_P2P_INIT(-1);              /* _GID_INDEX -1 (choose) ..255 */
	int mtuLength FLAGCX_P2P_INIT(4096);           /* _MTU 512, 1024, 2048 or 4096 */
	int ibTrafficClass FLAGCX_P2P_INIT(-1);        /* _IB_TC -1 (off) ..255 */
	int retryCnt FLAGCX_P2P_INIT(7);               /* _RETRY_CNT 0..7 */
	int notifMaxPeers FLAGCX_P2P_INIT(64);         /* _NOTIF_MAX_PEERS 1..1024, of an engine */
	bool enableDestDeviceAffinity FLAGCX_P2P_INIT(false); /* _DEST_DEV_AFFINITY 0 or 1 */
} FlagcxP2pGlobalConfig;

#ifdef __cplusplus
extern "C" {
#endif

/**
 * flagcxP2pGlobalConfigGet - the settings in force
 *
 * Read once, at the first call or the first engine. A value out of its range
 * is refused in favour of the default, with a warning in the log.
 *
 * Return: settings that never change; a later ClampToDeviceLimits gives a new
 * object.
 */
const FlagcxP2pGlobalConfig *flagcxP2pGlobalConfigGet(void);

/**
 * flagcxP2pDumpGlobalConfig - write the settings to the log, level INFO
 */
void flagcxP2pDumpGlobalConfig(void);

/**
 * flagcxP2pClampToDeviceLimits - lower settings to what a device can do
 * @maxQpWr: bounds maxWrPerPost
 * @maxSge: bounds maxSge
 * @maxCqe: bounds sharedCqDepth
 * @maxQp: bounds qpsPerConn
 *
 * A bound of 0 is ignored. Engines made before keep their settings.
 */
void flagcxP2pClampToDeviceLimits(uint32_t maxQpWr, uint32_t maxSge, uint32_t maxCqe,
				  uint32_t maxQp);

typedef struct FlagcxP2pSetting {
	const char *name;   /* environment variable */
	const char *value;  /* value in force */
	const char *source; /* "default", "environment", a file's name; with what was refused */
	const char *help;
} FlagcxP2pSetting;

/**
 * flagcxP2pConfigEach - visit every setting
 * @fn: called for each; non-zero ends the walk. The strings live during the call
 * @arg: passed to @fn
 *
 * Return: 0, or what @fn returned.
 */
int flagcxP2pConfigEach(int (*fn)(void *arg, const FlagcxP2pSetting *setting), void *arg);

/* ----------------------------------------------------------- errors and log */

/**
 * flagcxP2pLastError - why this thread's last failed call failed
 *
 * Return: text, "" when nothing failed; valid until the next failing call.
 */
const char *flagcxP2pLastError(void);

enum FlagcxP2pLogLevel {
	FLAGCX_P2P_LOG_WARN = 1,
	FLAGCX_P2P_LOG_INFO = 2,
};

/**
 * flagcxP2pSetLog - receive the log
 * @fn: called with one line each, from any thread; it must not call the
 *	library. NULL: none
 * @arg: passed to @fn
 * @level: the highest enum FlagcxP2pLogLevel wanted
 */
void flagcxP2pSetLog(void (*fn)(void *arg, int level, const char *line), void *arg, int level);

/* ----------------------------------------------------------------- engines */

/**
 * flagcxP2pEngineCreate - make an engine with the global settings
 *
 * It listens at once: connections made before Accept or StartRpcServer are
 * served and wait to be taken. Works without an RDMA device, over TCP, unless
 * FLAGCX_P2P_TRANSPORT=ibrc.
 *
 * Return: an engine, NULL on failure (errno is set).
 */
FlagcxP2pEngine *flagcxP2pEngineCreate(void);

typedef struct FlagcxP2pEngineOptions {
	uint32_t size;         /* IN: sizeof(struct FlagcxP2pEngineOptions) */
	int32_t port;          /* listening port; 0: as FLAGCX_P2P_PORT */
	const char *interface; /* as FLAGCX_SOCKET_IFNAME; NULL: as that says */
	const char *transport; /* as FLAGCX_P2P_TRANSPORT; NULL: as that says */
	const char *secret;    /* as FLAGCX_P2P_SECRET; NULL: as that says */
	int32_t device;        /* accelerator to advertise; -1: none */
	uint32_t private_notifs; /* 1: only GetNotifsV takes this engine's notifications */
	const char *hca;       /* as FLAGCX_IB_HCA; NULL: as that says */
} FlagcxP2pEngineOptions;

/**
 * flagcxP2pEngineCreateWith - make an engine with options
 * @options: NULL: as flagcxP2pEngineCreate()
 * @engine: OUT; untouched on failure
 *
 * Return: 0; -EINVAL; -EADDRINUSE: the port is taken; -ENODEV: the transport
 * asked for is not to be had; -ENOMEM; -EMFILE.
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineCreateWith(const FlagcxP2pEngineOptions *options, FlagcxP2pEngine **engine);

/**
 * flagcxP2pEngineDestroy - destroy an engine
 * @engine: NULL or stale does nothing
 *
 * Cancels its transfers, says goodbye to its peers, drops its registrations
 * and connections and joins its threads. When it returns no memory is touched
 * any more. Notifications that were sent go out first: a peer that takes
 * nothing for 3 s, or is not done in 30 s, loses the rest.
 */
void flagcxP2pEngineDestroy(FlagcxP2pEngine *engine);

/**
 * flagcxP2pEngineStopAccept - take no new connections, for good
 * @engine: NULL or stale does nothing
 *
 * A blocked Accept returns NULL. Existing connections live on.
 */
void flagcxP2pEngineStopAccept(FlagcxP2pEngine *engine);

/**
 * flagcxP2pEngineGetMetadata - how to reach an engine
 * @engine: the engine
 * @metadataStr: OUT: "ip:port?device?port" ("[ip]:port?..." for IPv6, only
 *	where there is no IPv4). free() it in C, delete[] it in C++
 *
 * Return: 0; -EINVAL; -ENOMEM.
 */
#ifndef __cplusplus
int flagcxP2pEngineGetMetadata(FlagcxP2pEngine *engine, char **metadataStr);
#endif

/**
 * flagcxP2pEngineGetRpcPort - the listening port
 * @engine: the engine
 *
 * Return: the port; "host:port" is the session for GetConn; < 0 on error.
 */
int flagcxP2pEngineGetRpcPort(FlagcxP2pEngine *engine);

typedef struct FlagcxP2pStats {
	uint32_t size;            /* IN: sizeof(struct FlagcxP2pStats) */
	uint32_t connections;     /* alive now */
	uint32_t regions;         /* registered now */
	uint32_t in_flight;       /* transfers not yet ended */
	uint64_t queued_slices;   /* waiting for a path */
	uint64_t posted_slices;   /* on a path, not yet answered */
	uint64_t staging_busy;    /* bytes of staging memory in use */
	uint64_t xfers;           /* ended transfers: all of them */
	uint64_t xfers_failed;    /* of those, failed or cancelled */
	uint64_t read_bytes;      /* moved by our READs */
	uint64_t write_bytes;     /* moved by our WRITEs */
	uint64_t served_read_bytes;  /* sent for peers' READs */
	uint64_t served_write_bytes; /* received from peers' WRITEs */
	uint64_t served_refused;  /* peers' slices refused: key, bounds */
	uint64_t staged_bytes;    /* copied between device and staging memory */
	uint64_t notifs_sent;
	uint64_t notifs_received;
	uint64_t connects;        /* connections made, both ways */
	uint64_t connects_failed; /* attempts that failed, both ways */
	uint64_t peers_lost;      /* connections that broke */
	uint64_t latency_ns[32];  /* transfers by latency: [i] counts < 2^(i+8) ns */
	uint64_t rdma_bytes;      /* of read and write bytes: moved by queue pairs */
} FlagcxP2pStats;

/**
 * flagcxP2pEngineStats - counters of an engine
 * @engine: the engine
 * @stats: OUT; its size field must be set; no more than that is written
 *
 * Return: 0; -EINVAL.
 */
int flagcxP2pEngineStats(FlagcxP2pEngine *engine, FlagcxP2pStats *stats);

/**
 * flagcxP2pEngineTransport - the transport an engine uses and why
 * @engine: the engine
 * @buf: OUT: "tcp: REASON" or "ibrc: DEVICES"
 * @len: room in @buf
 *
 * Return: 0; -EINVAL.
 */
int flagcxP2pEngineTransport(FlagcxP2pEngine *engine, char *buf, size_t len);

/* ------------------------------------------------------------- connections */

#ifdef __cplusplus
#define FLAGCX_P2P_DEFAULT(value) = value
#else
#define FLAGCX_P2P_DEFAULT(value)
#endif

/**
 * flagcxP2pEngineConnect - connect to a peer's engine
 * @engine: the engine
 * @ipAddr: numeric address or name
 * @remoteGpuIdx: the peer's device, for information
 * @remotePort: port from its metadata
 * @sameProcess: the peer is in this process, for information: it is found out
 *
 * A refused connection is tried again with growing delays up to
 * FLAGCX_P2P_CONNECT_MS. One connection serves both ends: either may read,
 * write and notify. The caller destroys it.
 *
 * Return: a connection, NULL on failure (errno: EHOSTUNREACH, ETIMEDOUT,
 * EACCES: wrong secret, EPROTO: not an engine of a version we speak, EUSERS:
 * an end has FLAGCX_P2P_NOTIF_MAX_PEERS already).
 */
FlagcxP2pConn *flagcxP2pEngineConnect(FlagcxP2pEngine *engine, const char *ipAddr,
				      int remoteGpuIdx, int remotePort,
				      bool sameProcess FLAGCX_P2P_DEFAULT(false));

/**
 * flagcxP2pEngineAccept - wait for a peer to connect
 * @engine: the engine
 * @ipAddrBuf: OUT: the peer's numeric address
 * @ipAddrBufLen: room in it
 * @remoteGpuIdx: OUT: the peer's device, -1: none
 *
 * Any number of threads may wait. The caller destroys the connection. A peer
 * that has come and gone is accepted all the same, as a broken connection; the
 * last 64 of such are kept.
 *
 * Return: a connection; NULL: bad arguments, StopAccept or destruction.
 */
FlagcxP2pConn *flagcxP2pEngineAccept(FlagcxP2pEngine *engine, char *ipAddrBuf,
				     size_t ipAddrBufLen, int *remoteGpuIdx);

/**
 * flagcxP2pEngineStartListener - kept for callers; the engine listens itself
 * @conn: a connection
 *
 * Return: 0; -ENOTCONN: broken or stale.
 */
int flagcxP2pEngineStartListener(FlagcxP2pConn *conn);

/**
 * flagcxP2pEngineConnDestroy - close a connection
 * @conn: NULL or stale does nothing
 *
 * Transfers on it end as CANCELED. When it returns none of their memory is
 * touched any more. The peer is told. Notifications sent before still go out,
 * behind the call's back, in the time that flagcxP2pEngineDestroy() gives them.
 */
void flagcxP2pEngineConnDestroy(FlagcxP2pConn *conn);

/**
 * flagcxP2pEngineConnIsLocal - is the peer on this host
 * @conn: a connection
 *
 * Decided by the kernel's boot id, not by addresses.
 *
 * Return: true if so; false also for NULL and stale.
 */
bool flagcxP2pEngineConnIsLocal(FlagcxP2pConn *conn);

/**
 * flagcxP2pEngineConnStatus - is a connection usable
 * @conn: a connection
 *
 * Return: 0; the -errno that broke it (-ECONNRESET: the peer closed or died,
 * -ETIMEDOUT: it fell silent or a transfer stalled); -ENOTCONN: stale.
 * Notifications that the peer sent before it closed may still come a second
 * after the end shows here.
 */
int flagcxP2pEngineConnStatus(FlagcxP2pConn *conn);

/**
 * flagcxP2pEngineConnTransport - how a connection's bytes go, and why so
 * @conn: a connection
 * @buf: OUT: "ibrc: 4 of 4 queue pairs to PEER stand, on DEVICE" or
 *	"tcp: 4 streams to PEER (the peer has no ibrc)"
 * @len: room in @buf
 *
 * A path without a queue pair goes on by TCP until it has one again.
 *
 * Return: 0; -ENOTCONN: stale, or no room.
 */
int flagcxP2pEngineConnTransport(FlagcxP2pConn *conn, char *buf, size_t len);

/**
 * flagcxP2pEngineStartRpcServer - let the engine keep what connects to it
 * @engine: the engine
 *
 * Return: 0, also when called again; -ESHUTDOWN after StopAccept; -EINVAL.
 */
int flagcxP2pEngineStartRpcServer(FlagcxP2pEngine *engine);

/**
 * flagcxP2pEngineGetConn - the connection of a session
 * @engine: the engine
 * @session: "host:port", "[v6]:port"
 *
 * Connects at the first use and again when the peer was lost, with growing
 * delays; a peer that cannot be reached is not tried again before its delay
 * is over (EHOSTUNREACH at once). The engine owns the connection.
 *
 * Return: a connection, NULL on failure (errno as Connect).
 */
FlagcxP2pConn *flagcxP2pEngineGetConn(FlagcxP2pEngine *engine, const char *session);

/* ------------------------------------------------------------------ memory */

/**
 * flagcxP2pEngineReg - register memory
 * @engine: the engine
 * @data: host or accelerator address
 * @size: bytes; any size
 * @mrId: OUT; untouched on failure
 *
 * The same range again gives the same id, counted. Ranges may overlap.
 * Connected peers learn of it at once.
 *
 * Return: 0; -EINVAL: NULL, 0 or wrapping; -EFAULT: not mapped; -ENOMEM.
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineReg(FlagcxP2pEngine *engine, uintptr_t data, size_t size, FlagcxP2pMr *mrId);

/**
 * flagcxP2pEngineMrDestroy - drop one reference of a registration
 * @engine: the engine
 * @mr: unknown or stale does nothing
 *
 * The last one waits until transfers that use the memory, ours and our
 * peers', have let go of it; later ones with its descriptors get -ESTALE.
 */
void flagcxP2pEngineMrDestroy(FlagcxP2pEngine *engine, FlagcxP2pMr mr);

typedef struct FlagcxP2pMrInfo {
	uint32_t size;      /* IN: sizeof(struct FlagcxP2pMrInfo) */
	int32_t device;     /* device id of phoenix.h; -1: host memory */
	uint64_t addr;
	uint64_t length;
	uint32_t refs;      /* registrations counted together */
	char path[16];      /* "host", "dmabuf", "full", "peermem" or "staged" */
	char reason[108];   /* why not a better path; "" when best */
} FlagcxP2pMrInfo;

/**
 * flagcxP2pEngineMrInfo - how the wire reaches a registration
 * @engine: the engine
 * @mr: the registration
 * @info: OUT; its size field must be set
 *
 * Return: 0; -ENOENT; -EINVAL.
 */
int flagcxP2pEngineMrInfo(FlagcxP2pEngine *engine, FlagcxP2pMr mr, FlagcxP2pMrInfo *info);

/**
 * flagcxP2pEnginePrepareDesc - describe registered memory to peers
 * @engine: the engine
 * @mr: the registration
 * @data: start, inside it
 * @size: bytes, inside it
 * @descBuf: OUT: FLAGCX_P2P_DESC_SIZE bytes to pass on by any means
 *
 * Return: 0; -ENOENT: no such registration; -EFAULT: outside it; -EINVAL.
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEnginePrepareDesc(FlagcxP2pEngine *engine, FlagcxP2pMr mr, const void *data,
			       size_t size, char *descBuf);

/**
 * flagcxP2pEngineUpdateDesc - aim a descriptor at a part of its buffer
 * @desc: the descriptor
 * @remoteAddr: new address
 * @size: new length
 *
 * Return: 0; -EINVAL: NULL.
 */
int flagcxP2pEngineUpdateDesc(FlagcxP2pRdmaDesc *desc, uint64_t remoteAddr, uint32_t size);

/**
 * flagcxP2pEngineMakeDesc - descriptor for an address of the peer
 * @conn: the connection
 * @remoteVa: address in the peer
 * @size: bytes
 * @desc: OUT
 *
 * Looks in the table of the peer's registrations, which is kept current; on a
 * miss the peer is asked (up to a second).
 *
 * Return: 0; -ENOENT: no registration of the peer holds the whole range;
 * -ENOTCONN; -EINVAL.
 */
int flagcxP2pEngineMakeDesc(FlagcxP2pConn *conn, uint64_t remoteVa, uint32_t size,
			    FlagcxP2pRdmaDesc *desc);

/**
 * flagcxP2pEngineRemoteRegion - look at the peer's registrations
 * @conn: the connection
 * @index: 0, 1, ... in order of address
 * @addr: OUT: where it starts in the peer
 * @size: OUT: bytes
 *
 * Return: 0; -ENOENT: past the last; -ENOTCONN; -EINVAL.
 */
int flagcxP2pEngineRemoteRegion(FlagcxP2pConn *conn, uint32_t index, uint64_t *addr,
				uint64_t *size);

/* --------------------------------------------------------------- transfers */

/**
 * flagcxP2pEngineRead - start reading from the peer
 * @conn: the connection
 * @mr: registration that holds the destination
 * @data: local destination
 * @size: bytes, no upper limit
 * @desc: remote source
 * @transferId: OUT: for XferStatus and its kin; 0: already done
 *
 * The memory must stay valid until the transfer is quiet.
 *
 * Return: 0; -EINVAL; -ENOENT: unknown @mr; -EFAULT: outside it; -ESTALE: the
 * descriptor is of an earlier life of the peer; -ENOTCONN, -ECONNRESET,
 * -ETIMEDOUT: broken; -ENOMEM. Nothing was started then.
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineRead(FlagcxP2pConn *conn, FlagcxP2pMr mr, const void *data, size_t size,
			FlagcxP2pRdmaDesc desc, uint64_t *transferId);

/**
 * flagcxP2pEngineWrite - start writing to the peer
 * @conn: the connection
 * @mr: registration that holds the source
 * @data: local source
 * @size: bytes, no upper limit
 * @desc: remote destination
 * @transferId: OUT
 *
 * Return: as flagcxP2pEngineRead().
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineWrite(FlagcxP2pConn *conn, FlagcxP2pMr mr, const void *data, size_t size,
			 FlagcxP2pRdmaDesc desc, uint64_t *transferId);

/**
 * flagcxP2pEngineReadVector - start many reads as one transfer
 * @conn: the connection
 * @mrIds: registration of each entry
 * @dst: local destination of each entry
 * @sizes: bytes of each entry; 0 moves nothing
 * @descs: remote source of each entry
 * @numIovs: entries, at least 1
 * @transferId: OUT
 * @ipcBufs: ignored; may be NULL
 *
 * The arrays may be reused at once. Entries are independent and unordered.
 * An entry that the peer refuses fails the transfer, the others still move.
 *
 * Return: as flagcxP2pEngineRead().
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineReadVector(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds, void *const *dst,
			      const size_t *sizes, const FlagcxP2pRdmaDesc *descs, int numIovs,
			      uint64_t *transferId, char *const *ipcBufs);

/**
 * flagcxP2pEngineWriteVector - start many writes as one transfer
 * @conn: the connection
 * @mrIds: registration of each entry
 * @src: local source of each entry
 * @sizes: bytes of each entry; 0 moves nothing
 * @descs: remote destination of each entry
 * @numIovs: entries, at least 1
 * @transferId: OUT
 * @ipcBufs: ignored; may be NULL
 *
 * As flagcxP2pEngineReadVector(), the other way; policy NIXL.
 *
 * Return: as flagcxP2pEngineRead().
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineWriteVector(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds, void *const *src,
			       const size_t *sizes, const FlagcxP2pRdmaDesc *descs, int numIovs,
			       uint64_t *transferId, char *const *ipcBufs);

/**
 * flagcxP2pEngineWriteVectorPolicy - the same, cut as the caller says
 * @conn: the connection
 * @mrIds: registration of each entry
 * @src: local source of each entry
 * @sizes: bytes of each entry
 * @descs: remote destination of each entry
 * @numIovs: entries, at least 1
 * @policyKind: enum FlagcxP2pPolicy
 * @transferId: OUT
 *
 * Return: as flagcxP2pEngineRead().
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineWriteVectorPolicy(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
				     void *const *src, const size_t *sizes,
				     const FlagcxP2pRdmaDesc *descs, int numIovs, int policyKind,
				     uint64_t *transferId);

/**
 * flagcxP2pEngineWriteVectorSync - write and wait
 * @conn: the connection
 * @mrIds: registration of each entry
 * @src: local source of each entry
 * @sizes: bytes of each entry
 * @descs: remote destination of each entry
 * @numIovs: entries; 0 is 0
 *
 * Return: 0: every byte lies in the peer's memory; else the first error, and
 * local memory is quiet.
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineWriteVectorSync(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
				   void *const *src, const size_t *sizes,
				   const FlagcxP2pRdmaDesc *descs, int numIovs);

/**
 * flagcxP2pEngineReadVectorSync - read and wait
 * @conn: the connection
 * @mrIds: registration of each entry
 * @dst: local destination of each entry
 * @sizes: bytes of each entry
 * @descs: remote source of each entry
 * @numIovs: entries; 0 is 0
 *
 * Return: as flagcxP2pEngineWriteVectorSync().
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineReadVectorSync(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
				  void *const *dst, const size_t *sizes,
				  const FlagcxP2pRdmaDesc *descs, int numIovs);

/**
 * flagcxP2pEngineSend - two-sided transfers are not part of this engine
 * @conn: ignored
 * @mr: ignored
 * @data: ignored
 * @size: ignored
 * @transferId: not written
 *
 * Return: -EOPNOTSUPP.
 */
int flagcxP2pEngineSend(FlagcxP2pConn *conn, FlagcxP2pMr mr, const void *data, size_t size,
			uint64_t *transferId);

/**
 * flagcxP2pEngineSendVector - two-sided transfers are not part of this engine
 * @conn: ignored
 * @mrIds: ignored
 * @src: ignored
 * @sizes: ignored
 * @numIovs: ignored
 * @transferId: not written
 *
 * Return: -EOPNOTSUPP.
 */
int flagcxP2pEngineSendVector(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
			      const void *const *src, const size_t *sizes, int numIovs,
			      uint64_t *transferId);

/**
 * flagcxP2pEngineRecv - two-sided transfers are not part of this engine
 * @conn: ignored
 * @mr: ignored
 * @data: ignored
 * @maxSize: ignored
 *
 * Return: -EOPNOTSUPP.
 */
int flagcxP2pEngineRecv(FlagcxP2pConn *conn, FlagcxP2pMr mr, void *data, size_t maxSize);

/**
 * flagcxP2pEngineXferStatus - has a transfer ended
 * @conn: its connection
 * @transferId: its id
 *
 * The first true takes the id back. True says that the transfer is over, not
 * that it succeeded: after a failure the connection counts as failed, so that
 * SendNotif and every later transfer on it return an error. Callers that want
 * to go on after a refused entry use XferWait or XferQuery instead.
 *
 * Return: true: ended, or NULL, stale or unknown; false: pending.
 */
bool flagcxP2pEngineXferStatus(FlagcxP2pConn *conn, uint64_t transferId);

/**
 * flagcxP2pEngineXferQuery - how a transfer stands
 * @conn: its connection
 * @transferId: its id; it is not taken back
 * @info: OUT; its size field must be set
 *
 * Return: 0; -ENOENT: unknown, or taken back already; -EINVAL.
 */
int flagcxP2pEngineXferQuery(FlagcxP2pConn *conn, uint64_t transferId, FlagcxP2pXferInfo *info);

/**
 * flagcxP2pEngineXferWait - wait for a transfer and take its id back
 * @conn: its connection
 * @transferId: its id
 * @timeout_ms: the longest wait; < 0: until it ends
 *
 * Return: 0: DONE; -ETIMEDOUT with the id still valid (XferQuery tells
 * PENDING), or the transfer's own first error; -ECANCELED; -ENOENT.
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineXferWait(FlagcxP2pConn *conn, uint64_t transferId, int timeout_ms);

/**
 * flagcxP2pEngineXferCancel - end a transfer early
 * @conn: its connection
 * @transferId: its id; it stays valid for XferQuery, XferWait or XferStatus
 *
 * When it returns 0 local memory is not touched any more.
 *
 * Return: 0: it has ended, cancelled or by itself; -ENOENT.
 */
int flagcxP2pEngineXferCancel(FlagcxP2pConn *conn, uint64_t transferId);

/* ----------------------------------------------------------- notifications */

/**
 * flagcxP2pEngineSendNotif - send a notification of fixed size
 * @conn: the connection
 * @notifyMsg: copied
 *
 * Notifications of a connection arrive in order, whole and once.
 *
 * Return: sizeof(FlagcxP2pNotifyMsg); -1: broken or failed connection, or
 * the peer does not take its notifications (see LastError).
 */
int flagcxP2pEngineSendNotif(FlagcxP2pConn *conn, FlagcxP2pNotifyMsg *notifyMsg);

/**
 * flagcxP2pEngineGetNotifs - take notifications of all engines
 * @msgs: OUT; longer names and payloads are left for GetNotifsV
 * @cap: room
 *
 * Return: how many were taken.
 */
int flagcxP2pEngineGetNotifs(FlagcxP2pNotifyMsg *msgs, int cap);

typedef struct FlagcxP2pNotif {
	char *name;        /* NUL is appended */
	size_t name_len;
	void *msg;         /* NUL is appended */
	size_t msg_len;
	FlagcxP2pConn *conn; /* where it came from; may be stale by now */
} FlagcxP2pNotif;

/**
 * flagcxP2pEngineSendNotifV - send a notification of any size
 * @conn: the connection
 * @name: who sends; may be NULL with @name_len 0
 * @name_len: at most 64 KiB
 * @msg: payload
 * @msg_len: at most 1 GiB
 *
 * At most 64 MiB that the peer has not taken may be under way (or one larger
 * notification); beyond that it waits up to a second.
 *
 * Return: 0; -ENOTCONN, -ECONNRESET, -ETIMEDOUT: broken; -ENOBUFS: the peer
 * does not take them; -EMSGSIZE; -ENOMEM; -EINVAL.
 */
FLAGCX_P2P_MUST_CHECK
int flagcxP2pEngineSendNotifV(FlagcxP2pConn *conn, const char *name, size_t name_len,
			      const void *msg, size_t msg_len);

/**
 * flagcxP2pEngineGetNotifsV - take notifications of one engine
 * @engine: the engine
 * @out: OUT: flagcxP2pNotifFree() each
 * @cap: room
 *
 * Return: how many were taken; -EINVAL.
 */
int flagcxP2pEngineGetNotifsV(FlagcxP2pEngine *engine, FlagcxP2pNotif *out, int cap);

/**
 * flagcxP2pNotifFree - free what GetNotifsV gave
 * @notif: NULL does nothing
 */
void flagcxP2pNotifFree(FlagcxP2pNotif *notif);

/* --------------------------------------------------------------------- IPC */

/**
 * flagcxP2pEngineGetIpcInfo - IPC handle of registered device memory
 * @engine: the engine
 * @addr: an address inside a registration
 * @ipcBuf: OUT: FLAGCX_P2P_IPC_INFO_SIZE bytes
 * @hasIpc: OUT: whether there is a handle; always false: transfers between
 *	processes of a host take the engine's paths
 *
 * Return: 0; -ENOENT: not registered; -EINVAL.
 */
int flagcxP2pEngineGetIpcInfo(FlagcxP2pEngine *engine, uintptr_t addr, char *ipcBuf,
			      bool *hasIpc);

/**
 * flagcxP2pEngineUpdateIpcInfo - aim IPC info at a part of the registration
 * @ipcBuf: from GetIpcInfo
 * @addr: start of the part
 * @baseAddr: start of the registration
 * @size: bytes of the part
 *
 * May be repeated: the offset is set, not added to.
 *
 * Return: 0; -EINVAL: NULL, or @addr below @baseAddr.
 */
int flagcxP2pEngineUpdateIpcInfo(char *ipcBuf, uintptr_t addr, uintptr_t baseAddr, size_t size);

/* ---------------------------------------------- by address: for ctypes users */

/**
 * flagcxP2pRpcEngineCreate - flagcxP2pEngineCreate() with plain types
 *
 * Return: as there.
 */
void *flagcxP2pRpcEngineCreate(void);

/**
 * flagcxP2pRpcEngineDestroy - flagcxP2pEngineDestroy() with plain types
 * @engine: the engine
 */
void flagcxP2pRpcEngineDestroy(void *engine);

/**
 * flagcxP2pRpcGetPort - flagcxP2pEngineGetRpcPort() with plain types
 * @engine: the engine
 *
 * Return: as there.
 */
int flagcxP2pRpcGetPort(void *engine);

/**
 * flagcxP2pRpcStartServer - flagcxP2pEngineStartRpcServer() with plain types
 * @engine: the engine
 *
 * Return: as there.
 */
int flagcxP2pRpcStartServer(void *engine);

/**
 * flagcxP2pRpcRegister - flagcxP2pEngineReg() with plain types
 * @engine: the engine
 * @addr: host or accelerator address
 * @size: bytes
 * @mrIdOut: OUT
 *
 * Return: as there.
 */
int flagcxP2pRpcRegister(void *engine, uint64_t addr, uint64_t size, uint64_t *mrIdOut);

/**
 * flagcxP2pRpcRegisterHost - the same, for memory known to be the host's
 * @engine: the engine
 * @addr: host address
 * @size: bytes
 * @mrIdOut: OUT
 *
 * Return: as flagcxP2pRpcRegister().
 */
int flagcxP2pRpcRegisterHost(void *engine, uint64_t addr, uint64_t size, uint64_t *mrIdOut);

/**
 * flagcxP2pRpcGetConn - flagcxP2pEngineGetConn() with plain types
 * @engine: the engine
 * @session: "host:port"
 *
 * Return: as there.
 */
void *flagcxP2pRpcGetConn(void *engine, const char *session);

/**
 * flagcxP2pRpcBatchWriteSync - write ranges of registered memory, and wait
 * @conn: from flagcxP2pRpcGetConn()
 * @count: ranges; 0 is 0
 * @srcVa: local addresses, each inside a registration
 * @dstVa: addresses in the peer, each inside a registration there
 * @sizes: bytes
 *
 * Policy CONNECTOR.
 *
 * Return: 0: every byte lies in the peer's memory; -ENOENT: a range is not
 * registered here or there, nothing was moved; else the first error.
 */
int flagcxP2pRpcBatchWriteSync(void *conn, int count, const uint64_t *srcVa,
			       const uint64_t *dstVa, const uint64_t *sizes);

/**
 * flagcxP2pRpcBatchReadSync - read ranges of the peer's memory, and wait
 * @conn: from flagcxP2pRpcGetConn()
 * @count: ranges; 0 is 0
 * @localVa: destinations, each inside a registration
 * @remoteVa: sources, each inside a registration of the peer
 * @sizes: bytes
 *
 * Return: as flagcxP2pRpcBatchWriteSync().
 */
int flagcxP2pRpcBatchReadSync(void *conn, int count, const uint64_t *localVa,
			      const uint64_t *remoteVa, const uint64_t *sizes);

/**
 * flagcxP2pRpcBatchStart - start ranges as one transfer, do not wait
 * @conn: from flagcxP2pRpcGetConn()
 * @count: ranges; 0 is done at once
 * @localVa: local addresses, each inside a registration
 * @remoteVa: addresses in the peer, each inside a registration there
 * @sizes: bytes
 * @write: 1: write to the peer, 0: read from it
 * @transferId: OUT: for XferStatus, XferQuery, XferWait, XferCancel
 *
 * Return: 0, or as flagcxP2pRpcBatchWriteSync().
 */
int flagcxP2pRpcBatchStart(void *conn, int count, const uint64_t *localVa,
			   const uint64_t *remoteVa, const uint64_t *sizes, int write,
			   uint64_t *transferId);

/**
 * flagcxP2pRpcDeregister - drop one reference of what Register registered
 * @engine: the engine
 * @addr: its address
 *
 * Return: 0; -ENOENT: no registration starts there; -EINVAL.
 */
int flagcxP2pRpcDeregister(void *engine, uint64_t addr);

/* ------------------------------------------------------- descriptors as bytes */

static inline void flagcxP2pSerializeRdmaDesc(const FlagcxP2pRdmaDesc *desc, char *buf)
{
	memcpy(buf, desc, sizeof(*desc));
}

static inline void flagcxP2pDeserializeRdmaDesc(const char *buf, FlagcxP2pRdmaDesc *desc)
{
	memcpy(desc, buf, sizeof(*desc));
}

#ifdef __cplusplus
} /* extern "C" */

#include "flagcx_p2p.hpp"
#else

_Static_assert(sizeof(FlagcxP2pRdmaDesc) == FLAGCX_P2P_DESC_SIZE, "descriptor is 64 bytes");

enum { kFlagcxP2pMaxQpsPerEngine = 8 };

/* The C side of the C++ slice and task: the same bytes. */
enum FlagcxSliceOp {
	FLAGCX_SLICE_OP_WRITE = 0,
	FLAGCX_SLICE_OP_READ = 1,
};

struct FlagcxTransferTask {
	uint64_t sliceCount; /* the three counters: atomic access only */
	uint64_t doneSliceCount;
	uint64_t failedCount;
	void *sliceList[3];  /* std::vector, not for C */
};

struct FlagcxSlice {
	uint64_t srcVa; /* local address */
	uint64_t dstVa; /* remote address */
	uint32_t length;
	uint32_t lkey;
	uint32_t rkey;
	uint8_t opcode; /* enum FlagcxSliceOp */
	struct FlagcxTransferTask *task;
	volatile int *qpDepth;
};

static inline void flagcxP2pSliceMarkSuccess(struct FlagcxSlice *slice)
{
	if (slice->task)
		__atomic_fetch_add(&slice->task->doneSliceCount, 1, __ATOMIC_RELEASE);
}

static inline void flagcxP2pSliceMarkFailed(struct FlagcxSlice *slice)
{
	if (slice->task) {
		__atomic_fetch_add(&slice->task->failedCount, 1, __ATOMIC_RELEASE);
		__atomic_fetch_add(&slice->task->doneSliceCount, 1, __ATOMIC_RELEASE);
	}
}
#endif

#endif /* FLAGCX_P2P_H_ */
