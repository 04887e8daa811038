#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# gpushm-run, gpushm-info and gpushm-openmpi as a user has them: installed into a temporary folder beside
# libraries of their names, with small libraries that stand for UCX releases. Run in the build directory;
# needs a C++ compiler.
build=$PWD
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cxx=${CXX:-c++}
failures=0

fail() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}

# expect NAME EXPECTED ACTUAL
expect() {
    [ "$2" = "$3" ] || fail "$1: expected \"$2\", got \"$3\""
}

# contains NAME TEXT FILE
contains() {
    grep -qF -- "$2" "$3" || fail "$1: \"$2\" is not in: $(cat "$3")"
}

# lacks NAME TEXT FILE
lacks() {
    if grep -qF -- "$2" "$3"; then fail "$1: \"$2\" is in: $(cat "$3")"; fi
}

unset LD_PRELOAD UCX_PLUGIN_PATH UCX_TLS UCX_MODULES UCX_SHM_DEVICES UCX_GPUSHM_OPENMPI
unset OMPI_COMM_WORLD_RANK PMIX_RANK SLURM_PROCID
for variable in $(env | sed -n 's/^\(OMPI_MCA_[a-z_]*\)=.*/\1/p'); do
    unset "$variable"
done

# The installation, and programs to start.
prefix=$work/prefix
plugins=$prefix/lib/gpushm
mkdir -p "$prefix/bin" "$plugins" "$work/programs"
cp "$build/gpushm-run" "$build/gpushm-info" "$prefix/bin/" || exit 1
run=$prefix/bin/gpushm-run
echo 'int gpushm_stand_in;' >"$work/empty.cpp"
$cxx -shared -fPIC -o "$plugins/libuct_gpushm.so.0" "$work/empty.cpp" || exit 1
cp "$plugins/libuct_gpushm.so.0" "$plugins/libgpushm_preload.so"
cat >"$work/programs/script" <<'END'
#!/bin/sh
exit 42
END
chmod +x "$work/programs/script"
echo 'text' >"$work/programs/not_executable"

# make_ucx MINOR: a libucp.so.0 of UCX 1.MINOR.7 and a program that links it.
make_ucx() {
    mkdir -p "$work/ucx$1"
    cat >"$work/ucp.cpp" <<END
extern "C" void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release) {
    *major = 1; *minor = $1; *release = 7;
}
extern "C" void ucs_global_opts_init() {}
END
    cat >"$work/main.cpp" <<'END'
extern "C" void ucp_get_version(unsigned *, unsigned *, unsigned *);
extern char **environ;
#include <cstdio>
int main() {
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    for (char **entry = environ; *entry != nullptr; ++entry) std::puts(*entry);
    return static_cast<int>(minor);
}
END
    $cxx -shared -fPIC -Wl,-soname,libucp.so.0 -o "$work/ucx$1/libucp.so.0" "$work/ucp.cpp" &&
        $cxx -o "$work/programs/links_ucx$1" "$work/main.cpp" "$work/ucx$1/libucp.so.0" \
            "-Wl,-rpath,$work/ucx$1" || exit 1
}
for minor in 12 16 22 99; do
    make_ucx $minor
done

# Exit statuses.
"$run" "$work/programs/script"
expect "status of the program" 42 $?
"$run" -- "$work/programs/links_ucx16" >"$work/out"
expect "status of the program after --" 16 $?
"$run" sh -c 'exit 3' --verbose
expect "the program's options are its own" 3 $?
"$run" "$work/programs/nowhere" 2>"$work/err"
expect "status when not found" 127 $?
contains "message when not found" "$work/programs/nowhere" "$work/err"
"$run" no-such-program-anywhere 2>"$work/err"
expect "status when not in PATH" 127 $?
"$run" "$work/programs/not_executable" 2>"$work/err"
expect "status when not executable" 126 $?
"$run" 2>"$work/err"
expect "status without a program" 125 $?
"$run" --no-such-option true 2>"$work/err"
expect "status of a wrong option" 125 $?
expect "lines about a wrong option" 1 "$(wc -l <"$work/err" | tr -d ' ')"
for option in --help -h; do
    "$run" $option >"$work/out" && contains "help" "Usage:" "$work/out"
    "$prefix/bin/gpushm-info" $option >"$work/out" && contains "help of gpushm-info" "Usage:" "$work/out"
done
"$run" --version >"$work/out" && contains "version" "gpushm" "$work/out"

