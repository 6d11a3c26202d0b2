#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: overhead.sh BUILD-DIR
# What the library adds: to pread(2), in user instructions and system calls,
# with 10,000 regions registered; and to a bare liburing loop, in user
# instructions for each request of a batch of 1,000, all threads counted.
# Each figure is the difference of a run with N and one with 2N, so that what
# happens once cancels.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work and their kin
. "$(dirname "$0")/lib.sh"
program=$build/bin/bench_overhead
command -v valgrind >/dev/null && command -v strace >/dev/null || {
	echo "$0: valgrind and strace are needed" >&2; exit 1; }
make_file data 64

# instructions MODE N: user instructions of the whole process, all threads
instructions() {
	valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$work/data" "$2" \
		2>"$work/log" || { cat "$work/log" >&2; exit 1; }
	sed -n 's/.*Collected : *\([0-9]*\).*/\1/p' "$work/log"
}

# calls MODE N: system calls of the whole process, all threads
calls() {
	strace -f -c -U calls,name -o "$work/log" "$program" "$1" "$work/data" "$2" || exit 1
	awk '$2 == "total" { print $1 }' "$work/log"
}

# per_unit COUNT MODE N: COUNT of one unit of work of MODE; the median of three
per_unit() {
	for _ in 1 2 3; do
		a=$($1 "$2" "$3") && b=$($1 "$2" $((2 * $3))) && [ -n "$a" ] && [ -n "$b" ] || exit 1
		echo $(((b - a) * 1000 / $3))
	done | median | awk '{ print $1 / 1000 }'
}

difference() {
	awk -v a="$1" -v b="$2" -v per="$3" 'BEGIN { if (a == "" || b == "") exit; print (a - b) / per }'
}

with=$(per_unit instructions phxfs 2000)
without=$(per_unit instructions pread 2000)
echo "instructions of one read: phxfs_read $with, pread $without"
at_most read-instructions "$(difference "$with" "$without" 1)" 300

with=$(per_unit calls phxfs 2000)
without=$(per_unit calls pread 2000)
echo "system calls of one read: phxfs_read $with, pread $without"
at_most read-system-calls "$(difference "$with" "$without" 1)" 0

with=$(per_unit instructions batch 20)
without=$(per_unit instructions uring 20)
echo "instructions of 1,000 reads: phxfs_read_batch $with, liburing $without"
at_most batch-instructions "$(difference "$with" "$without" 1000)" 400
finish
