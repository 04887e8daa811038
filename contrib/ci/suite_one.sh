#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs programs of make check, in that order, as they were built on another system; ucp/gpu_memory.sh runs beside
# them, with the newer protocols of UCX:
#   suite_one.sh BUILD_DIR PROGRAM...
. "$(dirname "$0")/lib.sh"

build=$1
shift
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

beside=
for name; do
    case $name in
    ucp/gpu_memory.sh) run "$name" sh "$tests/$name" --proto=y & beside=$! ;;  # leaves half of two processors idle
    *) run "$name" "test/$name" || failed=1 ;;
    esac
done
[ -z "$beside" ] || wait "$beside" || failed=1
exit $failed
