# SPDX-License-Identifier: BSD-3-Clause
# What contrib/quickstart and contrib/check share: needed packages, cuda.h, building, running. To be
# sourced by bash. The caller sets `log`, the file which gets the output of commands.

set -u -o pipefail
export LC_ALL=C

program=$(basename "$0")
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
jobs=$(nproc 2>/dev/null || echo 1)
no_packages=  # set: those that are missing are neither installed nor asked for

say() { printf '%s\n' "$*"; }

warn() { printf '%s: %s\n' "$program" "$*" >&2; }

die() { warn "$@"; exit 1; }

# logged CMD...: runs a command with its output in the log.
logged() {
    printf '\n$ %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1 </dev/null
}

# start_clock, stop_clock: in between, a terminal shows how long it takes; a file gets nothing.
start_clock() {
    clock=
    [ -t 1 ] || return 0
    (
        start=$SECONDS
        while sleep 5 && kill -0 $$ 2>/dev/null; do printf '    %d s\r' $((SECONDS - start)); done
    ) &
    clock=$!
}

stop_clock() {
    [ -n "$clock" ] || return 0
    { kill "$clock" && wait "$clock"; } 2>/dev/null
    printf '%12s\r' ''
}

# working TEXT CMD...: says TEXT and runs a command with its output in the log.
working() {
    local status
    say "$1"
    shift
    start_clock
    logged "$@"
    status=$?
    stop_clock
    return $status
}

# check_path WHAT DIR: configure and make refuse such a path, the first only after minutes.
check_path() {
    case $2 in
    *[[:space:]:\"\#\$\&\'\`\\]*)
        die "$1 is $2: a path with a blank, a colon or one of \"#\$&'\`\\ cannot be built in; take another folder"
        ;;
    esac
}

# use_build_root DIR: sets build_root, where everything is built. A tree that cannot be written to and has no
# configure yet is copied there.
use_build_root() {
    build_root=$(realpath -m "$1")
    check_path "this tree" "$source_dir"
    check_path "the folder to build in" "$build_root"
    { mkdir -p "$build_root" && [ -w "$build_root" ]; } 2>/dev/null ||
        die "cannot write to $build_root: name a folder of your own by --build DIR"
    if [ ! -x "$source_dir/configure" ] && [ ! -w "$source_dir" ]; then
        say "this tree cannot be written to: taking a copy, $build_root/source"
        mkdir -p "$build_root/source"
        tar -C "$source_dir" --exclude-vcs --exclude=./build -cf - . | tar -C "$build_root/source" -xf - ||
            die "cannot copy $source_dir to $build_root/source"
        source_dir=$build_root/source
    fi
}

# show_log_end: the end of the log, for a message of failure.
show_log_end() {
    tail -n 15 "$log" | sed 's/^/    /' >&2
    warn "the whole output is in $log"
}

# The packages (Debian and Ubuntu names) and how to see whether what is in them is there, from
# whatever source.
is_there() {
    case $1 in
    g++) command -v g++ || command -v c++ ;;
    make | pkg-config | autoconf | automake | mmdebstrap) command -v "$1" ;;
    libtool) command -v libtoolize ;;
    gfortran | shellcheck | codespell) command -v "$1" ;;
    clang-format | clang-tidy) command -v "$1-14" || [[ $("$1" --version) == *"version 14."* ]] ;;
    xz-utils) command -v xz ;;
    libucx-dev) [ -r /usr/include/uct/api/uct.h ] || pkg-config --exists ucx ;;
    ucx-utils) command -v ucx_perftest && command -v ucx_info ;;
    libopenmpi-dev) [[ $(mpicxx --showme:version) == *"Open MPI"* ]] ;;
    openmpi-bin) [[ $(mpirun --version) == *"Open MPI"* ]] ;;
    libhwloc-dev) pkg-config --exists 'hwloc >= 2.0' ;;
    libgtest-dev) pkg-config --exists gtest_main ;;
    libbenchmark-dev) pkg-config --exists benchmark ;;
    python3-pip) python3 -m pip --version ;;
    iproute2) command -v ip ;;
    ca-certificates) [ -r /etc/ssl/certs/ca-certificates.crt ] ;;
    # Packages that others only mention are known to dpkg, too.
    *) [[ $(dpkg-query -W -f '${db:Status-Status}' "$1") == installed ]] ;;
    esac >/dev/null 2>&1
}

