# SPDX-License-Identifier: BSD-3-Clause
# The steps of contrib/check: a title and a function step_NAME for each. A function runs in a
# subshell with `set -e`; it exits with 77, after a line with the reason, when it cannot run here.
# $root is the folder of all builds, $root/tmp is empty.

declare -A titles=(
    [build]="build without warnings (g++, -Wall -Wextra -Werror)"
    [style]="layout, scripts, spelling, and clang-tidy over what has changed"
    [tidy]="clang-tidy and the warnings of clang over src/"
    [clang]="build without warnings (clang++)"
    [unit]="unit tests (make check)"
    [install]="make install, DESTDIR, make uninstall"
    [sanitizers]="unit tests for host memory with address and undefined sanitizers"
    [sanitizers_all]="the other unit tests with address and undefined sanitizers"
    [threads]="mailbox and ring tests with the thread sanitizer"
    [no_driver]="MPI ranks without a CUDA driver"
    [pairs]="MPI ranks, all pairs of memory kinds, up to 64 MiB, two devices"
    [same_device]="MPI ranks, all pairs, both on one device"
    [operations]="every MPI operation on GPU buffers, two ranks"
    [operations_all]="MPI on GPU buffers: one to eight ranks, other memory, windows, functions that are looked up"
    [fortran]="a Fortran program on GPU buffers, two and three ranks"
    [host_programs]="host programs plainly and with gpushm: the same results, nothing more printed"
    [driver_failures]="MPI operations while calls of the CUDA driver fail"
    [component]="plain mpirun with the component of Open MPI"
    [left_alone]="jobs whose UCX gpushm does not serve"
    [perftest]="ucx_perftest in nine pairs"
    [ucx_info]="ucx_info lists component and settings"
    [bad_settings]="bad settings are refused"
    [no_shm]="MPI ranks with a small /dev/shm"
    [no_pinning]="MPI ranks where no memory can be pinned"
    [killed]="nothing is left behind after kill -9"
    [distcheck]="make distcheck, and every file of the tree in the archive"
    [debian13]="contrib/quickstart on Debian 13, in a chroot"
    [wheel]="the same binary in Open MPI 5.0 of the package index and its UCX"
    [wheels]="the same binary in UCX 1.14 to 1.22 and Open MPI 4.1 of the package index"
    [trixie]="the same binary on Debian 13, in a chroot"
    [two_hosts]="two hosts: gpushm within each, tcp between them; Open MPI on both"
    [scale]="256 processes on a node, all connected to all"
    [come_and_go]="peers that come and go leave nothing behind"
    [mpi_programs]="hpcc, netpipe and mpi4py of this system, two to eight ranks"
    [sid]="the same binary on Debian sid, in a chroot"
    [perftest_all]="every test of ucx_perftest, host memory, gpushm alone"
    [bare]="README's two commands on a bare Debian 12, in a chroot"
    [headers]="descriptions of UCX and the headers of its source packages"
)

plain=$root/plain
prefix=$root/prefix
run=$prefix/bin/gpushm-run

skip() { say "$*"; exit 77; }

# `set -e` does not see a failing `! CMD`; this it does.
absent() { if "$@"; then return 1; fi; }

simulated() {
    choose_driver "$plain" simulated
    say "driver: $driver"
}

. "$(dirname "${BASH_SOURCE[0]}")/mpi_ranks.sh"

# made TARGET...: programs of tests that the first build did not make. They need not be fast: optimised less they
# are compiled in half the time.
made() { make -C "$plain" -j"$jobs" CXXFLAGS="${CXXFLAGS:--O1}" "$@"; }

# configure_in DIR OPTIONS...: an out-of-tree build.
configure_in() {
    mkdir -p "$1"
    cd "$1"
    shift
    "$source_dir/configure" --with-cuda="$cuda_dir" "$@"
}

step_build() {
    cd "$source_dir"
    [ -x configure ] || ./autogen.sh
    rm -rf "$plain" "$prefix"
    # Optimised as users build it. Without -g, which takes a third of the time.
    configure_in "$plain" --prefix="$prefix" --enable-werror CXXFLAGS="${CXXFLAGS:--O2}"
    make -j"$jobs"
    make -j"$jobs" test/mpi/pairs test/simcuda/libcuda.la
    make install
}

