#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: p2p_tcp.sh BUILD-DIR
# The P2P engine over TCP on this machine's loopback, in one run and in turns:
#  - READ and WRITE of 1 MiB blocks over iperf3 with as many streams and the
#    same working set (each stream sends one block of 1 MiB over and over);
#  - time of a batch of scattered blocks over Mooncake's TCP transport and over
#    UCX's (ucx_perftest with as many operations under way);
#  - what an idle connection costs.
# Ratios are taken within a round, bars on the median of the rounds.
# MOONCAKE names a folder with transfer_engine_bench; else its package
# (mooncake-transfer-engine-non-cuda) is fetched by pip into the work folder.
set -o pipefail
# shellcheck source=bench/lib.sh
. "$(dirname "$0")/lib.sh"
: "${build:?}" "${work:?}"

rounds=${ROUNDS:-3}
seconds=${SECONDS_EACH:-1}
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

# The n-th field of a line.
field() { awk -v n="$1" '{ print $n }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f\n", a / b }'; }

iperf() { # STREAMS: GB/s
	port=$((port + 1))
	iperf3 -s -1 -p $port >/dev/null 2>&1 &
	sleep 0.3
	iperf3 -c 127.0.0.1 -p $port -t "$seconds" -l 1M -P "$1" -f K 2>/dev/null |
		awk '/receiver/ { v = "" ; for (i = 2; i <= NF; i++) if ($i ~ /Bytes\/sec/) v = $(i - 1)
			last = v } END { if (last) printf "%.4f\n", last * 1024 / 1e9 }'
	wait $! 2>/dev/null
}

serve() { # STREAMS: sets session, address
	mkfifo "$work/in.$1"
	FLAGCX_P2P_QPS_PER_CONN=$1 "$bench" serve $((256 << 20)) <"$work/in.$1" >"$work/out.$1" &
	pids="$pids $!"
	exec {hold}>"$work/in.$1"
	while ! [ -s "$work/out.$1" ]; do sleep 0.05; done
	read -r session address <"$work/out.$1"
}

ours() { # STREAMS OP BLOCK COUNT DEPTH: the program's line
	FLAGCX_P2P_QPS_PER_CONN=$1 "$bench" run "$session" "$address" "$2" "$3" "$4" "$5" "$seconds"
}

# ---- over iperf3

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
			"$(median <"$work/iperf.$streams.$op")" 0.8
	done
done

# ---- batches, over Mooncake and UCX

mooncake=${MOONCAKE:-}
if [ -z "$mooncake" ]; then
	if python3 -m pip download -q --no-deps -d "$work" mooncake-transfer-engine-non-cuda \
		>/dev/null 2>&1 && python3 -m zipfile -e "$work"/mooncake*.whl "$work/wheel"; then
		mooncake=$work/wheel/mooncake
		chmod +x "$mooncake/transfer_engine_bench"
	else
		echo "Mooncake's package cannot be had: its bars miss"
	fi
fi
if [ -n "$mooncake" ]; then
	"$mooncake/transfer_engine_bench" --mode=target --metadata_server=P2PHANDSHAKE \
		--protocol=tcp --local_server_name=127.0.0.1:15311 --buffer_size=$((256 << 20)) \
		>"$work/target" 2>&1 &
	pids="$pids $!"
	for _ in $(seq 200); do
		grep -q 'listening on [0-9.]*:' "$work/target" && break
		sleep 0.05
	done
	segment=$(grep -o 'listening on [0-9.]*:[0-9]*' "$work/target" | head -1 | field 3)
	sleep 1
fi

theirs_mooncake() { # OP BLOCK COUNT: us per batch
	[ -n "$mooncake" ] || return
	"$mooncake/transfer_engine_bench" --mode=initiator --metadata_server=P2PHANDSHAKE \
		--protocol=tcp --local_server_name=127.0.0.1:15312 --segment_id="$segment" \
		--operation="$1" --batch_size="$3" --block_size="$2" --threads=1 \
		--duration="$seconds" --buffer_size=$((256 << 20)) 2>&1 |
		sed -n 's/.*Test completed: duration \([0-9.]*\), batch count \([0-9]*\),.*/\1 \2/p' |
		awk '$2 > 0 { printf "%.1f\n", $1 / $2 * 1e6 }'
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
		at_least "${name}_faster_than_mooncake" "$(median <"$work/$name.m")" 1.0
		at_least "${name}_faster_than_ucx" "$(median <"$work/$name.u")" 1.0
	done
done

at_most p2p_idle_cpu_percent "$("$bench" idle "$session" 3)" 1.0
exec {hold}>&-
finish
