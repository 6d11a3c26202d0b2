#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: run.sh BUILD-DIR
# `phx run` gives every kind of program Phoenix's libcufile, passes arguments and
# exit status on, and nothing gives it to a program that was run without.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work and phx
. "$(dirname "$0")/../tools/lib.sh"
nm -D "$build/lib/libphoenix.so" | grep -qE '__(asan|tsan)_init' && {
	echo "skipped: a library with a sanitizer cannot be preloaded"; exit 77; }
unset LD_LIBRARY_PATH LD_PRELOAD
client=$build/bin/shim_client linked=$build/bin/shim_client_linked

for how in libcufile.so.0 libcufile.so; do
	is 0 "$phx" run -- "$client" $how
	says '^1150 .*/phoenix/cufile/libcufile\.so\.0$'
done
is 0 "$phx" run --no-preload "$client" libcufile.so
says '^1150 .*/phoenix/cufile/'
is 0 "$phx" run -- "$linked"
says '^1150 .*/phoenix/cufile/'
is 0 "$linked"
says '^1 .*/decoy/'
is 3 "$client" libcufile.so.0
is 0 "$phx" run -- "$client" libfgds.so fgds_open
is 0 "$phx" run -- "$client" libphxfile.so phxFileDriverOpen

is 7 "$phx" run -- sh -c 'exit 7'
is 7 "$phx" run sh -c 'exit 7'
is 0 "$phx" run -- sh -c 'echo "$0 $1"' a 'b c'
says '^a b c$'
is 127 "$phx" run -- /nonexistent/program
complains '^phx run: /nonexistent/program: No such file'
is 126 "$phx" run -- "$work"

LD_LIBRARY_PATH="/a b:/c'd" is 0 "$phx" run --print
cp "$work/out" "$work/settings"
is 0 sh -c '. "$1"; echo "$LD_LIBRARY_PATH"; "$2" libcufile.so.0' - "$work/settings" "$client"
says ":/a b:/c'd\$"
says '^1150 .*/phoenix/cufile/'
finish
