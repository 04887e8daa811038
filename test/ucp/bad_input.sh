#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What gpushm does where it cannot do its work: it says so in one line, UCX goes on without it or
# without a part of it, nothing crashes or hangs, nothing stays in /dev/shm. Run in the build
# directory; needs a C++ compiler.
build=$PWD
peer=$build/test/ucp/ucp_peer
plugins=$build/test/ucp/plugins
preload=$plugins/libgpushm_preload.so
simulated=$build/test/simcuda/.libs
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
failures=0
skipped=0
name=

[ -x "$peer" ] && [ -e "$preload" ] || { echo "not built: $peer, $preload"; exit 77; }
unset LD_PRELOAD UCX_PLUGIN_PATH UCX_MODULES UCX_LOG_LEVEL UCX_LOG_FILE
# One way to each peer, so that where messages go when gpushm is not there is known too.
export UCX_TLS=gpushm,tcp
export UCX_WARN_UNUSED_ENV_VARS=n
caller_path=$LD_LIBRARY_PATH
without_driver() {
    echo "$caller_path" | tr : '\n' | grep -v "^$simulated\$" | paste -sd: -
}

fail() {
    echo "FAILED: $name: $1"
    sed 's/^/    /' "$work/out" | head -20
    failures=$((failures + 1))
}

skip() {
    echo "skipped: $1: $2"
    skipped=$((skipped + 1))
}

left_behind() {
    find /dev/shm -maxdepth 1 -iname '*gpushm*' 2>/dev/null | sort
}

# try NAME STATUS LINES TEXT COMMAND...: the command ends with STATUS; gpushm says LINES lines
# ("some": one or two), each with TEXT (a basic regular expression).
try() {
    name=$1
    wanted_status=$2
    wanted_lines=$3
    text=$4
    shift 4
    before=$(left_behind)
    "$@" >"$work/out" 2>&1
    status=$?
    if [ $status -eq 77 ]; then
        skip "$name" "$(tail -n 1 "$work/out")"
        return
    fi
    [ $status -eq "$wanted_status" ] || fail "status $status instead of $wanted_status"
    lines=$(grep -c -e ' gpushm: ' -e '^gpushm: ' -e ' gpushm [0-9.]* ' "$work/out")
    if [ "$wanted_lines" = some ]; then
        wanted_lines=$lines
        [ "$lines" -eq 1 ] || [ "$lines" -eq 2 ] || fail "$lines lines of gpushm"
    fi
    [ "$lines" -eq "$wanted_lines" ] || fail "$lines lines of gpushm instead of $wanted_lines"
    if [ -n "$text" ]; then
        good=$(grep -c -- "$text" "$work/out")
        [ "$good" -eq "$wanted_lines" ] || fail "$good lines with \"$text\", not $wanted_lines"
    fi
    if grep -q -e 'Caught signal' -e 'ended by signal' -e 'hangs' "$work/out"; then
        fail "crash or hang"
    fi
    [ "$before" = "$(left_behind)" ] || fail "left in /dev/shm: $(left_behind)"
}

# gpushm COMMAND...: with the preload library.
gpushm() {
    env LD_PRELOAD="$preload" "$@"
}

# stand_in VARIABLE=VALUE COMMAND...: with the libraries changed by stand_in.cpp.
stand_in() {
    env LD_PRELOAD="$preload:$work/stand_in.so" "$@"
}

host="$peer tag --sizes=8,9000,300000 --deadline=30"
device="$peer tag --sizes=8,9000,300000 --kinds=host,device --deadline=30"

# UCX
"${CXX:-c++}" -std=c++17 -shared -fPIC -o "$work/stand_in.so" \
    "${srcdir:-.}/test/ucp/stand_in.cpp" -ldl || exit 1
try "the stand-in changes nothing by itself" 0 0 '' stand_in $device
try "unknown UCX" 0 2 'UCX 1\.99\.0 (.*) is not known, .*: install a newer gpushm; UCX goes on without it' \
    stand_in STAND_IN_MINOR=99 $host
try "old UCX" 0 2 'UCX 1\.12\.0 (.*) is too old, gpushm serves UCX 1\.13 to .*: install a newer UCX; UCX goes on without it' \
    stand_in STAND_IN_MINOR=12 $host
try "UCX with statistics" 0 2 'built with statistics, .*: use a UCX that was configured without --enable-stats' \
    stand_in STAND_IN_ADDS=ucs_stats_node_alloc $host
try "UCX without a function" 0 2 'needs uct_iface_handle_ep_err, .*: use an unmodified UCX' \
    stand_in STAND_IN_HIDES=uct_iface_handle_ep_err $host

