# SPDX-License-Identifier: Apache-2.0
"""python -m phoenix: what `phx run` does, and the devices, of the libraries in this package."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile

import phoenix

USAGE = """usage: python -m phoenix devices
       python -m phoenix run [--] PROGRAM [ARG...]

devices  lists what there is
run      starts PROGRAM so that libcufile.so is Phoenix's, and libphxfile.so and
         libfgds.so are found; for packages that have the libraries inside
"""


def devices() -> int:
    for one in phoenix.devices():
        reason = f" ({one.reason})" if one.reason else ""
        print(f"{one.id}: {one.vendor} {one.name} {one.bdf} {one.mode}{reason}")
    return 0


def _links(folder: str) -> str:
    """The libraries under the names without a number, by which some open them."""
    cufile = os.path.join(folder, "phoenix", "cufile", "libcufile.so.0")
    which = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    links = os.path.join(tempfile.gettempdir(), f"phoenix-{os.getuid()}-{which}")
    os.makedirs(links, mode=0o700, exist_ok=True)
    about = os.lstat(links)
    if about.st_uid != os.getuid() or about.st_mode & 0o077 or not os.path.isdir(links):
        sys.exit(f"python -m phoenix: {links} is somebody else's")
    for target in (cufile, os.path.join(folder, "libphxfile.so.0"),
                   os.path.join(folder, "libfgds.so.0")):
        for name in (os.path.basename(target), os.path.basename(target)[:-2]):
            fresh = os.path.join(links, f".{name}.{os.getpid()}")
            os.symlink(target, fresh)
            os.replace(fresh, os.path.join(links, name))
    return links


def _before(first: str, variable: str) -> str:
    old = os.environ.get(variable)
    return first + (":" + old if old else "")


def run(command: list[str]) -> int:
    folder = os.path.join(os.path.dirname(os.path.abspath(phoenix.__file__)), "lib")
    cufile = os.path.join(folder, "phoenix", "cufile", "libcufile.so.0")
    if not os.path.isfile(cufile):
        sys.exit("python -m phoenix: this package has no libraries inside: use phx run")
    env = {**os.environ, "LD_PRELOAD": _before(cufile, "LD_PRELOAD"),
           "LD_LIBRARY_PATH": _before(f"{_links(folder)}:{folder}", "LD_LIBRARY_PATH")}
    try:
        os.execvpe(command[0], command, env)
    except OSError as failure:
        sys.stderr.write(f"python -m phoenix: {command[0]}: {failure.strerror}\n")
        return 127 if isinstance(failure, FileNotFoundError) else 126


def main(arguments: list[str]) -> int:
    if arguments == ["devices"]:
        return devices()
    if arguments[:1] == ["run"]:
        command = arguments[2:] if arguments[1:2] == ["--"] else arguments[1:]
        if command:
            return run(command)
    sys.stderr.write(USAGE)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
