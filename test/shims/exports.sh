#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: exports.sh LIBRARY HEADER PATTERN
# The library exports exactly the calls of PATTERN that the header declares,
# without versions, and is known by its soname alone.
set -u
library=$1 header=$2 pattern=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

nm -D --defined-only "$library" | awk '{ print $NF }' | sort -u >"$work/exported"
sed 's|/\*.*\*/||' "$header" | grep -oE "\b$pattern\(" | tr -d '(' | sort -u >"$work/declared"
[ -s "$work/declared" ] || { echo "$header declares nothing"; exit 1; }
diff "$work/declared" "$work/exported" || status=1
grep -q @ "$work/exported" && { echo "$library: versions"; status=1; }
exit $status
