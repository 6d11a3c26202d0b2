# SPDX-License-Identifier: Apache-2.0
"""Who is using an object: nothing that is in use can be closed.

There is no lock, so a fork in the middle of anything leaves none held. What is
relied on instead is that a use is entered before it looks whether the object is
closed, and that closing is announced before it looks for uses.
"""

from __future__ import annotations

import errno
import os
import weakref
from typing import Any

from .errors import error

_all: "weakref.WeakSet[Usable]" = weakref.WeakSet()


def _forget_uses() -> None:
    """A child has none of its parent's other threads, nor what they had in flight."""
    for one in list(_all):
        one._users.clear()


os.register_at_fork(after_in_child=_forget_uses)


class Usable:
    """An object that can be closed once nothing uses it. close() may be called again."""

    def __init__(self) -> None:
        self._users: set[object] = set()
        self._closed = False
        _all.add(self)

    @property
    def closed(self) -> bool:
        return self._closed

    def _enter(self) -> object:
        """A use, which _leave() ends."""
        use = object()
        self._users.add(use)
        if self._closed:
            self._users.discard(use)
            raise ValueError(f"{self!r} is closed")
        return use

    def _leave(self, use: object) -> None:
        self._users.discard(use)

    def _begin_close(self) -> bool:
        """Whether there is anything to close; BusyError while it is in use."""
        if self._closed:
            return False
        self._closed = True
        if self._users:
            self._closed = False
            raise error(errno.EBUSY, f"close: {self!r}: {len(self._users)} uses in flight: "
                        "wait for their completions first")
        return True


class Use:
    """Several objects in use at once, for one transfer; ends once, wherever it is ended."""

    __slots__ = ("_held", "_kept")

    def __init__(self, *kept: Any) -> None:
        self._held: list[tuple[Usable, object]] = []
        self._kept = kept  # what must stay alive meanwhile

    def add(self, *objects: Any) -> "Use":
        try:
            for one in objects:
                if isinstance(one, Usable):
                    self._held.append((one, one._enter()))
        except BaseException:
            self.end()
            raise
        return self

    def end(self) -> None:
        while self._held:
            one, use = self._held.pop()
            one._leave(use)
        self._kept = ()

    def __enter__(self) -> "Use":
        return self

    def __exit__(self, *_: Any) -> None:
        self.end()
