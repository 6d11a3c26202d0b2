#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: check-names.sh SOURCE-DIR
# No file of the project names the host of a package registry or mirror: a
# machine's own settings say where packages come from.
set -u
cd "$1" || exit 1
git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: not a git checkout"; exit 77; }

# [x] keeps this file from matching itself
hosts='[d]eb\.debian\.org|[f]tp\.[a-z.]*debian\.org|[s]ecurity\.debian\.org|[s]napshot\.debian\.org|'
hosts=$hosts'[a]rchive\.ubuntu\.com|[p]ypi\.org|[p]ythonhosted\.org|[r]egistry\.npmjs|[c]rates\.io|'
hosts=$hosts'[p]roxy\.golang\.org|[d]ocker\.io|[g]hcr\.io|[q]uay\.io|[n]vcr\.io|[c]onda\.anaconda\.org'

if git grep -nIE "$hosts" -- .; then
	exit 1
fi
exit 0
