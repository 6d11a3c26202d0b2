# SPDX-License-Identifier: Apache-2.0
"""Files and accelerator memory, joined directly: libphoenix for Python.

    with phoenix.File("weights.bin") as file, phoenix.Buffer(tensor) as buffer:
        file.read(buffer, offset=4096)

A Buffer is any object's memory (buffer protocol, DLPack, CUDA array interface)
or new memory of a Device; File transfers it, Batch and Queue transfer much of it
at once, Stream in the order of a device's stream. Nothing is copied on the way
into the library, and its calls give up the interpreter's lock. Failures are
phoenix.Error, an OSError. phoenix.safetensors loads models; phoenix.flagcx and
phoenix.transfer move memory between hosts.
"""

from __future__ import annotations

from . import _libphoenix
from .buffer import Array, Buffer
from .device import Device, DeviceInfo, PathStats, Stats, device_of, devices, stats
from .errors import (BatchError, BusyError, DeviceError, Error, UnregisteredError,
                     UnsupportedError)
from .file import File, PathInfo
from .memory import Memory, memory
from .queue import Batch, Completion, Queue, Request
from .stream import Stream, Transfer

__all__ = ["Array", "Batch", "BatchError", "Buffer", "BusyError", "Completion", "Device",
           "DeviceError", "DeviceInfo", "Error", "File", "Memory", "PathInfo", "PathStats",
           "Queue", "Request", "Stats", "Stream", "Transfer", "UnregisteredError",
           "UnsupportedError", "device_of", "devices", "io_engine", "memory", "settings",
           "stats", "version"]


def version() -> str:
    """Of libphoenix, as it is loaded."""
    text: bytes = _libphoenix.lib().phxfs_version()
    return text.decode()


def io_engine() -> str:
    """"io_uring", or "sync"."""
    text: bytes = _libphoenix.lib().phxfs_io_engine_name()
    return text.decode()


def settings() -> dict[str, tuple[str, str]]:
    """Settings in force: the value of each, and where it is from."""
    found: dict[str, tuple[str, str]] = {}

    def visit(_: object, setting: object) -> int:
        one = setting.contents  # type: ignore[attr-defined]
        found[one.name.decode()] = (one.value.decode(), one.source.decode())
        return 0

    _libphoenix.lib().phxfs_config_each(_libphoenix.SETTING_FN(visit), None)
    return found
