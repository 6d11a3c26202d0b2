# SPDX-License-Identifier: Apache-2.0
"""Devices, buffers, files, batches, queues and streams on a HOST device."""

import errno
import mmap
import os
import pickle
import select
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import phoenix
from common import Files, needs_numpy, needs_torch, noise, numpy, torch
from phoenix import Batch, Buffer, Device, File, Queue, Request, Stream

SIZE = 300_000
DATA = noise(SIZE)


class Devices(unittest.TestCase):
    def test_what_there_is(self):
        found = phoenix.devices()
        self.assertEqual([one.id for one in found], list(range(len(found))))
        self.assertEqual((found[0].vendor, found[0].mode), ("host", "host"))
        self.assertRegex(phoenix.version(), r"^\d+\.\d+\.\d+$")
        self.assertIn(phoenix.io_engine(), ("io_uring", "sync"))
        self.assertEqual(phoenix.settings()["PHX_CONNECTOR"], ("host", "environment"))

    def test_open_and_close(self):
        before = phoenix.devices()[0].clients
        with Device(0) as device:
            self.assertEqual(device.info.clients, before + 1)
            with Device.find("host", 0) as again:
                self.assertEqual(again.info.clients, before + 2)
            self.assertEqual(device.mode, "host")
        self.assertTrue(device.closed)
        device.close()
        self.assertEqual(phoenix.devices()[0].clients, before)

    def test_errors_say_why(self):
        with self.assertRaises(phoenix.DeviceError) as caught:
            Device(99)
        self.assertEqual(caught.exception.errno, errno.ENODEV)
        self.assertIn("ENODEV", caught.exception.strerror)
        with self.assertRaises(phoenix.DeviceError):
            Device.find("nvidia", 0)
        with self.assertRaises(phoenix.Error):
            Device.find_bdf("no address")

    def test_device_of(self):
        self.assertIsNone(phoenix.device_of(bytearray(10)))
        with Device(0) as device, device.alloc(1) as buffer:
            self.assertEqual(phoenix.device_of(buffer), 0)


class Buffers(unittest.TestCase):
    def test_allocated(self):
        with Device(0) as device:
            buffer = device.alloc(100_000)
            self.assertEqual((buffer.nbytes, buffer.registered), (131072, True))
            buffer.copy_from(DATA[:100_000], 31)
            self.assertEqual(buffer.to_bytes(31, 100_000), DATA[:100_000])
            for offset, nbytes in ((-1, 1), (131072, 1), (0, 131073)):
                with self.assertRaises(ValueError):
                    buffer.to_bytes(offset, nbytes)
            self.assertEqual(device.stats().registrations, 1)
            with self.assertRaisesRegex(phoenix.BusyError, "uses in flight"):
                device.close()
            buffer.close()
            buffer.close()
            self.assertEqual(device.stats().registrations, 0)
            with self.assertRaisesRegex(ValueError, "closed"):
                buffer.to_bytes()

    def test_wrapped(self):
        data = bytearray(DATA)
        with Buffer(data) as buffer:
            self.assertEqual((len(buffer), buffer.registered), (SIZE, False))
            with self.assertRaises(BufferError):
                data.clear()
            buffer.copy_from(b"abc", 5)
        self.assertEqual(data[5:8], b"abc")
        data.clear()
        with Buffer(b"text") as buffer, self.assertRaises(ValueError):
            buffer.copy_from(b"t")

    @needs_numpy
    def test_device_memory_of_others(self):
        """What another library made: registered as whole pages, in many threads."""
        with Device(0) as device, device.alloc(4 << 16) as owner:
            values = numpy.asarray(owner.array())
            owner.close()  # its memory lives on in the array

            def work(first):
                for _ in range(50):
                    with Buffer(values[first:first + (1 << 16)]) as buffer:
                        assert buffer.registered and buffer.device.id == 0
                        buffer.copy_from(DATA[first:first + 100])
                        assert buffer.to_bytes(0, 100) == DATA[first:first + 100]
                return True

            with ThreadPoolExecutor(4) as pool:
                self.assertTrue(all(pool.map(work, [i << 16 for i in range(4)])))
            with Buffer(values[100:1000]) as buffer:  # no page is all its own
                buffer.copy_from(b"inside")
            self.assertEqual(values[100:106].tobytes(), b"inside")
            self.assertEqual(device.stats().registrations, 0)

    def test_dropped_without_close(self):
        before = phoenix.devices()[0].clients
        device = Device(0)
        device.alloc(65536)
        self.assertEqual(device.stats().registrations, 0)
        del device
        self.assertEqual(phoenix.devices()[0].clients, before)

    @needs_numpy
    def test_arrays_outlive_the_buffer(self):
        with Device(0) as device, device.alloc(65536) as buffer:
            buffer.copy_from(DATA[:65536])
            values = numpy.asarray(buffer.array("<u2", (4, 8), offset=16))
            with self.assertRaises(ValueError):
                buffer.array("<u2", (40000,))
        self.assertEqual(values.tobytes(), DATA[16:80])
        values[0, 0] = 7
        self.assertEqual(values[0, 0], 7)


