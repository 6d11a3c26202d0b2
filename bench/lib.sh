# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts here: a work file on a real disk, medians, and bars.
# Each script prints "BAR name value limit pass|miss" and exits 1 on a miss.

build=$(cd "${1:?usage: $0 BUILD-DIR}" && pwd) || exit 1
missed=0

# On TMPDIR or in the build folder: direct I/O must reach a disk.
work=$(mktemp -d -p "${TMPDIR:-$build}" phx-bench.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
case $(stat -f -c %T "$work") in
tmpfs|ramfs) echo "$0: $work lives in memory; set TMPDIR to a folder on a disk" >&2; exit 1 ;;
esac

echo "$(uname -srm), $(nproc) processors, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)"
echo "$work: $(stat -f -c %T "$work"); $("$build/bin/phx" --version)$(command -v fio >/dev/null && echo "; $(fio --version)")"

# make_file NAME MEBIBYTES: data that no layer below can compress or leave out
make_file() {
	free=$(df -Pm "$work" | awk 'NR == 2 { print $4 }')
	[ "$free" -gt $(($2 + 64)) ] || {
		echo "$0: $work has $free MiB free, $2 are needed" >&2; exit 1; }
	dd if=/dev/urandom of="$work/$1" bs=1M count="$2" conv=fsync status=none || exit 1
}

# The median of numbers, one a line.
median() {
	sort -g | awk '{ v[NR] = $1 }
		END { if (!NR) exit 1; print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# at_most NAME VALUE LIMIT / at_least NAME VALUE LIMIT; a value that is no
# number misses.
bar() {
	if awk -v v="$2" -v l="$3" -v how="$4" 'BEGIN {
		if (v !~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/) exit 1
		exit !(how == "most" ? v + 0 <= l + 0 : v + 0 >= l + 0) }'; then
		echo "BAR $1 $2 $3 pass"
	else
		echo "BAR $1 ${2:-none} $3 miss"
		missed=$((missed + 1))
	fi
}
at_most() { bar "$1" "$2" "$3" most; }
at_least() { bar "$1" "$2" "$3" least; }

finish() {
	[ "$missed" -eq 0 ]
	exit
}
