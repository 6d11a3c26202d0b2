#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: p2p_tcp.sh BUILD-DIR [PART...]
# The P2P engine over TCP on this machine's loopback, in one run and in turns.
#  iperf3    READ and WRITE of 1 MiB blocks over iperf3 with as many streams and
#            the same working set (each stream sends one block over and over)
#  batches   time of a batch of scattered blocks over Mooncake's TCP transport
#            and over UCX's (ucx_perftest with as many operations under way)
#  idle      what a connection that does nothing costs
#  blocks    100,000 x 4 KiB scattered blocks in one call
#  failures  peers that are killed, hang, come back
#  crowds    64 engines in a process, 64 processes, some of which go
# Ratios are taken within a round, bars on the median of the rounds. Installs
# what it compares with, by name. MOONCAKE names a folder with Mooncake's
# transfer_engine_bench; else its package (mooncake-transfer-engine-non-cuda)
# is fetched by pip once, into ${PHX_CACHE:-${XDG_CACHE_HOME:-~/.cache}/phoenix}.
set -o pipefail
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
: "${build:?}" "${work:?}"
shift
[ $# -gt 0 ] || set -- iperf3 batches idle blocks failures crowds

rounds=${ROUNDS:-3}
seconds=${SECONDS_EACH:-1} # whole ones: iperf3 takes 0 for ever
[ "$seconds" -ge 1 ] || exit 2
bench=$build/bin/p2p_bench
port=15400
export UCX_TLS=tcp UCX_NET_DEVICES=lo
pids=

# shellcheck disable=SC2086,SC2317 # a list of ids; called by the trap
stop_all() {
	[ -z "$pids" ] || kill $pids 2>/dev/null
	rm -rf "$work"
}
trap stop_all EXIT

"$(dirname "$0")/../scripts/setup" bench || echo "p2p_tcp.sh: not everything is installed"
for program in p2p_bench p2p_share p2p_death p2p_many; do
	[ -x "$build/bin/$program" ] || { echo "p2p_tcp.sh: $program is missing: run make" >&2; exit 1; }
done

# The n-th field of a line.
field() { awk -v n="$1" '{ print $n }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f\n", a / b }'; }
middle() { median <"$1" 2>/dev/null; }

serve() { # STREAMS: sets session, address
	[ -p "$work/in.$1" ] && { read -r session address <"$work/out.$1"; return; }
	mkfifo "$work/in.$1"
	FLAGCX_P2P_QPS_PER_CONN=$1 "$bench" serve $((256 << 20)) <"$work/in.$1" >"$work/out.$1" &
	pids="$pids $!"
	# shellcheck disable=SC2034 # open to the end: the server ends with it
	exec {hold}>"$work/in.$1"
	while ! [ -s "$work/out.$1" ]; do sleep 0.05; done
	read -r session address <"$work/out.$1"
}

ours() { # STREAMS OP BLOCK COUNT DEPTH: the program's line
	FLAGCX_P2P_QPS_PER_CONN=$1 "$bench" run "$session" "$address" "$2" "$3" "$4" "$5" "$seconds"
}

# ---------------------------------------------------------------- over iperf3

iperf() { # STREAMS: GB/s
	port=$((port + 1))
	iperf3 -s -1 -p $port >/dev/null 2>&1 &
	sleep 0.3
	iperf3 -c 127.0.0.1 -p $port -t "$seconds" -l 1M -P "$1" -f K 2>/dev/null |
		awk '/receiver/ { v = "" ; for (i = 2; i <= NF; i++) if ($i ~ /Bytes\/sec/) v = $(i - 1)
			last = v } END { if (last) printf "%.4f\n", last * 1024 / 1e9 }'
	wait $! 2>/dev/null
}

part_iperf3() {
	for streams in 1 4; do
		serve $streams
		for _ in $(seq "$rounds"); do
			base=$(iperf $streams)
			for op in write read; do
				got=$(ours $streams $op $((1 << 20)) $streams 2 | field 1)
				echo "iperf3 ${streams} streams $base GB/s, $op $got GB/s"
				ratio "$got" "$base" >>"$work/iperf.$streams.$op"
			done
		done
		for op in write read; do
			at_least "p2p_${op}_1MiB_${streams}_streams_over_iperf3" \
				"$(middle "$work/iperf.$streams.$op")" 0.8
		done
	done
}

