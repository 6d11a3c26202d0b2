# SPDX-License-Identifier: Apache-2.0
"""The package by which LMCache reaches cuFile: its use of it, on GPU memory.

A buffer is registered first, and a handle is made for each operation.
"""

import ctypes
import os

import worker
from worker import Case, expect

import torch
from cufile.bindings import cuFileBufDeregister, cuFileBufRegister
from cufile.cufile import CuFile

BLOCK = 2 << 20
BLOCKS = 8
HEADER = 4096

pool = torch.randint(0, 256, (BLOCKS * BLOCK,), dtype=torch.uint8, device="cuda")
kept = pool.clone()
torch.cuda.synchronize()


def chunks():
    base = ctypes.c_void_p(pool.data_ptr())
    names = [os.path.join(os.environ["CLIENT_WORK"], f"chunk-{os.getpid()}-{i}")
             for i in range(BLOCKS)]
    cuFileBufRegister(base, BLOCKS * BLOCK, flags=0)
    try:
        for i, name in enumerate(names):
            with open(name, "wb") as file:
                file.truncate(HEADER + BLOCK)
            with CuFile(name, "r+", use_direct_io=True) as file:
                n = file.write(base, BLOCK, file_offset=HEADER, dev_offset=i * BLOCK)
            expect(n == BLOCK, f"wrote {n}")
        pool.zero_()
        torch.cuda.synchronize()
        for i, name in enumerate(names):
            with CuFile(name, "r", use_direct_io=True) as file:
                n = file.read(base, BLOCK, file_offset=HEADER, dev_offset=i * BLOCK)
            expect(n == BLOCK, f"read {n}")
        expect(torch.equal(pool, kept), "other bytes")
    finally:
        cuFileBufDeregister(base)
        for name in names:
            if os.path.exists(name):
                os.unlink(name)


worker.serve({"chunks": Case(chunks)})
