#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: p2p_rxe.sh BUILD-DIR [KERNEL]
# The P2P engine over soft-RoCE against perftest's ib_write_bw and ib_read_bw in the same
# guest, over the same cable: 4 queue pairs, 64 requests deep, packets and time-outs of one
# size, nothing inline, host memory; 4 KiB to 16 MiB. Runs in turns, and the medians of three
# over each other must be at least 0.9 from 64 KiB up, 0.8 below. perftest reads by polling and
# by events; the better counts. And 100,000 x 4 KiB in one call. About eight minutes.
# A run of perftest without a figure is repeated ("why"); a row where it has none at all is a
# miss. Where the host is so slow that time runs out rows have fewer runs ("short").
set -u
build=$(cd "${1:?usage: $0 BUILD-DIR [KERNEL]}" && pwd) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$here/scripts/setup" bench || exit 1
"$here/vm/run" --kernel "${2:-6.1}" --build "$build" --memory 2048 --verbose --timeout 1800 \
	--test-timeout 1700 ${ROUNDS:+--env ROUNDS="$ROUNDS"} bench/p2p_rxe_guest >"$log" ||
	{ cat "$log"; exit 1; }
grep -E '^ *(why|short) ' "$log"
awk "$(cat "$here/bench/median.awk")"'
	function bar(name, value, limit, ok) {
		printf "BAR p2p_rxe_%s %s %s %s\n", name, value, limit, ok ? "pass" : "miss"
		missed += !ok
	}
	$1 == "row" {
		row = $2 "_" $3
		if ($4 == "ours") {
			order[++rows] = row
			size[row] = $3
			ours[row] = median()
			runs[row] = NF - 4
		} else if (median() > theirs[row]) {
			theirs[row] = median()
			how[row] = $4
		}
	}
	$1 == "blocks" { took[$2] = $3; blocks++ }
	END {
		for (i = 1; i <= rows; i++) {
			row = order[i]
			limit = size[row] >= 65536 ? 0.9 : 0.8
			ratio = theirs[row] > 0 ? ours[row] / theirs[row] : 0
			printf "%-16s %7.2f MB/s, perftest %7.2f (%s), %d runs\n", row,
				ours[row], theirs[row], theirs[row] ? how[row] : "no figure",
				runs[row]
			bar(row, sprintf("%.2f", ratio), limit, ratio >= limit)
		}
		for (op in took)
			bar("100000x4KiB_" op "_s", took[op], 120, took[op] > 0 && took[op] <= 120)
		if (rows != 14 || blocks != 2)
			bar("rows", rows + blocks, 16, 0)
		exit missed > 0
	}' "$log"
