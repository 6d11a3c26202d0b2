# SPDX-License-Identifier: Apache-2.0
"""LMCache's own GDS backends, as published: slices of a pool to a slab file and back.

Its `cufile` backend goes through libcufile, its `phx` backend through libphxfile.
"""

import importlib
import os
import sys
import tempfile
import types

import worker
from worker import Case, expect

import torch

SLICE = 16 << 20
SLICES = 4


def bare(name):
    """A package without what its __init__ brings in: an inference server, mostly."""
    folder = os.path.join(*name.split("."))
    module = types.ModuleType(name)
    module.__path__ = [os.path.join(path, folder) for path in sys.path
                       if os.path.isdir(os.path.join(path, folder))]
    expect(module.__path__, "lmcache is not installed")
    sys.modules[name] = module


for package in ("lmcache", "lmcache.v1", "lmcache.v1.gpu_connector"):
    bare(package)
create_backend = importlib.import_module("lmcache.v1.gpu_connector._gds_backends").create_backend


def move(start, slices, stream):
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # the transfers wait behind other work
    under_way = [start(part.data_ptr(), SLICE, i * SLICE, 0, stream.cuda_stream)
                 for i, part in enumerate(slices)]
    stream.synchronize()
    for one in under_way:
        expect(one.bytes_done == SLICE, f"{one.bytes_done} bytes of {SLICE}")


def slab(name):
    backend = create_backend(name)
    pool = torch.randint(0, 256, (SLICES * SLICE,), dtype=torch.uint8, device="cuda")
    kept = pool.clone()
    slices = [pool[i * SLICE : (i + 1) * SLICE] for i in range(SLICES)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with tempfile.TemporaryDirectory(dir=os.environ["CLIENT_WORK"]) as folder:
        with backend.open_slab(folder, SLICES * SLICE, True) as handle:
            backend.register_stream(stream.cuda_stream)
            for part in slices:
                backend.register_buffer(part)
            move(handle.write_async, slices, stream)
            pool.zero_()
            torch.cuda.synchronize()
            move(handle.read_async, slices, stream)
            expect(torch.equal(pool, kept), "other bytes")
            for part in slices:
                backend.deregister_buffer(part)
            backend.deregister_stream(stream.cuda_stream)
        backend.close_driver()


worker.serve({name: Case(lambda name=name: slab(name)) for name in ("cufile", "phx")})
