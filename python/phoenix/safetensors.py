# SPDX-License-Identifier: Apache-2.0
"""Whole models from safetensors files, straight into device or host memory.

    tensors = phoenix.safetensors.load_file("model.safetensors", device="cuda:0")

The header is taken at its word only after it has been checked: a file that is
damaged or made to mislead is a FormatError, and nothing of it is loaded. The
tensors of a file lie in one allocation, which is read in large requests, several
at a time, and which lives as long as one of them.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping, Optional, Union

from .buffer import Buffer
from .file import File
from .queue import Queue, Request

__all__ = ["FormatError", "Header", "TensorInfo", "load_file", "load_files", "read_header"]

MAX_HEADER = 100_000_000  # as the format's own reader has it
REQUEST = 64 << 20
DEPTH = 8
_BLOCK = 4096
_LOOKS, _LOOK = 64, 16  # places of a file, and pages at each

# name: bits, PyTorch's name, NumPy's name
_DTYPES: dict[str, tuple[int, str, str]] = {
    "BOOL": (8, "bool", "bool"), "U8": (8, "uint8", "uint8"), "I8": (8, "int8", "int8"),
    "F8_E5M2": (8, "float8_e5m2", "float8_e5m2"),
    "F8_E4M3": (8, "float8_e4m3fn", "float8_e4m3fn"),
    "F8_E8M0": (8, "float8_e8m0fnu", "float8_e8m0fnu"),
    "F8_E4M3FNUZ": (8, "float8_e4m3fnuz", "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "float8_e5m2fnuz", "float8_e5m2fnuz"),
    "I16": (16, "int16", "int16"), "U16": (16, "uint16", "uint16"),
    "F16": (16, "float16", "float16"), "BF16": (16, "bfloat16", "bfloat16"),
    "I32": (32, "int32", "int32"), "U32": (32, "uint32", "uint32"),
    "F32": (32, "float32", "float32"), "F64": (64, "float64", "float64"),
    "I64": (64, "int64", "int64"), "U64": (64, "uint64", "uint64"),
    "C64": (64, "complex64", "complex64"),
}

Progress = Union[bool, Callable[[int, int], None]]


class FormatError(ValueError):
    """The file is no safetensors file, or a damaged one. Says what is wrong with it."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a file: begin and end are bytes within the file's data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a file holds; its data starts at byte data_offset of the file."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, str]
    data_offset: int
    data_bytes: int


# ---------------------------------------------------------------------- header


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise FormatError(f"{next(n for n in names if names.count(n) > 1)!r} occurs twice")
    return found


def _no_constant(text: str) -> Any:
    raise FormatError(f"{text} is no JSON")


def _parse(text: bytes) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise FormatError("the header does not start with '{'")
    try:
        found = json.loads(text.decode("utf-8"), object_pairs_hook=_pairs,
                           parse_constant=_no_constant)
    except FormatError:
        raise
    except (ValueError, RecursionError) as failure:
        raise FormatError(f"the header is no JSON: {failure}") from None
    assert isinstance(found, dict)  # it starts with '{'
    return found


def _metadata(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise FormatError("__metadata__ is no map of strings")
    return found


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _tensor(name: str, found: Any) -> TensorInfo:
    if not isinstance(found, dict) or set(found) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{name!r} needs dtype, shape and data_offsets, and no more")
    dtype, shape, offsets = found["dtype"], found["shape"], found["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise FormatError(f"{name!r}: dtype {dtype!r} is not known")
    if not isinstance(shape, list) or not all(map(_count, shape)):
        raise FormatError(f"{name!r}: shape {shape!r} is no list of lengths")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_count, offsets)):
        raise FormatError(f"{name!r}: data_offsets {offsets!r} are no two places")
    begin, end = offsets
    nbytes = math.prod(shape) * _DTYPES[dtype][0] // 8
    if end - begin != nbytes:
        raise FormatError(f"{name!r}: {dtype} {shape} is {nbytes} bytes, and its place "
                          f"{begin} to {end} is {end - begin}")
    return TensorInfo(dtype, tuple(shape), begin, end)


def _check_places(tensors: Mapping[str, TensorInfo], data_bytes: int) -> None:
    """Tensors lie one after the other and fill the data: no hole, no overlap, no rest."""
    at = 0
    for name, one in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if one.begin != at:
            raise FormatError(f"{name!r} starts at {one.begin} of the data, where {at} is next")
        at = one.end
    if at != data_bytes:
        raise FormatError(f"the tensors end at {at} of the data, and the file at {data_bytes}")


def parse_header(text: bytes, data_bytes: int) -> Header:
    """The header's text, checked against itself and the number of bytes behind it."""
    found = _parse(text)
    metadata = _metadata(found.pop("__metadata__", {}))
    tensors: dict[str, TensorInfo] = {}
    for name, about in found.items():
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise FormatError(f"the name {name!r} is no text") from None
        tensors[name] = _tensor(name, about)
    _check_places(tensors, data_bytes)
    return Header(tensors, metadata, 8 + len(text), data_bytes)


