#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: peer.sh PHX
# phx peer between processes: host and device memory, verification, JSON, and
# what it says when something is wrong.
phx=$1
work=$(mktemp -d)
trap '[ -z "${server:-}" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
failures=0
bad() { echo "$*"; failures=$((failures + 1)); }

serve() { # OPTIONS...: sets server, session
	rm -f "$work/serve"
	"$phx" peer serve --interface 127.0.0.1 --json "$@" >"$work/serve" 2>"$work/serve.err" &
	server=$!
	for _ in $(seq 100); do
		[ -s "$work/serve" ] && break
		sleep 0.05
	done
	session=$(sed -n 's/.*"session":"\([^"]*\)".*/\1/p' "$work/serve" | head -1)
	[ -n "$session" ] || bad "serve said: $(cat "$work/serve" "$work/serve.err")"
}

# ends it in an orderly way; its last line is the account
end_server() {
	kill -TERM "$server"
	wait "$server" || bad "serve ended with $?"
	server=
	grep -q '"refused":0' "$work/serve" || bad "serve refused: $(tail -1 "$work/serve")"
	# what a queue pair writes the server's processor does not see
	grep -q '"transport":"ibrc' "$work/serve" || grep -q '"received":'"$1" "$work/serve" ||
		bad "serve counted: $(tail -1 "$work/serve")"
}

head -c 10000001 /dev/urandom >"$work/file"
for device in -1 0; do
	serve --size 16M --device $device
	put=$("$phx" peer put "$session" "$work/file" --verify --device $device) || bad "put failed"
	echo "$put" | grep -q ' verified$' || bad "put said: $put"
	get=$("$phx" peer get "$session" "$work/back" --size 10000001 --device $device) || bad "get failed"
	cmp "$work/file" "$work/back" || bad "the file came back different"
	[ "${put%% *}" = "${get%% *}" ] || bad "checksums: $put; $get"
	end_server 10000001
done

serve --size 1M
"$phx" peer put "$session" "$work/file" 2>"$work/err" && bad "a file larger than the buffer was put"
grep -q "has 1048576" "$work/err" || bad "put said: $(cat "$work/err")"
head -c 1000 "$work/file" >"$work/small"
"$phx" peer put "$session" "$work/small" --offset 1047577 2>/dev/null && bad "one byte too far was put"
"$phx" peer put "$session" "$work/small" --offset 1047576 >/dev/null || bad "the last place is not reached"
"$phx" peer put "$session" "$work/none" 2>/dev/null && bad "a file that is not there was put"
: >"$work/empty"
"$phx" peer put "$session" "$work/empty" >/dev/null || bad "an empty file was not put"
for op in "" --write; do
	json=$("$phx" peer bench "$session" $op --block 4K --batch 8 --seconds 0.2 --json) || bad "bench failed"
	echo "$json" | grep -q '"p50_us":' || bad "bench said: $json"
done
"$phx" peer bench "$session" --block 1M --batch 2 2>/dev/null && bad "bench went beyond the buffer"
kill -KILL "$server"
wait "$server" 2>/dev/null
server=
FLAGCX_P2P_CONNECT_MS=300 "$phx" peer get "$session" "$work/back" 2>"$work/err" &&
	bad "a dead server answered"
grep -q EHOSTUNREACH "$work/err" || bad "get said: $(cat "$work/err")"
for line in "" "fly" "put" "put a" "serve b" "bench" "bench x --block 0"; do
	# shellcheck disable=SC2086 # words
	"$phx" peer $line >/dev/null 2>&1
	[ $? -eq 2 ] || bad "phx peer $line: not refused as a wrong command line"
done
# whatever devices there are, none has that name
FLAGCX_IB_HCA="=none" "$phx" peer serve --transport ibrc >/dev/null 2>"$work/err" &&
	bad "ibrc without a device was served"
grep -q ENODEV "$work/err" || bad "serve said: $(cat "$work/err")"
[ "$failures" -eq 0 ]
