# SPDX-License-Identifier: Apache-2.0
"""Finding and loading libflagcx.so, and the types of its calls."""

import ctypes
import os
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p


def find(so_file=None):
    """Path of the library: the argument, $FLAGCX_PATH, the build or install tree, or its name."""
    if so_file:
        return so_file
    here = os.path.dirname(os.path.abspath(__file__))
    roots = [os.environ.get("FLAGCX_PATH"), os.path.join(here, "..", ".."),
             os.path.join(here, "..", "..", "..", "..")]
    for root in filter(None, roots):
        for sub in ("lib", os.path.join("build", "lib")):
            path = os.path.join(root, sub, "libflagcx.so")
            if os.path.isfile(path):
                return os.path.abspath(path)
    bundled = os.path.join(here, "lib", "libflagcx.so.0")  # as a wheel has it
    if os.path.isfile(bundled) and not os.environ.get("FLAGCX_PATH"):
        return bundled
    if os.environ.get("FLAGCX_PATH"):
        raise FileNotFoundError(f"no lib/libflagcx.so under FLAGCX_PATH={os.environ['FLAGCX_PATH']}")
    return "libflagcx.so.0"


class EngineOptions(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("port", ctypes.c_int32), ("interface", c_char_p),
                ("transport", c_char_p), ("secret", c_char_p), ("device", ctypes.c_int32),
                ("private_notifs", c_uint32)]


class Notif(ctypes.Structure):
    _fields_ = [("name", POINTER(ctypes.c_char)), ("name_len", c_size_t),
                ("msg", POINTER(ctypes.c_char)), ("msg_len", c_size_t), ("conn", c_void_p)]


class XferInfo(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("state", ctypes.c_int32), ("bytes_total", c_uint64),
                ("bytes_done", c_uint64), ("first_error", ctypes.c_int32),
                ("quiet", ctypes.c_int32), ("first_failed", c_uint64), ("slices", c_uint64),
                ("failed_slices", c_uint64)]


XFER_PENDING, XFER_DONE, XFER_FAILED, XFER_CANCELED = range(4)

_U64P = c_void_p  # addresses of arrays of uint64_t

SIGNATURES = {
    "flagcxP2pLastError": (c_char_p, []),
    "flagcxP2pEngineCreateWith": (c_int, [POINTER(EngineOptions), POINTER(c_void_p)]),
    "flagcxP2pEngineDestroy": (None, [c_void_p]),
    "flagcxP2pEngineGetRpcPort": (c_int, [c_void_p]),
    "flagcxP2pEngineStartRpcServer": (c_int, [c_void_p]),
    "flagcxP2pEngineGetConn": (c_void_p, [c_void_p, c_char_p]),
    "flagcxP2pEngineConnStatus": (c_int, [c_void_p]),
    "flagcxP2pEngineTransport": (c_int, [c_void_p, c_char_p, c_size_t]),
    "flagcxP2pEngineRemoteRegion": (c_int, [c_void_p, c_uint32, POINTER(c_uint64),
                                            POINTER(c_uint64)]),
    "flagcxP2pRpcRegister": (c_int, [c_void_p, c_uint64, c_uint64, POINTER(c_uint64)]),
    "flagcxP2pRpcDeregister": (c_int, [c_void_p, c_uint64]),
    "flagcxP2pRpcBatchWriteSync": (c_int, [c_void_p, c_int, _U64P, _U64P, _U64P]),
    "flagcxP2pRpcBatchReadSync": (c_int, [c_void_p, c_int, _U64P, _U64P, _U64P]),
    "flagcxP2pRpcBatchStart": (c_int, [c_void_p, c_int, _U64P, _U64P, _U64P, c_int,
                                       POINTER(c_uint64)]),
    "flagcxP2pEngineXferQuery": (c_int, [c_void_p, c_uint64, POINTER(XferInfo)]),
    "flagcxP2pEngineXferWait": (c_int, [c_void_p, c_uint64, c_int]),
    "flagcxP2pEngineXferCancel": (c_int, [c_void_p, c_uint64]),
    "flagcxP2pEngineSendNotifV": (c_int, [c_void_p, c_char_p, c_size_t, c_char_p, c_size_t]),
    "flagcxP2pEngineGetNotifsV": (c_int, [c_void_p, POINTER(Notif), c_int]),
    "flagcxP2pNotifFree": (None, [POINTER(Notif)]),
}

_loaded = {}


def load(so_file=None):
    path = find(so_file)
    lib = _loaded.get(path)
    if lib is None:
        lib = ctypes.CDLL(path)
        for name, (restype, argtypes) in SIGNATURES.items():
            fn = getattr(lib, name)
            fn.restype, fn.argtypes = restype, argtypes
        _loaded[path] = lib
    return lib
