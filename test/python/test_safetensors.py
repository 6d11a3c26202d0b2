# SPDX-License-Identifier: Apache-2.0
"""The safetensors loader: what it loads, and every header that it refuses."""

import contextlib
import io
import json
import os
import random
import struct
import unittest

import phoenix
from common import Files, needs_numpy, needs_torch, noise, numpy, torch
from phoenix.safetensors import FormatError, load_file, load_files, read_header

KINDS = {"f4": ("F32", "<f4"), "f8": ("F64", "<f8"), "i8": ("I64", "<i8"), "u1": ("U8", "|u1"),
         "f2": ("F16", "<f2"), "b1": ("BOOL", "|b1")}


def header_bytes(header, pad=8):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text


def tensor(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


class Headers(Files):
    def refused(self, header, data=b"", why=None):
        path = self.file(header_bytes(header) + data)
        with self.assertRaises(FormatError) as caught:
            read_header(path)
        self.assertTrue(str(caught.exception).startswith(path + ": "))
        if why:
            self.assertIn(why, str(caught.exception))

    def test_good(self):
        path = self.file(header_bytes({"__metadata__": {"format": "pt"}, "b": tensor(),
                                       "a": tensor("U8", (3, 0), (8, 8)),
                                       "c": tensor("BF16", (), (8, 10))}) + bytes(10))
        header = read_header(path)
        self.assertEqual(header.metadata, {"format": "pt"})
        self.assertEqual(list(header.tensors), ["b", "a", "c"])
        self.assertEqual(header.tensors["c"].shape, ())
        self.assertEqual(header.data_bytes, 10)
        self.assertEqual(read_header(self.file(header_bytes(b"{}"))).tensors, {})

    def test_sizes(self):
        for data, why in ((b"", "too few"), (b"1234567", "too few"),
                          (struct.pack("<Q", 2**63), "more than"),
                          (struct.pack("<Q", 100_000_001), "more than"),
                          (struct.pack("<Q", 50) + b"{}", "does not fit"),
                          (struct.pack("<Q", 0), "start with")):
            with self.assertRaisesRegex(FormatError, why):
                read_header(self.file(data))

    def test_text(self):
        for text in (b"[]", b" {}", b"{", b"{}x", b'{"a":}', b"\xff\xfe", b'{"a\xff": 1}',
                     b'{"a": NaN}', b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
                     b'{"a": ' + b"9" * 100_000 + b"}", b'{"\\ud800": 1}', b"{\0}"):
            self.refused(text)

    def test_twice(self):
        one = json.dumps(tensor()).encode()
        self.refused(b'{"a": ' + one + b', "a": ' + one + b"}", bytes(8), "occurs twice")
        self.refused(b'{"a": {"dtype": "U8", "dtype": "U8"}}', why="occurs twice")

    def test_metadata(self):
        for found in ([], "text", {"a": 1}, {"a": None}, 7, None):
            self.refused({"__metadata__": found}, why="__metadata__")

    def test_fields(self):
        for found in (None, 5, [], {}, {"dtype": "U8"}, {**tensor(), "more": 1}):
            self.refused({"a": found}, bytes(8), "needs dtype")
        for dtype in ("F31", "", None, 8, ["F32"], "f32"):
            self.refused({"a": tensor(dtype)}, bytes(8), "dtype")
        for shape in (None, 2, "2", [-1], [2.0], [True], ["2"], [2**63], [[2]]):
            self.refused({"a": {**tensor(), "shape": shape}}, bytes(8), "shape")
        for offsets in (None, 8, [], [0], [0, 8, 9], [-8, 0], [0, 8.0], [False, 8], [0, 2**64]):
            self.refused({"a": {**tensor(), "data_offsets": offsets}}, bytes(8), "data_offsets")

    def test_places(self):
        self.refused({"a": tensor(offsets=(0, 7))}, bytes(7), "is 8 bytes")
        self.refused({"a": tensor(offsets=(8, 0))}, bytes(8), "is 8 bytes")
        self.refused({"a": tensor(shape=(2**62, 2**62))}, bytes(8), "bytes, and its place")
        self.refused({"a": tensor(offsets=(0, 8))}, bytes(7), "end at 8")
        self.refused({"a": tensor(offsets=(0, 8))}, bytes(9), "end at 8")
        self.refused({"a": tensor(offsets=(4, 12))}, bytes(12), "where 0 is next")
        self.refused({"a": tensor(), "b": tensor(offsets=(4, 12))}, bytes(12), "where 8 is next")
        self.refused({"a": tensor(), "b": tensor(offsets=(0, 8))}, bytes(8), "where 8 is next")
        self.refused({"a": tensor(), "b": tensor(offsets=(12, 20))}, bytes(20), "where 8 is next")
        self.refused({}, bytes(1), "end at 0")

    def test_noise(self):
        """Good files with a byte or a length changed: loaded as they are, or refused."""
        good = header_bytes({"a": tensor(), "b": tensor("U8", (4,), (8, 12))}) + bytes(12)
        rng = random.Random(5)
        for _ in range(1000):
            bad = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                bad[rng.randrange(len(bad))] = rng.choice((rng.randrange(256), 0x30, 0x22, 0x7b))
            if rng.random() < 0.3:
                del bad[rng.randrange(len(bad)):]
            try:
                header = read_header(self.file(bytes(bad)))
            except FormatError:
                continue
            self.assertEqual(sum(t.end - t.begin for t in header.tensors.values()),
                             header.data_bytes)

    def test_no_file(self):
        with self.assertRaises(FileNotFoundError):
            read_header(os.path.join(self.folder, "none"))
        with self.assertRaises(OSError):
            read_header(self.folder)


class Models(Files):
    """Small models, written here, loaded by each way."""

    def setUp(self):
        super().setUp()
        self.places, self.data = {}, b""

    def add(self, name, kind, shape):
        count = 1
        for length in shape:
            count *= length
        size = int(KINDS[kind][1][2:]) * count
        part = noise(size, len(self.places)) if kind != "b1" else bytes(i % 2 for i in range(size))
        self.places[name] = (kind, shape, part)
        start = len(self.data)
        self.data += part
        return {name: {"dtype": KINDS[kind][0], "shape": list(shape),
                       "data_offsets": [start, len(self.data)]}}

    def model(self, name="data", pad=8):
        header = {}
        for i, kind in enumerate(KINDS):
            header |= self.add(f"{name}.{kind}", kind, (3 + i, 4096 // (i + 1)))
        header |= self.add(f"{name}.scalar", "f4", ())
        header |= self.add(f"{name}.empty", "i8", (0, 5))
        return self.file(header_bytes(header, pad) + self.data, name)

    def check(self, loaded, wanted=None):
        self.assertEqual(set(loaded), set(self.places if wanted is None else wanted))
        for name, value in loaded.items():
            kind, shape, part = self.places[name]
            self.assertEqual(tuple(value.shape), shape)
            if numpy and isinstance(value, numpy.ndarray):
                self.assertEqual(value.dtype, numpy.dtype(KINDS[kind][1]))
                self.assertEqual(value.tobytes(), part)
            else:
                self.assertEqual(bytes(value.contiguous().view(-1).view(torch.uint8).tolist())
                                 if value.dim() else
                                 bytes(value.reshape(1).view(torch.uint8).tolist()), part)

    @needs_numpy
    def test_numpy(self):
        path = self.model()
        for direct in (None, True, False):
            try:
                self.check(load_file(path, framework="numpy", direct=direct))
            except OSError:
                self.assertTrue(direct)  # a file system may have no O_DIRECT
        self.check(load_file(self.file(header_bytes(b"{}")), framework="numpy"), [])

    @needs_numpy
    def test_unaligned_header(self):
        self.check(load_file(self.model(pad=1), framework="numpy"))

    @needs_numpy
    def test_some_names(self):
        path = self.model()
        names = ["data.i8", "data.f2", "data.empty"]
        self.check(load_file(path, framework="numpy", names=names), names)
        self.check(load_file(path, framework="numpy", names=[]), [])
        with self.assertRaises(KeyError):
            load_file(path, framework="numpy", names=["data.i8", "none"])

    @needs_numpy
    def test_parts(self):
        one = self.model("one")
        places, self.data = dict(self.places), b""
        two = self.model("two")
        seen = []
        loaded = load_files([one, two], framework="numpy",
                            progress=lambda done, total: seen.append((done, total)))
        self.assertEqual(len(loaded), len(places) * 2)
        self.check(loaded)
        self.assertEqual(seen[-1][0], seen[-1][1])
        self.assertEqual(sorted(seen), seen)
        with self.assertRaisesRegex(FormatError, "is in"):
            load_files([one, one], framework="numpy")

    @needs_numpy
    def test_many_requests(self):
        """More than the loader asks for at once, and not a whole number of them."""
        import phoenix.safetensors as module

        path = self.model()
        before, module.REQUEST = module.REQUEST, 8192
        try:
            self.check(load_file(path, framework="numpy"))
        finally:
            module.REQUEST = before

    @needs_numpy
    def test_cut_while_it_is_read(self):
        import phoenix.safetensors as module

        path = self.model()
        known = module._header_of

        def cut(path, file):
            header = known(path, file)
            os.truncate(path, os.path.getsize(path) - 5000)
            return header

        module._header_of = cut
        try:
            with self.assertRaisesRegex(FormatError, "was cut"):
                load_file(path, framework="numpy")
        finally:
            module._header_of = known

    def test_looks_for_the_file_in_the_page_cache(self):
        import phoenix.safetensors as module

        path = self.file(noise(1 << 20) * 4)
        with phoenix.File(path, direct=False) as file:
            for offset in range(0, 4 << 20, 1 << 16):
                file.read(bytearray(1 << 16), offset=offset)
            self.assertGreater(module._cached_part(file), 0.9)
        os.truncate(path, 1 << 30)  # a hole is in no cache
        with phoenix.File(path, direct=False) as file:
            self.assertLess(module._cached_part(file), 0.1)

    @needs_numpy
    def test_progress_bar(self):
        out = io.StringIO()
        with contextlib.redirect_stderr(out):
            load_file(self.model(), framework="numpy", progress=True)
        self.assertRegex(out.getvalue(), r"\[#{30}\] .* GiB, .* GB/s\n$")

    @needs_numpy
    def test_what_numpy_lacks(self):
        path = self.file(header_bytes({"a": tensor("F8_E8M0", (8,))}) + bytes(8))
        try:
            import ml_dtypes  # noqa: F401
        except ImportError:
            with self.assertRaisesRegex(TypeError, "ml_dtypes"):
                load_file(path, framework="numpy")

    @needs_numpy
    def test_arguments(self):
        path = self.model()
        with self.assertRaises(ValueError):
            load_file(path, "cuda:0", framework="numpy")
        with self.assertRaises(ValueError):
            load_file(path, framework="jax")

    @needs_numpy
    def test_views_keep_the_memory(self):
        loaded = load_file(self.model(), framework="numpy")
        name = "data.f4"
        value = loaded.pop(name)
        del loaded
        value.flat[0] = value.flat[0]  # it may be written to
        self.assertEqual(value.tobytes(), self.places[name][2])

    @needs_torch
    def test_torch(self):
        self.check(load_file(self.model()))
        self.places, self.data = {}, b""
        self.check(load_file(self.model("odd", pad=1), "cpu"))


if __name__ == "__main__":
    unittest.main()
