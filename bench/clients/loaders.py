# SPDX-License-Identifier: Apache-2.0
"""Loaders of a whole model into GPU memory, from the page cache.

CLIENT_LOADER says which: phoenix, safetensors, fastsafetensors (through cuFile)
or fastsafetensors-nogds (its own bounce buffers).
"""

import logging
import os
import warnings

PATH = os.environ["CLIENT_MODEL"]


class _Complaints(logging.Handler):
    """fastsafetensors warns, and goes on, when it does not use cuFile after all."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


_complaints = _Complaints()


def fastsafetensors_load(path, nogds):
    """All tensors, and what frees them. Through cuFile, or not at all, unless nogds."""
    import torch
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    if not nogds:
        warnings.simplefilter("error", UserWarning)
        for name in ("fastsafetensors", "fastsafetensors.copier.gds"):
            logging.getLogger(name).addHandler(_complaints)
    loader = SafeTensorsFileLoader(SingleGroup(), "cuda:0", nogds=nogds)
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    tensors = {key: buffers.get_tensor(key) for key in loader.get_keys()}
    torch.cuda.synchronize()
    if _complaints.said and not nogds:
        raise AssertionError(_complaints.said[-1])

    def close():
        tensors.clear()
        buffers.close()
        loader.close()

    return tensors, close


def safetensors_load(path):
    import torch
    from safetensors.torch import load_file

    tensors = load_file(path, device="cuda:0")
    torch.cuda.synchronize()
    return tensors, tensors.clear


def phoenix_load(path):
    import torch
    from phoenix.safetensors import load_file

    tensors = load_file(path, device="cuda:0")
    torch.cuda.synchronize()
    return tensors, tensors.clear


LOADERS = {"phoenix": phoenix_load, "safetensors": safetensors_load,
           "fastsafetensors": lambda path: fastsafetensors_load(path, nogds=False),
           "fastsafetensors-nogds": lambda path: fastsafetensors_load(path, nogds=True)}


def main():
    import worker

    import torch

    import data

    load = LOADERS[os.environ["CLIENT_LOADER"]]

    def verify(loaded):
        tensors, close = loaded
        data.expect_model(tensors, int(os.environ["CLIENT_MODEL_BYTES"]))
        del tensors
        close()
        torch.cuda.empty_cache()

    torch.zeros(1, device="cuda")
    worker.serve({"cached": worker.Case(lambda: load(PATH), os.path.getsize(PATH),
                                        lambda: worker.bring_into_cache(PATH), verify)})


if __name__ == "__main__":
    main()
