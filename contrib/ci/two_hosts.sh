#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs four processes on two hosts; every two of them exchange messages of all kinds of memory,
# which must go by gpushm within a host and by tcp between them; then four ranks of Open MPI:
#   unshare --net --mount two_hosts.sh PREFIX BUILD_DIR SCRATCH_DIR [UCX_LIBRARIES...]
# A host is a set of namespaces, one of them a network with a cable to the other host.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi_hosts.sh"

prefix=$1 build=$2 scratch=$3
shift 3
run=$prefix/bin/gpushm-run
host_pids=()
trap remove_hosts EXIT

# make_hosts NAMESPACES...: options of unshare. host_pids are the first processes of the hosts.
make_hosts() {
    local n
    for n in 0 1; do
        # Transports look at /sys, which shows the network of those who mounted it.
        # shellcheck disable=SC2016 # for the shell in the host
        unshare "$@" --fork sh -c 'mount -t proc proc /proc && mount -t sysfs sysfs /sys &&
            mount -t tmpfs tmpfs /dev/shm && hostname "$0" && exec sleep 3600' \
            "gpushm-host$n" >"$scratch/host$n" 2>&1 &
        host_pids[n]=$(first_child $!) || die "no host: $(cat "$scratch/host$n")"
    done
    ip link add cable0 type veth peer name cable1
    for n in 0 1; do
        ip link set "cable$n" netns "${host_pids[n]}"
        on_host $n sh -c "ip address add 10.99.0.$((n + 1))/24 dev cable$n &&
            ip link set cable$n up && ip link set lo up"
    done
}

# first_child PID: waits until it has a child that has become "sleep", and prints its PID.
first_child() {
    local child tries
    for ((tries = 0; tries < 200; tries++)); do
        child=$(cat "/proc/$1/task/$1/children" 2>/dev/null)
        child=${child%% *}
        if [ -n "$child" ] && [ "$(cat "/proc/$child/comm")" = sleep ]; then
            say "$child"
            return 0
        fi
        sleep 0.05
    done
    return 1
}

# The first process of a PID namespace takes no other signal; the cable goes with its ends.
remove_hosts() {
    [ ${#host_pids[@]} = 0 ] || kill -9 "${host_pids[@]}" 2>/dev/null
    host_pids=()
    wait
}

# on_host N CMD...
on_host() {
    local pid=${host_pids[$1]}
    shift
    # Without --root a mount namespace leaves the chroot that the tests may run in.
    nsenter --target "$pid" --net --pid --ipc --uts --mount --root --wd "$@"
}

# four_processes NAME=VALUE...: two on each host, with these variables.
four_processes() {
    local n status=0
    local -a pids=()
    say "-- $*"
    rm -f "$scratch/meeting"
    for n in 0 1; do
        on_host $n env UCX_WARN_UNUSED_ENV_VARS=n UCX_MODULES=^cuda "$@" "$run" \
            "$build/test/scale/all_to_all" run --processes=4 --first=$((2 * n)) --count=2 \
            --meeting="$scratch/meeting" --neighbours=gpushm --deadline=60 \
            --kinds=host,device,managed --sizes=1,200,9000,70001,1000003,9000001 &
        pids[n]=$!
    done
    for n in 0 1; do
        wait "${pids[n]}" || status=$?
    done
    return $status
}

failed=0
say "---- hosts that share nothing"
make_hosts --net --pid --ipc --uts --mount
for libraries in "" "$@"; do
    for proto in n y; do
        four_processes LD_LIBRARY_PATH="${libraries:+$libraries:}$build/test/simcuda/.libs" \
            UCX_PROTO_ENABLE=$proto || failed=1
    done
done
(mpi_on_hosts) || failed=1
remove_hosts
# UCX's own posix and sysv would go from one to the other, since they do not look at the network.
say "---- containers with networks of their own that share the processes of the machine"
make_hosts --net --uts --mount
four_processes LD_LIBRARY_PATH="$build/test/simcuda/.libs" UCX_TLS=gpushm,tcp,self || failed=1
exit $failed
