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

# a made-up machine: a GPU and three disks, one below its switch, one below another port, one
# on another processor
sys=$work/machine
gpu=$sys/devices/pci0000:3a/0000:3a:00.0/0000:3a:01.0/0000:3b:00.0
mkdir -p "$gpu" "$sys/bus/pci/devices" "$sys/bus/pci/drivers/nvidia" "$sys/bus/pci/drivers/nouveau" \
	"$sys/class/nvme/nvme0" "$sys/class/nvme/nvme1" "$sys/class/nvme/nvme2" "$sys/module/phxfs" \
	"$sys/devices/pci0000:3a/0000:3a:00.0/0000:3a:02.0/0000:3c:00.0" \
	"$sys/devices/pci0000:3a/0000:3a:05.0/0000:3d:00.0" \
	"$sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0"
place() { ln -s "../../../devices/$1" "$sys/bus/pci/devices/${1##*/}"; }
for d in 0000:3a:00.0 0000:3a:00.0/0000:3a:01.0 0000:3a:00.0/0000:3a:01.0/0000:3b:00.0; do
	place "pci0000:3a/$d"
done
ln -s ../../../devices/pci0000:3a/0000:3a:00.0/0000:3a:02.0/0000:3c:00.0 "$sys/class/nvme/nvme0/device"
ln -s ../../../devices/pci0000:3a/0000:3a:05.0/0000:3d:00.0 "$sys/class/nvme/nvme1/device"
ln -s ../../../devices/pci0000:80/0000:80:01.0/0000:81:00.0 "$sys/class/nvme/nvme2/device"
printf '0x000000 0x0fffff 0x40200\n0x38000000000 0x38fffffffff 0x14220c\n' >"$gpu/resource"
# an extended capability of id ACS at 0x100, control as given
config() { # BDF OCTAL
	{ head -c 256 /dev/zero; printf '\015\000\001\000\000\000'"$2"'\000'; head -c 64 /dev/zero; } \
		>"$sys/bus/pci/devices/$1/config"
}
config 0000:3a:00.0 '\000'
config 0000:3a:01.0 '\000'
export LD_LIBRARY_PATH=$build/fake PHX_CONNECTOR=nvidia FAKE_CUDA_DEVICES=1
is 0 "$phx" check --sysfs "$sys"
says '^INFO  device +device 0: nvidia, NVIDIA Fake, PCI 0000:3b:00.0'
says '^WARN  device +device 0: no kernel driver is bound to it.*cure: install NVIDIA'
says '^PASS  device +device 0: no ACS redirection above it$'
says '^PASS  device +device 0: shares bridge 0000:3a:00.0 with nvme0$'
says '^INFO  device +device 0: shares the root complex with nvme1, and no switch.*cure: '
says '^WARN  device +device 0: nvme2 is below another root complex.*cure: '
says '^PASS  device +device 0: largest BAR is 64[.0]* GiB: to map all of it \(FULL\) costs up to 1[.0]* GiB of host memory'
says '^PASS  device +device 0: no IOMMU in its way$'
ln -s ../../../../../bus/pci/drivers/nouveau "$gpu/driver"
is 0 "$phx" check --sysfs "$sys"
says '^WARN  device +device 0: bound to the driver nouveau, not to nvidia: phxfs-nvidia.ko leaves it alone'
rm "$gpu/driver"
ln -s ../../../../../bus/pci/drivers/nvidia "$gpu/driver"
printf '0 T nvidia_p2p_get_pages\t[nvidia]\n0 T nvidia_p2p_put_pages_persistent\t[nvidia]\n' >"$sys/kallsyms"
printf '0 T nvidia_p2p_free_page_table\t[nvidia]\n' >>"$sys/kallsyms"
config 0000:3a:01.0 '\035'
is 0 "$phx" check --sysfs "$sys"
says '^WARN  device +device 0: driver nvidia lacks nvidia_p2p_put_pages: phxfs-nvidia.ko cannot use it.*cure: '
says '^WARN  device +device 0: ACS redirects at bridge 0000:3a:01.0.*cure: '
printf '0 T nvidia_p2p_put_pages\t[nvidia]\n' >>"$sys/kallsyms"
head -c 64 /dev/zero >"$sys/bus/pci/devices/0000:3a:01.0/config"
mkdir "$gpu/iommu_group"
echo DMA >"$gpu/iommu_group/type"
is 0 "$phx" check --sysfs "$sys"
says '^PASS  device +device 0: driver nvidia has what phxfs-nvidia.ko needs$'
says '^INFO  device +device 0: ACS of bridge 0000:3a:01.0 cannot be read.*cure: run phx check as root$'
says '^WARN  device +device 0: IOMMU translates \(type DMA\).*cure: boot with iommu=pt$'

# every vendor's functions, by their names
needs() { # VENDOR DRIVER SYMBOL...
	export LD_LIBRARY_PATH="$build/fake/$1:$build/fake" PHX_CONNECTOR="$1"
	vendor=$1 driver=$2
	shift 2
	rm "$gpu/driver"
	mkdir -p "$sys/bus/pci/drivers/$driver"
	ln -s "../../../../../bus/pci/drivers/$driver" "$gpu/driver"
	: >"$sys/kallsyms"
	for symbol; do
		is 0 "$phx" check --sysfs "$sys"
		says "^INFO  device +device 0: $vendor, "
		says "^WARN  device +device 0: driver $driver lacks $symbol: phxfs-$vendor.ko cannot use it.*cure: "
		printf '0 T %s\t[%s]\n' "$symbol" "$driver" >>"$sys/kallsyms"
	done
	is 0 "$phx" check --sysfs "$sys"
	says "^PASS  device +device 0: driver $driver has what phxfs-$vendor.ko needs$"
}
needs amd amdgpu amdkfd_query_rdma_interface
needs huawei devdrv_device_driver hal_kernel_p2p_get_pages hal_kernel_p2p_put_pages
needs metax metax metax_p2p_acquire_mem metax_p2p_get_mem metax_p2p_put_mem \
	metax_p2p_get_bus_offset metax_p2p_get_page_size metax_p2p_release_mem
finish
