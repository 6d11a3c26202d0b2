#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# phx check: a verdict a line, the same in JSON, and an exit status that follows
# from them.
# shellcheck disable=SC2154,SC1091 # lib.sh sets build, work, phx and json
. "$(dirname "$0")/lib.sh"
head -c 3000000 /dev/urandom >"$work/file"

is 0 "$phx" check
says '^PASS  device .*device 0: opens, allocates, copies both ways, registers$'
says '^(PASS|WARN)  engine '
says '^(PASS|WARN)  limit +RLIMIT_MEMLOCK'
says '^INFO  setting +PHX_CONNECTOR: host \(environment\)'
says '^0 failed, '

# every line but the last is a finding
grep -vE '^(PASS|FAIL|WARN|INFO)  [a-z]+ +[^ ]' "$work/out" | grep -vE '^[0-9]+ failed' >"$work/odd"
[ ! -s "$work/odd" ] || bad "lines that are no finding: $(cat "$work/odd")"

is 0 "$phx" check "$work/file" "$work"
for p in "$work/file" "$work"; do
	says "^INFO  file +$p: file system "
	says "^(PASS|WARN)  file +$p: (O_DIRECT works|no O_DIRECT)"
	says "^(PASS|WARN)  file +$p: path (direct|bounce)"
done
[ -z "$(find "$work" -name '.phx-check*')" ] || bad "a file was left behind"

is 0 "$phx" check --json "$work/file"
equal "lines of JSON" "$(wc -l <"$work/out")" 1
[ "$(value result)" != FAIL ] || bad "result FAIL with exit 0"
value checks/0/status >"$work/status"
grep -qE '^(PASS|FAIL|WARN|INFO)$' "$work/status" || bad "status: $(cat "$work/status")"

is 1 "$phx" check --json "$work/nosuch"
equal "result" "$(value result)" FAIL
is 1 "$phx" check "$work/nosuch"
says "^FAIL  file +$work/nosuch: cannot find it: ENOENT"
is 1 "$phx" check /dev/null
says '^FAIL  file +/dev/null: neither a file'
is 1 "$phx" check --device 7 "$work/file"
says '^FAIL  file .*cannot open the device'

# a connector that was asked for and is not there fails; one that was not, does not
PHX_CONNECTOR=amd is 1 "$phx" check
says '^FAIL  connector +amd: '

# a forced path is named, with its reason
PHX_PATH=bounce is 0 "$phx" check "$work/file"
says "^WARN  file +$work/file: path bounce"
PHX_PATH=bounce is 0 "$phx" check --json "$work/file"
grep -q '"reason":"forced"' "$work/out" || bad "the reason is not 'forced': $(cat "$work/out")"

# an invalid setting is named
PHX_STAGING_SIZE_MB=many is 0 "$phx" check
says '^WARN  setting +PHX_STAGING_SIZE_MB: .*cure: '

PHX_IO_ENGINE=sync is 0 "$phx" check
says '^PASS  engine +in use: sync'

# io_uring denied by a filter: said, and which gate is shut
"$build/bin/t_no_uring" "$phx" check >"$work/out" 2>"$work/err"
case $? in
77) echo "no seccomp here: not checked" ;;
0)	says '^WARN  engine +io_uring: EPERM: forbidden, probably by the seccomp filter.*cure: '
	says '^WARN  engine +in use: sync'
	says '^INFO  limit +seccomp: a filter is in force' ;;
*) bad "without io_uring: check fails" ;;
esac

# memory is no storage
shm=$(mktemp -p /dev/shm phx-test.XXXXXX 2>/dev/null) && {
	head -c 2000000 /dev/zero >"$shm"
	is 0 "$phx" check "$shm"
	says "^WARN  file +$shm: file system tmpfs: it lives in memory"
	rm -f "$shm"
}

# limits too low are told
prlimit --nofile=200: "$phx" check >"$work/out" 2>"$work/err"
says '^WARN  limit +RLIMIT_NOFILE: 200 .*cure: ulimit -n'

# multipath and RAID below a file, from a made-up /sys
dev=$(stat -c '%Hd:%Ld' "$work/file")
sys=$work/sys
mkdir -p "$sys/dev/block" "$sys/block/dm-3/dm" "$sys/block/dm-3/slaves/sda" "$sys/block/dm-3/slaves/sdb"
ln -s ../../block/dm-3 "$sys/dev/block/$dev"
echo mpath-36001405 >"$sys/block/dm-3/dm/uuid"
is 0 "$phx" check --sysfs "$sys" "$work/file"
if [ "${dev%%:*}" -ne 0 ]; then
	says "^WARN  file +$work/file: on multipath device dm-3 over sd[ab], sd[ab].*cure: "
	echo CRYPT-1 >"$sys/block/dm-3/dm/uuid"
	is 0 "$phx" check --sysfs "$sys" "$work/file"
	says "^INFO  file +$work/file: on dm-3, made of sd[ab], sd[ab]"
fi
finish
