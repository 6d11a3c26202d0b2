# SPDX-License-Identifier: Apache-2.0
"""KvikIO reads a file into GPU memory, in tasks of 1 MiB by 16 threads.

compat_mode OFF: it must use cuFile, and fail rather than read in its own way.
"""

import os

import worker
from worker import Case, expect

import torch

import data
import kvikio
import kvikio.cufile_driver
import kvikio.defaults

PATH = os.environ["CLIENT_RAW"]
SIZE = os.path.getsize(PATH)
TASK = 1 << 20
THREADS = int(os.environ.get("CLIENT_THREADS", "16"))


def configure():
    settings = {"compat_mode": kvikio.CompatMode.OFF, "num_threads": THREADS, "task_size": TASK}
    if hasattr(kvikio.defaults, "set"):
        kvikio.defaults.set(settings)
        return
    kvikio.defaults.compat_mode_reset(kvikio.CompatMode.OFF)
    kvikio.defaults.num_threads_reset(THREADS)
    kvikio.defaults.task_size_reset(TASK)


configure()
buffer = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
wanted = data.raw(SIZE)


def read():
    with kvikio.CuFile(PATH, "r") as file:
        n = file.pread(buffer, task_size=TASK).get()
    torch.cuda.synchronize()
    return n


def verify(n):
    expect(n == SIZE, f"{n} bytes read of {SIZE}")
    expect(torch.equal(buffer.view(torch.int64), wanted.view(torch.int64)), "other bytes")
    buffer.zero_()
    torch.cuda.synchronize()


worker.serve({
    "cached": Case(read, SIZE, lambda: worker.bring_into_cache(PATH), verify),
    "cold": Case(read, SIZE, lambda: worker.drop_from_cache(PATH), verify),
}, version=kvikio.__version__)