# What failed in the tests of automake below a folder, for the end of the log: what each said of it, or
# how it ended.
failed_tests() {
    local result test
    while read -r result; do
        test=${result%.trs}.log
        printf 'failed: %s\n' "${test#"$1/"}"
        grep -a -E -A 3 '^FAIL  |FAILED|: Failure$' "$test" | cut -c -200 | tail -n 20 | grep . ||
            tail -n 12 "$test" | cut -c -200
    done < <(grep -l -r --include='*.trs' -E '^:global-test-result: (FAIL|ERROR)' "$1")
}

# checked DIR ARGUMENTS...: make of a target that runs tests.
checked() {
    local dir=$1
    shift
    make -C "$dir" -j"$jobs" "$@" && return
    failed_tests "$dir"
    return 1
}

# What nvcc made for the first build; an option for configure.
same_kernels() {
    local image=$plain/src/core/kernels/kernel_image.cpp
    if [ -e "$image" ]; then say "--with-kernel-image=$image"; else say --without-nvcc; fi
}

step_clang() {
    command -v clang++ || skip "clang++ is not installed"
    # What it warns of does not depend on optimisation.
    configure_in "$root/clang" --enable-werror "$(same_kernels)" CXX=clang++ CXXFLAGS=-O0
    make -j"$jobs" check TESTS=
}

# Most of its time goes into compiling tests.
step_unit() { checked "$plain" check CXXFLAGS="${CXXFLAGS:--O0}"; }

# All files below a folder, relative to it.
files_in() { (cd "$1" && find . ! -type d | sort); }

