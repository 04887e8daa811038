#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs programs on host memory plainly, by gpushm-run and with gpushm's component of Open MPI, and compares:
#   host_programs.sh PREFIX BUILD_DIR SCRATCH_DIR [PROGRAM...]
# What is right plainly is to be right with gpushm, and nothing more is to be printed. test/mpi/host_programs has
# been made in BUILD_DIR.
. "$(dirname "$0")/lib.sh"

prefix=$1 program=$2/test/mpi/host_programs scratch=$3
shift 3
programs=("$@")
[ ${#programs[@]} != 0 ] ||
    programs=(create allocate shared dynamic waiting regions matched sums revoked spawn connect threads files session)

# job N PROGRAM: where messages between two worlds go by tcp, they are to find this host.
job() {
    local -a launch=(timeout -k 5 60 mpirun)
    [ "$way" != run ] || launch=(timeout -k 5 60 "$prefix/bin/gpushm-run" mpirun)
    [[ $2 != revoked || $(mpirun --version) != *" 5."* ]] || launch+=(--with-ft ulfm)
    OMPI_MCA_btl_tcp_if_include=lo "${launch[@]}" -n "$1" "$program" "$2" </dev/null
}

# run_way: everything that the programs print on 2 and 3 ranks, in files of their own.
run_way() {
    local name n
    mkdir -p "$scratch/$way"
    for name in "${programs[@]}"; do
        for n in 2 3; do
            [ "$name" != spawn ] || n=$((n - 1))
            # Lines of one rank, then whatever else is printed.
            job "$n" "$name" >"$scratch/$way/$name.$n" 2>"$scratch/$way/$name.$n.err"
            say "status $?" >>"$scratch/$way/$name.$n"
        done
    done
}

# compare FILE: what is right plainly and not so here; and what is printed beside it.
compare() {
    local missing
    missing=$(grep -E ': right$|^status 0$' "$scratch/plain/$1" | grep -v -x -F -f "$scratch/$way/$1")
    if [ -n "$missing" ]; then
        failed=1
        say "FAILED: $way, $1: $(wc -l <<<"$missing") lines are right plainly and not with gpushm:"
        head -n 5 <<<"$missing"
        tail -n 5 "$scratch/$way/$1.err"
    elif grep -q '^status 0$' "$scratch/plain/$1" && [ -s "$scratch/$way/$1.err" ] &&
        ! cmp -s "$scratch/plain/$1.err" "$scratch/$way/$1.err"; then
        failed=1
        say "FAILED: $way, $1 prints more than plainly:"
        head -n 5 "$scratch/$way/$1.err"
    fi
}

# Debian 13 hides the user's components from its ranks: the folder of all users is needed there.
enable_component() {
    local -a where=()
    [[ $(mpirun --version) != *" 5."* ]] || where=(--system)
    "$prefix/bin/gpushm-openmpi" --enable "${where[@]}" >/dev/null
    disable_component="$prefix/bin/gpushm-openmpi --disable ${where[*]}"
}

failed=0
prepare_mpi
start_ucx_quickly
export HOME=$scratch/home
mkdir -p "$HOME"
way=plain
run_way
total=$(cat "$scratch"/plain/* | grep -c ': right$')
for way in run component; do
    if [ $way = component ]; then enable_component; fi
    run_way
    if [ $way = component ]; then $disable_component >/dev/null; fi
    for file in "$scratch"/plain/*.[0-9]; do
        compare "$(basename "$file")"
    done
done
say "host programs: $total checks are right plainly; with gpushm $([ $failed = 0 ] && say the same || say FAILED)"
exit $failed
