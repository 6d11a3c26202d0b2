# SPDX-License-Identifier: Apache-2.0
"""Transfers in the order of a device's stream (CUDA's, MetaX's, ...).

What the library reads and writes when the stream gets there lies in memory that
Python neither moves nor frees before.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import os
import time
from ctypes import c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any, Optional

from . import _libphoenix
from ._uses import Use
from .errors import check, error
from .file import File, span
from .memory import memory

__all__ = ["Stream", "Transfer"]

_NOT_YET = -(2**63)  # no count and no errno


class _Arguments(ctypes.Structure):
    _fields_ = [("nbytes", c_size_t), ("buf_offset", c_int64), ("f_offset", c_int64),
                ("done", c_ssize_t)]


_libc = ctypes.CDLL(None)
_calloc, _free = _libc.calloc, _libc.free
_calloc.argtypes, _calloc.restype = [c_size_t, c_size_t], c_void_p
_free.argtypes, _free.restype = [c_void_p], None

_pending: set["Transfer"] = set()


@atexit.register
def _wait_for_pending() -> None:
    """Until the streams have passed, in bounds: one that is stuck is left as it is."""
    end = time.monotonic() + 10
    while _prune() and time.monotonic() < end:
        time.sleep(0.001)


def _prune() -> int:
    for one in list(_pending):
        if one._pid != os.getpid():
            _pending.discard(one)  # the parent's stream
        else:
            one.done
    return len(_pending)


class Transfer:
    """A transfer in a stream. It is kept, with all it needs, until the stream has passed."""

    def __init__(self, write: bool, file: File, obj: Any, nbytes: Optional[int], offset: int,
                 buf_offset: int, stream: Optional[int]) -> None:
        self._result: Optional[int] = None
        self._pid = os.getpid()
        self._arguments = 0
        _prune()
        self._use = Use().add(file, obj)
        try:
            found = memory(obj, writable=not write)
            self._use._kept = (file, obj, found)
            address = _calloc(1, ctypes.sizeof(_Arguments))
            if not address:
                raise MemoryError
            self._arguments = address
            late = _Arguments.from_address(address)
            late.nbytes = span(found, nbytes, buf_offset)
            late.buf_offset, late.f_offset, late.done = buf_offset, offset, _NOT_YET
            self._start(write, file.fileno(), found.address, stream)
        except BaseException:
            self._end()
            raise
        _pending.add(self)

    def _start(self, write: bool, fd: int, buf: int, stream: Optional[int]) -> None:
        lib = _libphoenix.lib()
        call = lib.phxfs_write_stream if write else lib.phxfs_read_stream
        places = [self._arguments + getattr(_Arguments, name).offset
                  for name in ("nbytes", "buf_offset", "f_offset", "done")]
        check(call(fd, buf, *places, stream))

    def _end(self) -> None:
        self._use.end()
        if self._arguments:
            _free(self._arguments)
            self._arguments = 0

    @property
    def done(self) -> bool:
        """Whether the stream has got past it."""
        if self._result is None and self._arguments:
            count = _Arguments.from_address(self._arguments).done
            if count != _NOT_YET:
                self._result = count
                _pending.discard(self)
                self._end()
        return self._result is not None

    def result(self) -> int:
        """Bytes moved. BlockingIOError before the stream has got there: synchronize it first."""
        if not self.done:
            raise error(errno.EAGAIN, "result: the stream has not got there: synchronize it")
        assert self._result is not None
        if self._result < 0:
            raise error(-self._result)
        return self._result


def _handle(stream: Any) -> Optional[int]:
    """The runtime's handle of a stream object of PyTorch, CuPy, cuda.core, or a number."""
    if stream is None or isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    raise TypeError(f"{type(stream).__name__} is no stream")


class Stream:
    """A stream that somebody else made: torch.cuda.Stream, cupy.cuda.Stream, a handle, None.

    None is the runtime's default stream. Transfers start when the stream gets to
    them, and later work of the stream waits for them. On HOST devices they run at once.
    """

    def __init__(self, stream: Any = None) -> None:
        self._keep = stream
        self.handle = _handle(stream)

    def read(self, file: File, target: Any, nbytes: Optional[int] = None, *, offset: int = 0,
             buf_offset: int = 0) -> Transfer:
        """Read when the stream gets there. The target must be device memory in a Buffer."""
        return Transfer(False, file, target, nbytes, offset, buf_offset, self.handle)

    def write(self, file: File, source: Any, nbytes: Optional[int] = None, *, offset: int = 0,
              buf_offset: int = 0) -> Transfer:
        """Write what the source holds when the stream gets there."""
        return Transfer(True, file, source, nbytes, offset, buf_offset, self.handle)
