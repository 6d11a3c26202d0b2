# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts here. A script runs `is STATUS COMMAND...` and checks
# what was said; it ends with finish.

build=${1:?usage: $0 BUILD-DIR}
phx=$build/bin/phx json=$build/bin/t_json
failures=0
work=$(mktemp -d -p "$build" phx-test.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
# what the caller set must not decide
unset PHX_PATH PHX_IO_ENGINE PHXFS_IO_ENGINE PHX_STAGING_SIZE_MB PHX_HOST_DEVICES PHX_STATS PHX_LOG
export PHX_CONNECTOR=host

bad() {
	echo "FAILED: $*"
	failures=$((failures + 1))
}

# is STATUS COMMAND...: output in $work/out and $work/err
is() {
	want=$1; shift
	"$@" >"$work/out" 2>"$work/err"
	got=$?
	[ "$got" -eq "$want" ] && return
	bad "exit $got, not $want: $*"
	sed 's/^/	/' "$work/out" "$work/err"
}

# says PATTERN / complains PATTERN: about the command before
says() {
	grep -qE -- "$1" "$work/out" || { bad "does not say '$1':"; sed 's/^/	/' "$work/out"; }
}
complains() {
	grep -qE -- "$1" "$work/err" || { bad "does not complain '$1':"; sed 's/^/	/' "$work/err"; }
}

# value PATH: of the JSON that the command before printed
value() {
	"$json" "$1" <"$work/out" || bad "no JSON with $1: $(cat "$work/out")"
}

# equal WHAT GOT WANTED
equal() {
	[ "$2" = "$3" ] || bad "$1: '$2', not '$3'"
}

finish() {
	[ "$failures" -eq 0 ] && exit 0
	echo "$failures failed"
	exit 1
}
