#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the installed gpushm on one UCX, both of its protocol generations, with host memory and
# device memory of the simulated CUDA driver; one_ucx.sh says what the arguments are.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/one_ucx.sh"

# Messages whose every byte is checked, in a UCX that watches GPU memory by its module of libucm, if it has one.
checked_messages() {
    local scenario output
    for scenario in tag am stream rma cuda-after; do
        local kinds=host,device sizes=8,113,9000,300001
        if [ $scenario = rma ] && ! can_put_and_get device; then kinds=host; fi
        if [ $scenario = rma ] && ! can_put_and_get host; then continue; fi
        # All kinds that libucm may or may not see.
        if [ $scenario = cuda-after ]; then kinds='' sizes=''; fi
        output=$(with_ucx env -u UCX_MODULES "$run" "$build/test/ucp/ucp_peer" $scenario \
            ${kinds:+--kinds=$kinds} ${sizes:+--sizes=$sizes} 2>&1) && continue
        failed=1
        say "FAILED: UCX_PROTO_ENABLE=$proto ucp_peer $scenario ${kinds:+--kinds=$kinds}"
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

# What UCP chooses by the costs that we tell it: a receiver with host memory fetches GPU memory of any
# size, which begins with the announcement, and does not have it sent.
fetches_gpu_memory() {
    [ $proto = y ] && [ "$minor" -ge 16 ] && [ "$minor" -le 21 ] || return 0
    with_ucx env UCX_PROTO_INFO=y UCX_LOG_FILE="$batch/protocols.%p" "$run" \
        "$build/test/ucp/ucp_peer" tag --kinds=host,device --sizes=8 >"$batch/output" 2>&1 &&
        awk '/data fetch into host memory from cuda/ { rows = 6 }
            rows-- > 0 && / 1\.\.inf .*read from remote/ { found = 1 }
            END { exit !found }' "$batch"/protocols.* && return
    failed=1
    say "FAILED: UCP does not fetch GPU memory of any size into host memory, or ucp_peer failed:"
    cat "$batch/output"
    grep -h -A 6 'data fetch into host' "$batch"/protocols.*
}

find_ucx
for proto in n y; do
    checked_messages
    fetches_gpu_memory
    if [ -z "$no_perftest" ]; then
        perftest_batch >"$batch/tests"
        perftest_passes
    fi
done
say "UCX 1.$minor${no_perftest:+, without ucx_perftest: $no_perftest}:" \
    "$([ $failed = 0 ] && say passed || say FAILED)"
exit $failed