class Transfers(Files):
    def test_reads(self):
        path = self.file(DATA)
        with Device(0) as device, device.alloc(SIZE) as buffer, File(path) as file:
            self.assertEqual(file.size, SIZE)
            for nbytes, offset, at in ((SIZE, 0, 0), (1, 5, 7), (5000, 4095, 1), (0, 0, 0)):
                self.assertEqual(file.read(buffer, nbytes, offset=offset, buf_offset=at), nbytes)
                self.assertEqual(buffer.to_bytes(at, nbytes), DATA[offset:offset + nbytes])
            self.assertEqual(file.read(buffer, 100, offset=SIZE - 10), 10)
            self.assertEqual(file.read(buffer, 100, offset=SIZE), 0)
            with self.assertRaises(ValueError):
                file.read(buffer, buffer.nbytes, buf_offset=1)
            with self.assertRaises(phoenix.Error) as caught:
                file.read(buffer, 1, offset=-1)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            with self.assertRaises(OSError):
                file.write(buffer)  # open for reading

    def test_any_object(self):
        with File(self.file(DATA), direct=False) as file:
            target = bytearray(1000)
            self.assertEqual(file.read(target, offset=33), 1000)
            self.assertEqual(target, DATA[33:1033])
            with self.assertRaises(ValueError):
                file.read(b"readonly")
            parts = [bytearray(10), bytearray(0), bytearray(4000)]
            self.assertEqual(file.readv(parts, offset=1), 4010)
            self.assertEqual(b"".join(parts), DATA[1:4011])

    def test_writes(self):
        path = os.path.join(self.folder, "data")
        with Device(0) as device, device.alloc(SIZE) as buffer:
            buffer.copy_from(DATA)
            with File(path, "w") as file:
                self.assertEqual(file.write(buffer, SIZE), SIZE)
                self.assertEqual(file.write(b"tail", offset=SIZE), 4)
                self.assertEqual(file.writev([b"one", bytearray(b"two")], offset=10), 6)
        self.assertEqual(self.contents(), DATA[:10] + b"onetwo" + DATA[16:] + b"tail")

    def test_open(self):
        path = self.file(DATA)
        with self.assertRaises(FileNotFoundError):
            File(os.path.join(self.folder, "none"))
        with self.assertRaises(FileExistsError):
            File(path, "x")
        with self.assertRaises(ValueError):
            File(path, "rb")
        with File(path, direct=False) as file:
            self.assertFalse(file.direct)
            info = file.path(bytearray(100))
            self.assertEqual((info.path, info.allowed), ("direct", True))
            again = File.from_fd(file.fileno())
            self.assertEqual(again.read(bytearray(10)), 10)
            again.close()
            self.assertEqual(file.read(bytearray(10)), 10)
        with self.assertRaisesRegex(ValueError, "closed"):
            file.read(bytearray(10))

    def test_direct_by_itself(self):
        """O_DIRECT where there is such a thing, and the same bytes in either case."""
        path = self.file(DATA)
        with File(path) as file:
            target = bytearray(SIZE)
            file.read(target)
            self.assertEqual(target, DATA)

    @needs_numpy
    def test_numpy(self):
        values = numpy.frombuffer(DATA[:80_000], dtype="<f8").reshape(100, 100)
        path = os.path.join(self.folder, "data")
        with File(path, "w+") as file:
            self.assertEqual(file.write(values), 80_000)
            got = numpy.zeros_like(values)
            file.read(got)
        self.assertEqual(got.tobytes(), values.tobytes())

    @needs_torch
    def test_torch(self):
        values = torch.arange(10_000, dtype=torch.int32)
        with File(os.path.join(self.folder, "data"), "w+") as file:
            self.assertEqual(file.write(values), 40_000)
            got = torch.zeros_like(values)
            file.read(got)
        self.assertTrue(torch.equal(got, values))

    def test_the_lock_is_given_up(self):
        """While one thread is in a long transfer, another one's longest stop is shorter."""
        path = self.file(b"")
        os.truncate(path, 128 << 20)
        target = mmap.mmap(-1, 128 << 20)
        with File(path, direct=False) as file:
            file.read(target)
            self.assertTrue(any(self.runs_beside(file, target) for _ in range(30)))

    @staticmethod
    def runs_beside(file, target):
        times = []

        def read():
            start = time.monotonic()
            file.read(target)
            times.extend((start, time.monotonic()))

        reader = threading.Thread(target=read)
        stops, last = [], time.monotonic()
        reader.start()
        while reader.is_alive():
            time.sleep(0.0005)
            now = time.monotonic()
            stops.append(now - last)
            last = now
        return max(stops) < (times[1] - times[0]) / 2


