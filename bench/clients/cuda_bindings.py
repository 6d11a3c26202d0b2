# SPDX-License-Identifier: Apache-2.0
"""cuda-python's cuFile bindings on GPU memory: transfers, a batch, a stream."""

import ctypes
import os

import worker
from worker import Case, expect

import cuda.bindings
import cuda.bindings.cufile as cufile
import torch

import data

PATH = os.environ["CLIENT_RAW"]
SIZE = 8 << 20

wanted = data.raw(os.path.getsize(PATH))[:SIZE].clone()
buffer = torch.zeros(SIZE, dtype=torch.uint8, device="cuda")


def register(fd):
    descr = cufile.Descr()
    descr.type = cufile.FileHandleType.OPAQUE_FD
    descr.handle.fd = fd
    descr.fs_ops = 0
    return cufile.handle_register(descr.ptr)


def with_file(work):
    def run():
        cufile.driver_open()
        fd = os.open(PATH, os.O_RDONLY | os.O_DIRECT)
        try:
            handle = register(fd)
            cufile.buf_register(buffer.data_ptr(), SIZE, 0)
            try:
                work(handle)
            finally:
                cufile.buf_deregister(buffer.data_ptr())
                cufile.handle_deregister(handle)
        finally:
            os.close(fd)
            cufile.driver_close()
            buffer.zero_()
            torch.cuda.synchronize()

    return run


def transfers(handle):
    n = cufile.read(handle, buffer.data_ptr(), SIZE, 0, 0)
    expect(n == SIZE and torch.equal(buffer, wanted), f"a read of {SIZE}: {n}")
    n = cufile.read(handle, buffer.data_ptr(), 5000, 77, 3)
    expect(n == 5000 and torch.equal(buffer[3:5003], wanted[77:5077]), f"unaligned: {n}")


def batch(handle):
    count = 16
    part = SIZE // count
    params, events = cufile.IOParams(count), cufile.IOEvents(count)
    for i in range(count):
        params[i].mode = cufile.BatchMode.BATCH
        params[i].fh = handle
        params[i].opcode = cufile.Opcode.READ
        params[i].cookie = 100 + i
        params[i].u.batch.dev_ptr_base = buffer.data_ptr()
        params[i].u.batch.file_offset = i * part
        params[i].u.batch.dev_ptr_offset = i * part
        params[i].u.batch.size_ = part
    batch_id = cufile.batch_io_set_up(count)
    seen = []
    try:
        cufile.batch_io_submit(batch_id, count, params.ptr, 0)
        while len(seen) < count:
            n = ctypes.c_uint(count)
            cufile.batch_io_get_status(batch_id, 1, ctypes.addressof(n), events.ptr, 0)
            seen += [(events[i].cookie, events[i].ret) for i in range(n.value)]
    finally:
        cufile.batch_io_destroy(batch_id)
    expect(sorted(seen) == [(100 + i, part) for i in range(count)], f"events {seen}")
    expect(torch.equal(buffer, wanted), "other bytes")


def stream(handle):
    side = torch.cuda.Stream()
    size, at, to = ctypes.c_size_t(SIZE), ctypes.c_int64(0), ctypes.c_int64(0)
    done = ctypes.c_ssize_t(0)
    cufile.stream_register(side.cuda_stream, 0)
    cufile.read_async(handle, buffer.data_ptr(), *map(ctypes.addressof, (size, at, to, done)),
                      side.cuda_stream)
    side.synchronize()
    cufile.stream_deregister(side.cuda_stream)
    expect(done.value == SIZE, f"{done.value} bytes of {SIZE}")
    expect(torch.equal(buffer, wanted), "other bytes")


worker.serve({
    "transfers": Case(with_file(transfers)),
    "batch": Case(with_file(batch)),
    "stream": Case(with_file(stream)),
}, version=cuda.bindings.__version__, cufile=cufile.get_version())