step_install() {
    local stage=$root/tmp/stage file
    cd "$plain"
    make install DESTDIR="$stage"
    absent grep 'Libraries have been installed in' "$root/logs/build.log"
    diff <(files_in "$stage$prefix") <(files_in "$prefix")
    for file in bin/gpushm-run bin/gpushm-info bin/gpushm-perf lib/gpushm/libuct_gpushm.so.0 \
        lib/gpushm/libucx_perftest_gpushm.so.0 lib/gpushm/libgpushm_preload.so; do
        [ -x "$stage$prefix/$file" ]
    done
    "$prefix/bin/gpushm-report" --help >"$root/tmp/help"
    for file in LICENSE README NEWS; do
        [ -r "$stage$prefix/share/doc/gpushm/$file" ]
    done
    # libcuda is opened at run time only: without it nothing may be missing.
    ldd "$stage$prefix"/lib/gpushm/*.so >"$root/tmp/libraries"
    absent grep -e libcuda -e 'not found' "$root/tmp/libraries"
    make uninstall DESTDIR="$stage"
    [ -z "$(files_in "$stage")" ]
}

# targets DIR VARIABLE PATTERN: what a build can make, such as check_PROGRAMS, as far as its name matches.
targets() {
    make -s -C "$1" -f Makefile -f - targets <<<"targets: ; @echo \$($2)" |
        tr ' ' '\n' | { grep -E "$3" || true; } | tr '\n' ' '
}

# sanitized NAME SANITIZERS SOURCES PROGRAMS LIBRARIES [OPTIONS]: configures $root/NAME, makes the libraries of src/ whose
# names match, and runs the test programs whose names match, for which those libraries of the tests are made. No
# scripts: they load gpushm into programs that are built without the sanitizer, which it refuses. Optimised, a file with
# both sanitizers takes three times as long to compile.
sanitized() {
    local dir=$root/$1 sanitizers=$2 sources=$3 programs=$4 libraries=$5
    shift 5
    export FUZZ_MUTATIONS=300000  # the step unit has all of them
    configure_in "$dir" --with-sanitizer="$sanitizers" CXXFLAGS="-g1 -Og" "$@"
    sources=$(targets "$dir" LTLIBRARIES "$sources")
    programs=$(targets "$dir" check_PROGRAMS "$programs")
    libraries=$(targets "$dir" check_LTLIBRARIES "$libraries")
    # shellcheck disable=SC2086 # several
    make -j"$jobs" $sources
    # shellcheck disable=SC2086 # several
    make -j"$jobs" CXXFLAGS="-g1 -O0" $programs $libraries
    checked "$dir" check-TESTS check_PROGRAMS="$programs" check_LTLIBRARIES="$libraries" check_DATA= TESTS="$programs"
}

# LeakSanitizer of GCC 12 takes thread-local memory of a loaded library for that of an old C library, and crashes, where
# its address ends in 0x010 (sanitizer_tls_get_addr.cpp, Glibc_2_19_tls_header): a matter of chance, so it need not see it.
address_sanitized() {
    export ASAN_OPTIONS=intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
    sanitized address address,undefined "$@" "$(same_kernels)"
}

# They need no driver.
step_sanitizers() { address_sanitized '^src/core/libcore.la$' '^test/gtest/(core|port)_host_test$' '^$'; }

step_sanitizers_all() {
    address_sanitized '^src/' '^test/gtest/(core_[^h]|port_[^h]|[^cp])' '^test/(gtest|simcuda)/'
}

step_threads() {
    # With 32 bits of address randomization libtsan of gcc 12 finds its shadow memory taken
    # ("unexpected memory mapping"), so it is switched off (-R). A build without the standby kernel is
    # tried here.
    export -f sanitized checked failed_tests configure_in targets
    export root source_dir cuda_dir jobs GTEST_FILTER='*Mailbox*:*Ring*'
    setarch -R bash -ec 'sanitized thread thread src/core/libcore.la core_host_test "^$" --without-nvcc'
}

step_no_driver() {
    local output=$root/tmp/output
    "$run" mpirun -n 2 "$plain/test/mpi/pairs" --kinds host >"$output" 2>&1 </dev/null
    cat "$output"
    # Nothing is to be said of gpushm when nobody wants CUDA.
    absent grep -i gpushm "$output"
}

step_pairs() {
    simulated
    "$run" mpirun -n 2 "$plain/test/mpi/pairs" --timeout 120
    # Each GPU has the context of its own rank; nobody even tries to make another one (error 46).
    SIMCUDA_EXCLUSIVE=1 SIMCUDA_TRACE="$root/tmp/trace.%p" \
        "$run" mpirun -n 2 "$plain/test/mpi/pairs" --quick --timeout 120
    grep -h ' 0 cuDevicePrimaryCtxRetain' "$root"/tmp/trace.*
    absent grep -h ' 46 cu' "$root"/tmp/trace.*
}

step_same_device() {
    simulated
    "$run" mpirun -n 2 "$plain/test/mpi/pairs" --same-device --quick --timeout 120
}

step_perftest() {
    simulated
    ucx_version
    perftest_table
}

step_ucx_info() {
    simulated
    "$run" ucx_info -c >"$root/tmp/settings"
    "$run" ucx_info -cf >"$root/tmp/described"
    "$run" ucx_info -d >"$root/tmp/resources"
    grep UCX_GPUSHM_ "$root/tmp/settings"
    grep -A 8 -i 'component: gpushm' "$root/tmp/resources"
    grep -i 'transport: .*gpu' "$root/tmp/resources"
    # Each setting has its documentation: a comment directly before it.
    awk '/^UCX_GPUSHM_/ && last != "" && last !~ /^#/ { print; bad = 1 } { last = $0 }
        END { exit bad }' "$root/tmp/described"
}

step_bad_settings() {
    local setting
    simulated
    # The first setting whose value is a number or a size must refuse a word.
    "$run" ucx_info -c >"$root/tmp/settings"
    setting=$(sed -n '/^UCX_GPUSHM_.*=[0-9]/{ s/=.*//p; q }' "$root/tmp/settings")
    [ -n "$setting" ]
    # UCX's parser says so, without the prefix, as it does for settings of its own transports.
    env "$setting=nonsense" "$run" ucx_info -d >"$root/tmp/output" 2>&1
    cat "$root/tmp/output"
    grep "ERROR.*${setting#UCX_GPUSHM_}.*nonsense" "$root/tmp/output"
    absent grep 'Transport: gpushm' "$root/tmp/output"
}

