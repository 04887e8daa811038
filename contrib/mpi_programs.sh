# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check that runs programs of this system which were built for its Open MPI by
# others.

# ranks N PROGRAM...: with no way between ranks but gpushm.
ranks() {
    local n=$1
    shift
    UCX_TLS=gpushm,self timeout 120 "$run" mpirun -n "$n" "$@"
}

# run_hpcc N: linear algebra, transposition, random access, FFT; it checks its results.
run_hpcc() {
    local example=/usr/share/doc/hpcc/examples/_hpccinf.txt
    mkdir -p "$root/tmp/hpcc-$1"
    cd "$root/tmp/hpcc-$1"
    # A small matrix, and a row of as many processes as there are.
    sed -e "s/^1000 \(.*Ns\)/600 \1/; s/^2 \(.*Ps\)/1 \1/; s/^2 \(.*Qs\)/$1 \1/" \
        "$example" >hpccinf.txt
    ranks "$1" hpcc
    grep -e PASSED -e FAILED -e '^Success' -e ErrorsFraction -e maxErr hpccoutf.txt
    grep '^Success=1' hpccoutf.txt
    absent grep FAILED hpccoutf.txt
}

# The system's Python, for which its packages are; not one that comes first in PATH.
run_mpi4py() {
    ranks "$1" /usr/bin/python3 "$source_dir/test/scale/collectives_mpi4py.py" |
        tee "$root/tmp/mpi4py"
    grep "^$1 ranks passed" "$root/tmp/mpi4py"
}

run_netpipe() {
    ranks 2 NPopenmpi -i -u 4194304 -n 3 -o "$root/tmp/netpipe.out" >"$root/tmp/netpipe" 2>&1
    cat "$root/tmp/netpipe"
    grep '3145729 bytes.*Integrity check passed' "$root/tmp/netpipe"
    absent grep -i 'integrity check fail' "$root/tmp/netpipe"
}

step_mpi_programs() {
    local n
    need hpcc netpipe-openmpi python3-mpi4py || skip "needs hpcc, netpipe-openmpi, python3-mpi4py"
    for n in 2 4; do
        (run_hpcc $n)
        run_mpi4py $n
    done
    run_netpipe
}
