#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Usage: fio_engine.sh BUILD-DIR [ROUNDS [SECONDS]]
# fio with Phoenix's engine beside fio's own io_uring engine: one file, O_DIRECT,
# random reads of 4 KiB, 64 under way, by turns; memory is that of a HOST device.
# The bar is the median, over the rounds, of the ratio of I/Os a second within a
# round. BATCH: as many as fio collects before it submits.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work and their kin
. "$(dirname "$0")/lib.sh"
rounds=${2:-9} seconds=${3:-1} batch=${BATCH:-1}
"$(dirname "$0")/../fio/build-engine" "$build" || exit
export PHX_CONNECTOR=host
make_file data 1024

iops() {
	fio --name=bench --filename="$work/data" --rw=randread --bs=4k --iodepth=64 \
		--iodepth_batch_submit="$batch" --iodepth_batch_complete_min=1 --direct=1 \
		--ioengine="$1" --norandommap --randrepeat=0 --invalidate=0 \
		--time_based --runtime="$((seconds * 1000))ms" --output-format=terse --terse-version=3 \
		--output="$work/out" || exit 1
	cut -d ';' -f 8 "$work/out"
}

ours=external:$build/lib/phoenix/fio/phoenix.so
: >"$work/rounds"
i=0
while [ $i -lt "$rounds" ]; do
	# the order changes, so that neither always comes second
	if [ $((i % 2)) -eq 0 ]; then
		a=$(iops "$ours") b=$(iops io_uring)
	else
		b=$(iops io_uring) a=$(iops "$ours")
	fi
	echo "$a $b" >>"$work/rounds"
	i=$((i + 1))
done
echo "fio-randread-4k-depth-64: IOPS phoenix $(cut -d ' ' -f 1 "$work/rounds" | median)," \
	"io_uring $(cut -d ' ' -f 2 "$work/rounds" | median)"
at_least fio-randread-4k-depth-64 "$(awk '{ print $1 / $2 }' "$work/rounds" | median)" 0.95
finish
