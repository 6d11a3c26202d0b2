# SPDX-License-Identifier: Apache-2.0
"""libphxfile as LMCache's Phoenix backend uses it.

One slab file, slices of a pool registered one by one, transfers in the order
of a stream with arguments passed by address, results looked at afterwards.
"""

import ctypes
import os
from ctypes import POINTER, byref, c_int, c_int64, c_size_t, c_void_p

import worker
from worker import Case, expect

import torch

SLICE = 16 << 20
SLICES = 4

lib = ctypes.CDLL("libphxfile.so")
for name, arguments in (
        ("DriverOpen", []), ("DriverClose", []), ("BufRegister", [c_void_p, c_size_t]),
        ("BufDeregister", [c_void_p]), ("HandleRegister", [POINTER(c_void_p), c_int]),
        ("HandleDeregister", [c_void_p]), ("StreamRegister", [c_void_p]),
        ("StreamDeregister", [c_void_p])):
    call = getattr(lib, "phxFile" + name)
    call.argtypes, call.restype = arguments, c_int
for name in ("ReadAsync", "WriteAsync"):
    call = getattr(lib, "phxFile" + name)
    call.argtypes = [c_void_p, c_void_p, POINTER(c_size_t), POINTER(c_int64), POINTER(c_int64),
                     POINTER(c_int64), c_void_p]
    call.restype = c_int


def ok(number):
    expect(number == 0, f"a call returned {number}")


class Submission:
    """Keeps what a transfer's arguments lie in until the stream has passed."""

    def __init__(self, call, handle, tensor, file_offset, stream):
        self.n, self.at, self.to = c_size_t(tensor.numel()), c_int64(file_offset), c_int64(0)
        self.done = c_int64(0)
        ok(call(handle, tensor.data_ptr(), byref(self.n), byref(self.at), byref(self.to),
                byref(self.done), stream.cuda_stream))


def slab():
    pool = torch.randint(0, 256, (SLICES * SLICE,), dtype=torch.uint8, device="cuda")
    kept = pool.clone()
    slices = [pool[i * SLICE : (i + 1) * SLICE] for i in range(SLICES)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    path = os.path.join(os.environ["CLIENT_WORK"], f"slab-{os.getpid()}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    handle = c_void_p()
    ok(lib.phxFileDriverOpen())
    try:
        os.posix_fallocate(fd, 0, SLICES * SLICE)
        ok(lib.phxFileHandleRegister(byref(handle), fd))
        ok(lib.phxFileStreamRegister(stream.cuda_stream))
        for part in slices:
            ok(lib.phxFileBufRegister(part.data_ptr(), SLICE))
        for call in (lib.phxFileWriteAsync, lib.phxFileReadAsync):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20_000_000)  # the transfers wait behind other work
            moves = [Submission(call, handle, part, i * SLICE, stream)
                     for i, part in enumerate(slices)]
            stream.synchronize()
            for move in moves:
                expect(move.done.value == SLICE, f"{move.done.value} bytes of {SLICE}")
            if call is lib.phxFileWriteAsync:
                pool.zero_()
                torch.cuda.synchronize()
        expect(torch.equal(pool, kept), "other bytes")
        for part in slices:
            ok(lib.phxFileBufDeregister(part.data_ptr()))
        ok(lib.phxFileStreamDeregister(stream.cuda_stream))
        ok(lib.phxFileHandleDeregister(handle))
    finally:
        lib.phxFileDriverClose()
        os.close(fd)
        os.unlink(path)


worker.serve({"slab": Case(slab)})