class Batches(Files):
    def requests(self, file, buffer, parts=20):
        part = SIZE // parts
        return [Request(file, buffer, part, i * part, i * part) for i in range(parts)]

    def test_reads_and_writes(self):
        path = self.file(DATA)
        with Device(0) as device, device.alloc(SIZE) as buffer:
            with File(path) as file:
                batch = Batch.read(self.requests(file, buffer))
                self.assertEqual(batch.wait(), [SIZE // 20] * 20)
                self.assertEqual(buffer.to_bytes(0, SIZE), DATA)
                with self.assertRaises(ValueError):
                    batch.wait()
            with File(os.path.join(self.folder, "copy"), "w") as file:
                Batch.write(self.requests(file, buffer)).wait()
        self.assertEqual(self.contents("copy"), DATA)
        self.assertEqual(Batch.read([]).wait(), [])

    def test_one_fails(self):
        with File(self.file(DATA)) as file:
            target = bytearray(10)
            batch = Batch.read([Request(file, target), Request(file, target, 10, -1)])
            with self.assertRaises(phoenix.BatchError) as caught:
                batch.wait()
            self.assertEqual(caught.exception.results, [10, -errno.EINVAL])
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            copy = pickle.loads(pickle.dumps(caught.exception))
            self.assertEqual((copy.errno, copy.results), (errno.EINVAL, [10, -errno.EINVAL]))

    def test_a_bad_request_starts_nothing(self):
        with File(self.file(DATA)) as file:
            with self.assertRaises(ValueError):
                Batch.read([Request(file, bytearray(10)), Request(file, bytearray(10), 11)])
            file.close()  # nothing is in flight

    def test_closing_waits_for_it(self):
        with Device(0) as device, File(self.file(DATA)) as file:
            buffer = device.alloc(SIZE)
            batch = Batch.read(self.requests(file, buffer))
            for one in (file, buffer):
                with self.assertRaises(phoenix.BusyError):
                    one.close()
            batch.cancel()
            buffer.close()


class Queues(Files):
    def test_one_by_one(self):
        with Device(0) as device, device.alloc(SIZE) as buffer, Queue(8) as queue, \
                File(self.file(DATA)) as file:
            for i in range(8):
                queue.read(file, buffer, 1000, offset=i * 1000, buf_offset=i * 1000, token=i)
            with self.assertRaises(BlockingIOError):
                queue.read(file, buffer, 1)
            self.assertEqual(queue.submit([]), [])
            seen = queue.wait(3) + queue.wait(0)
            while len(queue):
                seen += queue.wait()
            self.assertEqual(sorted(one.token for one in seen), list(range(8)))
            self.assertEqual({(one.result, one.error) for one in seen}, {(1000, None)})
            self.assertEqual(buffer.to_bytes(0, 8000), DATA[:8000])
            self.assertEqual(queue.wait(), [])  # nothing in flight: it does not wait

    def test_more_than_there_is_room_for(self):
        with Queue(4) as queue, File(self.file(DATA)) as file:
            targets = [bytearray(10) for _ in range(6)]
            keys = queue.submit([Request(file, target, token=i)
                                 for i, target in enumerate(targets)])
            self.assertEqual(len(keys), 4)
            self.assertEqual({one.token for one in queue.wait(4)}, {0, 1, 2, 3})
            targets[5].append(1)  # never started: not held

    def test_failures_complete(self):
        with Queue(4) as queue, File(self.file(DATA)) as file:
            queue.read(file, bytearray(10), offset=-1, token="bad")
            (one,) = queue.wait()
            self.assertEqual((one.token, one.result), ("bad", -errno.EINVAL))
            self.assertIsInstance(one.error, phoenix.Error)
            self.assertFalse(one.cancelled)

    def test_writes(self):
        with Queue(4) as queue:
            with File(os.path.join(self.folder, "data"), "w") as file:
                queue.write(file, b"hello", offset=3)
                self.assertEqual(queue.wait()[0].result, 5)
        self.assertEqual(self.contents(), b"\0\0\0hello")

    def test_what_is_in_flight_is_kept(self):
        with Queue(4) as queue:
            queue.read(File(self.file(DATA)), bytearray(1000))  # nobody else holds them
            self.assertEqual(queue.wait()[0].result, 1000)

    def test_closing_drops_the_rest(self):
        file = File(self.file(DATA))
        queue = Queue(8)
        targets = [bytearray(1000) for _ in range(8)]
        for target in targets:
            queue.read(file, target)
        with self.assertRaises(phoenix.BusyError):
            file.close()
        queue.close()
        file.close()
        for target in targets:
            target.append(0)  # let go of
        with self.assertRaises(ValueError):
            queue.wait()

    def test_poll(self):
        with Queue(4) as queue, File(self.file(DATA)) as file:
            fd = queue.fileno()
            queue.read(file, bytearray(10))
            seen = []
            while not seen:
                ready, _, _ = select.select([fd], [], [], 30)
                self.assertTrue(ready)
                try:
                    os.read(fd, 8)
                except BlockingIOError:
                    pass
                seen = queue.wait(0)
            self.assertEqual(seen[0].result, 10)

    def test_cancel(self):
        with Queue(4) as queue, File(self.file(DATA)) as file:
            self.assertFalse(queue.cancel(12345))
            key = queue.read(file, bytearray(10))
            cancelled = queue.cancel(key)
            self.assertEqual(queue.wait()[0].cancelled, cancelled)

    def test_timeout(self):
        with Queue(4) as queue:
            start = time.monotonic()
            self.assertEqual(queue.wait(1, timeout=0.05), [])
            self.assertLess(time.monotonic() - start, 10)
            with self.assertRaises(ValueError):
                queue.wait(5, max=4)

    def test_many_threads(self):
        path = self.file(DATA)
        with Queue(64) as queue, File(path) as file:
            lock, seen = threading.Lock(), []

            def submit(which):
                for i in range(50):
                    while True:
                        try:
                            queue.read(file, bytearray(100), offset=i, token=(which, i))
                            break
                        except BlockingIOError:
                            time.sleep(0.001)

            def take():
                while len(seen) < 200:
                    taken = queue.wait(1, timeout=0.05)
                    with lock:
                        seen.extend(one.token for one in taken)

            threads = [threading.Thread(target=submit, args=(i,)) for i in range(4)] + \
                [threading.Thread(target=take) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            self.assertEqual(len(set(seen)), 200)
            self.assertEqual(len(queue), 0)


class Streams(Files):
    def test_at_once_on_a_host_device(self):
        stream = Stream()
        with Device(0) as device, device.alloc(SIZE) as buffer, File(self.file(DATA)) as file:
            transfer = stream.read(file, buffer, 5000, offset=7, buf_offset=9)
            self.assertTrue(transfer.done)
            self.assertEqual(transfer.result(), 5000)
            self.assertEqual(buffer.to_bytes(9, 5000), DATA[7:5007])
            with self.assertRaises(phoenix.UnregisteredError):
                stream.read(file, bytearray(10))  # no device memory
            with self.assertRaises(OSError):
                stream.write(file, buffer, 10).result()  # open for reading

    def test_handles(self):
        class Cuda:
            cuda_stream = 77

        class Protocol:
            def __cuda_stream__(self):
                return (0, 78)

        class Cupy:
            ptr = 79

        self.assertEqual([Stream(one).handle for one in (None, 5, Cuda(), Protocol(), Cupy())],
                         [None, 5, 77, 78, 79])
        with self.assertRaises(TypeError):
            Stream("text")


if __name__ == "__main__":
    unittest.main()
