# SPDX-License-Identifier: Apache-2.0
"""A client's side of the conversation with turns.py.

A client is a program that does one thing in its usual way through whatever
libcufile it finds. It offers named cases; turns.py says which to run when, so
that two libraries can be measured in turns. Lines of JSON go both ways; what
the client's own libraries print goes to standard error.
"""

import ctypes
import json
import os
import time
import traceback

# Before anything else is imported: the conversation keeps standard input and output
# for itself. Some versions of cuFile close descriptor 0 when their driver will not open.
_in = os.fdopen(os.dup(0), "r")
_out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


class Case:
    """run() is what is measured; prepare() comes before it, verify() after it.

    verify() gets what run() returned and raises when the data is not what it
    should be. bytes is what run() moves; None for a case that only passes or fails.
    """

    def __init__(self, run, bytes=None, prepare=None, verify=None):
        self.run = run
        self.bytes = bytes
        self.prepare = prepare or (lambda: None)
        self.verify = verify or (lambda result: None)

    def turn(self):
        self.prepare()
        start = time.perf_counter()
        result = self.run()
        seconds = time.perf_counter() - start
        self.verify(result)
        return {"seconds": seconds, "bytes": self.bytes}


def libraries():
    """Files of libcufile and of Phoenix that this process has mapped."""
    names = ("libcufile.so", "libphoenix.so", "libphxfile.so")
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if "/" in line}
    return sorted(file for file in files if os.path.basename(file).startswith(names))


class _PathStats(ctypes.Structure):
    _fields_ = [("ops", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("errors", ctypes.c_uint64)]


class _Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("registrations", ctypes.c_uint32),
                *((name, ctypes.c_uint64)
                  for name in ("registered_bytes", "copies", "copy_bytes", "retries")),
                ("paths", _PathStats * 8)]  # 4 of reads, 4 of writes


def moved_by_phoenix():
    """Bytes that the process's libphoenix has moved so far; 0: it has none."""
    found = [file for file in libraries() if os.path.basename(file).startswith("libphoenix.so")]
    if not found:
        return 0
    library = ctypes.CDLL(found[0])  # the one that is mapped
    stats = _Stats(size=ctypes.sizeof(_Stats))
    moved = 0
    for device in range(-1, library.phxfs_device_count()):
        if library.phxfs_stats(device, ctypes.byref(stats)) == 0:
            moved += sum(path.bytes for path in stats.paths)
    return moved


def _say(**answer):
    _out.write(json.dumps(answer) + "\n")


def serve(cases, **about):
    """Answer turns.py until it has enough."""
    _say(ready=list(cases), about=about)
    for line in _in:
        try:
            answer = cases[line.strip()].turn()
        except BaseException as error:  # whatever it is, the other side must hear of it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        _say(libraries=libraries(), moved=moved_by_phoenix(), **answer)


_cached = set()  # files that this process has brought into the page cache


def drop_from_cache(path):
    """Leave nothing of the file in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    _cached.discard(path)


def bring_into_cache(path):
    """Once: it is for turns.py not to drop a file in one process and use it in another."""
    if path in _cached:
        return
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(16 << 20)
        while file.readinto(buffer):
            pass
    _cached.add(path)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)
