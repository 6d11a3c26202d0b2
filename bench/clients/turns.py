# SPDX-License-Identifier: Apache-2.0
"""Runs published clients of cuFile on two libraries, in turns, and compares.

Each client (the files beside this one) runs twice at a time, once on NVIDIA's
libcufile and once under `phx run`; after one warm-up each the two do the same
case one after the other, again and again, so that what the machine does to one
it does to the other. A row is the median of each, and the median of the ratios
of the pairs. Each turn's data is verified, and so is which library was mapped.

Usage: turns.py KIT WORK, by gpu_clients.sh.
"""

import glob
import json
import os
import queue
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KIT, WORK = (os.path.realpath(path) for path in sys.argv[1:3])
START = time.monotonic()
SECONDS = float(os.environ.get("PHX_BENCH_SECONDS", "330"))
TURNS = int(os.environ.get("PHX_BENCH_TURNS", "9"))
RAW_GIB = float(os.environ.get("PHX_BENCH_RAW_GIB", "1"))
MODEL_GIB = float(os.environ.get("PHX_BENCH_MODEL_GIB", "4.2"))
ONLY = os.environ.get("PHX_BENCH_ONLY", "").split()
RAW, MODEL = os.path.join(WORK, "raw"), os.path.join(WORK, "model.safetensors")
MODEL_BYTES = int(MODEL_GIB * 2**30)
READY_SECONDS = 120
TURN_SECONDS = 60

bars = []


def log(text):
    print(f"[{time.monotonic() - START:5.1f}] {text}", flush=True)


def bar(name, value, limit):
    """Of a value that must reach limit; None: it could not be measured."""
    passed = value is not None and value >= limit
    bars.append(passed)
    shown = "none" if value is None else f"{value:.3f}"
    print(f"BAR {name} {shown} {limit} {'pass' if passed else 'miss'}", flush=True)
    return passed


# ------------------------------------------------------------------- libraries


def nvidia_folder():
    """Folder with NVIDIA's library under both of its names; None where it is not installed."""
    found = []
    for folder in sys.path:
        found += glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libcufile.so.0"))
    for folder in ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib",
                   "/usr/lib/x86_64-linux-gnu"):
        found += glob.glob(os.path.join(folder, "libcufile.so.0"))
    if not found:
        return None
    folder = os.path.join(WORK, "nvidia")
    os.makedirs(folder, exist_ok=True)
    for name in ("libcufile.so.0", "libcufile.so"):
        link = os.path.join(folder, name)
        if not os.path.islink(link):
            os.symlink(os.path.realpath(found[0]), link)
    return folder + ":" + os.path.dirname(os.path.realpath(found[0]))


