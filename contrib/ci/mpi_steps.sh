# SPDX-License-Identifier: BSD-3-Clause
# The steps of contrib/check that run programs of test/mpi with the Open MPI of this system.

# ranks_with LIBRARIES N PROGRAM: the ranks have loaded these libraries of test/mpi first.
ranks_with() {
    # shellcheck disable=SC2016 # the ranks expand it
    ranks "$2" sh -c 'LD_PRELOAD="$1 $LD_PRELOAD" exec "$0"' "$3" "${1//@/$plain/test/mpi/.libs/}"
}

# profiled_ranks N PROGRAM: whether profiling tools that are loaded behind a library above MPI are called by the ranks,
# once for MPI_Op_create and not for PMPI_Op_create.
profiled_ranks() {
    local tool
    for tool in profiler profiler_next; do
        ranks_with "@above_mpi.so @$tool.so" "$1" "$2" >"$root/tmp/output"
        cat "$root/tmp/output"
        [ "$(grep -c 'profiler: MPI_Op_create' "$root/tmp/output")" = "$1" ]
    done
}

# Calls of MPI that only its functions themselves can see, and what can be seen where they cannot be changed.
looked_up() {
    local program
    mpi_looked_up "$plain" "$root/tmp"
    if need python3; then
        ranks 2 /usr/bin/python3 "$source_dir/test/mpi/device_ctypes.py"
    fi
    for program in pointers pointers_fixed; do
        UCX_LOG_LEVEL=debug ranks_with @unwritable_mpi.so 2 "$plain/test/mpi/$program" >"$root/tmp/output"
        grep 'MPI_Op_create cannot be changed' "$root/tmp/output"
    done
}

step_operations() {
    simulated
    made test/mpi/{operations,sessions}
    mpi_operations 2 "$plain" --kinds=device
    mpi_reduction_on_gpu 2 "$plain"
    mpi_starts_quickly "$plain"
    mpi_tools "$plain"
}

step_operations_all() {
    simulated
    made test/mpi/{operations,pointers,pointers_fixed,late_windows,windows,above_mpi.la} \
        test/mpi/{looked_up,looked_up_library.la,profiler.la,profiler_next.la,unwritable_mpi.la}
    ranks 2 "$plain/test/mpi/pointers"
    ranks 2 "$plain/test/mpi/pointers_fixed"
    profiled_ranks 2 "$plain/test/mpi/pointers"
    profiled_ranks 2 "$plain/test/mpi/pointers_fixed"
    # What it tries in vain is not to be read.
    ranks 2 "$plain/test/mpi/operations" --quick --kinds=device --only=all_begin >"$root/tmp/output"
    absent grep 'Only one' "$root/tmp/output"
    looked_up
    mpi_operations 1 "$plain" --kinds=device
    mpi_windows "$plain"
    UCX_GPUSHM_OPENMPI_STAGING=1 UCX_GPUSHM_OPENMPI_HOST_COLLECTIVES=1 \
        mpi_operations 2 "$plain" --kinds=device
    UCX_GPUSHM_OPENMPI_STAGING=inf UCX_GPUSHM_OPENMPI_HOST_COLLECTIVES=inf \
        mpi_operations 2 "$plain" --kinds=device --only=flight --only=Allreduce
    mpi_operations 2 "$plain" --kinds=mixed
    # Copies that land late, and the first message of an endpoint to host memory.
    SIMCUDA_DELAY_US=50 UCX_PROTO_ENABLE=y mpi_operations 2 "$plain" --kinds=device,mixed --only=flight --only=Send
    UCX_PROTO_ENABLE=y ranks 2 "$prefix/bin/gpushm-perf-mpi" --tests=latency --from=device --to=host --sizes=8 \
        --seconds=0.01
    mpi_operations 3 "$plain" --kinds=managed --only=llgather --only=lltoall --only=educe --only=cat
    mpi_operations 8 "$plain" --kinds=host
    mpi_late_windows "$plain"
    if need python3-mpi4py; then
        # The system's Python, for which its packages are.
        ranks 2 /usr/bin/python3 "$source_dir/test/mpi/device_mpi4py.py"
        ranks 2 /usr/bin/python3 "$source_dir/test/perf/mpi_table.py" --no-nccl --seconds 0.01 \
            --message-sizes 65536 --sizes 8,65536 --json "$root/tmp/mpi_table"
        python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))) == 5 + 4 * 2' \
            "$root/tmp/mpi_table"
    fi
}

step_fortran() {
    need gfortran || skip "needs gfortran"
    command -v mpifort || skip "this Open MPI has no Fortran bindings (mpifort)"
    simulated
    cd "$root/tmp"  # where the module files go
    mpifort -o device_fortran "$source_dir/test/mpi/device_fortran.f90" -ldl
    ranks 2 ./device_fortran
    ranks 3 ./device_fortran
}