# missing_of PACKAGE...: those that are not there, a line each.
missing_of() {
    local package
    for package in "$@"; do
        is_there "$package" || say "$package"
    done
}

are_there() { [ -z "$(missing_of "$@")" ]; }

# as_root CMD...: as root, or through sudo when that asks nothing.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

# install_packages PACKAGE...: status 1 where this user cannot.
install_packages() {
    local package
    local -a apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
    { command -v apt-get && as_root true; } >/dev/null 2>&1 || return 1
    working "installing $*" as_root "${apt[@]}" update || { show_log_end; return 1; }
    apt+=(install -y --no-install-recommends)
    # One by one where not all are to be had.
    logged as_root "${apt[@]}" "$@" || for package in "$@"; do logged as_root "${apt[@]}" "$package"; done
    are_there "$@" && return 0
    show_log_end
    return 1
}

# need PACKAGE...: installs what is missing. Where it cannot, it says what the administrator has to do.
need() {
    local administrator="su -c"
    local -a missing
    mapfile -t missing < <(missing_of "$@")
    [ ${#missing[@]} != 0 ] || return 0
    [ -z "$no_packages" ] || return 1
    install_packages "${missing[@]}" && return 0
    mapfile -t missing < <(missing_of "$@")
    ! command -v sudo >/dev/null || administrator="sudo sh -c"
    if command -v apt-get >/dev/null; then
        warn "packages are missing, which an administrator installs by this command:"
        say "    $administrator 'apt-get update && apt-get install -y --no-install-recommends ${missing[*]}'" >&2
    else
        warn "these are missing (names of Debian's packages): ${missing[*]}"
    fi
    say "Then run me again. ($program --no-packages goes on with what is there.)" >&2
    return 1
}

# The first folder with include/cuda.h: a toolkit, or a Python package that has the header.
installed_cuda() {
    local dir compiler
    compiler=$(command -v nvcc) && compiler=$(dirname "$(dirname "$(readlink -f "$compiler")")")
    for dir in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$compiler" /usr/local/cuda /usr/local/cuda-* \
        /opt/cuda /usr/lib/cuda /usr /usr/local; do
        if [ -n "$dir" ] && [ -r "$dir/include/cuda.h" ]; then
            say "$dir"
            return 0
        fi
    done
    return 1
}

# unpack_wheels DIR WHEEL...: from PyPI, with the modes of their files; takes the place of DIR.
unpack_wheels() {
    local dir=$1 status
    shift
    rm -rf "$dir.part"
    mkdir -p "$dir.part/tmp" &&
        TMPDIR=$dir.part/tmp python3 -m pip install --quiet --no-cache-dir --no-compile \
            --retries 1 --no-deps --only-binary :all: --target "$dir.part/wheels" "$@" &&
        rm -rf "$dir" && mv "$dir.part/wheels" "$dir"
    status=$?
    rm -rf "$dir.part"
    return $status
}

# wants_nvcc OPTIONS_OF_CONFIGURE...
wants_nvcc() {
    [[ " $* " != *" --without-nvcc "* && " $* " != *" --with-nvcc="* && " $* " != *" --with-kernel-image="* ]]
}

# has_cuda CACHE_DIR [OPTIONS OF CONFIGURE...]: sets cuda_dir, a folder with include/cuda.h and, for GPU
# kernels, bin/nvcc; status 1 when this machine has none.
has_cuda() {
    local cache=$1 installed
    shift
    installed=$(installed_cuda)
    for cuda_dir in ${installed:+"$installed"} "$cache/nvidia/cu13"; do
        [ -r "$cuda_dir/include/cuda.h" ] || continue
        ! wants_nvcc "$@" || [ -x "$cuda_dir/bin/nvcc" ] || command -v nvcc >/dev/null && return 0
    done
    return 1
}

# find_cuda CACHE_DIR [OPTIONS OF CONFIGURE...]: the same; what this machine lacks comes from PyPI and is
# unpacked into CACHE_DIR, nothing is installed. The header alone is enough, if nvcc cannot be had.
find_cuda() {
    local cache=$1
    local header='nvidia-cuda-runtime>=13,<14'
    local -a compiler=('nvidia-cuda-nvcc>=13,<14' 'nvidia-nvvm>=13,<14' 'nvidia-cuda-crt>=13,<14')
    shift
    has_cuda "$cache" "$@" && return 0
    if wants_nvcc "$@"; then
        working "downloading nvcc and cuda.h (PyPI: 125 MB, 10 s at 100 Mbit/s; 320 MB on disk)" \
            unpack_wheels "$cache" "$header" "${compiler[@]}" && has_cuda "$cache" && return 0
        show_log_end
        warn "nvcc was not found and cannot be downloaded: gpushm will lack its GPU kernels"
        has_cuda "$cache" --without-nvcc && return 0
    fi
    working "downloading cuda.h (PyPI: 2.5 MB)" unpack_wheels "$cache" "$header" &&
        has_cuda "$cache" --without-nvcc && return 0
    wants_nvcc "$@" || show_log_end
    warn "cuda.h was not found and cannot be downloaded: install a CUDA toolkit, or set CUDA_HOME" \
        "to a folder with include/cuda.h"
    return 1
}

# Open MPI, as root (containers) and on machines with fewer cores than ranks: 4.1 reads the first
# names, 5.0 and later, whose launcher is PRRTE, the second ones.
prepare_mpi() {
    if [ "$(id -u)" = 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    export OMPI_MCA_rmaps_base_oversubscribe=1
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    # All ranks run here: no remote shell is looked for.
    command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent="" PRTE_MCA_plm_ssh_agent=""
}

# From 1.21 on UCX waits for 50 ms with each function that it patches, 0.4 s when a process starts,
# for other threads to leave the function: there are none. Older ones do not know the setting.
start_ucx_quickly() {
    export UCX_MEM_BISTRO_GRACE_DURATION=0 UCX_WARN_UNUSED_ENV_VARS=n
}

# choose_driver BUILD_DIR [simulated]: uses the real CUDA driver if it has a GPU, otherwise puts the
# simulated one on LD_LIBRARY_PATH. Sets driver (what to tell the user), driver_is_real and why_simulated
# (a sentence, or nothing).
choose_driver() {
    local build=$1 wish=${2:-}
    why_simulated=
    if [ "$wish" != simulated ]; then
        if driver=$("$build/test/mpi/pairs" --driver 2>&1); then
            driver_is_real=yes
            return 0
        fi
        why_simulated="There is no GPU to use here ($driver). "
    fi
    driver_is_real=no
    [ -e "$build/test/simcuda/.libs/libcuda.so.1" ] ||
        { warn "there is no usable CUDA driver, and no simulated one in $build"; return 1; }
    export LD_LIBRARY_PATH=$build/test/simcuda/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    if driver=$("$build/test/mpi/pairs" --driver 2>&1); then
        driver="simulated $driver"
        return 0
    fi
    warn "the simulated CUDA driver does not work: $driver"
    return 1
}

# A TCP port of this machine at random; not one of those that the kernel gives to who names none (from 32768 on, ip(7),
# ip_local_port_range), which any program may have.
some_port() { say $((20000 + RANDOM % 12000)); }

# wait_for_port PORT PID: until a process listens on a TCP port of this machine, at most 20 s, or
# until process PID is gone.
wait_for_port() {
    local hex tries
    hex=$(printf ':%04X' "$1")
    for ((tries = 0; tries < 400; tries++)); do
        # proc(5): the second field is the local address, the fourth the state, 0A is LISTEN.
        awk -v port="$hex" '$2 ~ port "$" && $4 == "0A" { found = 1 } END { exit !found }' \
            /proc/net/tcp /proc/net/tcp6 2>/dev/null && return 0
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

# perftest_sockets PORT ARGUMENTS...: server and client, which meet at a port of this machine.
perftest_sockets() {
    local port=$1 server
    shift
    timeout 120 "$run" ucx_perftest -p "$port" "$@" </dev/null &
    server=$!
    if ! wait_for_port "$port" "$server"; then
        wait "$server"
        say "ucx_perftest did not start (status $?)"
        return 1
    fi
    (
        [ -z "$second_device" ] || export CUDA_VISIBLE_DEVICES=$second_device
        timeout 120 "$run" ucx_perftest 127.0.0.1 -p "$port" "$@" </dev/null
    )
    local status=$?
    kill "$server" 2>/dev/null
    wait "$server"
    return $status
}

# perftest_ranks ARGUMENTS...: the same as two ranks of MPI.
perftest_ranks() {
    # shellcheck disable=SC2016 # for the shell of the ranks
    timeout 120 "$run" mpirun -n 2 sh -c '
        if [ -n "$0" ] && [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then export CUDA_VISIBLE_DEVICES=$0; fi
        exec ucx_perftest "$@"' "$second_device" "$@" </dev/null
}

# perftest FROM TO SIZE ITERATIONS: ucx_perftest between two processes, messages from memory of type
# FROM to memory of type TO; prints the one-way latency in us. Expects run (the path of gpushm-run)
# and driver (set by choose_driver).
perftest() {
    local output second_device=
    local -a arguments=(-t tag_lat -m "$1,$2" -s "$3" -n "$4" -w $(($4 / 10 + 1)))
    # Where there are two GPUs or more, each process has its own.
    [[ $driver == *" 1 device,"* || -n ${CUDA_VISIBLE_DEVICES:-} ]] || second_device=1
    # Some builds of ucx_perftest (Debian 13) start MPI when they are not run from a terminal
    # (perftest.c: !isatty(0)) and then need two ranks.
    if [[ $(ldd "$(command -v ucx_perftest)") == *libmpi.so* ]]; then
        output=$(perftest_ranks "${arguments[@]}" 2>&1 | tr -d '\0')
    else
        output=$(perftest_sockets "$(some_port)" "${arguments[@]}" 2>&1 | tr -d '\0')
    fi
    local status=$?
    printf '\n$ ucx_perftest %s\n%s\n' "${arguments[*]}" "$output" >>"$log"
    [ $status = 0 ] && awk '$1 == "Final:" { print $3; found = 1 } END { exit !found }' <<<"$output"
}

# perftest_table: prints a table of all nine pairs. Status 1 if one failed. Expects what perftest
# does.
perftest_table() {
    local from to size latency failed=0
    local -A iterations=([8]=1000 [65536]=200 [4194304]=20)
    printf '%-30s%12s%12s%12s\n' "ucx_perftest tag_lat, us" "8 B" "64 KB" "4 MB"
    for from in host cuda cuda-managed; do
        for to in host cuda cuda-managed; do
            printf '%-30s' "$from -> $to"
            for size in 8 65536 4194304; do
                latency=$(perftest "$from" "$to" "$size" "${iterations[$size]}") ||
                    { failed=1; latency=FAILED; }
                printf '%12s' "$latency"
            done
            printf '\n'
        done
    done
    return $failed
}

# E.g. "UCX 1.13.1".
ucx_version() {
    ucx_info -v 2>/dev/null | sed -n 's/^# \(Version\|Library version:\) */UCX /p' | head -n 1
}