def environment(**more):
    env = {**os.environ, "CLIENT_RAW": RAW, "CLIENT_MODEL": MODEL, "CLIENT_WORK": WORK,
           "CLIENT_MODEL_BYTES": str(MODEL_BYTES), "CUFILE_ALLOW_COMPAT_MODE": "true",
           "CUFILE_FORCE_COMPAT_MODE": "true", "PYTHONUNBUFFERED": "1",
           "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("PHX_PATH", "PHX_CONNECTOR", "PHX_IO_ENGINE"):
        env.pop(name, None)
    env.update(more)
    return env


def with_paths(env, first):
    old = env.get("LD_LIBRARY_PATH")
    return {**env, "LD_LIBRARY_PATH": first + (":" + old if old else "")}


class Failed(Exception):
    pass


class Worker:
    """A client that runs, on one library."""

    def __init__(self, script, library, nvidia=None, **more):
        self.name = f"{script} on {library}"
        self.moved = 0
        self.library = library
        self.log = os.path.join(WORK, self.name.replace(" ", "-") + f"-{id(self):x}.log")
        env = environment(**more)
        command = [sys.executable, os.path.join(HERE, script + ".py")]
        if library == "ours":
            command = [os.path.join(KIT, "bin", "phx"), "run", "--"] + command
        elif nvidia:
            env = with_paths(env, nvidia)
        with open(self.log, "w") as errors:
            self.process = subprocess.Popen(command, env=env, cwd=WORK, stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors, text=True)
        self.answers = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def _answer(self, seconds):
        try:
            line = self.answers.get(timeout=seconds)
        except queue.Empty:
            raise Failed(f"{self.name}: no answer in {seconds:.0f} s{self.tail()}") from None
        if line is None:
            raise Failed(f"{self.name}: ended with {self.process.wait()}{self.tail()}")
        return json.loads(line)

    def tail(self):
        with open(self.log, errors="replace") as file:
            lines = file.read().strip().splitlines()[-12:]
        return "".join("\n    | " + line for line in lines)

    def wait_ready(self):
        answer = self._answer(READY_SECONDS)
        return ", ".join(f"{key} {value}" for key, value in answer["about"].items())

    def turn(self, case):
        """Seconds and bytes of one turn; Failed when it, or its data, went wrong."""
        try:
            self.process.stdin.write(case + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name}: ended with {self.process.wait()}{self.tail()}") from None
        answer = self._answer(TURN_SECONDS)
        if "error" in answer:
            raise Failed(f"{self.name}: {case}: {answer['error']}{self.tail()}")
        self._check_library(answer)
        return answer["seconds"], answer["bytes"]

    def _check_library(self, answer):
        """What is mapped does not tell (PyTorch maps NVIDIA's in any case); what has moved does,
        but for the headers that a client reads by itself."""
        moved, self.moved = answer["moved"] - self.moved, answer["moved"]
        if self.library == "ours" and moved < 0.95 * (answer["bytes"] or 1):
            raise Failed(f"{self.name}: libphoenix has moved only {moved} bytes; "
                         f"mapped are {answer['libraries']}")
        if self.library == "nvidia" and (moved or not answer["libraries"]):
            raise Failed(f"{self.name}: is on other libraries: {answer['libraries']}")

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


# ----------------------------------------------------------------------- turns


def measure(workers, case, seconds):
    """Rates in GB/s of each worker, in turns; an error's text for one that fails."""
    rates = [[] for _ in workers]
    errors = [None] * len(workers)
    until = time.monotonic() + min(seconds, time_left())
    for turn in range(TURNS + 1):
        if turn > 3 and time.monotonic() > until:
            break
        order = range(len(workers)) if turn % 2 else range(len(workers) - 1, -1, -1)
        for i in order:
            if errors[i]:
                continue
            try:
                taken, moved = workers[i].turn(case)
            except Failed as failure:
                errors[i] = str(failure)
                continue
            if turn:  # the first one warms up
                rates[i].append((moved or 0) / taken / 1e9)
    return rates, errors


def time_left():
    return SECONDS - (time.monotonic() - START)


def row(client, case, libraries, rates, errors):
    """Print what was measured; the ratio of the last to the first."""
    for library, rate, error in zip(libraries, rates, errors):
        if error:
            print(f"FAILED {error}")
        elif rate:
            print(f"  {client} {case} {library}: {statistics.median(rate):.2f} GB/s"
                  f" ({min(rate):.2f} to {max(rate):.2f}, {len(rate)} turns)")
    sys.stdout.flush()
    if any(errors) or not all(rates):
        return None
    return statistics.median(b / a for a, b in zip(rates[0], rates[-1]))


def wanted(name):
    if ONLY and name not in ONLY:
        return False
    if time_left() < 20:
        log(f"{name}: not run, the time is used up (PHX_BENCH_SECONDS)")
        return False
    return True


def start(script, settings):
    """Workers that are ready, side by side; None for one that could not start."""
    workers = [Worker(script, **setting) for setting in settings]
    ready = []
    for worker in workers:
        try:
            about = worker.wait_ready()
            log(f"{worker.name}: ready{', ' + about if about else ''}")
            ready.append(worker)
        except Failed as failure:
            print(f"FAILED {failure}", flush=True)
            worker.close()
            ready.append(None)
    return ready


def close(workers):
    for worker in workers:
        if worker:
            worker.close()


def compare(client, cases, nvidia, seconds):
    """One client's cases on both libraries; a bar of 1.0 for each."""
    if not wanted(client):
        return
    workers = start(client, [{"library": "nvidia", "nvidia": nvidia}, {"library": "ours"}])
    for case in cases:
        ratio = None
        if all(workers):
            rates, errors = measure(workers, case, seconds)
            ratio = row(client, case, ("nvidia", "ours"), rates, errors)
        elif workers[1]:
            rates, errors = measure(workers[1:], case, seconds / 2)
            row(client, case, ("ours",), rates, errors)
        bar(f"{client}_{case}", ratio, 1.0)
    close(workers)


def works(client, cases, libraries, nvidia):
    """Cases that pass or fail. That they pass on ours is the bar, NVIDIA's is told."""
    if not wanted(client):
        return
    workers = start(client, [{"library": library, "nvidia": nvidia} for library in libraries])
    for case in cases:
        for library, worker in zip(libraries, workers):
            error = "it did not start"
            if worker:
                try:
                    worker.turn(case)
                    error = None
                except Failed as failure:
                    error = str(failure)
            print(f"  {client} {case} {library}: {'works' if not error else error}", flush=True)
            if library == "ours":
                bar(f"{client}_{case}", 0.0 if error else 1.0, 1.0)
    close(workers)


def loaders(nvidia):
    """Our loader beside safetensors' own and both ways of fastsafetensors."""
    names = ("safetensors", "fastsafetensors", "fastsafetensors-nogds", "phoenix")
    if not wanted("loaders"):
        return
    workers = start("loaders", [
        {"library": "either", "nvidia": nvidia, "CLIENT_LOADER": name,
         "PYTHONPATH": os.path.join(HERE, "..", "..", "python") + ":" +
         os.environ.get("PYTHONPATH", ""),
         "PHX_LIBRARY": os.path.join(KIT, "lib", "libphoenix.so.0")} for name in names])
    rates, errors = [[] for _ in names], ["did not start"] * len(names)
    running = [i for i, worker in enumerate(workers) if worker]
    if running:
        some_rates, some_errors = measure([workers[i] for i in running], "cached", 60)
        for i, rate, error in zip(running, some_rates, some_errors):
            rates[i], errors[i] = rate, error
    close(workers)
    row("loaders", "cached", names, rates, errors)
    ours = statistics.median(rates[-1]) if rates[-1] and not errors[-1] else None

    def ratio(peers):
        best = [statistics.median(rates[i]) for i in peers if rates[i] and not errors[i]]
        return ours / max(best) if ours and best else None

    bar("loader_to_safetensors", ratio([0]), 2.0)
    bar("loader_to_fastsafetensors", ratio([1, 2]), 1.2)


# ----------------------------------------------------------- what the others want


class Present:
    """A file that some client or library wants to see, there while it is needed."""

    def __init__(self, path, text=""):
        self.path = path
        self.text = text
        self.missing = not os.path.lexists(path)
        self.made = False

    def make(self):
        if not self.missing or self.made:
            return
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.path, "x") as file:
                self.made = True
                file.write(self.text)
        except OSError as error:
            log(f"cannot make {self.path}: {error}")

    def remove(self):
        if self.made:
            os.unlink(self.path)
            self.made = False


