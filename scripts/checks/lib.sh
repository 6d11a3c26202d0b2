# SPDX-License-Identifier: Apache-2.0
# Sourced by the checks: where the sources are, and how a check fails.
# A check exits 0 (holds), 1 (broken, each place named) or 77 (cannot be checked here).

cd "$(dirname "$0")/../.." || exit 1
# shellcheck disable=SC2034 # read by finish and by the checks
failures=0

bad() {
	echo "$*"
	failures=$((failures + 1))
}

skip() {
	echo "skipped: $*"
	exit 77
}

# The sources below the given paths: what git would keep, or without git all
# but build folders.
sources() {
	if git -c safe.directory='*' rev-parse --git-dir >/dev/null 2>&1; then
		git -c safe.directory='*' ls-files -co --exclude-standard -- "$@"
	else
		find "${@:-.}" -type f ! -path './.git/*' ! -path './build*/*' ! -path 'build*/*' |
			sed 's|^\./||'
	fi | while IFS= read -r f; do
		[ -f "$f" ] && printf '%s\n' "$f"
	done | sort
}

finish() {
	[ "$failures" -eq 0 ] && exit 0
	echo "$failures broken"
	exit 1
}
