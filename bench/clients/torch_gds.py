# SPDX-License-Identifier: Apache-2.0
"""torch.cuda.gds: a storage is saved to a file and loaded from one."""

import os

import worker
from worker import Case, expect

import numpy
import torch
from torch.cuda import gds

import data

PATH = os.environ["CLIENT_RAW"]
SIZE = min(os.path.getsize(PATH), 1 << 30)
SAVED = os.path.join(os.environ["CLIENT_WORK"], f"torch-gds-{os.getpid()}")

wanted = data.raw(os.path.getsize(PATH))[:SIZE].clone()
target = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
registered = set()


def register(tensor):
    if tensor.data_ptr() not in registered:
        gds.gds_register_buffer(tensor.untyped_storage())
        registered.add(tensor.data_ptr())


def load():
    gds.GdsFile(PATH, os.O_RDONLY).load_storage(target.untyped_storage(), offset=0)
    torch.cuda.synchronize()


def verify_load(_):
    expect(torch.equal(target.view(torch.int64), wanted.view(torch.int64)), "other bytes")
    target.zero_()
    torch.cuda.synchronize()


def prepare_load():
    register(target)
    worker.drop_from_cache(PATH)


def prepare_save():
    register(wanted)
    with open(SAVED, "wb") as file:  # the same start for everybody: blocks reserved, unwritten
        os.posix_fallocate(file.fileno(), 0, SIZE)


def save():
    file = gds.GdsFile(SAVED, os.O_RDWR)
    file.save_storage(wanted.untyped_storage(), offset=0)
    os.fdatasync(file.fd)


def verify_save(_):
    saved = torch.from_numpy(numpy.fromfile(SAVED, dtype=numpy.uint8)).cuda()
    os.unlink(SAVED)
    expect(torch.equal(saved.view(torch.int64), wanted.view(torch.int64)), "other bytes")


def works():
    """Small: is a file taken at all?"""
    small = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    gds.GdsFile(PATH, os.O_RDONLY).load_storage(small.untyped_storage(), offset=4096)
    torch.cuda.synchronize()
    expect(torch.equal(small, wanted[4096 : 4096 + (1 << 20)]), "other bytes")


worker.serve({
    "load": Case(load, SIZE, prepare_load, verify_load),
    "save": Case(save, SIZE, prepare_save, verify_save),
    "works": Case(works),
}, version=torch.__version__)