def _read_header(fd: int, size: int) -> Header:
    head = os.pread(fd, 8, 0)
    if len(head) < 8:
        raise FormatError(f"{size} bytes are too few for a safetensors file")
    length = int.from_bytes(head, "little")
    if length > MAX_HEADER:
        raise FormatError(f"a header of {length} bytes: more than {MAX_HEADER}")
    if 8 + length > size:
        raise FormatError(f"a header of {length} bytes does not fit in {size}")
    text = b""
    while len(text) < length:
        part = os.pread(fd, length - len(text), 8 + len(text))
        if not part:
            raise FormatError("the file was cut while it was read")
        text += part
    return parse_header(text, size - 8 - length)


def _header_of(path: Any, file: File) -> Header:
    try:
        return _read_header(file.fileno(), file.size)
    except FormatError as failure:
        raise FormatError(f"{os.fsdecode(path)}: {failure}") from None


def read_header(path: Union[str, "os.PathLike[str]"]) -> Header:
    """What a file holds, checked. FormatError where it is not as it must be."""
    with File(path, direct=False) as file:
        return _header_of(path, file)


# -------------------------------------------------------------------- progress


class _Bar:
    """A line on standard error, drawn ten times a second at most."""

    def __init__(self) -> None:
        self._start = self._drawn = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._drawn < 0.1 and done < total:
            return
        self._drawn = now
        part = done / total if total else 1.0
        rate = done / max(now - self._start, 1e-9) / 1e9
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r[{'#' * int(30 * part):30}] {done / 2**30:.2f} of "
                         f"{total / 2**30:.2f} GiB, {rate:.2f} GB/s{end}")
        sys.stderr.flush()


def _reporter(progress: Progress) -> Callable[[int, int], None]:
    if callable(progress):
        return progress
    if progress:
        return _Bar()
    return lambda done, total: None


# --------------------------------------------------------------- where to, how


class _Arena:
    """One file's data in memory; tensor() makes a tensor of a part of it."""

    buffer: Any  # what a transfer takes

    def tensor(self, info: TensorInfo) -> Any:
        raise NotImplementedError


class _TorchArena(_Arena):
    def __init__(self, nbytes: int, device: str) -> None:
        import torch

        self._torch = torch
        self.bytes = torch.empty(nbytes, dtype=torch.uint8, device=device)
        self.buffer = self.bytes
        if self.bytes.device.type == "cuda":
            # the memory may be some that work in flight has yet to let go of
            torch.cuda.current_stream(self.bytes.device).synchronize()

    def tensor(self, info: TensorInfo) -> Any:
        name = _DTYPES[info.dtype][1]
        dtype = getattr(self._torch, name, None)
        if dtype is None:
            raise TypeError(f"this PyTorch has no {name}")
        part = self.bytes[info.begin:info.end]
        if info.begin % (_DTYPES[info.dtype][0] // 8):
            part = part.clone()  # a view must be aligned
        return part.view(dtype).reshape(info.shape)


class _NumpyArena(_Arena):
    def __init__(self, nbytes: int) -> None:
        import numpy

        self._numpy = numpy
        # pages, as direct reads want them; mmap makes none of nothing
        self.buffer = mmap.mmap(-1, nbytes) if nbytes else bytearray()

    def tensor(self, info: TensorInfo) -> Any:
        name = _DTYPES[info.dtype][2]
        dtype: Any = self._numpy.bool_ if name == "bool" else getattr(self._numpy, name, None)
        if dtype is None:
            dtype = self._extended(name)
        count = math.prod(info.shape)
        return self._numpy.frombuffer(self.buffer, dtype, count, info.begin if count else 0) \
            .reshape(info.shape)

    @staticmethod
    def _extended(name: str) -> Any:
        try:
            import ml_dtypes
        except ImportError:
            raise TypeError(f"NumPy has no {name}: install ml_dtypes, or use PyTorch") from None
        return getattr(ml_dtypes, name)


def _arena(framework: str, device: Any, nbytes: int) -> _Arena:
    if framework == "numpy":
        if str(device) != "cpu":
            raise ValueError(f"NumPy's arrays cannot be on {device!r}")
        return _NumpyArena(nbytes)
    if framework == "torch":
        return _TorchArena(nbytes, device)
    raise ValueError(f"framework {framework!r} is neither \"torch\" nor \"numpy\"")


def _libc_maps() -> Any:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_int64]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


