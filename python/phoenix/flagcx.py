# SPDX-License-Identifier: Apache-2.0
"""libflagcx.so for Python, under the names of FlagCX's public wrapper.

One-sided calls and the P2P engine work; collective operations exist and raise,
since the library answers that it does not support them. torch is not needed.
"""

import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_uint64, c_void_p

from . import _libflagcx

__all__ = ["FLAGCXLibrary", "flagcxDataTypeEnum", "flagcxRedOpTypeEnum", "flagcxUniqueId",
           "flagcxDeviceHandle_t", "flagcxComm_t", "flagcxStream_t", "flagcxEvent_t",
           "buffer_type"]

flagcxResult_t = c_int
flagcxComm_t = c_void_p
flagcxStream_t = c_void_p
flagcxEvent_t = c_void_p
flagcxWindow_t = c_void_p
flagcxDevComm_t = c_void_p
flagcxDevMem_t = c_void_p
flagcxP2pEngine_t = c_void_p
flagcxP2pConn_t = c_void_p
buffer_type = c_void_p

_CALL = ctypes.CFUNCTYPE(flagcxResult_t)


class flagcxUniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 256)]


class flagcxDeviceHandle(ctypes.Structure):
    _fields_ = [(name, _CALL) for name in (
        "deviceSynchronize deviceMemcpy deviceMemset deviceMalloc deviceFree setDevice getDevice "
        "getDeviceCount getVendor hostGetDevicePointer streamCreate streamDestroy streamCopy "
        "streamFree streamSynchronize streamQuery streamWaitEvent eventCreate eventDestroy "
        "eventRecord eventSynchronize eventQuery eventElapsedTime ipcMemHandleCreate "
        "ipcMemHandleGet ipcMemHandleOpen ipcMemHandleClose ipcMemHandleFree").split()]


flagcxDeviceHandle_t = POINTER(flagcxDeviceHandle)


class _TorchEnum:
    """Numbers by name; from_torch takes a torch object and goes by its name."""

    _by_torch = {}

    @classmethod
    def from_torch(cls, value):
        name = str(value).rsplit(".", 1)[-1]
        try:
            return getattr(cls, cls._by_torch[name])
        except KeyError:
            raise ValueError(f"not supported: {value}") from None


class flagcxDataTypeEnum(_TorchEnum):
    flagcxInt8 = flagcxChar = 0
    flagcxUint8 = 1
    flagcxInt32 = flagcxInt = 2
    flagcxUint32 = 3
    flagcxInt64 = 4
    flagcxUint64 = 5
    flagcxFloat16 = flagcxHalf = 6
    flagcxFloat32 = flagcxFloat = 7
    flagcxFloat64 = flagcxDouble = 8
    flagcxBfloat16 = 9
    flagcxNumTypes = 10
    _by_torch = {"int8": "flagcxInt8", "uint8": "flagcxUint8", "int32": "flagcxInt32",
                 "int64": "flagcxInt64", "float16": "flagcxFloat16", "float32": "flagcxFloat32",
                 "float64": "flagcxFloat64", "bfloat16": "flagcxBfloat16"}


class flagcxRedOpTypeEnum(_TorchEnum):
    flagcxSum, flagcxProd, flagcxMax, flagcxMin, flagcxAvg, flagcxNumOps = range(6)
    _by_torch = {"SUM": "flagcxSum", "PRODUCT": "flagcxProd", "MAX": "flagcxMax",
                 "MIN": "flagcxMin", "AVG": "flagcxAvg"}


_BUF, _N, _TYPE, _OP, _RANK, _COMM, _STREAM = (c_void_p, c_size_t, c_int, c_int, c_int,
                                               flagcxComm_t, flagcxStream_t)