# Which variable a linked UCX gets; only where gpushm serves it.
"$run" "$work/programs/links_ucx16" >"$work/out" 2>"$work/err"
contains "UCX 1.16" "LD_PRELOAD=$plugins/libgpushm_preload.so" "$work/out"
lacks "UCX 1.16" "UCX_PLUGIN_PATH" "$work/out"
lacks "UCX without MPI" "OMPI_MCA" "$work/out"
expect "silence" "" "$(cat "$work/err")"
"$run" "$work/programs/links_ucx22" >"$work/out"
contains "UCX 1.22" "UCX_PLUGIN_PATH=$plugins" "$work/out"
lacks "UCX 1.22" "LD_PRELOAD" "$work/out"
for minor in 12 99; do
    "$run" "$work/programs/links_ucx$minor" >"$work/out" 2>"$work/err"
    expect "UCX 1.$minor still runs" $minor $?
    lacks "UCX 1.$minor" "gpushm_preload" "$work/out"
    lacks "UCX 1.$minor" "UCX_PLUGIN_PATH" "$work/out"
    contains "UCX 1.$minor" "1.$minor.7" "$work/err"
    expect "lines about UCX 1.$minor" 1 "$(wc -l <"$work/err" | tr -d ' ')"
done

# Programs that do not link UCX: what the loader finds decides about the plugin path.
LD_LIBRARY_PATH=$work/ucx16 "$run" env >"$work/out"
contains "any program" "LD_PRELOAD=$plugins/libgpushm_preload.so" "$work/out"
contains "any program" "OMPI_MCA_pml=ucx" "$work/out"
lacks "any program, UCX 1.16" "UCX_PLUGIN_PATH" "$work/out"
LD_LIBRARY_PATH=$work/ucx22 "$run" env >"$work/out"
contains "any program, UCX 1.22" "LD_PRELOAD=$plugins/libgpushm_preload.so" "$work/out"
contains "any program, UCX 1.22" "UCX_PLUGIN_PATH=$plugins" "$work/out"

# Where gpushm does not serve that one, nobody is made to send through it; who uses it says so.
for minor in 12 99; do
    LD_LIBRARY_PATH=$work/ucx$minor "$run" env >"$work/out" 2>"$work/err"
    lacks "any program, UCX 1.$minor" "OMPI_MCA" "$work/out"
    expect "silence, UCX 1.$minor" "" "$(cat "$work/err")"
done

# What the user set stays, lists are extended once.
LD_PRELOAD=$plugins/libuct_gpushm.so.0 OMPI_MCA_pml=ob1 OMPI_MCA_osc='' UCX_PLUGIN_PATH=/mine \
    LD_LIBRARY_PATH=$work/ucx22 "$run" --verbose "$run" env >"$work/out" 2>"$work/err"
contains "extended" "LD_PRELOAD=$plugins/libuct_gpushm.so.0:$plugins/libgpushm_preload.so" "$work/out"
expect "extended once" 1 "$(grep -c "^LD_PRELOAD=[^:]*:[^:]*\$" "$work/out")"
contains "extended" "UCX_PLUGIN_PATH=/mine:$plugins" "$work/out"
contains "kept" "OMPI_MCA_pml=ob1" "$work/out"
expect "an empty value is kept" 1 "$(grep -c '^OMPI_MCA_osc=$' "$work/out")"
contains "verbose says kept" "OMPI_MCA_pml=ob1 (kept" "$work/err"
contains "verbose says what follows" "GPU buffers do not work" "$work/err"

# What keeps gpushm out is said without being asked for, in one line.
for setting in UCX_TLS=sm,self UCX_SHM_DEVICES=memory OMPI_MCA_pml=ob1; do
    env "$setting" "$run" true 2>"$work/err"
    expect "status under $setting" 0 $?
    contains "$setting" "$setting in the environment" "$work/err"
    expect "lines about $setting" 1 "$(wc -l <"$work/err" | tr -d ' ')"
done
OMPI_MCA_pml=ob1 UCX_GPUSHM_OPENMPI=n "$run" true 2>"$work/err"
expect "what is meant" "" "$(cat "$work/err")"

# An entry of an installation that is gone does not keep this one out.
LD_PRELOAD=/nowhere/libgpushm_preload.so LD_LIBRARY_PATH=$work/ucx16 "$run" env >"$work/out" 2>"$work/err"
expect "an entry that is gone" "LD_PRELOAD=$plugins/libgpushm_preload.so" "$(grep '^LD_PRELOAD=' "$work/out")"

# An MPI that is not served.
cp "$work/programs/script" "$work/programs/mpiexec.hydra"
ln -s mpiexec.hydra "$work/programs/mpirun"
"$run" "$work/programs/mpirun" 2>"$work/err"
expect "status of another MPI's mpirun" 42 $?
contains "another MPI" "gpushm serves Open MPI, not MPICH" "$work/err"
expect "lines about another MPI" 1 "$(wc -l <"$work/err" | tr -d ' ')"