# pml OPTIONS...: prints what Open MPI sends through between two ranks of this mpirun.
pml() {
    mpirun -n 2 --mca pml_base_verbose 10 "$@" "$plain/test/mpi/operations" --quick --kinds=host \
        --only=Sendrecv >"$root/tmp/output" 2>&1
    sed -n 's/.*component \([a-z0-9]*\) selected/\1/p' "$root/tmp/output" | sort -u
}

# The components of this Open MPI but for those that need UCX, in a folder: prints it.
folder_without_ucx() {
    local folder=$root/tmp/components file
    mkdir "$folder"
    for file in "$(ompi_info --parsable --path pkglibdir | sed 's/^path:pkglibdir://')"/mca_*; do
        case $file in
        *_ucx.so) ;;
        *) ln -s "$file" "$folder" ;;
        esac
    done
    say "$folder"
}

step_component() {
    local mpi=$prefix/bin/gpushm-openmpi program=$plain/test/mpi/operations
    simulated
    made test/mpi/operations
    export HOME=$root/tmp/home
    mkdir "$HOME"
    "$mpi" | grep 'not in use'
    "$mpi" --enable
    "$mpi" | grep "in use: $HOME"
    mpirun -n 2 "$program" --quick --kinds=device --only=Allreduce --only=Send
    # What is set stays, and one variable switches it off.
    pml | grep -x ucx
    pml --mca pml ob1 | grep -x ob1
    pml -x UCX_GPUSHM_OPENMPI=n | grep -x ob1
    echo ' pml= ob1' >"$HOME/.openmpi/mca-params.conf"
    pml | grep -x ob1
    rm "$HOME/.openmpi/mca-params.conf"
    # Other Open MPI find the component in the user's folder, too: one that was built without UCX.
    pml --mca mca_base_component_path "$(folder_without_ucx):$HOME/.openmpi/components" | grep -x ob1
    "$mpi" --disable
    "$mpi" | grep 'not in use'
    "$mpi" --nonsense && exit 1
    rm "$prefix/lib/gpushm/libuct_gpushm.so.0"
    "$mpi" --enable
    mpirun -n 2 "$program" --quick --kinds=host --only=Sendrecv 2>&1 | tee "$root/tmp/output"
    grep 'install gpushm again' "$root/tmp/output"
    rm "$prefix/lib/gpushm/openmpi/mca_hook_gpushm.so"
    "$mpi" | grep 'left over'
    "$mpi" --disable
    [ -z "$("$mpi" | grep 'left over')" ]
    make -C "$plain" install
}

# The windows of all kinds again on GPU memory, where there is nothing to compare with: all is to be right.
gpu_windows() {
    local output
    output=$(ranks 2 "$plain/test/mpi/host_programs" create@device allocate@device shared@device dynamic@device \
        create@managed dynamic@managed) && absent grep -v ': right$' <<<"$output"
}

step_host_programs() {
    made test/mpi/host_programs
    bash "$source_dir/contrib/ci/host_programs.sh" "$prefix" "$plain" "$root/tmp"
    simulated
    mpi_one_without "$plain"
    gpu_windows
}

# left_alone REASON SETTING COMMAND...: ranks on host memory whose UCX is another one by stand_in.cpp send by pml/ob1,
# and gpushm says why in one line.
left_alone() {
    local reason=$1 setting=$2
    shift 2
    # shellcheck disable=SC2016 # the ranks expand it
    "$@" -n 3 --mca pml_base_verbose 10 env "$setting" sh -c \
        'LD_PRELOAD="$1/stand_in.so $LD_PRELOAD" exec "$0" --quick --kinds=host --only=Sendrecv' \
        "$plain/test/mpi/operations" "$root/tmp" >"$root/tmp/output" 2>&1 || {
        cat "$root/tmp/output"
        return 1
    }
    [ "$(sed -n 's/.*component \([a-z0-9]*\) selected/\1/p' "$root/tmp/output" | sort -u)" = ob1 ]
    grep gpushm: "$root/tmp/output" | tee "$root/tmp/said"
    grep "$reason.*Open MPI goes on without gpushm" "$root/tmp/said"
    [ "$(wc -l <"$root/tmp/said")" = 1 ]
}

step_left_alone() {
    made test/mpi/operations
    "${CXX:-c++}" -std=c++17 -shared -fPIC -o "$root/tmp/stand_in.so" "$source_dir/test/ucp/stand_in.cpp" -ldl
    export HOME=$root/tmp/home
    mkdir "$HOME"
    left_alone 'too old' STAND_IN_MINOR=10 "$run" mpirun
    left_alone 'not known' STAND_IN_MINOR=99 "$run" mpirun
    left_alone 'built with statistics' STAND_IN_ADDS=ucs_stats_node_alloc "$run" mpirun
    left_alone 'linked in statically' STAND_IN_HIDES=ucp_get_version "$run" mpirun
    left_alone 'built without UCX' A=b "$run" mpirun --mca mca_base_component_path "$(folder_without_ucx)"
    "$prefix/bin/gpushm-openmpi" --enable
    left_alone 'too old' STAND_IN_MINOR=10 mpirun
    left_alone 'built with statistics' STAND_IN_ADDS=ucs_stats_node_alloc mpirun
}