# name: argument types; each returns a flagcxResult_t
_CALLS = {
    "flagcxDeviceHandleInit": [POINTER(flagcxDeviceHandle_t)],
    "flagcxDeviceHandleFree": [flagcxDeviceHandle_t],
    "flagcxGetVersion": [POINTER(c_int)],
    "flagcxGetUniqueId": [POINTER(flagcxUniqueId)],
    "flagcxCommInitRank": [POINTER(flagcxComm_t), c_int, POINTER(flagcxUniqueId), c_int],
    "flagcxCommDestroy": [_COMM],
    "flagcxAllReduce": [_BUF, _BUF, _N, _TYPE, _OP, _COMM, _STREAM],
    "flagcxReduce": [_BUF, _BUF, _N, _TYPE, _OP, _RANK, _COMM, _STREAM],
    "flagcxAllGather": [_BUF, _BUF, _N, _TYPE, _COMM, _STREAM],
    "flagcxReduceScatter": [_BUF, _BUF, _N, _TYPE, _OP, _COMM, _STREAM],
    "flagcxSend": [_BUF, _N, _TYPE, _RANK, _COMM, _STREAM],
    "flagcxRecv": [_BUF, _N, _TYPE, _RANK, _COMM, _STREAM],
    "flagcxBroadcast": [_BUF, _BUF, _N, _TYPE, _RANK, _COMM, _STREAM],
    "flagcxGroupStart": [_COMM],
    "flagcxGroupEnd": [_COMM],
    "flagcxCommRegister": [_COMM, _BUF, _N, POINTER(c_void_p), c_int],
    "flagcxOneSideRegister": [_COMM, _BUF, _N],
    "flagcxOneSideSignalRegister": [_COMM, _BUF, _N, c_int],
    "flagcxOneSideStagingRegister": [_COMM, _BUF, _N],
    "flagcxOneSideStagingDeregister": [_COMM],
    "flagcxGet": [_COMM, c_int, c_size_t, c_size_t, c_size_t, c_int, c_int],
    "flagcxPut": [_COMM, c_int, c_size_t, c_size_t, c_size_t, c_int, c_int],
    "flagcxBatchPut": [_COMM, c_int, POINTER(c_size_t), POINTER(c_size_t), POINTER(c_size_t),
                       POINTER(c_int), POINTER(c_int), c_size_t],
    "flagcxPutSignal": [_COMM, c_int, c_size_t, c_size_t, c_size_t, c_size_t, c_int, c_int,
                        c_uint64],
    "flagcxSignal": [_COMM, c_int, c_size_t, c_uint64],
    "flagcxWaitSignal": [_COMM, c_int, c_size_t, c_uint64, _STREAM],
    "flagcxReadCounter": [_COMM, POINTER(c_uint64)],
    "flagcxWaitCounter": [_COMM, c_uint64],
    "flagcxMemAlloc": [POINTER(c_void_p), c_size_t, c_int],
    "flagcxMemFree": [c_void_p, c_int],
    "flagcxCommWindowRegister": [_COMM, _BUF, _N, POINTER(flagcxWindow_t), c_int, c_int],
    "flagcxCommWindowDeregister": [_COMM, flagcxWindow_t, c_int],
    "flagcxDevCommCreate": [_COMM, c_void_p, POINTER(flagcxDevComm_t)],
    "flagcxDevCommDestroy": [_COMM, flagcxDevComm_t],
    "flagcxDevMemCreate": [_COMM, _BUF, _N, flagcxWindow_t, POINTER(flagcxDevMem_t)],
    "flagcxDevMemDestroy": [_COMM, flagcxDevMem_t],
    "flagcxDevCommGetDevicePtr": [flagcxDevComm_t, POINTER(c_void_p)],
    "flagcxDevCommFreeDevicePtr": [flagcxDevComm_t],
    "flagcxDevMemGetDevicePtr": [flagcxDevMem_t, POINTER(c_void_p)],
    "flagcxDevMemFreeDevicePtr": [flagcxDevMem_t],
}


def _checked(name):
    """A method that calls the library and raises on anything but success."""

    def method(self, *args):
        self.FLAGCX_CHECK(self._funcs[name](*args))

    method.__name__ = name
    method.__doc__ = f"{name}() of the library; RuntimeError when it fails."
    return method


def _out(name, ctype):
    """The same for a call whose last argument is filled in; returns it."""

    def method(self, *args):
        out = ctype()
        self.FLAGCX_CHECK(self._funcs[name](*args, byref(out)))
        return out

    method.__name__ = name
    return method


