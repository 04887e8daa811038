#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What contrib/quickstart and contrib/check say and do on machines that lack something: stand-ins for programs
# of the system, and nothing is installed or downloaded.
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
chmod a+rx "$work"
failures=0

fail() {
    echo "FAILED: $*"
    sed 's/^/    /' "$work/out"
    failures=$((failures + 1))
}

# said TEXT...: each is a part of what the last command printed.
said() {
    local text
    for text in "$@"; do
        grep -qF -- "$text" "$work/out" || fail "\"$text\" is not said"
    done
}

# stand_in NAME COMMANDS...: a program that goes before the system's.
mkdir "$work/bin"
stand_in() {
    printf '%s\n' '#!/bin/sh' "${@:2}" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

# with_lib COMMANDS...: in a script that has read lib.sh.
with_lib() {
    env PATH="$work/bin:$PATH" log="$work/log" bash -c ". '$here/ci/lib.sh'; $*" >"$work/out" 2>&1
}

# A user who may install nothing, on a machine where packages are missing.
stand_in id 'echo 1000'
stand_in sudo 'exit 1'
stand_in apt-get 'exit 1'
# dpkg knows packages that others mention.
stand_in dpkg-query 'case $* in *-f*) printf not-installed ;; *) printf "%s\t\n" "$2" ;; esac'
with_lib is_there some-package && fail "a package that is not installed is there"
with_lib need some-package another-package && fail "packages that are missing are no hindrance"
said "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends some-package another-package'" \
    "Then run me again"
[ "$(wc -l <"$work/out")" -eq 3 ] || fail "three lines say it"
with_lib 'no_packages=yes; need some-package' && fail "with --no-packages a step is not told what is missing"
[ ! -s "$work/out" ] || fail "--no-packages asks for packages"

# Of packages that root cannot have, the others are installed.
stand_in id 'echo 0'
stand_in apt-get "case \$* in *update* | *'recommends one') echo \$* >>'$work/installed' ;; *) exit 1 ;; esac"
stand_in dpkg-query "grep -q one '$work/installed' && case \$* in *one) printf installed ;; esac"
with_lib need one another && fail "a package that is not to be had is no hindrance"
said "install -y --no-install-recommends another'"
stand_in id 'echo 1000'
stand_in apt-get 'exit 1'
stand_in dpkg-query 'printf not-installed'

# Another MPI is not what is needed.
stand_in mpirun 'echo HYDRA build details'
stand_in mpicxx 'exit 1'
with_lib 'is_there openmpi-bin || is_there libopenmpi-dev' && fail "another MPI counts as Open MPI"
rm "$work/bin/mpirun" "$work/bin/mpicxx"

# quickstart tells all that is missing at once, before it downloads anything.
mkdir "$work/few"
for program in bash sh basename dirname nproc realpath mkdir tar tail sed grep readlink; do
    ln -s "$(command -v "$program")" "$work/few/"
done
cp "$work/bin"/* "$work/few/"
env -i PATH="$work/few" bash "$here/quickstart" --build "$work/build" >"$work/out" 2>&1 &&
    fail "quickstart goes on without packages"
said "g++ make pkg-config" "openmpi-bin" "Then run me again"
[ -r /usr/local/cuda/include/cuda.h ] || said "python3-pip"
[ "$(grep -c apt-get "$work/out")" -eq 1 ] || fail "one command suffices"
[ ! -e "$work/build/cuda" ] || fail "quickstart downloads before it knows what is missing"

# Paths that cannot be built in.
mkdir -p "$work/a b"
cp -r "$here" "$work/a b/contrib"
for script in quickstart check; do
    bash "$work/a b/contrib/$script" >"$work/out" 2>&1 && fail "$script starts in a path with a blank"
    said "$work/a b" "a path with a blank"
    [ ! -e "$work/a b/build" ] || fail "$script leaves a folder where it cannot work"
done
bash "$here/quickstart" --build "$work/build" --prefix "$work/a b" >"$work/out" 2>&1 && fail "a prefix with a blank"
said "the folder to install into is $work/a b"

# A tree that cannot be written to.
mkdir -p "$work/tree" "$work/mine"
cp -r "$here" "$work/tree/contrib"
chmod -R a+rX,a-w "$work/tree"
chmod a+w "$work/mine"
as_user=()
[ "$(id -u)" != 0 ] || as_user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
# shellcheck disable=SC2016 # for the shell of that user
in_tree='. "$0/contrib/ci/lib.sh"; use_build_root "$1"; say "$source_dir"'
"${as_user[@]}" bash -c "$in_tree" "$work/tree" "$work/mine/build" >"$work/out" 2>&1 || fail "no copy of the tree"
[ "$(tail -n 1 "$work/out")" = "$work/mine/build/source" ] && [ -e "$work/mine/build/source/contrib/check" ] ||
    fail "the copy of the tree is taken"
"${as_user[@]}" bash -c "$in_tree" "$work/tree" "$work/tree/build" >"$work/out" 2>&1 && fail "no place to build in"
said "--build DIR"
chmod -R u+w "$work/tree"

# What pip says is shown once.
stand_in python3 'echo "ERROR: no way to the index"; exit 1'
with_lib "installed_cuda() { return 1; }; find_cuda '$work/cuda'" && fail "cuda.h is found"
[ "$(grep -c 'no way to the index' "$work/out")" -eq 1 ] || fail "pip's error is shown once"
rm "$work/bin/python3"

# Null bytes in what ucx_perftest prints.
ln -s "$(command -v true)" "$work/bin/ucx_perftest"
with_lib "driver=x second_device=; perftest_sockets() { printf '\\0\\0Final: 10 2.5\\n'; };
    perftest_ranks() { perftest_sockets; }; perftest host host 8 10"
[ "$(cat "$work/out")" = 2.5 ] || fail "null bytes are passed over"

# A terminal shows that it goes on.
if command -v script >/dev/null; then
    script -qec "env log=$work/log bash -c '. $here/ci/lib.sh; working building sleep 6'" /dev/null >"$work/out" 2>&1
    said building "5 s"
fi

# .ci/run counts what both runs of contrib/check have counted; one that ends early has failed.
if [ -e "$here/../.ci/run" ]; then
    mkdir -p "$work/both/.ci" "$work/both/contrib" "$work/both/build/check/prefix/bin"
    cp "$here/../.ci/run" "$work/both/.ci/"
    install /dev/null "$work/both/build/check/prefix/bin/gpushm-run"
    # both_runs SCRIPT: .ci/run where that is contrib/check.
    both_runs() {
        printf '#!/bin/sh\n%s\n' "$1" >"$work/both/contrib/check"
        chmod +x "$work/both/contrib/check"
        bash "$work/both/.ci/run" >"$work/out" 2>&1
    }
    # shellcheck disable=SC2016 # for the shell of that script
    both_runs 'echo "PASS  a step $*"; echo "${1:+2}1 passed, 0 failed${1:+, 1 skipped}"' || fail ".ci/run fails"
    said "PASS  a step --rest"
    [ "$(tail -n 1 "$work/out")" = "22 passed, 0 failed, 1 skipped" ] && [ "$(wc -l <"$work/out")" = 3 ] ||
        fail "one line counts both runs"
    both_runs '[ "$1" = --rest ] || { echo "5 passed, 1 failed"; exit 1; }' && fail ".ci/run passes over failures"
    [ "$(tail -n 1 "$work/out")" = "5 passed, 2 failed" ] || fail "a run without counts counts as a failure"
    rm -r "$work/both/build"
    both_runs 'echo "0 passed, 1 failed"' && fail ".ci/run passes without a build"
    [ "$(cat "$work/out")" = "0 passed, 1 failed" ] || fail "nothing runs after a build that failed"
fi

# autogen.sh makes no configure that lacks pkg-config's macros.
if [ -e "$here/../autogen.sh" ]; then
    mkdir "$work/autogen"
    cp "$here/../autogen.sh" "$work/autogen/"
    for program in autoreconf automake libtoolize; do
        printf '#!/bin/sh\n: >configure\n' >"$work/few/$program"
        chmod +x "$work/few/$program"
    done
    env -i PATH="$work/few" sh "$work/autogen/autogen.sh" >"$work/out" 2>&1 && fail "autogen.sh without pkg-config"
    said "pkg-config is missing"
    [ ! -e "$work/autogen/configure" ] || fail "autogen.sh leaves a configure"
fi

exit $((failures != 0))
