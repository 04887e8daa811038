# SPDX-License-Identifier: BSD-3-Clause
# The installed gpushm in one UCX. To be sourced after lib.sh by scripts with the arguments
#   PREFIX BUILD_DIR [UCX_LIBRARIES [UCX_PROGRAMS]]
# PREFIX: where gpushm is installed; BUILD_DIR: where test/ucp/ucp_peer and the simulated driver
# were built. The folders of UCX are left out for the UCX that the system has.

prefix=$1 build=$2 libraries=${3:-} programs=${4:-}
run=$prefix/bin/gpushm-run
batch=$(mktemp -d)
trap 'rm -rf "$batch"' EXIT
log=$batch/log
failed=0
start_ucx_quickly
# The generation of protocols, UCX_PROTO_ENABLE.
proto=y

# with_ucx CMD...: gpushm is the only transport. The CUDA modules of UCX stay out: they need more
# of a driver than the simulated one has.
with_ucx() {
    env LD_LIBRARY_PATH="${libraries:+$libraries:}$build/test/simcuda/.libs" \
        PATH="${programs:+$programs:}$PATH" UCX_PROTO_ENABLE="$proto" UCX_TLS=gpushm \
        UCX_MODULES=^cuda "$@"
}

# find_ucx: sets minor, the second number of the version, and perftest, the program; no_perftest
# says why there is none.
find_ucx() {
    minor=$(with_ucx "$build/test/ucp/ucp_peer" version | sed -n 's/^1\.//p')
    [ -n "$minor" ] ||
        die "UCX cannot be used: $(with_ucx "$build/test/ucp/ucp_peer" version 2>&1)"
    perftest=$(PATH="${programs:+$programs:}$PATH" command -v ucx_perftest)
    no_perftest=
    if [ -z "$perftest" ] || { [ -n "$libraries" ] && [ -z "$programs" ]; }; then
        no_perftest="there is none"
        return
    fi
    # The dynamic linker crashes on the program of some wheels, whatever the transport.
    with_ucx "$perftest" -h >"$batch/help" 2>&1
    [ $? != 139 ] || no_perftest="it cannot be loaded"
}

# can_put_and_get KIND: not everything of UCX itself works with the first generation of protocols.
can_put_and_get() {
    [ "$proto" = y ] && return 0
    # ucp_get_rep_handler (rma_sw.c) copies into GPU memory by the CPU.
    [ "$1" = host ] || return 1
    # There is no software put any more.
    [ "$minor" -lt 22 ]
}

# perftest_side OUTPUT ARGUMENTS...: one of the two processes.
perftest_side() {
    local output=$1
    shift
    # With MPI in it (Debian 13) it is told not to use it.
    [[ $(ldd "$perftest") != *libmpi.so* ]] || set -- -P 0 "$@"
    with_ucx timeout 120 "$run" "$perftest" "$@" -b "$batch/tests" -f -w 10 \
        >"$output" 2>&1 </dev/null
}

# perftest_pair: ucx_perftest with the tests in $batch/tests, a line each: a name, and arguments
# of which the last is not a single letter (perftest_run.c takes the next line for its rest).
perftest_pair() {
    local port server
    port=$(some_port)
    perftest_side "$batch/server" -p $port &
    server=$!
    wait_for_port $port $server && perftest_side "$batch/client" 127.0.0.1 -p $port ||
        say "UCX_PROTO_ENABLE=$proto ucx_perftest ended with status $?"
    kill $server 2>/dev/null
    wait $server 2>/dev/null
}

# perftest_passes: runs $batch/tests; each must give figures, and nobody may report an error.
perftest_passes() {
    local name arguments missing=0
    perftest_pair
    while read -r name arguments; do
        awk -v name="$name" '$1 == name && $2 > 0 { found = 1 } END { exit !found }' \
            "$batch/client" && continue
        missing=$((missing + 1))
        [ $missing -gt 5 ] || say "FAILED: UCX_PROTO_ENABLE=$proto ucx_perftest $arguments"
    done <"$batch/tests"
    if [ $missing != 0 ] || grep -q ' ERROR ' "$batch/server" "$batch/client"; then
        failed=1
        say "UCX_PROTO_ENABLE=$proto: $missing of $(wc -l <"$batch/tests") tests without figures"
        grep ' ERROR ' "$batch/server" "$batch/client" | head -n 8
        tail -n 8 "$batch/server" "$batch/client"
    fi
}