# UCX that the program opens by itself: one, under other names as wheels give to the libraries that
# they bring (auditwheel; here of the same length), and two in one process.
open=$build/test/ucp/open_libraries
ucx=$(dirname "$(ldd "$peer" | sed -n 's/.*libucp\.so\.0 => \(.*\) (.*/\1/p')")

# rename_ucx FROM TO: copies its libraries as libxc?.so.0.
rename_ucx() {
    rm -rf "$2"
    mkdir "$2"
    for letter in m s t p; do
        LC_ALL=C sed 's/libuc\([mstp]\)\.so\.0/libxc\1.so.0/g' "$1/libuc$letter.so.0" \
            >"$2/libxc$letter.so.0"
    done
}

# opened LIBRARY=gpushm|other...: open_libraries with them. Without the CUDA modules of a UCX. $brought:
# the folder with other libraries that a wheel brings, which copies of its UCX do not find.
brought=
opened() {
    gpushm UCX_MODULES=^cuda \
        LD_LIBRARY_PATH="$work/renamed:${brought:+$brought:}$LD_LIBRARY_PATH" "$open" "$@"
}

rename_ucx "$ucx" "$work/renamed"
renamed=$work/renamed/libxcp.so.0
second='serves the UCX at .*, not also that at .*: use one UCX in a process; UCX goes on without it'
try "UCX opened by the program" 0 0 '' opened "$ucx/libucp.so.0=gpushm"
try "UCX under other names" 0 0 '' opened "$renamed=gpushm"
try "two UCX" 0 1 "$second" opened "$ucx/libucp.so.0=gpushm" "$renamed=other"
try "two UCX, the other one first" 0 1 "$second" opened "$renamed=gpushm" "$ucx/libucp.so.0=other"
# The preload library is not in the namespace.
try "a second UCX in a namespace" 0 0 '' \
    opened "$ucx/libucp.so.0=gpushm" "namespace:$ucx/libucp.so.0=other"
# Those that contrib/check has downloaded.
for wheel in "${srcdir:-.}"/build/wheels/libucx-*/libucx/lib; do
    version=${wheel%/libucx/lib}
    version=${version##*/}
    if [ "$(realpath "$wheel")" = "$(realpath "$ucx")" ] || ! [ -e "$wheel/libucp.so.0" ]; then
        skip "two UCX, one of a wheel" "none is unpacked in build/wheels"
        continue
    fi
    rename_ucx "$wheel" "$work/renamed"
    brought=$(find "$wheel/../.." -maxdepth 1 -name '*.libs')
    try "$version" 0 0 '' opened "$wheel/libucp.so.0=gpushm"
    try "$version beside another UCX" 0 1 "$second" \
        opened "$ucx/libucp.so.0=gpushm" "$renamed=other"
    try "$version before another UCX" 0 1 "$second" \
        opened "$renamed=gpushm" "$ucx/libucp.so.0=other"
    case $version in
    *-1.2[2-9].*)
        try "$version in a namespace, beside another UCX" 0 0 '' env UCX_PLUGIN_PATH="$plugins" \
            UCX_MODULES=^cuda "$open" "$ucx/libucp.so.0=other" \
            "namespace:$wheel/libucp.so.0=gpushm"
        ;;
    esac
done

# The installation
mkdir "$work/incomplete" "$work/damaged"
cp "$preload" "$work/incomplete"
cp "$preload" "$work/damaged"
echo 'not a library' >"$work/damaged/libuct_gpushm.so.0"
try "plugin missing" 0 2 'libuct_gpushm.so.0: .*UCX goes on without gpushm: install gpushm again' \
    env LD_PRELOAD="$work/incomplete/libgpushm_preload.so" $host
try "plugin damaged" 0 2 'libuct_gpushm.so.0: .*UCX goes on without gpushm: install gpushm again' \
    env LD_PRELOAD="$work/damaged/libgpushm_preload.so" $host
try "no UCX in the program" 0 0 '' gpushm sh -c 'ls / | cat >/dev/null'

# The CUDA driver
if ldconfig -p 2>/dev/null | grep -q libcuda.so.1; then
    skip "no driver" "this machine has one"
else
    LD_LIBRARY_PATH=$(without_driver)
    export LD_LIBRARY_PATH
    try "no driver" 0 0 '' gpushm UCX_TLS=gpushm $host
    if command -v ucx_info >/dev/null; then
        try "no driver, nothing is detected" 1 0 '' sh -c \
            "LD_PRELOAD=$preload ucx_info -d | grep 'Memory domain: gpucopy'"
        try "no driver, the transport is there" 0 0 '' sh -c \
            "LD_PRELOAD=$preload ucx_info -d | grep 'Device: gpushm' >/dev/null"
    fi
    LD_LIBRARY_PATH=$caller_path
