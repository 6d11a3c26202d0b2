# SPDX-License-Identifier: Apache-2.0
"""Finding and loading libphoenix.so, its structures, and the types of its calls."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_size_t, c_ssize_t, c_uint
from ctypes import c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Iterator, Optional

DEVICE_ANY = -(2**31)
DEVICE_PAGE = 65536
MODES = ("full", "staging", "bounce", "host")
PATHS = ("direct", "staging", "bounce", "edge")
READ, WRITE = 0, 1


class Request(ctypes.Structure):
    _fields_ = [("fd", c_int), ("device_id", c_int), ("buf", c_void_p), ("buf_offset", c_int64),
                ("nbytes", c_size_t), ("f_offset", c_int64), ("result", c_ssize_t)]


class Completion(ctypes.Structure):
    _fields_ = [("user_data", c_void_p), ("result", c_ssize_t)]


class Iov(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("nbytes", c_size_t)]


class Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


class Sized(ctypes.Structure):
    """A structure that says its own size, which comes first."""

    @classmethod
    def new(cls) -> Any:
        return cls(size=ctypes.sizeof(cls))


class PointerInfo(Sized):
    _fields_ = [("size", c_uint32), ("device", c_int32), ("base", c_uint64),
                ("length", c_uint64), ("buffer_id", c_uint64)]


class DeviceInfo(Sized):
    _fields_ = [("size", c_uint32), ("mode", c_int32), ("page_size", c_uint64),
                ("memory_bytes", c_uint64), ("staging_bytes", c_uint64), ("clients", c_int32),
                ("ordinal", c_int32), ("vendor", c_char * 16), ("name", c_char * 64),
                ("bdf", c_char * 16), ("reason", c_char * 160)]


class PathInfo(Sized):
    _fields_ = [("size", c_uint32), ("path", c_int32), ("dma", c_int32), ("reason", c_int32),
                ("direct_bytes", c_uint64), ("chunk_bytes", c_uint64), ("text", c_char * 256)]


class PathStats(ctypes.Structure):
    _fields_ = [("ops", c_uint64), ("bytes", c_uint64), ("errors", c_uint64)]


class Stats(Sized):
    _fields_ = [("size", c_uint32), ("registrations", c_uint32), ("registered_bytes", c_uint64),
                ("copies", c_uint64), ("copy_bytes", c_uint64), ("retries", c_uint64),
                ("read", PathStats * len(PATHS)), ("write", PathStats * len(PATHS))]


class Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p), ("source", c_char_p),
                ("help", c_char_p)]


SETTING_FN = ctypes.CFUNCTYPE(c_int, c_void_p, POINTER(Setting))

_IO = [c_int, c_int, c_void_p, c_int64, c_ssize_t, c_int64]
_VECTOR = [c_int, c_int, POINTER(Iov), c_int, c_int64]
_BATCH = [POINTER(Request), c_int]
_STREAM = [c_int] + [c_void_p] * 6

# name: result, arguments
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "phxfs_version": (c_char_p, []),
    "phxfs_last_error": (c_char_p, []),
    "phxfs_config_each": (c_int, [SETTING_FN, c_void_p]),
    "phxfs_io_engine_name": (c_char_p, []),
    "phxfs_device_count": (c_int, []),
    "phxfs_device_mode": (c_int, [c_int]),
    "phxfs_find_device": (c_int, [c_char_p, c_int]),
    "phxfs_find_device_bdf": (c_int, [c_char_p]),
    "phxfs_pointer_device": (c_int, [c_void_p]),
    "phxfs_pointer_info": (c_int, [c_void_p, c_size_t, POINTER(PointerInfo)]),
    "phxfs_device_info": (c_int, [c_int, POINTER(DeviceInfo)]),
    "phxfs_open": (c_int, [c_int]),
    "phxfs_close": (c_int, [c_int]),
    "phxfs_regmem": (c_int, [c_int, c_void_p, c_size_t, POINTER(c_void_p)]),
    "phxfs_deregmem": (c_int, [c_int, c_void_p, c_size_t]),
    "phxfs_mem_alloc": (c_int, [c_int, c_size_t, POINTER(c_void_p)]),
    "phxfs_mem_free": (c_int, [c_int, c_void_p]),
    "phxfs_memcpy_to": (c_int, [c_int, c_void_p, c_void_p, c_size_t]),
    "phxfs_memcpy_from": (c_int, [c_int, c_void_p, c_void_p, c_size_t]),
    "phxfs_read": (c_ssize_t, _IO),
    "phxfs_write": (c_ssize_t, _IO),
    "phxfs_readv": (c_ssize_t, _VECTOR),
    "phxfs_writev": (c_ssize_t, _VECTOR),
    "phxfs_batch_submit_read": (c_void_p, _BATCH),
    "phxfs_batch_submit_write": (c_void_p, _BATCH),
    "phxfs_batch_wait": (c_int, [c_void_p]),
    "phxfs_batch_destroy": (c_int, [c_void_p]),
    "phxfs_queue_create": (c_int, [c_uint, POINTER(c_void_p)]),
    "phxfs_queue_submit": (c_int, [c_void_p, c_int, POINTER(Request), POINTER(c_void_p), c_int]),
    "phxfs_queue_wait": (c_int, [c_void_p, POINTER(Completion), c_int, c_int,
                                 POINTER(Timespec)]),
    "phxfs_queue_cancel": (c_int, [c_void_p, c_void_p]),
    "phxfs_queue_eventfd": (c_int, [c_void_p]),
    "phxfs_queue_destroy": (c_int, [c_void_p]),
    "phxfs_read_stream": (c_int, _STREAM),
    "phxfs_write_stream": (c_int, _STREAM),
    "phxfs_path_query": (c_int, [c_int, c_int, c_void_p, c_size_t, c_int64, POINTER(PathInfo)]),
    "phxfs_stats": (c_int, [c_int, POINTER(Stats)]),
}


def candidates(name: str) -> Iterator[str]:
    """Where a library of ours may lie: in the wheel, the build tree, or where the loader looks."""
    here = os.path.dirname(os.path.abspath(__file__))
    yield os.path.join(here, "lib", name)
    yield os.path.join(here, "..", "..", "build", "lib", name)
    yield name


def _open() -> ctypes.CDLL:
    chosen = os.environ.get("PHX_LIBRARY")
    if chosen:
        return ctypes.CDLL(chosen, use_errno=True)
    for path in candidates("libphoenix.so.0"):
        if os.path.isfile(path) or os.sep not in path:
            return ctypes.CDLL(os.path.abspath(path) if os.sep in path else path, use_errno=True)
    raise AssertionError("the last candidate has no folder")


_lib: Optional[ctypes.CDLL] = None


def lib() -> Any:
    """The library, loaded on the first call. Its calls give up the interpreter's lock."""
    global _lib
    if _lib is None:
        loaded = _open()
        for name, (result, arguments) in SIGNATURES.items():
            call = getattr(loaded, name)
            call.restype, call.argtypes = result, arguments
        _lib = loaded
    return _lib
