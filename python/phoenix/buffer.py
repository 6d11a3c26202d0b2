# SPDX-License-Identifier: Apache-2.0
"""Buffers: memory that transfers go to and come from, registered once."""

from __future__ import annotations

import ctypes
import errno
from ctypes import c_void_p
from typing import Any, Optional, Sequence, Union

from . import _libphoenix
from ._libphoenix import DEVICE_ANY, DEVICE_PAGE
from ._uses import Usable
from .device import Device, keep_open
from .errors import Error, check
from .memory import Memory, memory

__all__ = ["Array", "Buffer"]


class _Allocation:
    """Device memory of phxfs_mem_alloc(), freed when nothing refers to it any more."""

    def __init__(self, device_id: int, nbytes: int) -> None:
        self.address = 0
        self.device_id = device_id
        self._lib = _libphoenix.lib()
        at = c_void_p()
        check(self._lib.phxfs_mem_alloc(device_id, nbytes, ctypes.byref(at)))
        self.address = at.value or 0

    def __del__(self) -> None:
        if self.address:
            self._lib.phxfs_mem_free(self.device_id, self.address)
            self.address = 0


class Array:
    """Memory of a Buffer.alloc(), for other libraries to look at without a copy.

    numpy.asarray() takes it where the memory is the host's, torch.as_tensor() and
    cupy.asarray() where it is a CUDA device's. The memory lives as long as this
    object does, beyond the buffer's close().
    """

    def __init__(self, keep: Any, address: int, typestr: str, shape: Sequence[int],
                 host: bool) -> None:
        self._keep = keep
        about = {"data": (address, False), "typestr": typestr, "shape": tuple(shape),
                 "strides": None, "version": 3}
        if host:
            self.__array_interface__ = about
        else:
            self.__cuda_array_interface__ = about


def _registration(found: Memory) -> Optional[tuple[int, int, int]]:
    """Device, base and length to register of it: whole pages; None for host memory."""
    at = _libphoenix.PointerInfo.new()
    result = _libphoenix.lib().phxfs_pointer_info(found.address, found.nbytes, ctypes.byref(at))
    if result == -errno.ENOENT:
        return None
    check(result)
    end = found.address + found.nbytes
    first, last = found.address & -DEVICE_PAGE, (end + DEVICE_PAGE - 1) & -DEVICE_PAGE
    if first < at.base or last > at.base + at.length:  # then the pages that are all its own
        first, last = (found.address + DEVICE_PAGE - 1) & -DEVICE_PAGE, end & -DEVICE_PAGE
    return (at.device, first, last - first) if last > first else None


class Buffer(Usable):
    """The memory of an object, registered with its device for as long as this is open.

    The object is kept alive, and is not copied. Anything with the buffer protocol,
    DLPack or the CUDA array interface will do; host memory needs no registration.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__()
        self._closed = True  # until it is registered
        self._registered: Optional[tuple[Device, int, int]] = None
        self._device_use: Any = None
        self._lib = _libphoenix.lib()
        self._memory = memory(obj)
        wanted = _registration(self._memory)
        self.device: Optional[Device] = None
        self._own_device = False
        if wanted:
            self.device = keep_open(wanted[0])
            self._register(self.device, wanted[1], wanted[2], required=False)
        self._closed = False

    @classmethod
    def alloc(cls, device: Union[Device, int], nbytes: int) -> "Buffer":
        """A buffer of new device memory, rounded up to pages of 64 KiB."""
        buffer = cls.__new__(cls)
        Usable.__init__(buffer)
        buffer._closed = True
        buffer._registered = buffer._device_use = None
        buffer._lib = _libphoenix.lib()
        buffer._own_device = isinstance(device, int)
        owner = Device(device) if isinstance(device, int) else device
        buffer.device = owner
        nbytes = (nbytes + DEVICE_PAGE - 1) & -DEVICE_PAGE
        allocation = _Allocation(owner.id, nbytes)
        buffer._memory = Memory(allocation.address, nbytes, owner.id, keep=allocation)
        buffer._register(owner, allocation.address, nbytes, required=True)
        buffer._closed = False
        return buffer

    def _register(self, device: Device, base: int, nbytes: int, required: bool) -> None:
        try:
            check(self._lib.phxfs_regmem(device.id, base, nbytes, None))
        except Error:
            if required:
                raise
            return  # it lies across another registration: found by its address, if at all
        self._registered = (device, base, nbytes)
        self._device_use = device._enter()

    @property
    def address(self) -> int:
        return self._memory.address

    @property
    def nbytes(self) -> int:
        return self._memory.nbytes

    @property
    def registered(self) -> bool:
        return self._registered is not None

    def __len__(self) -> int:
        return self.nbytes

    def _phoenix_memory(self) -> Memory:
        return self._memory

    def _span(self, offset: int, nbytes: int) -> int:
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes at {offset} are not within {self!r}")
        return self.address + offset

    def copy_from(self, data: Any, offset: int = 0) -> None:
        """Copy host memory (anything that memory() takes) into the buffer."""
        use = self._enter()
        try:
            source = memory(data)
            target = self._span(offset, source.nbytes)
            if self._memory.readonly:
                raise ValueError(f"{self!r} may not be written to")
            if self.device is None:
                ctypes.memmove(target, source.address, source.nbytes)
            elif source.nbytes:
                check(self._lib.phxfs_memcpy_to(self.device.id, target, source.address,
                                                source.nbytes))
        finally:
            self._leave(use)

    def to_bytes(self, offset: int = 0, nbytes: Optional[int] = None) -> bytes:
        """A copy of the buffer's bytes."""
        use = self._enter()
        try:
            nbytes = self.nbytes - offset if nbytes is None else nbytes
            source = self._span(offset, nbytes)
            if self.device is None:
                return ctypes.string_at(source, nbytes)
            data = ctypes.create_string_buffer(nbytes)
            if nbytes:
                check(self._lib.phxfs_memcpy_from(self.device.id, data, source, nbytes))
            return data.raw
        finally:
            self._leave(use)

    def array(self, typestr: str = "|u1", shape: Optional[Sequence[int]] = None,
              offset: int = 0) -> Array:
        """A look at the memory for numpy.asarray(), torch.as_tensor() and the like.

        typestr is as in NumPy's array interface: "<f4", "|u1". Without a shape it is
        as many elements as there are from offset on.
        """
        import math

        itemsize = int(typestr[2:])
        if shape is None:
            shape = ((self.nbytes - offset) // itemsize,)
        address = self._span(offset, math.prod(shape) * itemsize)
        host = self.device is None or self.device.info.vendor == "host"
        return Array(self._memory.keep, address, typestr, shape, host)

    def close(self) -> None:
        """Deregister, and let go of the memory. BusyError while transfers are in flight."""
        if self._begin_close():
            self._release(check)

    def _release(self, judge: Any) -> None:
        registered, self._registered = self._registered, None
        self._memory = Memory(0, 0, DEVICE_ANY)
        if registered:
            device, base, nbytes = registered
            try:
                judge(self._lib.phxfs_deregmem(device.id, base, nbytes))
            finally:
                device._leave(self._device_use)
        if self.device is not None and self._own_device:
            self.device.close()

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._closed = True
            self._release(lambda result: result)

    def __repr__(self) -> str:
        where = f" on {self.device!r}" if self.device else ""
        return f"<phoenix.Buffer of {self.nbytes} bytes{where}>"
