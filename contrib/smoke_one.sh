#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the installed gpushm on one UCX, both of its protocol generations, with host memory and
# device memory of the simulated CUDA driver:
#   smoke_one.sh PREFIX BUILD_DIR [UCX_LIBRARIES [UCX_PROGRAMS]]
# PREFIX: where gpushm is installed; BUILD_DIR: where test/ucp/ucp_peer and the driver were built.
# The folders of UCX are left out for the UCX that the system has.
. "$(dirname "$0")/lib.sh"

prefix=$1 build=$2 libraries=${3:-} programs=${4:-}
run=$prefix/bin/gpushm-run
batch=$(mktemp -d)
trap 'rm -rf "$batch"' EXIT
log=$batch/log
failed=0

# with_ucx CMD...: gpushm is the only transport. The CUDA modules of UCX stay out: they need more
# of a driver than the simulated one has.
with_ucx() {
    env LD_LIBRARY_PATH="${libraries:+$libraries:}$build/test/simcuda/.libs" \
        PATH="${programs:+$programs:}$PATH" UCX_PROTO_ENABLE="$proto" UCX_TLS=gpushm \
        UCX_MODULES=^cuda UCX_WARN_UNUSED_ENV_VARS=n "$@"
}

# can_put_and_get KIND: not everything of UCX itself works with the first generation of protocols.
can_put_and_get() {
    [ "$proto" = y ] && return 0
    # ucp_get_rep_handler (rma_sw.c) copies into GPU memory by the CPU.
    [ "$1" = host ] || return 1
    # There is no software put any more.
    [ "$minor" -lt 22 ]
}

# Messages whose every byte is checked.
checked_messages() {
    local scenario output
    for scenario in tag am stream rma; do
        local kinds=host,device
        if [ $scenario = rma ] && ! can_put_and_get device; then kinds=host; fi
        if [ $scenario = rma ] && ! can_put_and_get host; then continue; fi
        output=$(with_ucx "$run" "$build/test/ucp/ucp_peer" $scenario --kinds=$kinds \
            --sizes=8,113,9000,300001 2>&1) && continue
        failed=1
        say "FAILED: UCX_PROTO_ENABLE=$proto ucp_peer $scenario --kinds=$kinds"
        say "$output" | tail -n 8
    done
}

# One line a test: a name, and the arguments of ucx_perftest.
perftest_batch() {
    local kind
    for kind in host cuda; do
        say "tag_lat_$kind -t tag_lat -m $kind -s 8 -n 100"
        say "tag_bw_$kind -t tag_bw -m $kind -s 300000 -n 30"
        say "am_$kind -t ucp_am_lat -m $kind -s 3000 -n 100"
        if can_put_and_get $kind; then
            say "put_$kind -t ucp_put_lat -m $kind -s 3000 -n 100"
            say "get_$kind -t ucp_get -m $kind -s 300000 -n 30"
        fi
    done
}

# perftest_side OUTPUT ARGUMENTS...: one of the two processes.
perftest_side() {
    local output=$1
    shift
    # With MPI in it (Debian 13) it is told not to use it.
    [[ $(ldd "$perftest") != *libmpi.so* ]] || set -- -P 0 "$@"
    with_ucx timeout 60 "$run" "$perftest" "$@" -b "$batch/tests" -f -w 10 \
        >"$output" 2>&1 </dev/null
}

perftest_tests() {
    local port=$((20000 + RANDOM % 20000)) server name arguments
    perftest_batch >"$batch/tests"
    perftest_side "$batch/server" -p $port &
    server=$!
    wait_for_port $port $server && perftest_side "$batch/client" 127.0.0.1 -p $port ||
        say "UCX_PROTO_ENABLE=$proto ucx_perftest ended with status $?"
    kill $server 2>/dev/null
    wait $server 2>/dev/null
    while read -r name arguments; do
        awk -v name="$name" '$1 == name && $NF > 0 { found = 1 } END { exit !found }' \
            "$batch/client" && continue
        failed=1
        say "FAILED: UCX_PROTO_ENABLE=$proto ucx_perftest $arguments"
        tail -n 8 "$batch/server" "$batch/client"
        return
    done <"$batch/tests"
}

proto=y
minor=$(with_ucx "$build/test/ucp/ucp_peer" version | sed -n 's/^1\.//p')
[ -n "$minor" ] || die "UCX cannot be used: $(with_ucx "$build/test/ucp/ucp_peer" version 2>&1)"
perftest=$(PATH="${programs:+$programs:}$PATH" command -v ucx_perftest)
with_perftest=yes
if [ -n "$libraries" ] && [ -z "$programs" ]; then
    with_perftest="no, there is none"
elif with_ucx "$perftest" -h >"$batch/client" 2>&1 || [ $? != 139 ]; then
    :
else
    # The dynamic linker crashes on the program of some wheels, whatever the transport.
    with_perftest="no, it cannot be loaded"
fi
for proto in n y; do
    checked_messages
    [ "$with_perftest" != yes ] || perftest_tests
done
say "UCX 1.$minor (ucx_perftest: $with_perftest): $([ $failed = 0 ] && say passed || say FAILED)"
exit $failed