class FLAGCXLibrary:
    def __init__(self, so_file=None):
        self.lib = _libflagcx.load(so_file)
        self._funcs = {}
        for name, argtypes in _CALLS.items():
            fn = getattr(self.lib, name)
            fn.restype, fn.argtypes = flagcxResult_t, argtypes
            self._funcs[name] = fn
        text = self.lib.flagcxGetErrorString
        text.restype, text.argtypes = ctypes.c_char_p, [flagcxResult_t]
        self.devHandle = flagcxDeviceHandle_t()
        self.FLAGCX_CHECK(self._funcs["flagcxDeviceHandleInit"](byref(self.devHandle)))

    # ---- results

    def flagcxGetErrorString(self, result):
        return self.lib.flagcxGetErrorString(result).decode()

    def FLAGCX_CHECK(self, result):
        if result != 0:
            raise RuntimeError(f"FLAGCX error: {self.flagcxGetErrorString(result)}")

    def _p2p(self, what, rc):
        if rc is None or rc < 0:
            raise RuntimeError(f"{what} failed: {self.lib.flagcxP2pLastError().decode()}")
        return rc

    def flagcxGetVersion(self):
        v = c_int()
        self.FLAGCX_CHECK(self._funcs["flagcxGetVersion"](byref(v)))
        return f"{v.value // 10000}.{v.value // 100 % 100}.{v.value % 100}"

    # ---- communicators and windows

    def flagcxGetUniqueId(self):
        unique_id = flagcxUniqueId()
        self.FLAGCX_CHECK(self._funcs["flagcxGetUniqueId"](byref(unique_id)))
        return unique_id

    def unique_id_from_bytes(self, data):
        if len(data) != ctypes.sizeof(flagcxUniqueId):
            raise ValueError(f"a unique id has {ctypes.sizeof(flagcxUniqueId)} bytes, "
                             f"not {len(data)}")
        return flagcxUniqueId.from_buffer_copy(data)

    def flagcxCommInitRank(self, world_size, unique_id, rank):
        comm = flagcxComm_t()
        self.FLAGCX_CHECK(self._funcs["flagcxCommInitRank"](byref(comm), world_size,
                                                            byref(unique_id), rank))
        return comm

    def flagcxBatchPut(self, comm, peer, srcOffsets, dstOffsets, sizes, srcMrIdxs, dstMrIdxs):
        n = len(sizes)
        lists = (srcOffsets, dstOffsets, sizes, srcMrIdxs, dstMrIdxs)
        if any(len(x) != n for x in lists):
            raise ValueError("flagcxBatchPut: lists of different lengths")
        if n:
            sizes_t, ints_t = c_size_t * n, c_int * n
            self.FLAGCX_CHECK(self._funcs["flagcxBatchPut"](
                comm, peer, sizes_t(*srcOffsets), sizes_t(*dstOffsets), sizes_t(*sizes),
                ints_t(*srcMrIdxs), ints_t(*dstMrIdxs), n))

    flagcxCommDestroy = _checked("flagcxCommDestroy")
    flagcxOneSideRegister = _checked("flagcxOneSideRegister")
    flagcxOneSideStagingRegister = _checked("flagcxOneSideStagingRegister")
    flagcxPut = _checked("flagcxPut")
    flagcxGet = _checked("flagcxGet")

    # ---- exported, not supported: they raise

    flagcxAllReduce = _checked("flagcxAllReduce")
    flagcxReduce = _checked("flagcxReduce")
    flagcxReduceScatter = _checked("flagcxReduceScatter")
    flagcxAllGather = _checked("flagcxAllGather")
    flagcxSend = _checked("flagcxSend")
    flagcxRecv = _checked("flagcxRecv")
    flagcxBroadcast = _checked("flagcxBroadcast")
    flagcxGroupStart = _checked("flagcxGroupStart")
    flagcxGroupEnd = _checked("flagcxGroupEnd")
    flagcxPutSignal = _checked("flagcxPutSignal")
    flagcxSignal = _checked("flagcxSignal")
    flagcxWaitSignal = _checked("flagcxWaitSignal")
    flagcxWaitCounter = _checked("flagcxWaitCounter")
    flagcxDevCommDestroy = _checked("flagcxDevCommDestroy")
    flagcxDevMemDestroy = _checked("flagcxDevMemDestroy")
    flagcxDevCommFreeDevicePtr = _checked("flagcxDevCommFreeDevicePtr")
    flagcxDevMemFreeDevicePtr = _checked("flagcxDevMemFreeDevicePtr")
    flagcxDevCommCreate = _out("flagcxDevCommCreate", flagcxDevComm_t)
    flagcxDevCommGetDevicePtr = _out("flagcxDevCommGetDevicePtr", c_void_p)
    flagcxDevMemGetDevicePtr = _out("flagcxDevMemGetDevicePtr", c_void_p)

    def flagcxReadCounter(self, comm):
        count = c_uint64()
        self.FLAGCX_CHECK(self._funcs["flagcxReadCounter"](comm, byref(count)))
        return count.value

    def flagcxOneSideSignalRegister(self, comm, buff, size, ptrType=1):
        self.FLAGCX_CHECK(self._funcs["flagcxOneSideSignalRegister"](comm, buff, size, ptrType))

    def flagcxCommRegister(self, comm, buff, size, allocator=0):
        handle = c_void_p()
        self.FLAGCX_CHECK(self._funcs["flagcxCommRegister"](comm, buff, size, byref(handle),
                                                            allocator))
        return handle

    def flagcxMemAlloc(self, size, allocator=0):
        ptr = c_void_p()
        self.FLAGCX_CHECK(self._funcs["flagcxMemAlloc"](byref(ptr), size, allocator))
        return ptr

    def flagcxMemFree(self, ptr, allocator=0):
        self.FLAGCX_CHECK(self._funcs["flagcxMemFree"](ptr, allocator))

    def flagcxCommWindowRegister(self, comm, buff, size, flags=0, allocator=0):
        win = flagcxWindow_t()
        self.FLAGCX_CHECK(self._funcs["flagcxCommWindowRegister"](comm, buff, size, byref(win),
                                                                  flags, allocator))
        return win

    def flagcxCommWindowDeregister(self, comm, win, allocator=0):
        self.FLAGCX_CHECK(self._funcs["flagcxCommWindowDeregister"](comm, win, allocator))

    def flagcxDevMemCreate(self, comm, buff, size, win=None):
        mem = flagcxDevMem_t()
        self.FLAGCX_CHECK(self._funcs["flagcxDevMemCreate"](comm, buff, size, win, byref(mem)))
        return mem

    # ---- the P2P engine

    def flagcxP2pEngineCreate(self):
        engine = c_void_p()
        self._p2p("flagcxP2pEngineCreate",
                  self.lib.flagcxP2pEngineCreateWith(None, byref(engine)))
        return engine

    def flagcxP2pEngineDestroy(self, engine):
        self.lib.flagcxP2pEngineDestroy(engine)

    def flagcxP2pGetRpcPort(self, engine):
        return self._p2p("flagcxP2pGetRpcPort", self.lib.flagcxP2pEngineGetRpcPort(engine))

    def flagcxP2pStartRpcServer(self, engine):
        self._p2p("flagcxP2pStartRpcServer", self.lib.flagcxP2pEngineStartRpcServer(engine))

    def flagcxP2pRegister(self, engine, addr, size):
        mr = c_uint64()
        self._p2p(f"flagcxP2pRegister({addr:#x}, {size})",
                  self.lib.flagcxP2pRpcRegister(engine, addr, size, byref(mr)))
        return mr.value

    flagcxP2pRegisterHost = flagcxP2pRegister

    def flagcxP2pGetConn(self, engine, session):
        conn = self.lib.flagcxP2pEngineGetConn(engine, session.encode())
        if not conn:
            self._p2p(f"flagcxP2pGetConn({session})", None)
        return c_void_p(conn)

    def flagcxP2pBatchWriteSync(self, conn, src_vas, dst_vas, sizes):
        n = len(sizes)
        if len(src_vas) != n or len(dst_vas) != n:
            raise ValueError("flagcxP2pBatchWriteSync: lists of different lengths")
        if n:
            u64 = c_uint64 * n
            self._p2p("flagcxP2pBatchWriteSync", self.lib.flagcxP2pRpcBatchWriteSync(
                conn, n, u64(*src_vas), u64(*dst_vas), u64(*sizes)))

    # ---- streams belong to the vendor's runtime: these raise

    def adaptor_stream_create(self):
        self.FLAGCX_CHECK(self.devHandle.contents.streamCreate())

    def adaptor_stream_copy(self, old_stream):
        self.FLAGCX_CHECK(self.devHandle.contents.streamCopy())

    def adaptor_stream_free(self, stream):
        self.FLAGCX_CHECK(self.devHandle.contents.streamFree())

    def adaptor_stream_destroy(self, stream):
        self.FLAGCX_CHECK(self.devHandle.contents.streamDestroy())

    def sync_stream(self, stream):
        self.FLAGCX_CHECK(self.devHandle.contents.streamSynchronize())
