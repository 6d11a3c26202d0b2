# SPDX-License-Identifier: Apache-2.0
"""Many transfers at once: batches, waited for as one, and queues, one by one.

What a transfer needs (file, buffer, the object behind it) is kept alive and
cannot be closed until its completion has been taken.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import itertools
import os
import time
import weakref
from ctypes import c_void_p
from typing import Any, Iterable, NamedTuple, Optional, Sequence

from . import _libphoenix
from ._libphoenix import READ, WRITE
from ._uses import Usable, Use
from .errors import BatchError, Error, check, error, last_error
from .file import File, span
from .memory import memory

__all__ = ["Batch", "Completion", "Queue", "Request"]

# Python hears of signals between calls into the library, which last no longer than this.
_SLICE = 0.25

# Interpreters free what buffers lie in when they end: nothing may move by then.
_live: "weakref.WeakSet[Any]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for one in list(_live):
        one._stop()


class Request(NamedTuple):
    """A transfer between a file and an object; all of the object unless nbytes says less."""

    file: File
    buffer: Any
    nbytes: Optional[int] = None
    offset: int = 0
    buf_offset: int = 0
    token: Any = None


class Completion(NamedTuple):
    """A transfer of a queue that is over: its token, its bytes, and what went wrong."""

    token: Any
    result: int
    error: Optional[Error]

    @property
    def cancelled(self) -> bool:
        return self.error is not None and self.error.errno == errno.ECANCELED


def _fill(raw: Any, request: Request, write: bool) -> Use:
    """The library's form of a request, and the use that its transfer is."""
    use = Use().add(request.file, request.buffer)
    try:
        found = memory(request.buffer, writable=not write)
        use._kept = (request.file, request.buffer, found)
        raw.fd, raw.device_id, raw.buf = request.file.fileno(), found.device_id, found.address
        raw.buf_offset, raw.f_offset = request.buf_offset, request.offset
        raw.nbytes = span(found, request.nbytes, request.buf_offset)
    except BaseException:
        use.end()
        raise
    return use


