#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: vm_direct.sh BUILD-DIR [KERNEL ...]
# Reads into device memory in FULL mode against reads into host memory, in the same guest:
# pread into the mapping, and phxfs_read; 4 KiB to 16 MiB. Host time over device time must
# be at least 0.95 at every size, and the library must have copied nothing.
set -u
build=$(cd "${1:?usage: $0 BUILD-DIR [KERNEL ...]}" && pwd) || exit 1
here=$(cd "$(dirname "$0")/.." && pwd)
shift
[ $# -gt 0 ] || set -- 6.1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
missed=0

for kernel; do
	"$here/vm/run" --kernel "$kernel" --build "$build" --verbose --test-timeout 300 \
		"bench/vm_direct_guest" >"$log" || { cat "$log"; exit 1; }
	awk -v kernel="$kernel" '
		function bar(name, value, limit, ok) {
			printf "BAR %s-%s %s %s %s\n", kernel, name, value, limit, ok ? "pass" : "miss"
			missed += !ok
		}
		$1 ~ /^[0-9]+$/ && NF == 4 {
			sizes++
			bar("raw-" $1, sprintf("%.3f", $2 / $3), 0.95, $2 / $3 >= 0.95)
			bar("library-" $1, sprintf("%.3f", $2 / $4), 0.95, $2 / $4 >= 0.95)
		}
		$1 == "copies" { copies = $2; seen = 1 }
		END {
			bar("copies", seen ? copies : "none", 0, seen && copies == 0)
			if (sizes != 7)
				bar("sizes", sizes + 0, 7, 0)
			exit missed > 0
		}' "$log" || missed=1
	grep -E '^ *[0-9]+ [0-9.]+ ' "$log"
done
exit $missed