# in_small_shm SIZE CMD...: with a /dev/shm of that size, or ro: that cannot be written to.
in_small_shm() {
    local option=size=$1
    [ "$1" != ro ] || option=ro
    shift
    own_mounts sh -c 'mount --make-private /dev/shm && mount -t tmpfs -o "$0" none /dev/shm &&
        exec "$@"' "$option" "$@"
}

# quiet_ranks CMD...: ranks of CMD, and nothing is said of UCX or gpushm.
quiet_ranks() {
    in_small_shm "$@" "$plain/test/mpi/operations" --quick --kinds=host --only=Sendrecv >"$root/tmp/output" 2>&1 || {
        cat "$root/tmp/output"
        return 1
    }
    absent grep -i -e ucx -e gpushm "$root/tmp/output"
}

# UCX's own transport posix takes 4.2 MB for each rank.
step_no_shm() {
    in_small_shm 64k true 2>/dev/null || skip "needs the right to mount (unshare -m)"
    simulated
    made test/mpi/operations
    in_small_shm 64k "$run" mpirun -n 2 "$plain/test/mpi/pairs" --quick
    quiet_ranks 16m "$run" mpirun -n 8
    quiet_ranks ro "$run" mpirun -n 2
    export HOME=$root/tmp/home
    mkdir "$HOME"
    "$prefix/bin/gpushm-openmpi" --enable
    quiet_ranks 16m mpirun -n 8
    pml | grep -x ucx
}

step_no_pinning() {
    simulated
    SIMCUDA_MAX_PINNED_BYTES=4096 "$run" mpirun -n 2 "$plain/test/mpi/pairs" --quick \
        --timeout 120
}

step_killed() {
    local pid tries launcher
    simulated
    "$run" mpirun -n 2 "$plain/test/mpi/pairs" --bench >"$root/tmp/output" 2>&1 </dev/null &
    # Killed when messages flow: the table has begun.
    for ((tries = 0; tries < 600; tries++)); do
        if grep -q 'host -> host' "$root/tmp/output"; then break; fi
        sleep 0.05
    done
    launcher=$!
    for pid in $(cat "/proc/$launcher/task/$launcher/children"); do
        kill -9 "$pid"
    done
    wait "$launcher" || true
    sleep 1
    cat "$root/tmp/output"
    [ "$tries" -lt 600 ]
    absent compgen -G '/dev/shm/*gpushm*'
}

# Every file of the repository but those for it alone is in the archive.
archive_is_whole() {
    local archive
    archive=$(compgen -G "$plain/gpushm-*.tar.gz")
    [ -s "$archive" ] && [ -s "${archive%.gz}.xz" ]
    git -C "$source_dir" rev-parse 2>/dev/null || return 0
    tar -tf "$archive" | sed 's|^[^/]*/||' | sort >"$root/tmp/archive"
    git -C "$source_dir" ls-files | grep -v -E '^\.(ci/|git)' | sort | comm -23 - "$root/tmp/archive" >"$root/tmp/left_out"
    absent grep . "$root/tmp/left_out"
}

step_distcheck() {
    # It is about what the archive holds: not optimised, with kernels that nvcc has made before, and of the tests
    # those that find their files beside themselves.
    local tests='test/gtest/uct_gpushm/abi/loader_test.sh test/gtest/tools/tools_test.sh' option
    option=$(same_kernels)
    checked "$plain" distcheck TESTS="$tests" check_PROGRAMS= check_DATA= check_LTLIBRARIES=test/simcuda/libcuda.la \
        DISTCHECK_CONFIGURE_FLAGS="--with-cuda=$cuda_dir CXXFLAGS=-O0 $option"
    archive_is_whole
}

for file in chroot style mpi_steps bare driver_failures mpi_programs debian13 smoke scale hosts headers; do
    # shellcheck source=/dev/null
    . "$source_dir/contrib/ci/$file.sh"
done
