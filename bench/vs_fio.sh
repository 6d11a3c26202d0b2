#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: vs_fio.sh BUILD-DIR [ROUNDS [SECONDS]]
# phx bench beside fio's io_uring engine: the same file, O_DIRECT, the same
# block size, depth and time, by turns. A bar is the median, over the rounds, of
# the ratio within a round: a disk that is faster now than a minute ago moves
# both sides of it. Many short turns: shared disks drift by tens of percent.
# Processor time is measured in one way for both, from outside: user and system
# of the whole process and what it waited for, less that of a run that does a
# single I/O (which is a good part of a short turn's), over the I/Os.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work and their kin
. "$(dirname "$0")/lib.sh"
rounds=${2:-41} seconds=${3:-0.5}
# fio reads no fractions of a second
milliseconds=$(awk -v s="$seconds" 'BEGIN { printf "%d", s * 1000 }')
cpu=$build/bin/bench_cpu phx=$build/bin/phx
command -v fio >/dev/null || { echo "$0: fio is needed" >&2; exit 1; }
make_file data 1024

# Each tool writes "I/Os seconds" to $work/ios; the processor time is in $work/cpu.
number() { sed -n "s/.*\"$1\" *: *\([0-9.e+-]*\).*/\1/p"; }

run_phx() {
	op=$1 bs=$2 depth=$3; shift 3
	"$cpu" "$work/cpu" "$phx" bench "$op" "$work/data" --bs "$bs" --depth "$depth" \
		--direct on --json "$@" >"$work/out" || exit 1
	tr ',' '\n' <"$work/out" >"$work/lines"
	echo "$(number ios <"$work/lines") $(number seconds <"$work/lines")" >"$work/ios"
}

run_fio() {
	op=$1 bs=$2 depth=$3; shift 3
	"$cpu" "$work/cpu" fio --name=bench --filename="$work/data" --rw="$op" --bs="$bs" \
		--iodepth="$depth" --direct=1 --ioengine=io_uring --norandommap --randrepeat=0 \
		--invalidate=0 --output-format=json --output="$work/out" "$@" || exit 1
	awk '/"read" : {/ { reads = 1 }
		reads && /"runtime"/ { gsub(/[^0-9]/, "", $3); t = $3 }
		reads && /"total_ios"/ { gsub(/[^0-9]/, "", $3); print $3, t / 1000; exit }
		' "$work/out" >"$work/ios"
}

run() {
	"run_$1" "$2" "$3" "$4" $5
	cat "$work/cpu" "$work/ios" | tr '\n' ' '
	echo
}

limits_of() {
	case $1 in
	phx) [ "$2" = one ] && echo "--count 1" || echo "--runtime $seconds" ;;
	fio) [ "$2" = one ] && echo "--number_ios=1" || echo "--time_based --runtime=${milliseconds}ms" ;;
	esac
}

compare() {
	name=$1 op=$2 bs=$3 depth=$4
	for tool in phx fio; do
		for _ in 1 2 3 4 5 6 7 8 9; do
			run $tool "$op" "$bs" "$depth" "$(limits_of $tool one)" | awk '{ print $1 }'
		done | median >"$work/$tool.start"
		: >"$work/$tool.all"
	done
	i=0
	while [ $i -lt "$rounds" ]; do
		# the order changes, so that neither always comes second
		[ $((i % 2)) -eq 0 ] && order="phx fio" || order="fio phx"
		for tool in $order; do
			run $tool "$op" "$bs" "$depth" "$(limits_of $tool time)" >>"$work/$tool.all"
		done
		i=$((i + 1))
	done
	# a round a line: I/Os a second and processor time per I/O, phx then fio
	paste -d ' ' "$work/phx.all" "$work/fio.all" |
		awk -v a="$(cat "$work/phx.start")" -v b="$(cat "$work/fio.start")" \
			'{ print $2 / $3, ($1 - a) / $2, $5 / $6, ($4 - b) / $5 }' >"$work/rounds"
	echo "$name: IOPS phx $(column 1), fio $(column 3);" \
		"us of processor per I/O phx $(column 2), fio $(column 4)"
	at_least "$name-iops" "$(awk '{ print $1 / $3 }' "$work/rounds" | median)" 0.97
	at_most "$name-cpu" "$(awk '{ print $2 / $4 }' "$work/rounds" | median)" 1.0
}

column() { awk -v n="$1" '{ print $n }' "$work/rounds" | median; }

for depth in ${DEPTHS:-1 16 64 256}; do
	few=$rounds
	# where the two differ least: more turns tell
	[ "$depth" -gt 1 ] || rounds=$((rounds * 5 / 2))
	compare "randread-4k-depth-$depth" randread 4k "$depth"
	rounds=$few
done
for depth in 1 8; do
	compare "read-1m-depth-$depth" read 1m "$depth"
done
finish
