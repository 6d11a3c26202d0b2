# SPDX-License-Identifier: Apache-2.0
"""cuda-python's bindings: their own structures against our library's."""

import ctypes
import os
import sys
import tempfile

import cuda.bindings.cufile as cufile

SIZE = 1 << 20


def ours():
    """The library that the bindings use is the one that `phx run` put in front."""
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if "libcufile.so" in line}
    assert files and all("/phoenix/cufile/" in name for name in files), files


def address(buffer):
    return ctypes.addressof(buffer)


def register(fd):
    descr = cufile.Descr()
    descr.type = cufile.FileHandleType.OPAQUE_FD
    descr.handle.fd = fd
    descr.fs_ops = 0
    return cufile.handle_register(descr.ptr)


def transfers(fd, handle, data):
    buffer = ctypes.create_string_buffer(SIZE)
    cufile.buf_register(address(buffer), SIZE, 0)
    assert cufile.read(handle, address(buffer), SIZE, 0, 0) == SIZE
    assert buffer.raw == data
    assert cufile.read(handle, address(buffer), 5000, 77, 3) == 5000
    assert buffer.raw[3:5003] == data[77:5077]
    assert cufile.read(handle, address(buffer), SIZE, SIZE - 5, 0) == 5
    ctypes.memmove(buffer, bytes(reversed(data)), SIZE)
    assert cufile.write(handle, address(buffer), SIZE, 0, 0) == SIZE
    assert os.pread(fd, SIZE, 0) == bytes(reversed(data))
    os.pwrite(fd, data, 0)
    cufile.buf_deregister(address(buffer))


def batch(handle, data):
    n = 16
    part = SIZE // n
    buffer = ctypes.create_string_buffer(SIZE)
    params = cufile.IOParams(n)
    for i in range(n):
        params[i].mode = cufile.BatchMode.BATCH
        params[i].fh = handle
        params[i].opcode = cufile.Opcode.READ
        params[i].cookie = 100 + i
        params[i].u.batch.dev_ptr_base = address(buffer)
        params[i].u.batch.file_offset = i * part
        params[i].u.batch.dev_ptr_offset = i * part
        params[i].u.batch.size_ = part
    events = cufile.IOEvents(n)
    count = ctypes.c_uint(n)
    batch_id = cufile.batch_io_set_up(n)
    cufile.batch_io_submit(batch_id, n, params.ptr, 0)
    cufile.batch_io_get_status(batch_id, n, ctypes.addressof(count), events.ptr, 0)
    assert count.value == n
    assert sorted(events[i].cookie for i in range(n)) == list(range(100, 100 + n))
    for i in range(n):
        assert events[i].status == cufile.Status.COMPLETE
        assert events[i].ret == part
    assert buffer.raw == data
    cufile.batch_io_destroy(batch_id)


def stream(handle, data):
    buffer = ctypes.create_string_buffer(SIZE)
    size, at, to = ctypes.c_size_t(4000), ctypes.c_int64(9), ctypes.c_int64(1)
    done = ctypes.c_ssize_t(0)
    cufile.stream_register(0, 0)
    cufile.read_async(handle, address(buffer), *map(ctypes.addressof, (size, at, to, done)), 0)
    cufile.stream_deregister(0)
    assert done.value == 4000
    assert buffer.raw[1:4001] == data[9:4009]


def errors(handle):
    for call, number in (
        (lambda: cufile.handle_deregister(12345), None),
        (lambda: cufile.buf_deregister(4096), 5024),
        (lambda: cufile.buf_register(0, 4096, 0), 5022),
        (lambda: cufile.batch_io_set_up(100000), 5022),
        (lambda: cufile.set_parameter_size_t(cufile.SizeTConfigParameter.PROPERTIES_IO_BATCHSIZE, 8), 5026),
    ):
        try:
            call()
            assert number is None
        except cufile.cuFileError as error:
            assert str(number) in str(error), (number, error)


def statistics():
    stats = cufile.StatsLevel1()
    cufile.get_stats_l1(stats.ptr)
    assert stats.read_ops.ok >= 3, stats.read_ops.ok
    assert stats.read_bytes >= SIZE


def main():
    assert cufile.get_version() == 1150
    cufile.set_stats_level(1)
    cufile.stats_start()
    cufile.driver_open()
    ours()
    data = os.urandom(SIZE)
    with tempfile.NamedTemporaryFile(dir=sys.argv[1]) as file:
        file.write(data)
        file.flush()
        handle = register(file.fileno())
        transfers(file.fileno(), handle, data)
        batch(handle, data)
        stream(handle, data)
        errors(handle)
        cufile.handle_deregister(handle)
    statistics()
    assert cufile.get_parameter_size_t(cufile.SizeTConfigParameter.PROPERTIES_IO_BATCHSIZE) == 128
    cufile.driver_close()


main()
