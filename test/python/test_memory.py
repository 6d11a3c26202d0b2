# SPDX-License-Identifier: Apache-2.0
"""Whose bytes an object's are: each interface, and what is refused."""

import array
import ctypes
import gc
import mmap
import unittest
import weakref

import phoenix
from common import cuda_array, foreign, needs_numpy, needs_torch, numpy, torch


class BufferProtocol(unittest.TestCase):
    def test_addresses(self):
        raw = ctypes.create_string_buffer(b"0123456789", 10)
        found = phoenix.memory(raw)
        self.assertEqual((found.address, found.nbytes), (ctypes.addressof(raw), 10))
        part = phoenix.memory(memoryview(raw)[3:7])
        self.assertEqual((part.address, part.nbytes), (ctypes.addressof(raw) + 3, 4))
        self.assertEqual(phoenix.memory(array.array("d", [1, 2])).nbytes, 16)
        with mmap.mmap(-1, 4096) as mapping:
            found = phoenix.memory(mapping)
            self.assertEqual(found.address % 4096, 0)
            del found

    def test_readonly_is_a_source_only(self):
        self.assertTrue(phoenix.memory(b"text").readonly)
        with self.assertRaisesRegex(ValueError, "may not be written"):
            phoenix.memory(b"text", writable=True)

    def test_it_is_held(self):
        data = bytearray(100)
        found = phoenix.memory(data)
        with self.assertRaises(BufferError):
            data.append(1)
        del found
        data.append(1)

    def test_scattered(self):
        with self.assertRaisesRegex(ValueError, "one after the other"):
            phoenix.memory(memoryview(bytearray(10))[::2])

    def test_no_interface(self):
        for obj in (7, "text", None, object()):
            with self.assertRaises(TypeError):
                phoenix.memory(obj)

    def test_nothing_leaks(self):
        class Owner(bytearray):
            pass

        owner = Owner(10)
        ref = weakref.ref(owner)
        for _ in range(3):
            phoenix.memory(owner)
        del owner
        gc.collect()
        self.assertIsNone(ref())


class CudaArray(unittest.TestCase):
    """The interface alone; whose memory it is, is the library's to find out."""

    def test_addresses(self):
        raw = bytearray(64)
        address = phoenix.memory(raw).address
        found = phoenix.memory(cuda_array(raw, address, (4, 2), "<f4"))
        self.assertEqual((found.address, found.nbytes), (address, 32))
        found = phoenix.memory(cuda_array(raw, address, (4, 2), "<f4", strides=(8, 4)))
        self.assertEqual(found.nbytes, 32)

    def test_refused(self):
        for more in ({"strides": (4, 16)}, {"mask": object()}):
            with self.assertRaises(ValueError):
                phoenix.memory(cuda_array(None, 4096, (4, 2), "<f4", **more))
        readonly = cuda_array(None, 4096, (4,))
        readonly.__cuda_array_interface__["data"] = (4096, True)
        with self.assertRaises(ValueError):
            phoenix.memory(readonly, writable=True)


@needs_numpy
class NumPy(unittest.TestCase):
    def test_arrays(self):
        values = numpy.arange(24, dtype="f4").reshape(2, 3, 4)
        found = phoenix.memory(values)
        self.assertEqual((found.address, found.nbytes), (values.ctypes.data, 96))
        self.assertEqual(phoenix.memory(values[1]).address, values.ctypes.data + 48)
        with self.assertRaises(ValueError):
            phoenix.memory(values[:, ::2])
        values.flags.writeable = False
        with self.assertRaises(ValueError):
            phoenix.memory(values, writable=True)

    def test_dlpack(self):
        values = numpy.arange(24, dtype="i2").reshape(4, 6)
        if not hasattr(values, "__dlpack__"):
            self.skipTest("this NumPy has no DLPack")
        only = foreign(__dlpack__=lambda self, **kw: values.__dlpack__(**kw))
        found = phoenix.memory(only)
        self.assertEqual((found.address, found.nbytes), (values.ctypes.data, 48))
        scattered = values[:, ::2]
        only = foreign(__dlpack__=lambda self, **kw: scattered.__dlpack__(**kw))
        with self.assertRaisesRegex(ValueError, "one after the other"):
            phoenix.memory(only)

    def test_dlpack_keeps_it_alive(self):
        class Owner(numpy.ndarray):
            pass

        values = numpy.arange(1000.0).view(Owner)
        if not hasattr(values, "__dlpack__"):
            self.skipTest("this NumPy has no DLPack")
        ref = weakref.ref(values)
        only = foreign(__dlpack__=lambda self, v=values, **kw: v.__dlpack__(**kw))
        found = phoenix.memory(only)
        del values, only
        gc.collect()
        self.assertEqual(ctypes.c_double.from_address(found.address + 8).value, 1.0)
        del found
        gc.collect()
        self.assertIsNone(ref())


@needs_torch
class PyTorch(unittest.TestCase):
    def test_tensors(self):
        values = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
        found = phoenix.memory(values, writable=True)
        self.assertEqual((found.address, found.nbytes), (values.data_ptr(), 48))
        self.assertEqual(phoenix.memory(values[2]).address, values.data_ptr() + 24)
        self.assertEqual(phoenix.memory(torch.nn.Parameter(torch.zeros(3))).nbytes, 12)
        with self.assertRaises(ValueError):
            phoenix.memory(values.t())

    def test_dlpack(self):
        values = torch.arange(24, dtype=torch.bfloat16)
        only = foreign(__dlpack__=lambda self, **kw: values.__dlpack__(**kw))
        found = phoenix.memory(only)
        self.assertEqual((found.address, found.nbytes), (values.data_ptr(), 48))


if __name__ == "__main__":
    unittest.main()
