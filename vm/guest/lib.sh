# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What the scripts of vm/suite/ share. They run in the source directory:
#	. vm/guest/lib.sh

fail() { echo "FAIL: $*"; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }

# A network inside this machine: a cable from phx0 (10.77.0.1) to phx1 (10.77.0.2),
# on which packets between the two addresses really travel. Left alone, the kernel
# would notice that both are its own and hand them over directly.
net_up() {
	ip link add phx0 type veth peer name phx1
	net_end phx0 10.77.0.1 10.77.0.2 phx1 101
	net_end phx1 10.77.0.2 10.77.0.1 phx0 102
	ip link set phx0 up
	ip link set phx1 up
	# a route needs its device up
	ip route add 10.77.0.2 dev phx0 src 10.77.0.1 table 101
	ip route add 10.77.0.1 dev phx1 src 10.77.0.2 table 102
	ip rule add pref 1000 lookup local
	ip rule del pref 0
}

# net_end DEVICE ADDRESS OTHER'S-ADDRESS OTHER'S-DEVICE TABLE
net_end() {
	ip addr add "$2/24" dev "$1"
	ip neigh add "$3" lladdr "$(cat "/sys/class/net/$4/address")" dev "$1" nud permanent
	echo 1 >"/proc/sys/net/ipv4/conf/$1/accept_local"
	echo 0 >"/proc/sys/net/ipv4/conf/$1/rp_filter"
	# of what this machine sends only
	ip rule add pref "$5" iif lo to "$3" lookup "$5"
}

net_down() {
	ip rule add pref 0 lookup local
	ip rule del pref 1000
	ip rule del pref 101
	ip rule del pref 102
	ip link delete phx0
}

# What tc netem says, to what is sent from phx0 or phx1:
#	net_trouble phx0 delay 10ms loss 1%
net_trouble() {
	modprobe sch_netem
	net_dev=$1
	shift
	tc qdisc replace dev "$net_dev" root netem "$@"
}

# Soft-RoCE on that network: RDMA devices rxe0 on phx0 and rxe1 on phx1.
rxe_up() {
	net_up
	# rxe asks for a crc32 driver that not every kernel has built in
	modprobe -q crc32_generic || :
	modprobe -a rdma_rxe ib_uverbs rdma_ucm
	# it answers a READ with all its packets at once, and the kernel's own queue
	# before a device would drop those beyond a thousand
	echo 20000 >/proc/sys/net/core/netdev_max_backlog
	for rxe_n in 0 1; do
		rdma link add "rxe$rxe_n" type rxe netdev "phx$rxe_n"
		rxe_tries=0
		until rdma link show "rxe$rxe_n/1" | grep -q 'state ACTIVE'; do
			rxe_tries=$((rxe_tries + 1))
			[ $rxe_tries -lt 100 ] || fail "rxe$rxe_n does not become active"
			sleep 0.05
		done
	done
}

rxe_down() {
	rdma link delete rxe0
	rdma link delete rxe1
	net_down
}
