# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check in which calls of the driver, and allocations, fail during operations of MPI.

# outcome STATUS TRIAL OUTPUT: of a trial after which test/mpi/driver_failures did not go on.
outcome() {
    local times=${2##* }
    if [ "$1" = 4 ]; then
        say "error"
    elif [ "$1" = 3 ] && [ "$times" != 1 ] && grep -q 'ERROR gpushm' "$3"; then
        # Where a driver fails for good: UCX tells the sender nothing of a receive that failed, and
        # MPI_Sendrecv sends before it looks at its receive.
        say "untold"
    else
        say "HANG or CRASH"
        tail -n 20 "$3" >&2
    fi
}

# driver_failures BUILD_DIR SCRATCH_DIR: runs all trials of test/mpi/driver_failures; each must end
# with the right data on all ranks, or with an error of MPI. How many errors there are depends on time
# (what the standby kernel copies no call copies), and there may be none: that errors reach MPI is what
# `driver_failures returned` asserts.
driver_failures() {
    local program=$1/test/mpi/driver_failures trials=$2/trials report=$2/report output=$2/output
    local total next=0 status
    SIMCUDA_COUNTS=$2/counts.%p ranks 2 "$program" list
    # shellcheck disable=SC2046 # names of functions
    ranks 2 "$program" list $(cut -d ' ' -f 1 "$2"/counts.* | sort -u) >"$trials"
    total=$(wc -l <"$trials")
    [ "$total" -gt 0 ]
    : >"$report"
    while [ "$next" -lt "$total" ]; do
        status=0
        ranks 2 "$program" run "$trials" "$next" "$report" >"$output" 2>&1 || status=$?
        next=$(awk 'END { print NR ? $1 + 1 : 0 }' "$report")
        [ "$next" -lt "$total" ] || break
        say "$next $(outcome $status "$(sed -n "$((next + 1))p" "$trials")" "$output")" >>"$report"
        next=$((next + 1))
    done
    # The report has a line for each trial, in their order.
    paste -d ' ' "$report" "$trials" | grep -v '^[0-9]* data ' || true
    say "$total trials: $(grep -c ' data$' "$report") right data, $(grep -c ' error$' "$report")" \
        "errors of MPI, $(grep -c ' untold$' "$report") errors of gpushm only"
    absent grep -q -v -E ' (data|error|untold)$' "$report"
}

step_driver_failures() {
    simulated
    made test/mpi/{driver_failures,allocation_failures}
    (cd "$root/tmp" && ranks 1 "$plain/test/mpi/allocation_failures") >"$root/tmp/output" 2>&1 ||
        { tail -n 20 "$root/tmp/output" && return 1; }
    ranks 2 "$plain/test/mpi/driver_failures" returned | grep 'can be copied'
    driver_failures "$plain" "$root/tmp"
}