def _cached_part(file: File) -> float:
    """How much of a file lies in the page cache, 0 to 1, by a look at some of its pages."""
    pages = file.size // mmap.PAGESIZE
    if not pages:
        return 1.0  # what is there is not worth a direct read
    libc = _libc_maps()  # Python's mmap tells no address of what may not be written to
    at = libc.mmap(None, pages * mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if at in (None, ctypes.c_void_p(-1).value):
        return 0.0
    width = min(_LOOK, pages)
    seen = (ctypes.c_ubyte * width)()
    found = looked = 0
    try:
        for look in range(_LOOKS):
            first = (pages - width) * look // (_LOOKS - 1)
            if libc.mincore(at + first * mmap.PAGESIZE, width * mmap.PAGESIZE, seen):
                return 0.0
            found += sum(one & 1 for one in seen)
            looked += width
    finally:
        libc.munmap(at, pages * mmap.PAGESIZE)
    return found / looked


def _open(path: Any, direct: Optional[bool]) -> File:
    """By default what the page cache has is taken from there, and the rest past it."""
    file = File(path, direct=False)
    if direct is False or (direct is None and _cached_part(file) >= 0.5):
        return file
    try:
        return File(path, direct=direct)
    finally:
        file.close()


# --------------------------------------------------------------------- loading


def _transfer(queue: Queue, file: File, buffer: Any, start: int, nbytes: int,
              done: Callable[[int], None]) -> None:
    """Read nbytes of a file, from start on, into the buffer."""
    at = 0
    while at < nbytes or len(queue):
        while at < nbytes and len(queue) < queue.depth:
            # up to where a request ends on a block of the file
            length = min(REQUEST - (start + at) % _BLOCK, nbytes - at)
            queue.submit([Request(file, buffer, length, start + at, at, length)])
            at += length
        for completion in queue.wait(1):
            if completion.error:
                raise completion.error
            if completion.result != completion.token:
                raise FormatError(f"{file.name}: the file was cut while it was read")
            done(completion.result)


def _load(path: Any, file: File, header: Header, framework: str, device: Any,
          wanted: Optional[frozenset[str]], done: Callable[[int], None]) -> dict[str, Any]:
    tensors = {name: one for name, one in header.tensors.items()
               if wanted is None or name in wanted}
    begin = min((one.begin for one in tensors.values()), default=0)
    end = max((one.end for one in tensors.values()), default=0)
    begin -= begin % 512  # so that tensors are aligned as they are in the file
    arena = _arena(framework, device, end - begin)
    if end > begin:
        with Queue(DEPTH) as queue, Buffer(arena.buffer) as buffer:
            _transfer(queue, file, buffer, header.data_offset + begin, end - begin, done)
    return {name: arena.tensor(TensorInfo(one.dtype, one.shape, one.begin - begin,
                                          one.end - begin))
            for name, one in tensors.items()}


def load_files(paths: Iterable[Union[str, "os.PathLike[str]"]], device: Any = "cpu", *,
               framework: Optional[str] = None, names: Optional[Iterable[str]] = None,
               direct: Optional[bool] = None, progress: Progress = False) -> dict[str, Any]:
    """The tensors of several files, of a model in parts. See load_file().

    A name in two files is a FormatError.
    """
    if framework is None:
        framework = "torch"
    wanted = None if names is None else frozenset(names)
    files: list[File] = []
    try:
        headers = []
        known: dict[str, Any] = {}
        for path in paths:
            files.append(_open(path, direct))
            header = _header_of(path, files[-1])
            for name in header.tensors:
                if name in known:
                    raise FormatError(f"{name!r} is in {known[name]} and in {path}")
                known[name] = path
            headers.append((path, header))
        missing = (wanted or frozenset()) - set(known)
        if missing:
            raise KeyError(f"no tensor {sorted(missing)[0]!r}")
        return _load_all(files, headers, framework, device, wanted, _reporter(progress))
    finally:
        for file in files:
            file.close()


def _bytes_of(header: Header, wanted: Optional[frozenset[str]]) -> int:
    places = [(one.begin, one.end) for name, one in header.tensors.items()
              if wanted is None or name in wanted]
    if not places:
        return 0
    begin = min(place[0] for place in places)
    return max(place[1] for place in places) - (begin - begin % 512)


def _load_all(files: list[File], headers: list[tuple[Any, Header]], framework: str, device: Any,
              wanted: Optional[frozenset[str]], report: Callable[[int, int], None]
              ) -> dict[str, Any]:
    total = sum(_bytes_of(header, wanted) for _, header in headers)
    sofar = 0

    def done(nbytes: int) -> None:
        nonlocal sofar
        sofar += nbytes
        report(sofar, total)

    tensors: dict[str, Any] = {}
    for file, (path, header) in zip(files, headers):
        tensors.update(_load(path, file, header, framework, device, wanted, done))
    return tensors


def load_file(path: Union[str, "os.PathLike[str]"], device: Any = "cpu", *,
              framework: Optional[str] = None, names: Optional[Iterable[str]] = None,
              direct: Optional[bool] = None, progress: Progress = False) -> dict[str, Any]:
    """The tensors of a file, by name.

    device: as PyTorch has it ("cuda:0"), or "cpu".
    framework: "torch" (the default) or "numpy", for host memory only.
    names: only these; what lies between the first and the last of them is read too.
    direct: past the page cache (True), through it (False), or as the file's
    presence in it suggests (None).
    progress: True draws a line on standard error; or called with bytes and total.
    """
    return load_files([path], device, framework=framework, names=names, direct=direct,
                      progress=progress)