fi
try "driver without a function" 0 2 'libcuda.so.1 has no cuMemHostRegister_v2: .* update' \
    stand_in STAND_IN_HIDES=cuMemHostRegister_v2 UCX_TLS=gpushm $host
try "driver without a GPU" 0 0 '' gpushm SIMCUDA_DEVICES=0 UCX_TLS=gpushm $host
try "driver that does not initialise" 0 0 '' gpushm SIMCUDA_FAIL=cuInit:1:999 UCX_TLS=gpushm $host

# Memory and limits
try "page-locking refused" 0 2 'cannot page-lock .*raise the locked-memory limit (ulimit -l)' \
    gpushm SIMCUDA_MAX_PINNED_BYTES=100000 UCX_TLS=gpushm $device
try "page-locking turned off" 0 0 '' gpushm UCX_GPUSHM_PIN=n UCX_TLS=gpushm $device
try "no locked memory for a driver that needs none" 0 0 '' \
    sh -c "ulimit -l 0; LD_PRELOAD=$preload UCX_TLS=gpushm $device"
for size in 900g inf auto; do
    try "no memory for a ring of $size" 0 2 'cannot .*UCX_GPUSHM_RING_SIZE' \
        gpushm UCX_GPUSHM_RING_LIMIT=inf UCX_GPUSHM_RING_SIZE=$size UCX_TLS=gpushm $device
done
try "no ring" 0 0 '' gpushm UCX_GPUSHM_RING_SIZE=0 UCX_TLS=gpushm $device
try "odd number of cells" 0 2 'UCX_GPUSHM_MAILBOX_CELLS=7 is not a power of two .*: 16 is used' \
    gpushm UCX_GPUSHM_MAILBOX_CELLS=7 UCX_TLS=gpushm $device
try "small file size" 0 2 'cannot reserve .*(File too large): .*ulimit -f' \
    sh -c "ulimit -f 100; LD_PRELOAD=$preload $host"
try "small address space" 0 some 'cannot map .*ulimit -v' \
    sh -c "ulimit -v 900000; LD_PRELOAD=$preload UCX_GPUSHM_CMA=n UCX_GPUSHM_RING_LIMIT=inf UCX_GPUSHM_RING_SIZE=700m $host"
if unshare -m true 2>/dev/null; then
    try "/dev/shm is full" 0 0 '' unshare -m sh -c \
        "mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero >/dev/shm/full &&
         LD_PRELOAD=$preload UCX_TLS=gpushm $device"
    try "no /dev/shm" 0 0 '' unshare -m sh -c \
        "mount -t tmpfs -o size=4k none /dev && test ! -e /dev/shm &&
         LD_PRELOAD=$preload UCX_TLS=gpushm $device"
else
    skip "/dev/shm" "no mount name space of one's own (needs root)"
fi

# Too few descriptors: whatever fails, it is said and nothing crashes.
for files in 10 12 14 16 20; do
    name="at most $files open files"
    sh -c "ulimit -n $files; LD_PRELOAD=$preload UCX_TLS=gpushm $host" >"$work/out" 2>&1
    status=$?
    [ $status -le 1 ] || fail "status $status"
    # UCX itself may crash here, and does so without gpushm too.
    if grep -q -e 'hangs' -e '/libuct_gpushm' "$work/out"; then
        fail "crash or hang"
    fi
    if [ $status -eq 1 ]; then
        grep -q -i -e 'ulimit -n' -e 'open files' "$work/out" || fail "no reason is said"
    fi
done

# New peers and what they need of a process that has few descriptors left.
for left in 0 1 4; do
    try "$left open files more when a peer connects" 0 0 '' \
        gpushm UCX_TLS=gpushm $peer few-descriptors --left=$left
done

# Peers
try "another version" 0 2 'runs another version of gpushm .*; install one version for both' \
    gpushm $peer foreign --what=version
try "another user, by the address" 0 2 'runs as user .*: UCX uses another transport.*; run both' \
    gpushm $peer foreign --what=user
if setpriv --reuid=65534 --clear-groups test -r "$preload" 2>/dev/null; then
    try "another user" 0 2 'runs as user .*: UCX uses another transport for it; run both as the same' \
        gpushm $host --user1=65534
    try "a process that others may not look into" 0 2 \
        'cannot open the memory of this process\|/proc does not let this process open' \
        setpriv --reuid=65534 --clear-groups env LD_PRELOAD="$preload" $host --hidden1=y
else
    skip "another user" "needs root, and a build directory that others may read"
fi

echo "$failures failed, $skipped skipped"
[ "$failures" -eq 0 ]