def udev_record(path):
    """cuFile refuses a file whose disk has no udev record."""
    device = os.stat(path).st_dev
    kind = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True,
                          check=True).stdout.strip().replace("ext2/ext3", "ext4")
    return Present(f"/run/udev/data/b{os.major(device)}:{os.minor(device)}",
                   f"E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE={kind}\n")


def gds_node():
    """fastsafetensors does not try cuFile unless this exists; it never opens it."""
    return Present("/dev/nvidia-fs0")


def refused(nvidia):
    """Before there is a udev record: ours works where NVIDIA's refuses."""
    if not wanted("refused"):
        return
    workers = start("torch_gds", [{"library": "nvidia", "nvidia": nvidia}, {"library": "ours"}])
    results = []
    for library, worker in zip(("nvidia", "ours"), workers):
        try:
            if not worker:
                raise Failed("it did not start")
            worker.turn("works")
            results.append(None)
            text = "works"
        except Failed as failure:
            results.append(str(failure))
            text = "refused: " + str(failure).splitlines()[0]
        print(f"  torch_gds without udev record, {library}: {text}", flush=True)
    close(workers)
    bar("works_without_udev_record", 0.0 if results[1] else 1.0, 1.0)


def main():
    nvidia = nvidia_folder()
    log(f"NVIDIA's libcufile: {nvidia or 'not found'}")
    subprocess.run([sys.executable, os.path.join(HERE, "data.py"), RAW, str(RAW_GIB), MODEL,
                    str(MODEL_GIB)], env=environment(), check=True, timeout=150)
    log(f"files: {os.path.getsize(RAW) / 2**30:.2f} GiB, "
        f"model of {os.path.getsize(MODEL) / 2**30:.2f} GiB")
    record, node = udev_record(RAW), gds_node()
    try:
        if record.missing:
            refused(nvidia)
        else:
            log("there is a udev record: nothing is refused for want of one")
        record.make()
        works("cuda_bindings", ("transfers", "batch", "stream"), ("nvidia", "ours"), nvidia)
        works("cufile_python", ("chunks",), ("nvidia", "ours"), nvidia)
        works("phxfile_slab", ("slab",), ("ours",), nvidia)
        works("lmcache_slab", ("cufile",), ("nvidia", "ours"), nvidia)
        works("lmcache_slab", ("phx",), ("ours",), nvidia)
        compare("kvikio_read", ("cached", "cold"), nvidia, 20)
        compare("torch_gds", ("load", "save"), nvidia, 22)
        node.make()
        compare("fastsafetensors_load", ("cached",), nvidia, 25)
        loaders(nvidia)
    finally:
        node.remove()
        record.remove()
    log(f"{sum(bars)} bars passed, {len(bars) - sum(bars)} missed")
    return 0 if bars and all(bars) else 1


if __name__ == "__main__":
    sys.exit(main())
