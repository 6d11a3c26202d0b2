# SPDX-License-Identifier: Apache-2.0
"""Devices: what there is, and holding one open."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Optional

from . import _libphoenix
from ._libphoenix import MODES, PATHS
from ._uses import Usable
from .errors import DeviceError, check
from .memory import memory

__all__ = ["Device", "DeviceInfo", "PathStats", "Stats", "devices", "device_of", "stats"]


@dataclass(frozen=True)
class DeviceInfo:
    """A device. mode is "full", "staging", "bounce" or "host"; reason why not a better one."""

    id: int
    mode: str
    vendor: str
    ordinal: int
    name: str
    bdf: str
    reason: str
    page_size: int
    memory_bytes: int
    staging_bytes: int
    clients: int


@dataclass(frozen=True)
class PathStats:
    ops: int
    bytes: int
    errors: int


@dataclass(frozen=True)
class Stats:
    """Counters since the start of the process; read and write by path."""

    registrations: int
    registered_bytes: int
    copies: int
    copy_bytes: int
    retries: int
    read: dict[str, PathStats]
    write: dict[str, PathStats]


def _info(device_id: int) -> DeviceInfo:
    raw = _libphoenix.DeviceInfo.new()
    check(_libphoenix.lib().phxfs_device_info(device_id, ctypes.byref(raw)))
    text = {name: getattr(raw, name).decode(errors="replace")
            for name in ("vendor", "name", "bdf", "reason")}
    return DeviceInfo(id=device_id, mode=MODES[raw.mode], ordinal=raw.ordinal,
                      page_size=raw.page_size, memory_bytes=raw.memory_bytes,
                      staging_bytes=raw.staging_bytes, clients=raw.clients, **text)


def devices() -> list[DeviceInfo]:
    """Every device; HOST devices where there is no accelerator."""
    found: list[DeviceInfo] = []
    count = _libphoenix.lib().phxfs_device_count()
    device_id = 0
    while len(found) < count and device_id < 4096:  # numbers may be skipped
        try:
            found.append(_info(device_id))
        except DeviceError:
            pass
        device_id += 1
    return found


def device_of(obj: Any) -> Optional[int]:
    """Number of the device whose memory an object is; None for host memory."""
    import errno

    found = _libphoenix.lib().phxfs_pointer_device(memory(obj).address)
    return None if found == -errno.ENOENT else check(found)


def stats(device_id: int = -1) -> Stats:
    """Counters of a device; of transfers of plain host memory without one."""
    raw = _libphoenix.Stats.new()
    check(_libphoenix.lib().phxfs_stats(device_id, ctypes.byref(raw)))
    ways = {way: {path: PathStats(one.ops, one.bytes, one.errors)
                  for path, one in zip(PATHS, getattr(raw, way))} for way in ("read", "write")}
    return Stats(raw.registrations, raw.registered_bytes, raw.copies, raw.copy_bytes,
                 raw.retries, **ways)


class Device(Usable):
    """A device, open until close() or the end of a with statement.

    Buffers of a device keep it open; closing it while there are some is a BusyError.
    """

    def __init__(self, device_id: int = 0) -> None:
        super().__init__()
        self._closed = True  # until it is open
        self.id = device_id
        self._lib = _libphoenix.lib()
        check(self._lib.phxfs_open(device_id))
        self._closed = False

    @classmethod
    def find(cls, vendor: str, ordinal: int = 0) -> "Device":
        """The n-th device of a vendor, as the vendor's runtime counts in this process."""
        return cls(check(_libphoenix.lib().phxfs_find_device(vendor.encode(), ordinal)))

    @classmethod
    def find_bdf(cls, bdf: str) -> "Device":
        """The device at a PCI address, like "0000:3b:00.0"."""
        return cls(check(_libphoenix.lib().phxfs_find_device_bdf(bdf.encode())))

    @property
    def info(self) -> DeviceInfo:
        return _info(self.id)

    @property
    def mode(self) -> str:
        return MODES[check(self._lib.phxfs_device_mode(self.id))]

    def stats(self) -> Stats:
        return stats(self.id)

    def alloc(self, nbytes: int) -> Any:
        """A Buffer of this device's memory, registered; rounded up to pages of 64 KiB."""
        from .buffer import Buffer

        return Buffer.alloc(self, nbytes)

    def close(self) -> None:
        if self._begin_close():
            check(self._lib.phxfs_close(self.id))

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._closed = True
            self._lib.phxfs_close(self.id)

    def __repr__(self) -> str:
        return f"phoenix.Device({self.id})"


_kept: dict[int, Device] = {}


def keep_open(device_id: int) -> Device:
    """A device that stays open until the interpreter ends.

    For memory that somebody else made: buffers of it come and go in many threads,
    and a device whose last close is under way cannot be opened.
    """
    device = _kept.get(device_id)
    if device is None:
        device = _kept.setdefault(device_id, Device(device_id))
    return device
