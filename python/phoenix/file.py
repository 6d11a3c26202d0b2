# SPDX-License-Identifier: Apache-2.0
"""Files, and the transfers that return when they are done."""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass
from typing import Any, Optional, Sequence, Union

from . import _libphoenix
from ._libphoenix import DEVICE_ANY, PATHS
from ._uses import Usable, Use
from .errors import UnsupportedError, check
from .memory import Memory, memory

__all__ = ["File", "PathInfo"]

_MODES = {"r": os.O_RDONLY, "r+": os.O_RDWR, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
          "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC, "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
          "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL}
_REASONS = ("none", "forced", "edges", "incongruent", "buffered_fd", "staging_mode", "no_module",
            "unregistered")


@dataclass(frozen=True)
class PathInfo:
    """Which way a read goes ("direct", "staging" or "bounce"), and why; text says it in words.

    allowed is False where PHX_PATH=direct would refuse it.
    """

    path: str
    dma: bool
    reason: str
    direct_bytes: int
    chunk_bytes: int
    text: str
    allowed: bool


def _open(path: Any, flags: int, direct: Optional[bool], permissions: int) -> int:
    if direct is not False:
        try:
            return os.open(path, flags | os.O_CLOEXEC | os.O_DIRECT, permissions)
        except OSError as failure:
            if direct or failure.errno != errno.EINVAL:
                raise
            flags &= ~os.O_EXCL  # it may have been made before O_DIRECT was refused
    return os.open(path, flags | os.O_CLOEXEC, permissions)


def span(found: Memory, nbytes: Optional[int], buf_offset: int) -> int:
    """How many bytes a transfer moves; ValueError where it leaves the object."""
    if nbytes is None:
        nbytes = found.nbytes - buf_offset
    if buf_offset < 0 or nbytes < 0 or buf_offset + nbytes > found.nbytes:
        raise ValueError(f"{nbytes} bytes at {buf_offset} are not within the {found.nbytes} "
                         "of the buffer")
    return nbytes


class File(Usable):
    """An open file. direct: O_DIRECT as a must (True), never (False), or if it can be (None).

    Transfers name the place in the file; there is no position. They take a
    Buffer or anything that Buffer() takes, and give up the interpreter's lock.
    What is read is what pread(2) would give, and so are the counts: fewer bytes
    than asked for at the end of the file only.
    """

    def __init__(self, path: Union[str, bytes, "os.PathLike[Any]"], mode: str = "r", *,
                 direct: Optional[bool] = None, permissions: int = 0o666) -> None:
        super().__init__()
        self._closed = True  # until it is open
        if mode not in _MODES:
            raise ValueError(f"mode {mode!r} is none of {', '.join(_MODES)}")
        self._lib = _libphoenix.lib()
        self.name: Any = os.fspath(path)
        self._owned = True
        self._fd = _open(path, _MODES[mode], direct, permissions)
        self._closed = False

    @classmethod
    def from_fd(cls, fd: int, *, close: bool = False) -> "File":
        """A file over an open descriptor, which stays the caller's unless close."""
        self = cls.__new__(cls)
        Usable.__init__(self)
        self._lib = _libphoenix.lib()
        self.name, self._fd, self._owned = fd, fd, close
        return self

    def fileno(self) -> int:
        if self._closed:
            raise ValueError(f"{self!r} is closed")
        return self._fd

    @property
    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    @property
    def direct(self) -> bool:
        """Whether it is open with O_DIRECT."""
        import fcntl

        return bool(fcntl.fcntl(self.fileno(), fcntl.F_GETFL) & os.O_DIRECT)

    def _transfer(self, write: bool, obj: Any, nbytes: Optional[int], offset: int,
                  buf_offset: int) -> int:
        with Use().add(self, obj):
            found = memory(obj, writable=not write)
            call = self._lib.phxfs_write if write else self._lib.phxfs_read
            return check(call(self._fd, found.device_id, found.address, buf_offset,
                              span(found, nbytes, buf_offset), offset))

    def read(self, target: Any, nbytes: Optional[int] = None, *, offset: int = 0,
             buf_offset: int = 0) -> int:
        """Read into an object, all of it unless nbytes says less. Returns the bytes read."""
        return self._transfer(False, target, nbytes, offset, buf_offset)

    def write(self, source: Any, nbytes: Optional[int] = None, *, offset: int = 0,
              buf_offset: int = 0) -> int:
        """Write an object's bytes. Returns the bytes written."""
        return self._transfer(True, source, nbytes, offset, buf_offset)

    def _vector(self, write: bool, objects: Sequence[Any], offset: int) -> int:
        with Use().add(self, *objects):
            found = [memory(obj, writable=not write) for obj in objects]
            devices = {one.device_id for one in found}
            iov = (_libphoenix.Iov * len(found))(
                *(_libphoenix.Iov(one.address, one.nbytes) for one in found))
            call = self._lib.phxfs_writev if write else self._lib.phxfs_readv
            return check(call(self._fd, devices.pop() if len(devices) == 1 else DEVICE_ANY, iov,
                              len(found), offset))

    def readv(self, targets: Sequence[Any], *, offset: int = 0) -> int:
        """Read one range of the file into several objects, in order."""
        return self._vector(False, targets, offset)

    def writev(self, sources: Sequence[Any], *, offset: int = 0) -> int:
        """Write several objects to one range of the file, in order."""
        return self._vector(True, sources, offset)

    def path(self, target: Any, nbytes: Optional[int] = None, *, offset: int = 0) -> PathInfo:
        """Which way a read of these bytes would go, and why."""
        raw = _libphoenix.PathInfo.new()
        with Use().add(self, target):
            found = memory(target)
            allowed = True
            try:
                check(self._lib.phxfs_path_query(self._fd, found.device_id, found.address,
                                                 span(found, nbytes, 0), offset,
                                                 ctypes.byref(raw)))
            except UnsupportedError:
                allowed = False
        return PathInfo(PATHS[raw.path], bool(raw.dma), _REASONS[raw.reason], raw.direct_bytes,
                        raw.chunk_bytes, raw.text.decode(errors="replace"), allowed)

    def close(self) -> None:
        """Close the descriptor. BusyError while transfers are in flight."""
        if self._begin_close() and self._owned:
            os.close(self._fd)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._owned:
            self._closed = True
            os.close(self._fd)

    def __repr__(self) -> str:
        return f"phoenix.File({self.name!r})"
