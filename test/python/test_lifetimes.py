# SPDX-License-Identifier: Apache-2.0
"""Forks, and interpreters that end in the middle of everything."""

import os
import signal
import subprocess
import sys
import textwrap
import unittest

import phoenix
from common import Files, noise
from phoenix import Batch, Buffer, Device, File, Queue, Request, Stream

DATA = noise(200_000, 3)


class Forks(Files):
    def child(self, work):
        """Exit status of a child that does the work; it must end, and by itself."""
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            status = 1
            try:
                work()
                status = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_a_child_transfers(self):
        path = self.file(DATA)
        with Device(0) as device, device.alloc(200_000) as buffer, File(path) as file:
            file.read(buffer)

            def work():
                target = bytearray(1000)
                assert file.read(target, offset=5) == 1000 and target == DATA[5:1005]
                assert file.read(buffer, 10, offset=1) == 10  # its own copy
                with Queue(4) as queue:
                    queue.read(file, target)
                    assert queue.wait()[0].result == 1000
                buffer.close()
                file.close()

            self.assertEqual(self.child(work), 0)
            self.assertEqual(buffer.to_bytes(0, 10), DATA[:10])

    def test_queues_and_batches_are_the_parents(self):
        path = self.file(DATA)
        with File(path) as file, Queue(8) as queue:
            targets = [bytearray(1000) for _ in range(8)]
            for target in targets[:4]:
                queue.read(file, target)
            batch = Batch.read([Request(file, target) for target in targets[4:]])

            def work():
                for call in (lambda: queue.wait(), lambda: queue.read(file, bytearray(1)),
                             lambda: batch.wait()):
                    try:
                        call()
                    except ChildProcessError:
                        continue
                    raise AssertionError("the parent's, and used")
                queue.close()
                file.close()

            self.assertEqual(self.child(work), 0)
            self.assertEqual(batch.wait(), [1000] * 4)
            seen = []
            while len(seen) < 4:
                seen += queue.wait()
            self.assertEqual({bytes(target) for target in targets}, {DATA[:1000]})


class Ends(Files):
    """Scripts that leave things as they are; the interpreter must end well."""

    def run_script(self, text, status=0):
        path = self.file(DATA)
        script = "import os, sys, threading, time\nimport phoenix\nfrom phoenix import *\n" \
            f"path = {path!r}\n" + textwrap.dedent(text)
        done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertNotIn("Exception ignored", done.stderr)
        return done.stdout

    def test_nothing_closed(self):
        self.run_script("""
            device = Device(0)
            buffer = device.alloc(1 << 20)
            file = File(path)
            queue = Queue(64)
            for i in range(64):
                queue.read(file, buffer, 1000, buf_offset=1000 * i)
            batch = Batch.read([Request(file, buffer, 1000)] * 100)
            transfer = Stream().read(file, buffer, 1000)
        """)

    def test_in_flight_into_what_python_frees(self):
        self.run_script("""
            queue = Queue(256)
            big = path + ".big"
            with open(big, "wb") as f:
                f.truncate(1 << 26)
            file = File(big, direct=False)
            for i in range(256):
                queue.read(file, bytearray(1 << 18), offset=i << 18)
        """)

    def test_a_cycle(self):
        self.run_script("""
            class Node:
                pass
            node = Node()
            node.self = node
            node.buffer = Device(0).alloc(65536)
            node.queue = Queue(4)
            node.queue.read(File(path), node.buffer, 100)
        """)

    def test_a_thread_waits(self):
        self.run_script("""
            queue = Queue(4)
            file = File(path)
            def wait():
                while True:
                    try:
                        queue.wait(1)
                        time.sleep(0.01)
                    except (ValueError, phoenix.Error):
                        return
            threading.Thread(target=wait, daemon=True).start()
            time.sleep(0.1)
        """)

    def test_modules_cleared(self):
        self.run_script("""
            keep = [Device(0).alloc(65536), File(path), Queue(4), phoenix.memory(bytearray(9))]
            sys.modules["keep"] = keep
            import builtins
            builtins.keep = keep
        """)

    def test_exit_from_a_thread_of_a_child(self):
        out = self.run_script("""
            queue = Queue(4)
            file = File(path)
            queue.read(file, bytearray(1000))
            pid = os.fork()
            if pid == 0:
                sys.exit(5)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), queue.wait()[0].result)
        """)
        self.assertEqual(out.split(), ["5", "1000"])

    def test_interrupted_wait(self):
        """A signal that raises in the middle of the calls leaves nothing held."""
        self.run_script("""
            import signal
            queue = Queue(4)
            file = File(path)
            signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                while True:
                    queue.read(file, bytearray(1000))
                    queue.wait(1)
            except KeyboardInterrupt:
                queue.close()
                file.close()
        """)


if __name__ == "__main__":
    unittest.main()
