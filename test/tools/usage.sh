#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Wrong command lines exit with 2, say what is wrong and how to get help, and
# touch nothing; help and version exit with 0.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work, phx and json
. "$(dirname "$0")/lib.sh"

is 0 "$phx" --version
says '^phx [0-9]+\.[0-9]+\.[0-9]+ \(libphoenix [0-9.]+\)$'
is 0 "$phx" help
for sub in check bench cp run stat; do
	says "^  $sub "
done
cp "$work/out" "$work/overview"
is 0 "$phx" --help
cmp -s "$work/out" "$work/overview" || bad "--help and help differ"

for sub in check bench cp run stat; do
	is 0 "$phx" help $sub
	says "^usage: phx $sub"
	cp "$work/out" "$work/help"
	is 0 "$phx" $sub --help
	cmp -s "$work/out" "$work/help" || bad "$sub --help and help $sub differ"
	is 2 "$phx" $sub --nosuch
	complains "^phx $sub: .*--nosuch"
	complains "^try 'phx help $sub'$"
done

is 2 "$phx"
complains '^usage: phx'
is 2 "$phx" nosuch
complains "no subcommand 'nosuch'"
is 2 "$phx" help nosuch

is 2 "$phx" bench
is 2 "$phx" bench read
is 2 "$phx" bench read "$work/f" extra
is 2 "$phx" bench readwrite "$work/f"
complains 'read, write, randread, randwrite'
is 2 "$phx" bench read "$work/f" --bs 0
is 2 "$phx" bench read "$work/f" --bs 4X
complains "'4X' is not a size"
is 2 "$phx" bench read "$work/f" --bs
complains '--bs needs a value'
is 2 "$phx" bench read "$work/f" --threads 0
is 2 "$phx" bench read "$work/f" --depth 32769
is 2 "$phx" bench read "$work/f" --depth 4 --batch 4
complains 'exclude'
is 2 "$phx" bench read "$work/f" --count 4 --runtime 1
is 2 "$phx" bench read "$work/f" --json --gdsio
is 2 "$phx" bench read "$work/f" --engine posix
complains 'auto, io_uring, sync'
is 2 "$phx" bench write "$work/f"
complains '--size is needed'
[ ! -e "$work/f" ] || bad "a refused write made the file"

is 2 "$phx" cp
is 2 "$phx" cp "$work/f"
is 2 "$phx" cp "$work/f" "$work/g" "$work/h"
is 2 "$phx" cp "$work/f" "$work/g" --chunk 5000
is 2 "$phx" cp "$work/f" "$work/g" --chunk 0

is 2 "$phx" run
is 2 "$phx" run --

is 2 "$phx" stat
is 2 "$phx" stat self
is 2 "$phx" stat 0
is 2 "$phx" stat 1 2
is 2 "$phx" stat 1 --interval 0
is 2 "$phx" stat 1 --json --prometheus

# output that cannot be written is a failure
"$phx" help >/dev/full 2>"$work/err" && bad "a full disk looks like success"
"$phx" check --json >/dev/full 2>"$work/err" && bad "a full disk looks like success (check)"
finish
