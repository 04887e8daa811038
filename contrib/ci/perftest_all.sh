#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs every test of ucx_perftest between host memory, with gpushm as the only transport: those of
# UCP with both protocol generations, and those of UCT that gpushm has operations for; one_ucx.sh
# says what the arguments are.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/one_ucx.sh"

# add TEST ARGUMENTS...: a test, named by a number. Iterations are few where sides take turns: both
# poll, maybe on a single core.
add() {
    local count=10
    [[ $1 != *_bw ]] || count=40
    say "$((++tests)) -t $* -w 2 -n $count"
}

# sized TEST SIZE...
sized() {
    local test=$1 size
    shift
    for size; do
        add "$test" -s "$size"
    done
}

ucp_sizes() {
    local test
    for test in tag_lat tag_bw tag_sync_lat tag_sync_bw ucp_am_lat ucp_am_bw; do
        sized $test 0 1 113 5000 40000 300000 5000000
    done
    # The receiver of an empty part of a stream aborts, whatever the transport ("rdesc_tmp.length >
    # 0", stream_recv.c of 1.13).
    for test in stream_lat stream_bw; do
        sized $test 1 113 5000 40000 300000 5000000
    done
    for test in ucp_add ucp_fadd ucp_swap ucp_cswap; do
        sized $test 4 8
    done
    say "$((++tests)) -t tag_lat -s 1073741824 -w 0 -n 1"
}

ucp_puts_and_gets() {
    local test
    # ucx_perftest refuses to put and get nothing. A get takes it a millisecond for each fragment,
    # with tcp too, since the other side sleeps that long in a barrier.
    for test in ucp_put_lat ucp_put_bw ucp_get; do
        sized $test 1 113 5000 40000 300000
        add $test -s 8 -e
        add $test -s 300000 -e
    done
    for test in ucp_put_bw ucp_get; do
        add $test -s 8 -T 4 -M multi
    done
    add ucp_put_lat -s 8 -I
    # See ucp_workers.
    add ucp_put_lat -s 300000 -E sleep
    add ucp_put_bw -B -s 300000
}

# Threads, waiting by sleeping, wake-up, error handling.
ucp_workers() {
    local test
    for test in tag_bw ucp_am_bw ucp_fadd; do
        add $test -s 8 -T 4 -M multi
    done
    add tag_lat -s 5000 -T 4 -M multi
    add tag_bw -s 300000 -T 4 -M multi
    add tag_lat -s 5000 -M serialized
    # With -E sleep ucp_get and the atomic operations now and then hang with tcp too, and always
    # with posix.
    for test in tag_lat tag_bw ucp_am_lat stream_lat; do
        add $test -s 8 -E sleep
        add $test -s 300000 -E sleep -e
        add $test -s 8 -I
    done
    for test in tag_lat ucp_am_bw stream_bw; do
        add $test -s 8 -e
    done
    for test in tag_bw ucp_am_lat stream_lat; do
        add $test -s 300000 -e
    done
    # From 1.15 on atomic operations then fail with the second generation, with tcp too.
    [ "$proto" = y ] && [ "$minor" -ge 15 ] || add ucp_fadd -s 8 -e
}

# Lists of buffers, wild-card tags, unexpected messages, headers, registered memory.
ucp_messages() {
    local test
    # Not ucp_am_bw: that of 1.23 then fails an assertion of its own ("length == m_am_rx_length").
    for test in tag_lat tag_bw ucp_am_lat stream_lat stream_bw; do
        add $test -s 16,48,8192,8192,14 -D iov
        add $test -s 100000,200000 -D iov,contig
    done
    add tag_bw -s 1000,2000 -i 4096 -D iov,iov
    for test in tag_lat tag_bw; do
        add $test -C -s 8
        add $test -U -s 8
        add $test -U -s 300000
        add $test -O 4 -s 300000
    done
    for test in ucp_am_lat ucp_am_bw; do
        add $test -H 100 -s 8
        add $test -H 1000 -s 300000
        add $test -z -s 300000
    done
    add stream_lat -r recv_data -s 8
    add stream_bw -r recv_data -s 300000
}

ucp_tests() {
    local tests=0
    ucp_sizes
    if can_put_and_get host; then ucp_puts_and_gets; fi
    ucp_workers
    ucp_messages
}

# gpushm has no short and buffered puts and gets and no atomic operations: UCP makes them of active
# messages (see ucp_tests). Sizes are at both sides of the limits; 8 bytes of an active message are
# its header.
uct_tests() {
    local tests=0 test size device="-d gpushm -x gpushm"
    for test in am_lat am_bw; do
        for size in 8 112; do
            add $test "$device" -D short -s $size
        done
        for size in 8 113 5000 32896; do
            add $test "$device" -D bcopy -s $size
            add $test "$device" -D zcopy -s $size
        done
        add $test "$device" -D shortiov -s 50,50
        add $test "$device" -D zcopy -s 100,2000,3000
        add $test "$device" -D zcopy -H 1000 -s 30000
        add $test "$device" -D bcopy -W 1 -s 5000
        add $test "$device" -D bcopy -A thread_mutex -s 5000
        add $test "$device" -D bcopy -A signal -s 5000
    done
    for test in put_lat put_bw get; do
        for size in 1 113 5000 300000 5000000; do
            add $test "$device" -D zcopy -s $size
        done
    done
    say "$((++tests)) -t get $device -D zcopy -s 1073741824 -w 0 -n 1"
}

# Every test of UCP that this ucx_perftest has must be among ours.
all_are_there() {
    local test
    with_ucx "$perftest" -h | sed -n 's/^ *\([a-z_]*\) - UCP .*/\1/p' >"$batch/ucp"
    [ -s "$batch/ucp" ] || die "ucx_perftest -h names no test of UCP"
    while read -r test; do
        grep -q -- " -t $test " "$batch/tests" && continue
        failed=1
        say "FAILED: the test $test of ucx_perftest is missing here"
    done <"$batch/ucp"
}

find_ucx
[ -z "$no_perftest" ] || die "no ucx_perftest: $no_perftest"
uct_tests >"$batch/tests"
perftest_passes
for proto in n y; do
    ucp_tests >"$batch/tests"
    perftest_passes
done
all_are_there
say "UCX 1.$minor, every test of ucx_perftest: $([ $failed = 0 ] && say passed || say FAILED)"
exit $failed
