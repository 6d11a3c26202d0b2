# SPDX-License-Identifier: Apache-2.0
"""The package by which LMCache reaches cuFile: opened by the name without a number."""

import ctypes
import os
import sys
import tempfile

from cufile.bindings import cuFileBufDeregister, cuFileBufRegister
from cufile.cufile import CuFile

SIZE = 1 << 20

data = os.urandom(SIZE)
buffer = ctypes.create_string_buffer(SIZE)
where = ctypes.c_void_p(ctypes.addressof(buffer))
with tempfile.TemporaryDirectory(dir=sys.argv[1]) as folder:
    path = os.path.join(folder, "data")
    # a buffer comes before the driver is opened
    cuFileBufRegister(where, SIZE, flags=0)
    ctypes.memmove(buffer, data, SIZE)
    with CuFile(path, "w+") as file:
        assert file.write(where, SIZE, file_offset=0, dev_offset=0) == SIZE
    with open(path, "rb") as file:
        assert file.read() == data
    ctypes.memset(buffer, 0, SIZE)
    for _ in range(3):  # a handle for each operation
        with CuFile(path, "r", use_direct_io=True) as file:
            assert file.read(where, SIZE // 2, file_offset=4096, dev_offset=8192) == SIZE // 2
    assert buffer.raw[8192 : 8192 + SIZE // 2] == data[4096 : 4096 + SIZE // 2]
    cuFileBufDeregister(where)
