#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Messages of GPU memory in every combination, beside everything that an application does with it;
# runs the same with the simulated driver and on a GPU node. Run in the build directory.
#
#   gpu_memory.sh [--quick] [--full] [--huge] [--only=TEXT] [--sweep] [--proto=n|y] [--beside]
#
# --quick: a minute, for "make check" (default). --full: some minutes, for a GPU node. --huge: sizes
# up to 1 GiB too. --sweep: each driver call fails once (driver_failures), on a GPU node by a library in
# front of the real driver; always with the simulated driver. --beside: UCX may take its own
# transports as well, as it does without any setting. One line for each test; the exit status is the
# number of those that fail.
build=$PWD
folder=$build/test/ucp
full=
huge=
only=
sweep=
beside=
protos='n y'
for argument; do
    case $argument in
    --quick) ;;
    --full) full=--full ;;
    --huge) full=--full huge=y ;;
    --sweep) sweep=y ;;
    --beside) beside=y ;;
    --only=*) only=${argument#--only=} ;;
    --proto=*) protos=${argument#--proto=} ;;
    *)
        sed -n '6p' "$0"
        exit 2
        ;;
    esac
done
[ -x "$folder/ucp_peer" ] && [ -e "$folder/plugins/libgpushm_preload.so" ] ||
    { echo "not built: $folder/ucp_peer"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
unset UCX_PLUGIN_PATH UCX_LOG_LEVEL UCX_LOG_FILE
preload=$folder/plugins/libgpushm_preload.so
export UCX_KEEPALIVE_INTERVAL=1s UCX_WARN_UNUSED_ENV_VARS=n
if [ -z "$beside" ]; then
    export UCX_TLS=gpushm UCX_MODULES=^cuda
fi
minor=$("$folder/ucp_peer" version | sed 's/.*\.//')
failures=0
skips=0
tests=0

seconds() {
    date +%s.%N
}

# check NAME COMMAND...
check() {
    name="$1, proto $proto"
    shift
    case $name in *"$only"*) ;; *) return ;; esac
    start=$(seconds)
    LD_PRELOAD=$preload UCX_PROTO_ENABLE=$proto "$@" >"$work/out" 2>&1
    status=$?
    took=$(echo "$start $(seconds)" | awk '{ printf "%.1f s", $2 - $1 }')
    tests=$((tests + 1))
    case $status in
    0)
        echo "PASS  $name, $took"
        grep -v '^skipped: ' "$work/out" | sed 's/^/      /'
        ;;
    77)
        skips=$((skips + 1))
        echo "SKIP  $name: $(grep '^skipped: ' "$work/out" | tail -n 1)"
        ;;
    *)
        failures=$((failures + 1))
        echo "FAIL  $name, status $status, $took"
        grep -v '^skipped: ' "$work/out" | tail -n 30 | sed 's/^/      /'
        ;;
    esac
}

peer() {
    name=$1
    shift
    check "$name" "$folder/ucp_peer" "$@"
}

# standby SETTING NAME LEAST ARGUMENT...: with the standby kernel, which takes so many copies at least
# where this build has it, nothing else does them, and each process has a GPU for itself.
standby() {
    setting=$1
    name="standby kernel, $setting: $2"
    least=$3
    shift 3
    { [ -e "$build/src/core/kernels/no_kernel_image.lo" ] || [ -n "$beside" ] ||
        [ "$devices" -lt 2 ]; } && least=0
    check "$name" env UCX_GPUSHM_STANDBY="$setting" "$folder/ucp_peer" "$@" \
        --standby-least="$least" --deadline=$limit
}

# Calls that bring the kernel, or wait for it, fail; and nobody notices.
failing_standby() {
    for call in cuModuleLoadData:1 cuModuleGetFunction:1 cuMemHostRegister:1 cuMemHostRegister:2 \
        cuMemHostRegister:3 cuMemHostRegister:4 \
        cuMemHostGetDevicePointer:1 cuCtxGetDevice:1 cuDeviceGetAttribute:1 cuStreamCreate:1 \
        cuLaunchKernel:1 cuLaunchKernel:7 cuStreamQuery:1 cuStreamQuery:3; do
        echo "$call"
        UCX_GPUSHM_STANDBY=y SIMCUDA_FAIL=$call:999 "$folder/ucp_peer" standby-messages \
            --from=device --to=device,host --deadline=$limit || return
    done
}

polls='0 1 5 20'
limit=60
if [ -n "$full" ]; then
    polls='0 1 2 3 4 5 6 8 10 12 15 20 25 30 40 60 100 200'
    limit=900
