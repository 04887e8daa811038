# SPDX-License-Identifier: BSD-3-Clause
# Ranks of the Open MPI that is first in PATH. To be sourced after lib.sh; expects run (the path of
# gpushm-run).

# ranks N PROGRAM...: with no way between ranks but gpushm.
ranks() {
    local n=$1
    shift
    UCX_TLS=gpushm,self timeout "${ranks_limit:-240}" "$run" mpirun -n "$n" "$@"
}

# mpi4py_collectives N PYTHON
mpi4py_collectives() {
    local output status=0
    output=$(ranks "$1" "$2" "$source_dir/test/scale/collectives_mpi4py.py" 2>&1) || status=$?
    say "$output"
    [ $status = 0 ] && [[ $output == *"$1 ranks passed"* ]]
}

# mpi_operations N BUILD_DIR OPTIONS...: test/mpi/operations, which has been made there; what is wrong
# is at the end of the output.
mpi_operations() {
    local n=$1 build=$2
    shift 2
    ranks "$n" "$build/test/mpi/operations" --quick --timeout=100 "$@" 2>&1 | tail -n 30
}

# mpi_looked_up BUILD_DIR SCRATCH_DIR: calls of MPI by functions that the program has looked up; test/mpi/looked_up and
# its library have been made there. Other processors' functions are not changed.
mpi_looked_up() {
    [ "$(uname -m)" = x86_64 ] || return 0
    ranks 2 "$1/test/mpi/looked_up" "$1/test/mpi/.libs/looked_up_library.so" "$2"
}

# logged_reduction N BUILD_DIR: prints what a large reduction of GPU memory logs.
logged_reduction() {
    UCX_LOG_LEVEL=debug ranks "$1" "$2/test/mpi/operations" --quick --kinds=device \
        '--only=Allreduce, MPI_SUM of MPI_INT' 2>&1
}

# mpi_reduction_on_gpu N BUILD_DIR: whether a large reduction of GPU memory stays in GPU memory.
mpi_reduction_on_gpu() {
    local output
    grep '^#define HAVE_KERNELS' "$2/config.h" || return 0
    output=$(logged_reduction "$1" "$2") && grep -m 1 'GPU memory for temporaries' <<<"$output"
}

# mpi_starts_quickly BUILD_DIR: gpushm changes functions by itself, without the waits of libucm. Other processors'
# functions are libucm's.
mpi_starts_quickly() {
    local output
    [ "$(uname -m)" = x86_64 ] || return 0
    output=$(logged_reduction 2 "$1") && ! grep 'libucm is asked' <<<"$output"
}

# mpi_keeps_registrations BUILD_DIR: UCX has its cache of registrations, which in a UCX with CUDA needs hooks of its own
# in the driver, although Open MPI declares events of unmapped memory external.
mpi_keeps_registrations() {
    local output status=0
    output=$(UCX_LOG_LEVEL=diag ranks 2 "$1/test/mpi/pairs" --quick --timeout 60 2>&1) || status=$?
    [ $status = 0 ] && ! grep 'registration cache' <<<"$output" && return
    tail -n 12 <<<"$output"
    return 1
}

# mpi_one_without BUILD_DIR: a rank does not wait for its peer where that lacks gpushm's part of Open MPI.
mpi_one_without() {
    local output program=$1/test/mpi/host_programs
    output=$(timeout 60 "$run" mpirun -n 1 "$program" sums : -n 1 env UCX_GPUSHM_OPENMPI=n "$program" sums) &&
        [ "$(grep -c ': right$' <<<"$output")" = 8 ]
}

# mpi_late_windows BUILD_DIR: windows whose regions or processes come later; what is wrong is at the end of the output.
mpi_late_windows() {
    local program=$1/test/mpi/late_windows
    ranks 2 "$program" regions mixed 2>&1 | tail -n 30 || return
    # Open MPI 5.0 knows no shared memory between processes that were started separately: messages go by tcp.
    timeout 100 "$run" mpirun -n 1 "$program" worlds mixed 2>&1 | tail -n 30
}

# mpi_sessions BUILD_DIR: a rank that is alone initialises MPI again (in Open MPI 5.0.7 several may look for each
# other where they were the first time), two have only sessions, and two sessions beside MPI_COMM_WORLD. Of some hundred
# times that Open MPI 5.0.7 is initialised again it waits once for ever for the answer to a fence
# (ompi_mpi_instance_init(), usleep(); PMIx and gpushm are idle): then it is tried again.
mpi_sessions() {
    local mode n output status tries ranks_limit=60
    for mode in again alone beside; do
        n=2
        [ $mode != again ] || n=1
        for tries in 1 2 3; do
            status=0
            output=$(ranks $n "$1/test/mpi/sessions" $mode 2>&1) || status=$?
            tail -n 12 <<<"$output"
            [ $status = 124 ] || break
            say "sessions $mode: no end within $ranks_limit s, time $tries"
        done
        [ $status = 0 ] || [[ $output == *'sessions: skipped'* ]] || return 1
    done
    output=$(ranks 2 "$1/test/mpi/sessions" window 2>&1) || status=$?
    say "$output"
    [[ $output == *'sessions: skipped'* ]] || [[ $status = 0 && $output == *'refuses a window in GPU memory'* ]]
}

# mpi_tools BUILD_DIR: MPI_T begins before MPI_Init, and gpushm is used all the same.
mpi_tools() {
    local output
    output=$(ranks 2 "$1/test/mpi/sessions" tools 2>&1) || { say "$output"; return 1; }
    say "$output"
    [[ $output != *'without gpushm'* ]]
}

# quiet_component PREFIX CMD...: CMD, which must succeed, prints nothing of the component when that is enabled for all
# users; needs the right to do that.
quiet_component() {
    local mpi=$1/bin/gpushm-openmpi output status=0
    shift
    "$mpi" --enable --system || return
    output=$("$@" 2>&1) || status=$?
    "$mpi" --disable --system || return
    say "$output"
    [ $status = 0 ] && [[ $output != *gpushm* && $output != *prefix* ]]
}

# mpi_windows BUILD_DIR: test/mpi/windows, which has been made there. A program without CUDA does what it does without
# gpushm, even where Open MPI gets it wrong.
mpi_windows() {
    local mode with without program=$1/test/mpi/windows
    for mode in bounds polling blocks swaps late 'polling --no-cuda'; do
        # shellcheck disable=SC2086 # words
        ranks 2 "$program" $mode || return
    done
    ranks 3 "$program" polling || return
    # Its status is that of what it has found wrong.
    with=$(ranks 2 "$program" bounds --no-cuda 2>/dev/null | sort) || true
    without=$(timeout 60 mpirun -n 2 "$program" bounds --no-cuda 2>/dev/null | sort) || true
    [[ $with == *'windows bounds:'* && $with == "$without" ]] || { diff <(say "$with") <(say "$without"); return 1; }
}
