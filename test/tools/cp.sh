#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# phx cp: exact for every size, on each path and engine, and a failure leaves
# the destination as it was and nothing beside it.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work, phx and json
. "$(dirname "$0")/lib.sh"

copies() {
	"$@" --json >"$work/out" 2>"$work/err" || { bad "exit $?: $*"; cat "$work/err"; return; }
	cmp -s "$work/src" "$work/dst" || bad "copy differs: $*"
	equal "bytes of $*" "$(value bytes)" "$(stat -c %s "$work/src")"
}

# sizes around blocks, pages and chunks; --chunk 64K cuts the larger ones
for size in 0 1 511 512 4095 4096 4097 12345 65535 65536 65537 524288 600001 1048576 3000001; do
	head -c $size /dev/urandom >"$work/src"
	for how in '' '--path bounce' '--engine sync' '--direct off' '--device -1' '--depth 1'; do
		rm -f "$work/dst"
		# shellcheck disable=SC2086 # a list of options
		copies "$phx" cp "$work/src" "$work/dst" --verify --chunk 64K $how
	done
done

# the checksum is the one of xxhsum
printf '' >"$work/src"
is 0 "$phx" cp "$work/src" "$work/dst" --json
equal "checksum of nothing" "$(value xxh3)" 2d06800538d394c2
printf 'phoenix' >"$work/src"
is 0 "$phx" cp "$work/src" "$work/dst"
says ': 7 B in .* XXH3 [0-9a-f]{16}$'

# a file that stood there is replaced, its mode kept; a new one takes the source's
head -c 100000 /dev/urandom >"$work/src"
chmod 640 "$work/src"
chmod 604 "$work/dst"
is 0 "$phx" cp "$work/src" "$work/dst" --verify
says 'verified$'
cmp -s "$work/src" "$work/dst" || bad "not replaced"
equal "mode of a replaced file" "$(stat -c %a "$work/dst")" 604
rm "$work/dst"
(umask 022; "$phx" cp "$work/src" "$work/dst" >/dev/null) || bad "copy failed"
equal "mode of a new file" "$(stat -c %a "$work/dst")" 640

# into a directory, through a link
mkdir "$work/dir"
is 0 "$phx" cp "$work/src" "$work/dir"
cmp -s "$work/src" "$work/dir/src" || bad "not in the directory"
ln -s dir/src "$work/link"
head -c 5000 /dev/urandom >"$work/src"
is 0 "$phx" cp "$work/src" "$work/link"
[ -L "$work/link" ] || bad "the link was replaced"
cmp -s "$work/src" "$work/dir/src" || bad "the link was not followed"

# refusals
echo old >"$work/dst"
is 1 "$phx" cp "$work/nosuch" "$work/dst"
complains 'ENOENT'
is 1 "$phx" cp "$work/src" "$work/nosuch/dst"
is 1 "$phx" cp "$work/src" "$work/src"
complains 'same file'
is 1 "$phx" cp "$work/dir" "$work/dst"
is 1 "$phx" cp "$work/src" /dev/null
complains 'not a file'
[ -c /dev/null ] || bad "/dev/null was replaced"
is 1 "$phx" cp /proc/self/maps "$work/dst"
complains 'no length'
ln -s nowhere "$work/dangling"
is 1 "$phx" cp "$work/src" "$work/dangling"
is 1 "$phx" cp "$work/src" "$work/dst" --device 7
equal "the destination after failures" "$(cat "$work/dst")" old

# a source that is cut while it is read
head -c 300000 /dev/urandom >"$work/src"
mkfifo "$work/fifo"
is 1 "$phx" cp "$work/fifo" "$work/dst"
complains 'neither a file nor a block device'

# an interrupt in the middle
head -c 200000000 /dev/zero >"$work/src"
"$phx" cp "$work/src" "$work/dst" --chunk 4K --depth 1 --engine sync >"$work/out" 2>"$work/err" &
pid=$!
sleep 0.3
if kill -INT $pid 2>/dev/null; then
	wait $pid
	rc=$?
	[ $rc -eq 1 ] && complains 'interrupted'
	[ $rc -le 1 ] || bad "interrupted: exit $rc"
	[ $rc -eq 0 ] || equal "the destination after an interrupt" "$(cat "$work/dst")" old
fi
[ -z "$(find "$work" -name '.phx-cp-*')" ] || bad "temporary files were left behind"
finish