fi
devices=$("$folder/ucp_peer" kinds | sed -n 's/.* \([0-9]*\) devices$/\1/p')
devices=${devices:-0}
simulated=y
driver=$("$folder/ucp_peer" driver-path 2>/dev/null) && simulated=
"$folder/ucp_peer" kinds
for proto in $protos; do
    # Not what UCX cannot do by itself: one-sided operations on GPU memory by its first protocols
    # (rma_sw.c), zero-copy active messages by the second protocols of 1.13.
    options=
    [ "$proto" = n ] && options=--rma=n
    [ "$proto" = y ] && [ "$minor" -eq 13 ] && options=--am=n
    # In full with the newer protocols only.
    depth=
    messages=400
    standby_messages=2500
    rounds=10
    if [ -n "$full" ]; then
        messages=10000
        standby_messages=100000
        rounds=100
        [ "$proto" = y ] && depth=--full && messages=100000 && rounds=1000 &&
            standby_messages=1000000
    fi
    peer "all kinds" matrix $depth $options --deadline=$limit
    [ -n "$full" ] && peer "all kinds on one device" matrix --same-device $options --deadline=$limit
    [ -n "$huge" ] && for pair in device/device device/host host/device managed_gpu/device; do
        peer "up to 1 GiB, $pair" matrix --full --largest-mib=1024 --from=${pair%/*} \
            --to=${pair#*/} $options --deadline=$limit
    done
    peer "visible to kernels" visibility --count=$messages --deadline=$limit
    peer "visible to kernels, one device" visibility --count=400 --same-device --deadline=$limit
    peer "kernels wait for messages" waiting-kernel --deadline=$limit
    peer "freed and allocated again" reallocated --rounds=$rounds --deadline=$limit
    if [ -z "$beside" ]; then  # UCX's own transports end captures, and keep freed memory mapped
        peer "stream capture" captures --deadline=$limit
        peer "freed while mapped" freed-while-mapped --deadline=$limit
        peer "freed beside a kernel" freed-beside-kernel --deadline=$limit
    fi
    peer "application opens IPC handles" own-ipc-handle --deadline=$limit
    peer "memory that UCX allocates" allocated-by-ucx --deadline=$limit
    peer "device reset" context-reset --deadline=$limit
    peer "pages that change" changed-pages --deadline=$limit
    peer "fork" fork --deadline=$limit
    peer "other current contexts" other-contexts --deadline=$limit
    peer "several devices and workers" several-devices --deadline=$limit
    peer "devices in another order" visible-devices --visible0=0,1 --visible1=1,0 --deadline=$limit
    peer "different devices visible" visible-devices --visible0=0 --visible1=1 --deadline=$limit
    standby y "all sizes and alignments" 200 standby-messages
    standby auto "all sizes and alignments" 50 standby-messages
    standby y "all sizes and alignments, one device" 0 standby-messages --same-device
    standby y "other kinds of memory" 200 standby-messages --from=device,host,pool \
        --to=device,registered,vmm_shared,pool,managed_gpu
    standby y "visible at once" 200 standby-visibility --count=$standby_messages
    for warm in 0 1 8 64; do
        for word in pinned device; do
            standby y "GPU is full after $warm messages, $word memory" 0 standby-full-gpu \
                --warm=$warm --word=$word
        done
    done
    for mode in y n; do
        standby $mode "GPU of both is full" 0 standby-full-gpu --warm=8 --word=device --same-device
    done
    standby y "GPU is full before UCX is there" 0 standby-full-gpu --early --word=$word
    standby y "another thread waits for the GPU" 50 standby-other-thread
    standby y "driver calls after messages" 50 standby-driver-calls
    standby y "fork" 50 standby-fork
    standby y "device reset" 0 context-reset
    [ -n "$beside" ] || standby y "stream capture" 10 captures
    CUDA_LAUNCH_BLOCKING=1
    export CUDA_LAUNCH_BLOCKING
    standby y "CUDA_LAUNCH_BLOCKING" 0 standby-messages --standby-most=0
    unset CUDA_LAUNCH_BLOCKING
    for when in send receive; do
        [ "$when" = receive ] && [ "$proto" = y ] && [ "$minor" -eq 13 ] && continue  # see below
        for poll in 0 7 40; do
            standby y "killed at $when after $poll polls" 0 killed --when=$when --kinds=device \
                --polls=$poll --bytes=64 --messages=64 --warm=200
        done
    done
    if [ -n "$simulated" ]; then
        # ucp_proto_rndv_get_zcopy_fetch_completion, see below; and from 1.14 on UCX ends the process
        # when a copy to the GPU fails (src/ucp/dt/dt.c, ucp_mem_type_unpack).
        if [ "$proto" = n ] && [ "$minor" -eq 13 ]; then
            standby y "its context is lost" 0 standby-dies
        fi
        for variable in SIMCUDA_SEED=5 SIMCUDA_KERNEL_START_US=20000; do
            [ "$proto" = "${protos%% *}" ] || continue
            # shellcheck disable=SC2163
            export "$variable"
            standby y "all sizes and alignments, $variable" 0 standby-messages
            standby y "another thread waits for the GPU, $variable" 0 standby-other-thread
            unset "${variable%=*}"
        done
    fi
    for kind in device managed; do
        peer "killed before it answers, $kind" killed --when=unanswered --kinds=$kind
        for when in send receive; do
            # ucp_proto_rndv_get_zcopy_fetch_completion (rndv_get.c) of 1.13 ignores the error.
            [ "$when" = receive ] && [ "$proto" = y ] && [ "$minor" -eq 13 ] && continue
            for poll in $polls; do
                peer "killed at $when after $poll polls, $kind" killed --when=$when --kinds=$kind \
                    --polls=$poll --bytes=3000001
            done
        done
    done
done

if [ -z "$simulated" ]; then  # it cannot be told to fail
    FAILING_DRIVER_OF=$driver
    LD_LIBRARY_PATH=$folder/failing/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export FAILING_DRIVER_OF LD_LIBRARY_PATH
else
    sweep=y
fi
if [ -n "$sweep" ]; then
    for proto in $protos; do
        options=
        [ "$proto" = n ] && options=--rma=n
        short='8 B'
        [ -n "$full" ] && short=
        # Which calls a message makes depends on whether the kernel is there: without it always the same.
        check "each driver call fails once" env UCX_GPUSHM_STANDBY=n "$folder/driver_failures" \
            $full $options
        check "each driver call fails once, standby kernel" env UCX_GPUSHM_STANDBY=y \
            SIMCUDA_KERNEL_START_US=3000 "$folder/driver_failures" $full $options --way="$short"
        [ "$proto" = "${protos%% *}" ] &&
            check "driver calls of the standby kernel fail" failing_standby
    done
fi
echo "$tests tests: $failures failed, $skips skipped"
exit $failures