# --print: what a shell then has is what the program would have got.
LD_LIBRARY_PATH=$work/ucx22 "$run" --print >"$work/exports"
expect "status of --print" 0 $?
(
    . "$work/exports"
    env
) | grep -E '^(LD_PRELOAD|UCX_PLUGIN_PATH|OMPI_MCA_)' | sort >"$work/printed"
LD_LIBRARY_PATH=$work/ucx22 "$run" env | grep -E '^(LD_PRELOAD|UCX_PLUGIN_PATH|OMPI_MCA_)' |
    sort >"$work/given"
expect "exports" "$(cat "$work/given")" "$(cat "$work/printed")"
[ -s "$work/given" ] || fail "exports: nothing is set"
lacks "what Slurm reads from a TaskProlog has no quotes" "'" "$work/exports"
OMPI_MCA_pml=ob1 "$run" --print mpirun >"$work/out" 2>"$work/err"
lacks "a kept variable is not printed" "OMPI_MCA_pml=" "$work/out"

# gpushm-info
LD_LIBRARY_PATH=$work/ucx16 "$prefix/bin/gpushm-info" >"$work/out"
expect "status of gpushm-info" 0 $?
contains "gpushm-info" "UCX 1.16.7" "$work/out"
contains "gpushm-info" "$plugins/libuct_gpushm.so.0" "$work/out"
LD_LIBRARY_PATH=$work/ucx16 "$prefix/bin/gpushm-info" --json >"$work/out"
contains "gpushm-info --json" '"version": "1.16.7"' "$work/out"
LD_LIBRARY_PATH=$work/ucx99 PATH=/nowhere "$prefix/bin/gpushm-info" >"$work/out"
expect "status of gpushm-info on an unknown UCX" 1 $?
contains "advice on an unknown UCX" "install a newer gpushm" "$work/out"
"$prefix/bin/gpushm-info" --nonsense 2>"$work/err"
expect "status of a wrong option of gpushm-info" 2 $?

# Drivers that do not work. make_driver NAME FUNCTIONS: the folder of a libcuda.so.1.
make_driver() {
    mkdir -p "$work/$1"
    printf '%s\n' "$2" >"$work/driver.cpp"
    $cxx -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/$1/libcuda.so.1" "$work/driver.cpp" || exit 1
}
make_driver stub 'extern "C" int cuInit(unsigned) { return 34; }'
make_driver old_driver 'extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDriverGetVersion(int *version) { *version = 10020; return 0; }'
mkdir "$work/no_driver"
: >"$work/no_driver/libcuda.so.1"
info_with_driver() {
    LD_LIBRARY_PATH=$work/$1:$work/ucx16 "$prefix/bin/gpushm-info" >"$work/out" 2>"$work/err"
    expect "status of gpushm-info with $1" 0 $?
    LD_LIBRARY_PATH=$work/$1:$work/ucx16 "$prefix/bin/gpushm-info" --json >"$work/json" 2>/dev/null
}
info_with_driver stub
contains "a stub" "$work/stub/libcuda.so.1 is the CUDA toolkit's stub" "$work/out"
contains "a stub" '"version": null' "$work/json"
info_with_driver old_driver
contains "an old driver" "CUDA driver for CUDA 10.2: not usable" "$work/out"
contains "an old driver" "$work/old_driver/libcuda.so.1 lacks functions" "$work/out"
info_with_driver no_driver
contains "a file that is no library" "file too short" "$work/out"
lacks "a file that is no library" "no CUDA driver" "$work/out"
if [ -e "$build/test/simcuda/.libs/libcuda.so.1" ]; then
    LD_LIBRARY_PATH=$build/test/simcuda/.libs:$work/ucx16 "$prefix/bin/gpushm-info" >"$work/out"
    contains "the driver that was opened" "$(realpath "$build/test/simcuda/.libs/libcuda.so.1")" "$work/out"
fi

# gpushm-openmpi, with an Open MPI of which there is only what it asks.
open_mpi=$work/open_mpi
system_folder=$open_mpi/lib/openmpi
own_folder=$work/home/.openmpi/components
mkdir -p "$open_mpi/bin" "$system_folder" "$plugins/openmpi" "$work/home"
echo >"$plugins/openmpi/mca_hook_gpushm.so"
sed "s|^component=.*|component=$plugins/openmpi/mca_hook_gpushm.so|" "$build/src/tools/gpushm-openmpi" \
    >"$prefix/bin/gpushm-openmpi"