# -------------------------------------------- batches, over Mooncake and UCX

# The folder with Mooncake's programs, fetched once.
find_mooncake() {
	cache=${PHX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/phoenix}/mooncake
	mooncake=${MOONCAKE:-$cache/mooncake}
	[ -f "$mooncake/transfer_engine_bench" ] && return
	mkdir -p "$cache" &&
		python3 -m pip download -q --no-deps -d "$work/wheel" mooncake-transfer-engine-non-cuda \
			>"$work/pip" 2>&1 &&
		python3 -m zipfile -e "$work"/wheel/mooncake*.whl "$cache" &&
		chmod +x "$mooncake/transfer_engine_bench" && return
	echo "Mooncake's package cannot be had, its bars miss: $(tail -1 "$work/pip")"
	mooncake=
}

start_mooncake() {
	find_mooncake
	[ -n "$mooncake" ] || return
	"$mooncake/transfer_engine_bench" --mode=target --metadata_server=P2PHANDSHAKE \
		--protocol=tcp --local_server_name=127.0.0.1:15311 --buffer_size=$((256 << 20)) \
		>"$work/target" 2>&1 &
	pids="$pids $!"
	for _ in $(seq 200); do
		grep -q 'listening on [0-9.]*:' "$work/target" && break
		sleep 0.05
	done
	segment=$(grep -o 'listening on [0-9.]*:[0-9]*' "$work/target" | head -1 | field 3)
	[ -n "$segment" ] || { echo "Mooncake does not start: $(tail -1 "$work/target")"; mooncake=; }
	sleep 1
}

# A batch that overflows Mooncake's queue is refused in part and never ends; such
# a run counts as one batch of as long as it was waited for.
run_mooncake() { # OP BLOCK COUNT: us per batch
	timeout 20 "$mooncake/transfer_engine_bench" --mode=initiator --metadata_server=P2PHANDSHAKE \
		--protocol=tcp --local_server_name=127.0.0.1:15312 --segment_id="$segment" \
		--operation="$1" --batch_size="$3" --block_size="$2" --threads=1 \
		--duration="$seconds" --buffer_size=$((256 << 20)) >"$work/initiator" 2>&1
	if [ $? -eq 124 ] && grep -q 'queue-full rejection' "$work/initiator"; then
		echo 20000000
		return
	fi
	sed -n 's/.*Test completed: duration \([0-9.]*\), batch count \([0-9]*\),.*/\1 \2/p' "$work/initiator" |
		awk '$2 > 0 { printf "%.1f\n", $1 / $2 * 1e6 }'
}

# Once it has been stopped in the middle, its next run may end without a figure.
theirs_mooncake() {
	local us
	[ -n "$mooncake" ] || return
	for _ in 1 2 3; do
		us=$(run_mooncake "$@")
		[ -z "$us" ] || break
		echo "Mooncake gave no figure: $(tail -1 "$work/initiator")" >&2
		sleep 2
	done
	echo "$us"
}

theirs_ucx() { # OP BLOCK COUNT: us per batch
	command -v ucx_perftest >/dev/null || return
	port=$((port + 1))
	test=$([ "$1" = write ] && echo ucp_put_bw || echo ucp_get)
	n=$(((64 << 20) / $2))
	[ $n -gt 8000 ] && n=8000
	ucx_perftest -p $port >/dev/null 2>&1 &
	sleep 0.3
	timeout 30 ucx_perftest 127.0.0.1 -p $port -t "$test" -s "$2" -O "$3" -n $n -w 20 2>/dev/null |
		awk -v k="$3" '/^Final:/ { printf "%.1f\n", $5 * k }'
	wait $! 2>/dev/null
}

