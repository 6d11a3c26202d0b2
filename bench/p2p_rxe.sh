#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: p2p_rxe.sh BUILD-DIR [KERNEL]
# The P2P engine over soft-RoCE against perftest's ib_write_bw and ib_read_bw in the same
# guest, over the same cable, with as many queue pairs and as deep: 4 KiB to 16 MiB.
# perftest runs polling and by events; the better counts. Ours over theirs must be at least
# 0.9 from 64 KiB up, 0.8 below. And 100,000 x 4 KiB in one call.
set -u
build=$(cd "${1:?usage: $0 BUILD-DIR [KERNEL]}" && pwd) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$here/scripts/setup" bench || exit 1
"$here/vm/run" --kernel "${2:-6.1}" --build "$build" --memory 2048 --verbose --timeout 1800 \
	--test-timeout 1700 bench/p2p_rxe_guest >"$log" || { cat "$log"; exit 1; }
grep -E '^ *(read|write|blocks) ' "$log"
awk '
	function bar(name, value, limit, ok) {
		printf "BAR p2p_rxe_%s %s %s %s\n", name, value, limit, ok ? "pass" : "miss"
		missed += !ok
	}
	($1 == "read" || $1 == "write") && NF == 5 {
		rows++
		theirs = $4 > $5 ? $4 : $5
		limit = $2 >= 65536 ? 0.9 : 0.8
		ratio = theirs > 0 ? $3 / theirs : 0
		bar($1 "_" $2, sprintf("%.2f", ratio), limit, ratio >= limit)
	}
	$1 == "blocks" { bar("100000x4KiB_" $2 "_s", $3, 120, $3 > 0 && $3 <= 120); blocks++ }
	END {
		if (rows != 14 || blocks != 2)
			bar("rows", rows + blocks, 16, 0)
		exit missed > 0
	}' "$log"