chmod +x "$prefix/bin/gpushm-openmpi"
printf '#!/bin/sh\necho "path:pkglibdir:%s"\n' "$system_folder" >"$open_mpi/bin/ompi_info"
printf '#!/bin/sh\n' >"$open_mpi/bin/mpirun"
chmod +x "$open_mpi/bin/ompi_info" "$open_mpi/bin/mpirun"
component() {
    HOME=$work/home PATH=$open_mpi/bin:/usr/bin:/bin "$prefix/bin/gpushm-openmpi" "$@" >"$work/out" 2>"$work/err"
}
component
contains "not enabled" "not in use; gpushm-openmpi --enable" "$work/out"
component --disable
contains "nothing to disable" "nothing to remove in $own_folder" "$work/out"
lacks "nothing to disable" "still in use" "$work/out"
component --enable --system
expect "status of --enable --system" 0 $?
component --enable
component
contains "enabled" "in use: $own_folder/mca_hook_gpushm.so" "$work/out"
contains "enabled for all" "in use: $system_folder/mca_hook_gpushm.so" "$work/out"
component --disable
contains "disabled" "removed: $own_folder/mca_hook_gpushm.so" "$work/out"
lacks "disabled" "nothing to remove" "$work/out"
contains "disabled for one" "still in use for all users: $system_folder (gpushm-openmpi --disable --system)" "$work/out"
component --enable
printf '#!/bin/sh\nexit 1\n' >"$open_mpi/bin/rm"
chmod +x "$open_mpi/bin/rm"
component --disable
expect "status when a link cannot be removed" 1 $?
rm "$open_mpi/bin/rm"
component --disable --system
contains "disabled for all" "removed: $system_folder/mca_hook_gpushm.so" "$work/out"
contains "disabled for all others" "still in use for you: $own_folder (gpushm-openmpi --disable)" "$work/out"
component --disable
# An mpirun whose ranks look into the folder of PMIx only, which complains about files of other names.
pmix_folder=$work/lib/pmix
mkdir -p "$pmix_folder"
ln -s "$plugins/openmpi/mca_hook_gpushm.so" "$pmix_folder"  # as older releases have made it
printf '#!/bin/sh\necho "OMPI_MCA_mca_base_component_path=%s"\n' "$pmix_folder" >"$open_mpi/bin/mpirun"
component --enable
expect "status of --enable where it has no effect" 1 $?
component --enable --system
expect "what lies in the folder of PMIx" pmix_mca_pcompress_gpushm.so "$(ls "$pmix_folder")"
component
contains "enabled for PMIx" "in use: $pmix_folder/pmix_mca_pcompress_gpushm.so" "$work/out"
component --disable --system
expect "what is left in the folder of PMIx" "" "$(ls "$pmix_folder")"
printf '#!/bin/sh\n' >"$open_mpi/bin/mpirun"
component --disable --enable
expect "status of two actions" 2 $?
contains "two actions" "--enable and --disable" "$work/err"
component --nonsense
expect "status of a wrong option of gpushm-openmpi" 2 $?
expect "a wrong option of gpushm-openmpi" \
    "gpushm-openmpi: unknown option --nonsense: see gpushm-openmpi --help" "$(cat "$work/err")"
component --version
expect "version of gpushm-openmpi" "$("$run" --version | sed 's/gpushm-run/gpushm-openmpi/')" "$(cat "$work/out")"
mkdir "$work/few_programs"
for program in sh sed env head mkdir ln rm cat; do
    ln -s "$(command -v "$program")" "$work/few_programs/"
done
HOME=$work/home PATH=$work/few_programs "$prefix/bin/gpushm-openmpi" >"$work/out"
contains "without Open MPI" "not in use; no ompi_info in PATH" "$work/out"
lacks "without Open MPI" "changes that" "$work/out"

# An installation that was moved works; one that lost a library says so.
mv "$prefix" "$work/moved"
"$work/moved/bin/gpushm-run" env >"$work/out"
contains "moved" "$work/moved/lib/gpushm/libgpushm_preload.so" "$work/out"
mkdir "$work/elsewhere"
mv "$work/moved/lib/gpushm" "$work/elsewhere/gpushm"
"$work/moved/bin/gpushm-run" "--plugin-dir=$work/elsewhere/gpushm" env >"$work/out"
contains "--plugin-dir" "$work/elsewhere/gpushm/libgpushm_preload.so" "$work/out"
rm "$work/elsewhere/gpushm/libgpushm_preload.so"
"$work/moved/bin/gpushm-run" "--plugin-dir=$work/elsewhere/gpushm" env >"$work/out" 2>"$work/err"
expect "status when a library is missing" 125 $?
expect "lines when a library is missing" 1 "$(wc -l <"$work/err" | tr -d ' ')"
contains "the library that is missing" "$work/elsewhere/gpushm/libgpushm_preload.so: No such file" "$work/err"
"$work/moved/bin/gpushm-info" "--plugin-dir=$work/elsewhere/gpushm" >"$work/out"
expect "status of gpushm-info when a library is missing" 1 $?

[ "$failures" -eq 0 ] || exit 1
