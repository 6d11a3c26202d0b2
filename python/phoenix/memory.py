# SPDX-License-Identifier: Apache-2.0
"""Where an object's bytes lie: the buffer protocol, DLPack, the CUDA array interface.

Nothing is copied. What keeps the bytes where they are (a buffer view, a DLPack
capsule, the object itself) is held by the Memory that is returned.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16
from ctypes import c_uint64, c_void_p, py_object
from typing import Any, Optional, Sequence

from ._libphoenix import DEVICE_ANY

__all__ = ["Memory", "memory"]


class Memory:
    """A range of bytes, and what keeps it there. Made by memory()."""

    __slots__ = ("address", "nbytes", "device_id", "readonly", "keep")

    def __init__(self, address: int, nbytes: int, device_id: int = DEVICE_ANY,
                 readonly: bool = False, keep: Any = None) -> None:
        self.address = address
        self.nbytes = nbytes
        self.device_id = device_id
        self.readonly = readonly
        self.keep = keep


# ------------------------------------------------------------- buffer protocol


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("obj", py_object), ("len", c_ssize_t),
                ("itemsize", c_ssize_t), ("readonly", c_int), ("ndim", c_int),
                ("format", c_char_p), ("shape", POINTER(c_ssize_t)),
                ("strides", POINTER(c_ssize_t)), ("suboffsets", POINTER(c_ssize_t)),
                ("internal", c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes, _get_buffer.restype = [py_object, POINTER(_PyBuffer), c_int], c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes, _release_buffer.restype = [POINTER(_PyBuffer)], None
_has_buffer = ctypes.pythonapi.PyObject_CheckBuffer
_has_buffer.argtypes, _has_buffer.restype = [py_object], c_int

_SIMPLE = 0


class _View:
    """Holds an object's buffer, so that it is neither freed nor resized."""

    def __init__(self, obj: Any) -> None:
        self._held = False
        self._release = _release_buffer  # a module may be gone before its objects
        self.buffer = _PyBuffer()
        _get_buffer(obj, ctypes.byref(self.buffer), _SIMPLE)
        self._held = True

    def __del__(self) -> None:
        if self._held:
            self._held = False
            self._release(ctypes.byref(self.buffer))


def _from_buffer(obj: Any) -> Memory:
    try:
        view = _View(obj)
    except (BufferError, ValueError) as failure:
        raise ValueError(f"{type(obj).__name__}: its bytes do not lie one after the other: "
                         f"{failure}") from None
    return Memory(view.buffer.buf or 0, view.buffer.len, readonly=bool(view.buffer.readonly),
                  keep=view)


# ---------------------------------------------------------------------- DLPack


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [py_object, c_char_p], c_void_p


def _contiguous(shape: Sequence[int], strides: Optional[Sequence[int]]) -> bool:
    """Whether elements lie one after the other, in the order of their indices."""
    if strides is None or 0 in shape:
        return True
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _from_dlpack(obj: Any) -> Memory:
    # Not consumed: whoever made the capsule frees it when it goes.
    capsule = obj.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    shape = tensor.shape[:tensor.ndim]
    strides = tensor.strides[:tensor.ndim] if tensor.strides else None
    if not _contiguous(shape, strides):
        raise ValueError(f"{type(obj).__name__}: its bytes do not lie one after the other")
    nbytes = (math.prod(shape) * tensor.bits * tensor.lanes + 7) // 8
    return Memory((tensor.data or 0) + tensor.byte_offset, nbytes, keep=(obj, capsule))


# -------------------------------------------------------- CUDA array interface


def _from_cuda_array(obj: Any) -> Memory:
    about = obj.__cuda_array_interface__
    if about.get("mask") is not None:
        raise ValueError(f"{type(obj).__name__}: a masked array has no plain bytes")
    address, readonly = about["data"]
    itemsize = int(about["typestr"][2:])
    shape, strides = about["shape"], about.get("strides")
    if strides is not None and not _contiguous(shape, [s / itemsize for s in strides]):
        raise ValueError(f"{type(obj).__name__}: its bytes do not lie one after the other")
    return Memory(address or 0, math.prod(shape) * itemsize, readonly=bool(readonly), keep=obj)


def _from_tensor(obj: Any) -> Memory:
    """A PyTorch tensor, also one whose gradient is wanted, which DLPack refuses."""
    if not obj.is_contiguous():
        raise ValueError("Tensor: its bytes do not lie one after the other")
    return Memory(obj.data_ptr(), obj.numel() * obj.element_size(), keep=obj)


def _is_tensor(obj: Any) -> bool:
    return any(kind.__module__ == "torch" and kind.__name__ == "Tensor"
               for kind in type(obj).__mro__)


def memory(obj: Any, writable: bool = False) -> Memory:
    """The bytes of an object; ValueError where they are scattered or may not be written."""
    own = getattr(obj, "_phoenix_memory", None)
    if own is not None:
        found: Memory = own()
    elif _is_tensor(obj):
        found = _from_tensor(obj)
    elif _has_buffer(obj):
        found = _from_buffer(obj)
    elif hasattr(obj, "__dlpack__"):
        found = _from_dlpack(obj)
    elif hasattr(obj, "__cuda_array_interface__"):
        found = _from_cuda_array(obj)
    else:
        raise TypeError(f"{type(obj).__name__} has neither the buffer protocol, nor DLPack, nor "
                        "the CUDA array interface")
    if writable and found.readonly:
        raise ValueError(f"{type(obj).__name__} may not be written to")
    return found