class Batch:
    """Requests that run beside the caller from the start on, and are waited for as one."""

    def __init__(self, requests: Iterable[Request], *, write: bool = False) -> None:
        self._handle: Optional[int] = None
        self._uses: list[Use] = []
        self._lib = _libphoenix.lib()
        self._pid = os.getpid()
        wanted = [Request(*request) for request in requests]
        self._raw = (_libphoenix.Request * len(wanted))()
        submit = self._lib.phxfs_batch_submit_write if write else \
            self._lib.phxfs_batch_submit_read
        try:
            for raw, request in zip(self._raw, wanted):
                self._uses.append(_fill(raw, request, write))
            ctypes.set_errno(0)
            handle = submit(self._raw, len(wanted))
            if not handle:
                raise error(ctypes.get_errno(), last_error())
        except BaseException:
            self._end()
            raise
        self._handle = handle
        _live.add(self)

    @classmethod
    def read(cls, requests: Iterable[Request]) -> "Batch":
        return cls(requests)

    @classmethod
    def write(cls, requests: Iterable[Request]) -> "Batch":
        return cls(requests, write=True)

    def _end(self) -> None:
        uses, self._uses = self._uses, []
        for use in uses:
            use.end()

    def wait(self) -> list[int]:
        """Each request's bytes. BatchError when one failed; its results tell which."""
        handle, self._handle = self._handle, None
        if handle is None:
            raise ValueError("the batch has been waited for")
        _live.discard(self)
        try:
            check(self._lib.phxfs_batch_wait(handle))
            results = [raw.result for raw in self._raw]
            first = next((result for result in results if result < 0), 0)
            if first:
                raise BatchError(-first, f"{sum(r < 0 for r in results)} of {len(results)} "
                                 f"requests failed: {last_error()}", results)
            return results
        finally:
            self._end()

    def cancel(self) -> None:
        """Drop what has not started, wait for the rest, forget the results."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _live.discard(self)
            self._lib.phxfs_batch_destroy(handle)
        self._end()

    _stop = cancel

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.cancel()


class Queue(Usable):
    """Requests in flight, up to depth of them, that complete one by one.

    Any thread may submit and any may wait. fileno() is a descriptor to poll.
    """

    def __init__(self, depth: int = 128) -> None:
        super().__init__()
        self._closed = True  # until it is made
        self._lib = _libphoenix.lib()
        self._pid = os.getpid()
        self._keys = itertools.count(1)
        self._flying: dict[int, tuple[Any, Use]] = {}
        handle = c_void_p()
        check(self._lib.phxfs_queue_create(depth, ctypes.byref(handle)))
        self._handle = handle.value
        self.depth = depth
        self._closed = False
        _live.add(self)

    def __len__(self) -> int:
        """Requests whose completions have not been taken."""
        return len(self._flying)

    def submit(self, requests: Sequence[Request], *, write: bool = False) -> list[int]:
        """Start requests, as many as there is room for; their keys, for cancel().

        BlockingIOError when there is room for none.
        """
        raw = (_libphoenix.Request * len(requests))()
        keys = (c_void_p * len(requests))()
        own = self._enter()
        mine: list[int] = []
        accepted = 0
        try:
            for i, request in enumerate(requests):
                use = _fill(raw[i], Request(*request), write)
                key = next(self._keys)
                # before it is submitted: it may complete at once, in another thread
                self._flying[key] = (Request(*request).token, use)
                keys[i] = key
                mine.append(key)
            if mine:
                accepted = check(self._lib.phxfs_queue_submit(
                    self._handle, WRITE if write else READ, raw, keys, len(mine)))
        finally:
            for key in mine[accepted:]:
                self._flying.pop(key)[1].end()
            self._leave(own)
        return mine[:accepted]

    def read(self, file: File, target: Any, nbytes: Optional[int] = None, *, offset: int = 0,
             buf_offset: int = 0, token: Any = None) -> int:
        """Start one read; its key. BlockingIOError when the queue is full."""
        return self.submit([Request(file, target, nbytes, offset, buf_offset, token)])[0]

    def write(self, file: File, source: Any, nbytes: Optional[int] = None, *, offset: int = 0,
              buf_offset: int = 0, token: Any = None) -> int:
        """Start one write; its key. BlockingIOError when the queue is full."""
        return self.submit([Request(file, source, nbytes, offset, buf_offset, token)],
                           write=True)[0]

    def _take(self, least: int, most: int, seconds: float) -> list[Completion]:
        raw = (_libphoenix.Completion * most)()
        whole = int(seconds)
        limit = _libphoenix.Timespec(whole, int((seconds - whole) * 1e9))
        count = check(self._lib.phxfs_queue_wait(self._handle, raw, least, most,
                                                 ctypes.byref(limit)))
        taken = []
        for one in raw[:count]:
            token, use = self._flying.pop(one.user_data)
            use.end()
            failure = error(-one.result) if one.result < 0 else None
            taken.append(Completion(token, one.result, failure))
        return taken

    def wait(self, min: int = 1, max: Optional[int] = None,
             timeout: Optional[float] = None) -> list[Completion]:
        """Take completions: at least min, unless the time is over or fewer are in flight."""
        most = self.depth if max is None else max
        if min < 0 or most < 1 or min > most:
            raise ValueError(f"min {min}, max {most}")
        end = None if timeout is None else time.monotonic() + timeout
        taken: list[Completion] = []
        own = self._enter()
        try:
            while True:
                left = _SLICE if end is None else end - time.monotonic()
                left = 0.0 if left < 0 else _SLICE if left > _SLICE else left
                taken += self._take(_least(min - len(taken)), most - len(taken), left)
                over = end is not None and time.monotonic() >= end
                if len(taken) >= min or not self._flying or over or self._closed:
                    return taken
        finally:
            self._leave(own)

    def cancel(self, key: int) -> bool:
        """Whether it will complete as cancelled; False: it runs, or is over."""
        own = self._enter()
        try:
            result = self._lib.phxfs_queue_cancel(self._handle, key)
        finally:
            self._leave(own)
        if result in (-errno.EALREADY, -errno.ENOENT):
            return False
        check(result)
        return True

    def fileno(self) -> int:
        """Becomes readable when completions may have arrived: read 8 bytes, then wait(0)."""
        own = self._enter()
        try:
            return check(self._lib.phxfs_queue_eventfd(self._handle))
        finally:
            self._leave(own)

    def close(self) -> None:
        """Cancel what has not started and wait for the rest; completions not taken are lost.

        BusyError while another thread is in one of the queue's calls.
        """
        if not self._begin_close():
            return
        _live.discard(self)
        self._lib.phxfs_queue_destroy(self._handle)
        while self._flying:
            self._flying.popitem()[1][1].end()

    def _stop(self) -> None:
        """At the interpreter's end; threads that wait see it within a slice."""
        self._closed = True
        end = time.monotonic() + 8 * _SLICE
        while self._users and time.monotonic() < end:
            time.sleep(_SLICE / 50)
        self._closed = False
        try:
            self.close()
        except Error:
            pass  # a thread that never left: the library copes

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"<phoenix.Queue of depth {self.depth}, {len(self._flying)} in flight>"


def _least(n: int) -> int:
    return n if n > 0 else 0
