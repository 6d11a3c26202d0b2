# SPDX-License-Identifier: Apache-2.0
"""What the library's failures become: OSErrors that say what phxfs_last_error() says."""

from __future__ import annotations

import errno
import os
from typing import Sequence

from . import _libphoenix

__all__ = ["Error", "BusyError", "DeviceError", "UnregisteredError", "UnsupportedError",
           "BatchError"]


class Error(OSError):
    """A call failed. errno is the number, strerror the library's words."""


class BusyError(Error):
    """EBUSY: transfers are in flight, or a device is being closed."""


class DeviceError(Error):
    """ENODEV: there is no such device, or it is not open."""


class UnregisteredError(Error):
    """EFAULT: the memory is not wholly in one registration or allocation."""


class UnsupportedError(Error):
    """EOPNOTSUPP: no such way, for instance where PHX_PATH=direct forbids all others."""


class _Permission(Error, PermissionError):
    pass


class _NotFound(Error, FileNotFoundError):
    pass


class _WouldBlock(Error, BlockingIOError):
    pass


class _ChildProcess(Error, ChildProcessError):
    pass


class BatchError(Error):
    """Some requests of a batch failed. results has each one's bytes or -errno."""

    def __init__(self, number: int, text: str, results: Sequence[int] = ()) -> None:
        super().__init__(number, text)
        self.results = list(results)


_CLASSES = {errno.EBUSY: BusyError, errno.ENODEV: DeviceError, errno.EFAULT: UnregisteredError,
            errno.EOPNOTSUPP: UnsupportedError, errno.EACCES: _Permission,
            errno.EPERM: _Permission, errno.ENOENT: _NotFound, errno.EAGAIN: _WouldBlock,
            errno.ECHILD: _ChildProcess}


def error(number: int, text: str = "") -> Error:
    """The exception for a positive errno."""
    return _CLASSES.get(number, Error)(number, text or os.strerror(number))


def last_error() -> str:
    text: bytes = _libphoenix.lib().phxfs_last_error()
    return text.decode(errors="replace")


def check(result: int) -> int:
    """What a call of the library returned, or the exception it stands for."""
    if result < 0:
        raise error(-result, last_error())
    return result