part_batches() {
	serve 4
	start_mooncake
	for shape in "$((4 << 10)) 8" "$((64 << 10)) 8" "$((1 << 20)) 8" "$((4 << 10)) 4096"; do
		read -r block count <<<"$shape"
		for op in write read; do
			name=p2p_${op}_${count}x$((block >> 10))KiB
			for _ in $(seq "$rounds"); do
				us=$(ours 4 $op "$block" "$count" 1 | field 2)
				m=$(theirs_mooncake $op "$block" "$count")
				u=$(theirs_ucx $op "$block" "$count")
				echo "$op $count x $block: $us us a batch, Mooncake ${m:-none}, UCX ${u:-none}"
				ratio "${m:-0}" "$us" >>"$work/$name.m"
				ratio "${u:-0}" "$us" >>"$work/$name.u"
				# one slow comparison is enough
				[ "${m%.*}" -gt 100000 ] 2>/dev/null && break
			done
			at_least "${name}_faster_than_mooncake" "$(middle "$work/$name.m")" 1.0
			at_least "${name}_faster_than_ucx" "$(middle "$work/$name.u")" 1.0
		done
	done
}

part_idle() {
	serve 4
	at_most p2p_idle_cpu_percent "$("$bench" idle "$session" 5)" 1.0
}

# -------------------------------------------------- figures that tests print too

part_blocks() {
	for _ in $(seq "$rounds"); do
		"$build/bin/p2p_many" a_hundred_thousand_pages >"$work/blocks" 2>&1
		sed '/^ok/d' "$work/blocks"
		for op in read write; do
			line=$(grep "^$op 100000 x 4096" "$work/blocks")
			echo "$line" | sed -n 's/.*submitted in \([0-9.]*\) ms.*/\1/p' >>"$work/submit.$op"
			echo "$line" | sed -n 's/.*, \([0-9.]*\) MiB more.*/\1/p' >>"$work/memory.$op"
		done
		grep -c '^ok' "$work/blocks" >>"$work/right"
	done
	at_least p2p_100000x4KiB_right "$(sort -g "$work/right" | head -1)" 1
	for op in read write; do
		at_most "p2p_100000x4KiB_${op}_submit_ms" "$(middle "$work/submit.$op")" 50
		at_most "p2p_100000x4KiB_${op}_more_MiB" "$(sort -g "$work/memory.$op" | tail -1)" 64
	done
}

part_failures() {
	"$build/bin/p2p_death" kill_ends restarts_are >"$work/death" 2>&1
	cat "$work/death"
	grep -q '^ok   kill_ends' "$work/death" &&
		worst=$(sed -n 's/.* failed, \([0-9.]*\) s after the kill/\1/p' "$work/death" |
			sort -g | tail -1)
	at_most p2p_kill_all_failed_s "${worst:-}" 5
	worst=
	grep -q '^ok   restarts_are' "$work/death" &&
		worst=$(sed -n 's/^worst first transfer after a restart: \([0-9.]*\) s/\1/p' "$work/death")
	at_most p2p_20_restarts_worst_first_transfer_s "${worst:-}" 5
	for _ in $(seq "$rounds"); do
		"$build/bin/p2p_share" >"$work/share" 2>&1
		sed '/^ok/d' "$work/share"
		for how in die hang; do
			sed -n "s/^$how //p" "$work/share" >>"$work/share.$how"
		done
	done
	at_least p2p_healthy_share_beside_a_dead_peer "$(middle "$work/share.die")" 0.8
	at_least p2p_healthy_share_beside_a_hung_peer "$(middle "$work/share.hang")" 0.8
}

part_crowds() {
	"$build/bin/p2p_many" engines_do_not processes_do_not >"$work/crowds" 2>&1
	cat "$work/crowds"
	at_least p2p_64_engines_undisturbed "$(grep -c '^ok   engines' "$work/crowds")" 1
	at_least p2p_64_processes_undisturbed "$(grep -c '^ok   processes' "$work/crowds")" 1
}

for part in "$@"; do
	case $part in
	iperf3) part_iperf3 ;;
	batches) part_batches ;;
	idle) part_idle ;;
	blocks) part_blocks ;;
	failures) part_failures ;;
	crowds) part_crowds ;;
	*) echo "p2p_tcp.sh: no part $part" >&2; exit 2 ;;
	esac
done
finish
