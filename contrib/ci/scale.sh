# SPDX-License-Identifier: BSD-3-Clause
# Steps of contrib/check: many processes on a node (test/scale).

scale_programs() {
    made test/scale/all_to_all test/scale/come_and_go
}

# Bounds are what gpushm takes today, rounded up.
step_scale() {
    local processes=256 free_mib
    free_mib=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
    if [ "$free_mib" -lt 1024 ]; then
        processes=32
        say "256 processes reserve 0.6 GiB, of $free_mib MiB that are free: $processes"
    fi
    scale_programs
    # Alone, so that what is measured is its own.
    UCX_TLS=gpushm "$run" "$plain/test/scale/all_to_all" run --processes=$processes --report \
        --most-memory=4 --most-descriptors=$((processes + 34))
    # Beside UCX's own transports, by UCX's choice.
    "$run" "$plain/test/scale/all_to_all" run --processes=16 --sizes=8,9000 --neighbours=gpushm
}

step_come_and_go() {
    local size
    scale_programs
    for size in 8 70000; do
        UCX_TLS=gpushm "$run" "$plain/test/scale/come_and_go" run --peers=40 --size=$size
    done
}
