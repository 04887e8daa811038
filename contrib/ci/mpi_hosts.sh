# SPDX-License-Identifier: BSD-3-Clause
# Open MPI on the hosts of two_hosts.sh, which sources this file: two ranks on each, tcp between.

# start_remote_shell: lets mpirun on host 0 start its daemon on host 1, without ssh. As by ssh, the
# environment there is not that of mpirun.
start_remote_shell() {
    local agent=$scratch/agent commands=$scratch/commands command
    rm -f "$commands"
    mkfifo "$commands"
    # shellcheck disable=SC2016 # for the shell of the agent
    printf '#!/bin/sh\n# HOST COMMAND...\nshift\necho "$*" >"%s"\n' "$commands" >"$agent"
    chmod +x "$agent"
    # Open for writing here too: the end of an agent is not the end of the commands.
    while read -r command; do
        on_host 1 env -i PATH="$PATH" HOME="$HOME" sh -c "$command" </dev/null &
    done <>"$commands" &
    remote_shell=$!
    # The first is for Open MPI 4.1, the second for 5.0 and later.
    export OMPI_MCA_plm_rsh_agent=$agent PRTE_MCA_plm_ssh_agent=$agent
}

stop_remote_shell() {
    kill "$remote_shell"
    wait "$remote_shell" 2>/dev/null || true
}

# mpi_device_operations [COMMAND]: some operations of four ranks, each by COMMAND.
mpi_device_operations() {
    say "-- mpirun $*"
    on_host 0 timeout 100 mpirun -n 4 --host 10.99.0.1:2,10.99.0.2:2 -x LD_LIBRARY_PATH "$@" \
        "$build/test/mpi/operations" --quick --kinds=device --timeout=50 --only='Bcast, int,' \
        --only='Alltoall, int,' --only='Send/Recv, vector,' --only='Send/Recv, vector of long blocks' \
        --only='Allreduce, MPI_SUM of MPI_INT,' 2>&1 | tee "$scratch/mpi_output"
    grep -q 'operations: 5 passed, 0 failed (4 ranks' "$scratch/mpi_output"
}

# mpi_on_hosts: in both ways in which users start gpushm.
mpi_on_hosts() {
    local status=0
    export LD_LIBRARY_PATH=$build/test/simcuda/.libs HOME=$scratch/home
    mkdir -p "$HOME"
    prepare_mpi
    start_remote_shell
    # Not in front of mpirun, which passes on to other hosts nothing but MCA parameters.
    mpi_device_operations "$run" || status=1
    "$prefix/bin/gpushm-openmpi" --enable
    mpi_device_operations || status=1
    stop_remote_shell
    return $status
}
