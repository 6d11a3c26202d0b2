# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel: the Python package with the libraries of a build inside.

Usage: wheel.py BUILD-DIR OUTPUT-DIR

The build must have been made for it (`make wheel`): its libraries need nothing but
glibc, of the version that the wheel's name says, and each other, which they find
beside themselves. The same input gives the same bytes.
"""

import base64
import glob
import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# In the build, and in the package: the cuFile library lies where no loader looks.
LIBRARIES = {"lib/libphoenix.so.0": "lib/libphoenix.so.0",
             "lib/libflagcx.so.0": "lib/libflagcx.so.0",
             "lib/libphxfile.so.0": "lib/libphxfile.so.0",
             "lib/libfgds.so.0": "lib/libfgds.so.0",
             "lib/phoenix/cufile/libcufile.so.0": "lib/phoenix/cufile/libcufile.so.0"}
SYSTEM = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libm.so.6"}


def say(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def stripped(build, path, folder):
    """The library without debug information."""
    target = os.path.join(folder, os.path.basename(path))
    subprocess.run(["strip", "-S", "-o", target, os.path.realpath(os.path.join(build, path))],
                   check=True)
    with open(target, "rb") as file:
        return file.read()


def platform(build):
    """manylinux_MAJOR_MINOR_ARCH of what the libraries need."""
    newest, own = (2, 17), {os.path.basename(path) for path in LIBRARIES}
    for path, name in LIBRARIES.items():
        file = os.path.join(build, path)
        dynamic = say(["readelf", "-d", file])
        needed = set(re.findall(r"NEEDED\).*\[(.*)\]", dynamic))
        if not needed <= SYSTEM | own:
            sys.exit(f"wheel.py: {path} needs {sorted(needed - SYSTEM - own)}")
        up = os.path.relpath("lib", os.path.dirname(name))
        beside = "$ORIGIN" if up == "." else f"$ORIGIN/{up}"
        if needed & own and re.findall(r"PATH\).*\[(.*)\]", dynamic) != [beside]:
            sys.exit(f"wheel.py: {path} does not look for libraries in {beside}")
        for version in re.findall(r"GLIBC_(\d+)\.(\d+)", say(["readelf", "-V", file])):
            newest = max(newest, tuple(map(int, version)))
    return f"manylinux_{newest[0]}_{newest[1]}_{os.uname().machine}"


def metadata(project):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}",
             f"Summary: {project['description']}", f"License: {project['license']['text']}",
             f"Requires-Python: {project['requires-python']}"]
    lines += [f"Classifier: {one}" for one in project["classifiers"]]
    lines.append("Description-Content-Type: text/markdown")
    with open(os.path.join(ROOT, "docs", "python.md")) as file:
        return "\n".join(lines) + "\n\n" + file.read()


def contents(build, project, tag, folder):
    """Name and bytes of every file but RECORD, in order."""
    info = f"{project['name']}-{project['version']}.dist-info"
    for path in sorted(glob.glob(os.path.join(ROOT, "python", "phoenix", "*"))):
        if path.endswith((".py", "py.typed")):
            with open(path, "rb") as file:
                yield "phoenix/" + os.path.basename(path), file.read()
    for path, name in sorted(LIBRARIES.items()):
        yield "phoenix/" + name, stripped(build, path, folder)
    with open(os.path.join(ROOT, "LICENSES", "Apache-2.0.txt"), "rb") as file:
        yield f"{info}/licenses/Apache-2.0.txt", file.read()
    yield f"{info}/METADATA", metadata(project).encode()
    yield f"{info}/WHEEL", ("Wheel-Version: 1.0\nGenerator: phoenix\nRoot-Is-Purelib: false\n"
                            f"Tag: {tag}\n").encode()


def entry(name):
    about = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    about.compress_type = zipfile.ZIP_DEFLATED
    about.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
    return about


def write(build, output):
    with open(os.path.join(ROOT, "python", "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)["project"]
    tag = f"py3-none-{platform(build)}"
    os.makedirs(output, exist_ok=True)
    for old in glob.glob(os.path.join(output, f"{project['name']}-*.whl")):
        os.unlink(old)
    path = os.path.join(output, f"{project['name']}-{project['version']}-{tag}.whl")
    folder = os.path.join(output, "stripped")
    os.makedirs(folder, exist_ok=True)
    record = []
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in contents(build, project, tag, folder):
            wheel.writestr(entry(name), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
        name = f"{project['name']}-{project['version']}.dist-info/RECORD"
        wheel.writestr(entry(name), "\n".join(record + [f"{name},,"]) + "\n")
    print(path)


if __name__ == "__main__":
    write(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
