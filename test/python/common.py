# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share."""

import os
import random
import tempfile
import unittest

import phoenix

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

needs_numpy = unittest.skipUnless(numpy, "NumPy is not installed")
needs_torch = unittest.skipUnless(torch, "PyTorch is not installed")


def noise(nbytes, seed=1):
    return random.Random(seed).randbytes(nbytes)


class Files(unittest.TestCase):
    """Each test has a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, data, name="data"):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def contents(self, name="data"):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()


def foreign(**interface):
    """An object of a class of its own with these attributes."""
    return type("Foreign", (), interface)()


def cuda_array(keep, address, shape, typestr="|u1", **more):
    about = {"shape": shape, "typestr": typestr, "data": (address, False), "version": 3, **more}
    return foreign(__cuda_array_interface__=about, keep=keep)


assert phoenix.devices()[0].mode == "host", "these tests are for HOST devices"
