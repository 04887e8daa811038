#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the programs of make check that load UCX, GPU memory by the newer protocols of UCX included, and those of
# test/gtest that are named, as they were built on another system:
#   suite_one.sh BUILD_DIR [PROGRAM...]
. "$(dirname "$0")/lib.sh"

build=$1
shift
# In order of what they rest on.
programs=("${@/#/gtest/}" gtest/{abi_refusal_test,abi_test,uct_test,hooks_test} ucp/ucp_test)
failed=0
tests=$(cd "$(dirname "$0")/../../test" && pwd)

start_ucx_quickly
cd "$build" || exit
export LD_LIBRARY_PATH=$PWD/test/simcuda/.libs
export FUZZ_MUTATIONS=100000  # all of them run where the programs were built

# run NAME COMMAND...
run() {
    local name=$1 start=$SECONDS output
    shift
    if output=$("$@" 2>&1 </dev/null); then
        say "passed: $name ($((SECONDS - start)) s)"
    else
        say "FAILED: $name (status $?)"
        output=$(grep -v -e '^\[ RUN' -e '^\[       OK' -e ^PASS <<<"$output")
        tail -n 40 <<<"$output"
        grep -A 3 ^FAIL <<<"$output" || true
        return 1
    fi
}

# At the same time: each leaves half of two processors idle.
run ucp/gpu_memory.sh sh "$tests/ucp/gpu_memory.sh" --proto=y &
for name in "${programs[@]}"; do
    run "$name" "test/$name" || failed=1
done
wait $! || failed=1
exit $failed
