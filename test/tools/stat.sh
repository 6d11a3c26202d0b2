#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# phx stat sees what a running process moves, and ends with it.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work, phx and json
. "$(dirname "$0")/lib.sh"
is 0 "$phx" bench write "$work/f" --size 16M

# A process to look at, for some seconds.
start() {
	"$phx" bench "$@" --json >"$work/bench" 2>"$work/bench.err" &
	pid=$!
	i=0
	until "$phx" stat $pid --interval 0.01 --count 1 >/dev/null 2>&1; do
		i=$((i + 1))
		[ $i -lt 100 ] || { bad "process $pid is not seen: $("$phx" stat $pid --count 1 2>&1)"; return; }
		sleep 0.05
	done
}

start randread "$work/f" --bs 4K --depth 8 --runtime 20
is 0 "$phx" stat $pid --interval 0.3 --count 3
equal "looks" "$(grep -cE '^ +0 read +[0-9]+ ' "$work/out")" 3
says '^device op +IOPS'
is 0 "$phx" stat $pid --interval 0.3 --count 3 --json
equal "objects" "$(wc -l <"$work/out")" 3
value devices/0/read/paths/direct/bytes >"$work/bytes"
sort -n -c -u "$work/bytes" || bad "counters do not grow: $(cat "$work/bytes")"
value devices/0/read/iops | awk '!($1 > 0) { exit 1 }' || bad "no IOPS"
value latency_ns/read/count | awk '!($1 > 0) { exit 1 }' || bad "no latencies"
value latency_ns/read/p50 | awk '!($1 > 0) { exit 1 }' || bad "no p50"

# the figures agree with those of the process itself
is 0 "$phx" stat $pid --interval 0.1 --count 1 --json --device 0
before=$(value devices/0/read/paths/direct/ops)
is 0 "$phx" stat $pid --interval 0.1 --prometheus
says '^# TYPE phoenix_bytes_total counter$'
says '^phoenix_bytes_total\{pid="[0-9]+",device="0",op="read",path="direct"\} [0-9]+$'
says '^phoenix_latency_seconds\{pid="[0-9]+",op="read",quantile="0.99"\} [0-9.]+$'
grep -vE '^(#.*|[a-z_]+(\{[^}]*\})? [0-9.]+)$' "$work/out" >"$work/odd"
[ ! -s "$work/odd" ] || bad "not in the text format: $(cat "$work/odd")"

# a look that never ends, ends with the process
"$phx" stat $pid --interval 0.2 >"$work/out" 2>"$work/err" &
stat=$!
sleep 0.5
kill -INT $pid
wait $pid || bad "bench: exit $?"
i=0
while kill -0 $stat 2>/dev/null && [ $i -lt 50 ]; do
	sleep 0.1
	i=$((i + 1))
done
kill -0 $stat 2>/dev/null && { bad "stat outlives the process"; kill $stat; }
wait $stat || bad "stat: exit $? at the process's end"
says "^process $pid has ended$"
cp "$work/bench" "$work/out"
[ "$(value ios)" -ge "$before" ] || bad "stat counted $before, bench did $(value ios)"

# processes that cannot be looked at
is 1 "$phx" stat $pid
complains 'no process'
sleep 30 &
pid=$!
is 1 "$phx" stat $pid --count 1
complains '.'
kill $pid
wait $pid 2>/dev/null
PHX_STATS=off "$phx" bench randread "$work/f" --bs 4K --runtime 5 >/dev/null 2>&1 &
pid=$!
sleep 0.5
is 1 "$phx" stat $pid --count 1
complains 'ENOENT'
kill $pid
wait $pid 2>/dev/null
finish
