#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Usage: engine.sh BUILD-DIR
# fio's engine: data is what fio wrote, on each path and on a device that the
# processor cannot touch; damage is seen; requests are under way together; the
# counters name the path.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work and their kin
. "$(dirname "$0")/../tools/lib.sh"
nm -D "$build/lib/libphoenix.so" | grep -qE '__(asan|tsan)_init' && {
	echo "skipped: fio cannot load a library with a sanitizer"; exit 77; }
"$(dirname "$0")/../../fio/build-engine" "$build" >"$work/built" 2>&1 || {
	status=$?; cat "$work/built"; exit $status; }
engine=external:$build/lib/phoenix/fio/phoenix.so
cd "$work" || exit 1 # fio leaves its state of verifying where it stands

job() {
	fio --name=job --filename="$work/data" --ioengine="$engine" --size=8m --iodepth=16 \
		--randseed=1 "$@"
}

# A field of what fio printed as JSON.
field() {
	tr -d '\n' <"$work/out" | "$json" "$1" || bad "no JSON with $1"
}

# Written and read back, by checksum, as fio does it.
for path in auto direct staging bounce; do
	is 0 job --phx_path=$path --rw=randwrite --bs=4k-64k --bs_unaligned=0 --direct=1 --verify=crc32c
	case $path in
	auto|direct) says 'phoenix: read direct: [0-9]+ ops, 8388608 bytes, 0 errors' ;;
	*) says "phoenix: read $path: [0-9]+ ops, 8388608 bytes, 0 errors" ;;
	esac
	says 'phoenix: write'
done
is 0 job --phx_engine=sync --rw=randrw --bs=4k --direct=0 --verify=xxhash --iodepth_batch=8
is 0 job --phx_device=-1 --rw=write --bs=1m --direct=1 --verify=crc32c --fsync=2
is 0 job --rw=randread --bs=4k --direct=1 --numjobs=3 --thread --group_reporting --output-format=json
[ "$(field jobs/0/error)" = 0 ] || bad "an error"
[ "$(field jobs/0/read/total_ios)" = 6144 ] || bad "$(field jobs/0/read/total_ios) reads"

# Memory that the processor cannot touch: by a stand-in for a driver.
if [ -e "$build/fake/libcuda.so.1" ]; then
	for rw in write randrw; do
		is 0 env LD_LIBRARY_PATH="$build/fake" PHX_CONNECTOR=nvidia \
			fio --name=job --filename="$work/data" --ioengine="$engine" --size=8m \
			--iodepth=16 --rw=$rw --bs=64k --direct=1 --verify=crc32c
		says 'phoenix: read bounce: [0-9]+ ops, 8388608 bytes, 0 errors'
	done
fi

# The checks check: a byte that changed is found.
is 0 job --rw=write --bs=64k --direct=1 --verify=crc32c --do_verify=0
printf x | dd of="$work/data" bs=1 seek=300000 conv=notrunc 2>/dev/null
is 1 job --rw=read --bs=64k --direct=1 --verify=crc32c

# Sixteen are under way at once, and come back one by one.
is 0 job --rw=randread --bs=4k --direct=1 --output-format=json
field jobs/0/iodepth_level/16 | grep -q '^[1-9]' || bad "16 are not under way"

# What cannot be done is said.
is 1 job --phx_device=99 --rw=read --bs=4k
complains 'phxfs_open: .*ENODEV'
is 1 job --mem=mmap --rw=read --bs=4k
finish
