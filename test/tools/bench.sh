#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# phx bench moves what it says it moves, on each path and engine, and --verify
# finds a wrong byte.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work, phx and json
. "$(dirname "$0")/lib.sh"
f=$work/f size=4194304

is 1 "$phx" bench read "$f"
complains 'ENOENT'
mkfifo "$work/fifo"
is 1 "$phx" bench read "$work/fifo"
complains 'a file or a block device is needed'
is 0 "$phx" bench write "$f" --size 4M --bs 64K --verify --seed 9 --json
equal "length" "$(stat -c %s "$f")" $size
equal "verified" "$(value verified_blocks)" 64
equal "bytes" "$(value bytes)" $size

# the data is the pattern: another block size reads it, another seed does not
is 0 "$phx" bench read "$f" --bs 12K --verify --seed 9 --json
equal "blocks" "$(value verified_blocks)" $((size / 12288))
is 1 "$phx" bench read "$f" --verify --seed 10
complains 'the data differs \(seed 10\)'

# existing data is not overwritten unasked
is 1 "$phx" bench write "$f"
complains '--overwrite'
is 0 "$phx" bench read "$f" --verify --seed 9

for engine in io_uring sync; do
	for path in auto bounce; do
		for mode in '' '--depth 16' '--batch 8' '--threads 3 --depth 4' '--threads 2'; do
			# shellcheck disable=SC2086 # a list of options
			is 0 "$phx" bench randread "$f" --bs 4K $mode --count 300 --verify --seed 9 \
				--engine $engine --path $path --json
			threads=$(value threads)
			equal "I/Os of $engine $path $mode" "$(value ios)" $((300 * threads))
			equal "verified of $engine $path $mode" "$(value verified_blocks)" $((300 * threads))
			moved=$(value path_bytes)
			total=$(($(echo "$moved" | tr -cd '0-9,' | tr ',' '+')))
			equal "bytes by path of $engine $path $mode" $total $((300 * threads * 4096))
			[ "$path" = auto ] ||
				equal "bytes that bounced" "$(value path_bytes/bounce)" $total
		done
	done
done

for mode in '' '--depth 16' '--batch 8' '--threads 2 --depth 4'; do
	# shellcheck disable=SC2086 # a list of options
	is 0 "$phx" bench randwrite "$f" --overwrite --bs 4K $mode --count 200 --verify --seed 3 --json
	[ "$(value verified_blocks)" -gt 100 ] || bad "only $(value verified_blocks) verified"
done
is 1 "$phx" bench read "$f" --verify --seed 9

# one byte changed on the disk is found
is 0 "$phx" bench write "$f" --overwrite --verify --seed 9
printf 'x' | dd of="$f" bs=1 seek=1234567 conv=notrunc status=none
is 1 "$phx" bench read "$f" --bs 64K --depth 4 --verify --seed 9
complains 'offset 1234567: the data differs'

# odd block sizes, sequential passes, time
is 0 "$phx" bench write "$f.odd" --size 1000003 --bs 1001 --depth 4 --verify --json
equal "odd blocks" "$(value verified_blocks)" 999
equal "odd length" "$(stat -c %s "$f.odd")" 1000003
is 0 "$phx" bench read "$f" --runtime 0.3 --bs 64K --json
awk -v s="$(value seconds)" 'BEGIN { exit !(s >= 0.29 && s < 5) }' || bad "ran $(value seconds) s"
is 1 "$phx" bench read "$f" --size 8M
complains 'has only 4 MiB of the 8 MiB'
is 1 "$phx" bench read "$f" --bs 8M
complains 'less than one block'

is 0 "$phx" bench read "$f" --bs 64K
says '^  throughput  [0-9.]+ GiB/s, [0-9]+ IOPS, 64 I/Os in'
says '^  latency     p50 [0-9.]+ .s, p99 [0-9.]+ .s, p99.9 '
says '^  processor   [0-9.]+ us per I/O \(user [0-9.]+, system [0-9.]+\)'
says '^  path        '
is 0 "$phx" bench read "$f" --bs 64K --gdsio
says '^IoType: READ XferType: GPUD Threads: 1 DataSetSize: 4096/4096\(KiB\) IOSize: 64\(KiB\) Throughput: [0-9.]+ GiB/sec, Avg_Latency: [0-9.]+ usecs ops: 64 total_time [0-9.]+ secs$'

# latencies are ordered
is 0 "$phx" bench randread "$f" --bs 4K --count 1000 --json
a=$(value latency_ns/p50) b=$(value latency_ns/p99) c=$(value latency_ns/p99.9) d=$(value latency_ns/max)
{ [ "$a" -gt 0 ] && [ "$a" -le "$b" ] && [ "$b" -le "$c" ] && [ "$c" -le "$d" ]; } ||
	bad "latencies $a $b $c $d"

# direct I/O of a file in memory is no figure
shm=$(mktemp -p /dev/shm phx-test.XXXXXX 2>/dev/null) && {
	head -c 1000000 /dev/zero >"$shm"
	is 1 "$phx" bench read "$shm" --bs 4K --direct on
	complains 'lives in memory'
	is 0 "$phx" bench read "$shm" --bs 4K
	says 'page cache \(tmpfs lives in memory\)'
	rm -f "$shm"
}

# plain host memory
is 0 "$phx" bench read "$f" --bs 64K --device -1 --json
equal "host bytes" "$(value path_bytes/direct)" $size

# an interrupt ends the run with what was measured
"$phx" bench randread "$f" --bs 4K --runtime 60 --json >"$work/out" 2>"$work/err" &
pid=$!
sleep 1
kill -INT $pid
wait $pid || bad "interrupted: exit $?"
[ "$(value ios)" -gt 0 ] || bad "interrupted: nothing measured"
finish
