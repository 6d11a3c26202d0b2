#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: vm_register.sh BUILD-DIR [KERNEL]
# Registering device memory until every page table entry is there: with large pages where
# memory lies so, against 4 KiB pages (phxfs_huge=N), in turns in one guest whose BAR has
# 2 GiB. FULL, 64 KiB to 1 GiB: 1 GiB must be 10 times as fast. STAGING, which makes the
# struct pages too, stands beside it without a bar.
set -u
build=$(cd "${1:?usage: $0 BUILD-DIR [KERNEL]}" && pwd) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"$here/vm/run" --kernel "${2:-6.1}" --build "$build" --accel 1 --accel-size 2048 --memory 2048 \
	--verbose --test-timeout 300 bench/vm_register_guest >"$log" || { cat "$log"; exit 1; }
awk '
	function bar(name, value, limit, ok) {
		printf "BAR %s %s %s %s\n", name, value, limit, ok ? "pass" : "miss"
		missed += !ok
	}
	function median(key, n,	i, j, t, v) {
		for (i = 1; i <= n; i++) v[i] = seen[key, i]
		for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
			if (v[j] < v[i]) { t = v[i]; v[i] = v[j]; v[j] = t }
		return v[int((n + 1) / 2)]
	}
	NF == 4 && $1 ~ /^(full|staging)-[YN]$/ {
		split($1, m, "-")
		row = m[1] " " $2
		if (!(row in known)) { known[row] = 1; rows[++n_rows] = row }
		k = ++count[row, m[2]]
		seen[row " map " m[2], k] = $3
		seen[row " unmap " m[2], k] = $4
	}
	END {
		for (i = 1; i <= n_rows; i++) {
			row = rows[i]
			n = count[row, "Y"]
			if (n != 3 || count[row, "N"] != 3) { bar("turns", n + 0, 3, 0); continue }
			y = median(row " map Y", n)
			s = median(row " map N", n)
			printf "%s: %.0f us with large pages, %.0f with small ones, %.1f times; " \
				"undone in %.0f and %.0f\n", row, y, s, s / y,
				median(row " unmap Y", n), median(row " unmap N", n)
			if (row == "full 1073741824")
				ratio = s / y
		}
		if (n_rows != 6)
			bar("sizes", n_rows + 0, 6, 0)
		bar("vm_register_1GiB", sprintf("%.1f", ratio), 10, ratio >= 10)
		exit missed > 0
	}' "$log"
