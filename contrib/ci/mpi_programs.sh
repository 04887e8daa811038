# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check that runs programs of this system which were built for its Open MPI by
# others.

mpi_packages=hpcc,netpipe-openmpi,python3-mpi4py

step_mpi_programs() {
    # shellcheck disable=SC2086 # names
    need ${mpi_packages//,/ } || skip "needs $mpi_packages"
    bash "$source_dir/contrib/ci/mpi_one.sh" "$prefix" "$root/tmp"
}
