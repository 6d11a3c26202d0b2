#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: p2p_cq.sh BUILD-DIR [KERNEL]
# A completion queue for each worker, the default, against one for the engine
# (FLAGCX_P2P_SHARED_CQ=1), over soft-RoCE in one guest, in turns: 4 queue pairs, reads and
# writes of 4 KiB, 64 KiB and 1 MiB. The default must not be the slower one: 0.9 over all rows.
set -u
build=$(cd "${1:?usage: $0 BUILD-DIR [KERNEL]}" && pwd) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$here/vm/run" --kernel "${2:-6.1}" --build "$build" --memory 2048 --verbose --timeout 900 \
	--test-timeout 800 --env ROUNDS="${ROUNDS:-5}" "bench/p2p_rxe_guest cq" >"$log" ||
	{ cat "$log"; exit 1; }
awk "$(cat "$here/bench/median.awk")"'
	$1 == "row" && $4 == "own" { own = median() }
	$1 == "row" && $4 == "shared" {
		shared = median()
		ratio = shared > 0 ? own / shared : 0
		printf "%-6s %8d: %7.2f MB/s by queues of their own, %7.2f by one, %.3f\n", $2, $3,
			own, shared, ratio
		if (ratio > 0) {
			sum += log(ratio)
			rows++
		}
	}
	END {
		mean = rows == 6 ? exp(sum / rows) : 0
		printf "BAR p2p_cq_own_over_shared %.3f 0.9 %s\n", mean,
			(mean >= 0.9 ? "pass" : "miss")
		exit (mean < 0.9)
	}' "$log"
