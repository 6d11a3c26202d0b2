#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: gpu_clients.sh KIT
# Published clients of cuFile on a machine with an NVIDIA GPU, on NVIDIA's
# libcufile and on ours in turns, and our safetensors loader beside others. KIT
# is what `make gpu-kit` built. Each row is verified; limits end as
# "BAR name value limit pass|miss".
#
# WHEELS names a folder with the wheels of the clients that are not installed
# (kvikio, libkvikio, rapids-logger, fastsafetensors, cufile-python, lmcache). The work
# files go to TMPDIR, which must be on a disk. For the time of the measurement it
# makes the udev record without which NVIDIA's library refuses a file (as root).
# PHX_BENCH_SECONDS (330), PHX_BENCH_TURNS (9), PHX_BENCH_ONLY="kvikio_read ...".
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
kit=$(cd "${1:?usage: gpu_clients.sh KIT}" && pwd) || exit 1
TMPDIR=${TMPDIR:-/var/tmp}
work=$(mktemp -d -p "$TMPDIR" phx-clients.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
case $(stat -f -c %T "$work") in
tmpfs|ramfs) echo "$0: $work lives in memory; set TMPDIR to a folder on a disk" >&2; exit 1 ;;
esac

if [ -n "${WHEELS:-}" ]; then
	set -- "$WHEELS"/*.whl
	[ -e "$1" ] || { echo "$0: no wheels in $WHEELS" >&2; exit 1; }
	python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir \
		--disable-pip-version-check --root-user-action=ignore \
		--target "$work/site" "$@" || exit 1
	PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH}
	export PYTHONPATH
fi

echo "$(uname -srm), $(nproc) processors, $work: $(stat -f -c %T "$work"), $(date -u +%T)"
command -v nvidia-smi >/dev/null &&
	nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$kit/bin/phx" --version
PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 python3 "$here/clients/turns.py" "$kit" "$work"
status=$?
[ ! -s "$work/cufile.log" ] || { echo "cufile.log:"; tail -5 "$work/cufile.log"; }
exit $status
