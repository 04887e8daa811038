#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs programs that others built for the Open MPI of this system (hpcc, netpipe, mpi4py), with no
# way between ranks but the installed gpushm:
#   mpi_one.sh PREFIX SCRATCH_DIR
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/mpi_ranks.sh"

run=$1/bin/gpushm-run scratch=$2

# run_hpcc N: linear algebra, transposition, random access, FFT; it checks its results.
run_hpcc() {
    local example=/usr/share/doc/hpcc/examples/_hpccinf.txt
    mkdir -p "$scratch/hpcc-$1"
    cd "$scratch/hpcc-$1"
    # A small matrix, and a row of as many processes as there are.
    sed -e "s/^1000 \(.*Ns\)/600 \1/; s/^2 \(.*Ps\)/1 \1/; s/^2 \(.*Qs\)/$1 \1/" \
        "$example" >hpccinf.txt
    ranks "$1" hpcc
    grep -e PASSED -e FAILED -e '^Success' -e ErrorsFraction -e maxErr hpccoutf.txt
    grep '^Success=1' hpccoutf.txt
    if grep FAILED hpccoutf.txt; then return 1; fi
}

run_netpipe() {
    ranks 2 NPopenmpi -i -u 4194304 -n 3 -o "$scratch/netpipe.out" >"$scratch/netpipe" 2>&1
    cat "$scratch/netpipe"
    grep '3145729 bytes.*Integrity check passed' "$scratch/netpipe"
    if grep -i 'integrity check fail' "$scratch/netpipe"; then return 1; fi
}

set -e
prepare_mpi
for n in 2 4; do
    (run_hpcc $n)
done
# The system's Python, for which its packages are; not one that comes first in PATH.
for n in 2 4 8; do
    mpi4py_collectives $n /usr/bin/python3
done
run_netpipe
