#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: gpu.sh KIT [bench_gpu's options]
# Measures files and GPU memory beside cuFile in its compatibility mode, a plain
# loop and the disk alone; KIT is what `make gpu-kit` built. The work files go
# to TMPDIR, which must be on a disk.
#
# cuFile refuses a file whose disk has no udev record. PHX_BENCH_UDEV=1 makes one
# for the time of the measurement, as root, on a machine that has no udev.
set -u
kit=$(cd "${1:?usage: gpu.sh KIT [OPTIONS]}" && pwd) || exit 1
shift
TMPDIR=${TMPDIR:-/var/tmp}
work=$(mktemp -d -p "$TMPDIR" phx-gpu.XXXXXX) || exit 1
record=
trap 'rm -rf "$work" ${record:+"$record"}' EXIT
trap 'exit 1' INT TERM
case $(stat -f -c %T "$work") in
tmpfs|ramfs) echo "$0: $work lives in memory; set TMPDIR to a folder on a disk" >&2; exit 1 ;;
esac

if [ "${PHX_BENCH_UDEV:-0}" = 1 ]; then
	disk=/run/udev/data/b$(stat -c %Hd:%Ld "$work")
	if [ ! -e "$disk" ]; then
		mkdir -p /run/udev/data || exit 1
		printf 'E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=%s\n' \
			"$(stat -f -c %T "$work" | sed 's|ext2/ext3|ext4|')" >"$disk" || exit 1
		record=$disk
	fi
fi

# cuFile twice: as it comes, and splitting large requests over many threads.
cat >"$work/parallel.json" <<'EOF'
{
	"properties": { "allow_compat_mode": true, "max_direct_io_size_kb": 16384 },
	"execution": { "max_io_threads": 16, "max_io_queue_depth": 128, "parallel_io": true,
		"min_io_threshold_size_kb": 1024, "max_request_parallelism": 8 }
}
EOF
export CUFILE_ALLOW_COMPAT_MODE=true CUFILE_FORCE_COMPAT_MODE=true
export CUFILE_PARALLEL="$work/parallel.json"
cd "$work" || exit 1

echo "$(uname -srm), $(nproc) processors, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
command -v nvidia-smi >/dev/null &&
	nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "$work: $(stat -f -c %T "$work")"
"$kit/bin/bench_gpu" "$work/file" "$@"
status=$?
[ ! -s cufile.log ] || tail -5 cufile.log
exit $status
