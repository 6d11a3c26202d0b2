#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: check-symbols.sh LIBRARY HEADER
# The library exports exactly the functions that the header declares, and the
# header says of each what it does.
set -u
library=$1 header=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $NF); print $NF }' |
	grep -vE '^(_init|_fini|__.*|_edata|_end|[A-Z].*_[0-9.]+)$' | sort -u >"$work/exported"
sed 's|/\*.*\*/||' "$header" | awk '
	/\/\*/ { comment = 1 }
	!comment && /^[a-z].*[ *]phxfs_[a-z_]+\(/ {
		match($0, /phxfs_[a-z_]+\(/)
		print substr($0, RSTART, RLENGTH - 1)
	}
	/\*\// { comment = 0 }' | sort -u >"$work/declared"
awk '/^ \* phxfs_[a-z_]+ - / { print $2 }' "$header" | sort -u >"$work/described"

[ -s "$work/declared" ] || { echo "$header: no function found"; status=1; }
for pair in exported:declared declared:exported declared:described described:declared; do
	comm -23 "$work/${pair%:*}" "$work/${pair#*:}" >"$work/missing"
	[ -s "$work/missing" ] || continue
	sed "s|\$| is ${pair%:*} but not ${pair#*:}|" "$work/missing"
	status=1
done
exit $status
