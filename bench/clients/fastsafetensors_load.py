# SPDX-License-Identifier: Apache-2.0
"""fastsafetensors loads a model that lies in the page cache, through cuFile."""

import os

import worker
from worker import Case

import torch

import data
from importlib import metadata
from loaders import fastsafetensors_load

PATH = os.environ["CLIENT_MODEL"]
SIZE = os.path.getsize(PATH)
BYTES = int(os.environ["CLIENT_MODEL_BYTES"])


def verify(loaded):
    tensors, close = loaded
    data.expect_model(tensors, BYTES)
    close()
    del tensors, loaded
    torch.cuda.empty_cache()


torch.zeros(1, device="cuda")
worker.serve({
    "cached": Case(lambda: fastsafetensors_load(PATH, nogds=False), SIZE,
                   lambda: worker.bring_into_cache(PATH), verify),
    "cold": Case(lambda: fastsafetensors_load(PATH, nogds=False), SIZE,
                 lambda: worker.drop_from_cache(PATH), verify),
}, version=metadata.version("fastsafetensors"))
