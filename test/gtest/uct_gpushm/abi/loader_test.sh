#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The preload library and the plugin in an unmodified UCX, by its own ucx_info. Run in the build
# folder. Status 77: skipped.
command -v ucx_info >/dev/null || {
    echo "SKIP: ucx_info is not installed (Debian package: ucx-utils)"
    exit 77
}
build=$(pwd)
if grep -q -e libasan -e libtsan -e libubsan src/ucp_hooks/.libs/libgpushm_preload.so; then
    echo "SKIP: ucx_info cannot load libraries built with a sanitizer"
    exit 77
fi

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
install_in() {
    mkdir -p "$1"
    ln -s "$build"/src/ucp_hooks/.libs/libgpushm_preload.so \
        "$build"/src/ucp_hooks/.libs/libucx_perftest_gpushm.so.0 "$1"
}
install_in "$folder/full"
ln -s "$build"/src/uct_gpushm/.libs/libuct_gpushm.so.0 "$folder/full"
ln -s libuct_gpushm.so.0 "$folder/full/libuct_gpushm.so"
install_in "$folder/without_plugin"
preload=$folder/full/libgpushm_preload.so
unset UCX_TLS UCX_LOG_LEVEL UCX_PLUGIN_PATH

failures=0
expect() { # what it shows, expected, found
    if [ "$2" = "$3" ]; then
        echo "ok: $1"
    else
        echo "FAILED: $1: expected '$2', found '$3'"
        failures=$((failures + 1))
    fi
}
count() { # of lines in standard input with this text
    grep -c -e "$1"
}
info() { # ucx_info with the preload library
    LD_PRELOAD=$preload ucx_info "$@" 2>&1
}

expect "the component is not there by itself" 0 "$(ucx_info -d 2>&1 | count 'Component: gpushm')"
domains=$(info -d | count 'Component: gpushm')
expect "the preload library brings the component" yes "$([ "$domains" -ge 1 ] && echo yes)"
expect "both ways of loading register it once" "$domains" \
    "$(UCX_PLUGIN_PATH=$folder/full info -d | count 'Component: gpushm')"
expect "its options are listed" yes \
    "$([ "$(info -c | count '^UCX_GPUSHM_')" -ge 3 ] && echo yes)"
# posix takes 4.2 MB of /dev/shm, and gpushm carries what it would carry; who asks for it gets it.
expect "UCX's posix is left out" 0 "$(info -d | count 'Transport: posix')"
expect "also where the user excludes another one" 0 "$(UCX_TLS=^tcp info -d | count 'Transport: posix')"
for transports in posix,gpushm sm,self ^gpushm; do
    expect "posix is there with UCX_TLS=$transports" 1 "$(UCX_TLS=$transports info -d | count 'Transport: posix')"
done
# ucx_info has a copy of UCX's variables (R_X86_64_COPY), which is the one that counts.
expect "it logs at UCX's level" 1 \
    "$(UCX_LOG_LEVEL=debug info -d | count 'gpushm .* is registered in UCX')"
expect "it is silent otherwise" 0 \
    "$(info -d | count 'is registered in UCX')"
expect "a program without UCX sees nothing" "" "$(LD_PRELOAD=$preload env true 2>&1)"

found=$(LD_PRELOAD=$folder/without_plugin/libgpushm_preload.so ucx_info -d 2>&1)
expect "a missing plugin is one line" 1 "$(echo "$found" | count 'UCX goes on without gpushm')"
expect "and UCX goes on" yes "$(echo "$found" | grep -q 'Component: self' && echo yes)"

has_driver() { PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libcuda\.so\.1'; }
simulated=$build/test/simcuda/.libs

# In one process (-l): without a terminal the ucx_perftest of Debian 13 is an MPI program
# (perftest.c), and it looks at the memory type only when it runs (lib/libperf.c, UCX 1.18).
perftest() { # a memory type and other options: prints "runs" or "refuses", or what it says
    said=$(LD_PRELOAD=$preload timeout 60 ucx_perftest -l -t tag_lat -n 10 -w 0 -m "$@" \
        </dev/null 2>&1)
    case $said in
    *[Uu]"nsupported memory type"*) echo refuses ;;
    *Final:*) echo runs ;;
    *) echo "$said" ;;
    esac
}
for type in cuda cuda-managed; do
    expect "ucx_perftest runs with $type where there is a driver" runs \
        "$(LD_LIBRARY_PATH=$simulated perftest $type)"
    if ! has_driver; then
        expect "and refuses it where there is none" refuses "$(LD_LIBRARY_PATH='' perftest $type)"
    fi
done
# A list of buffers; UCX before 1.16 takes it for host memory, and must not copy it (cost_model.hpp).
for protocols in n y; do
    expect "ucx_perftest runs with a list of GPU buffers (UCX_PROTO_ENABLE=$protocols)" runs \
        "$(LD_LIBRARY_PATH=$simulated UCX_TLS=gpushm UCX_PROTO_ENABLE=$protocols \
            perftest cuda -D iov -s 16,48,8192)"
done

choices() { # of UCP, between protocols
    UCX_PROTO_INFO=y LD_PRELOAD=$preload timeout 60 ucx_perftest -l -t tag_lat -n 10 -w 0 </dev/null 2>&1
}

# "Zero-copy" is a copy too, and registers the buffer before (cost_model.cpp). Open MPI sends no lists of buffers; it
# need not be initialised when its process uses UCX.
mpi=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p | sed -n 's/.*libmpi\.so\.[0-9]* .*=> //p' | head -n 1)
if [ -n "$mpi" ]; then
    expect "small messages of host memory are copied beside a GPU (Open MPI, first protocols)" 1 \
        "$(LD_LIBRARY_PATH=$simulated UCX_TLS=gpushm UCX_PROTO_ENABLE=n LD_PRELOAD="$preload $mpi" \
            ucx_info -e -u t -D shm 2>&1 |
            count 'tag_send: .*egr/short>[.0-9]*<egr/bcopy>[.0-9]*<rndv>')"
fi
if ! has_driver; then
    expect "small messages of host memory are copied (first protocols)" 1 \
        "$(LD_LIBRARY_PATH='' UCX_TLS=gpushm UCX_PROTO_ENABLE=n info -e -u t -D shm |
            count 'tag_send: .*egr/short>[.0-9]*<egr/bcopy>[.0-9]*<rndv>')"
fi
expect "small messages of host memory are copied (second protocols)" yes \
    "$(UCX_TLS=gpushm UCX_PROTO_ENABLE=y choices |
        grep -q ' 105[.][.][0-9]\{4,\} .*eager copy-in copy-out' && echo yes)"

# UCX's own estimate of copies would end them at 10 KiB (cost_model.cpp).
minor=$(ucx_info -v | sed -n 's/.*ersion 1[.]\([0-9]*\)[.].*/\1/p' | head -n 1)
if ! has_driver && [ "$minor" -ge 16 ]; then
    begin=$(LD_LIBRARY_PATH='' UCX_TLS=gpushm choices |
        sed -n 's/.* \([0-9]*\)[.][.]inf .*rendezvous.*/\1/p' | sort -n | head -n 1)
    expect "messages of 32 KiB of host memory are copied, those of 64 KiB are not" yes \
        "$([ "${begin:-0}" -gt 32768 ] && [ "$begin" -le 65536 ] && echo yes)"
fi

# Beside another transport with get_zcopy UCP gives each a part, unless one is much faster (cost_model.cpp).
megabytes_of() { # a transport: what it says of its bandwidth
    UCX_PROTO_ENABLE=n info -d | sed -n "/Transport: $1\$/,/bandwidth/s/.* + \\([0-9]*\\)[.].*MB.*/\\1/p" | head -n 1
}
cma=$(megabytes_of cma)
if [ -n "$cma" ]; then
    expect "cma does no part of large messages (first protocols)" yes \
        "$([ "$(megabytes_of gpushm)" -gt $((4 * cma)) ] && echo yes)"
    expect "cma does no part of large messages (second protocols)" yes \
        "$(UCX_TLS=gpushm,cma UCX_PROTO_ENABLE=y choices |
            grep -q 'rendezvous zero-copy read.* | gpushm/gpushm *|' && echo yes)"
fi

# Of a program that its user cannot read the kernel shows nothing to others; root reads all.
as_user() { # in a shell: setpriv itself keeps root's rights until it starts something
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'exec "$@"' sh "$@"
    else
        "$@"
    fi
}
cp "$(command -v ucx_perftest)" "$folder/unreadable"
chmod 0111 "$folder/unreadable"
chmod a+rx "$folder"
pair() { # two processes of it, the second one when the first one listens: what they say
    port=$((20000 + $$ % 12000))
    no_mpi=
    ! ucx_perftest -h 2>&1 | grep -q -e ' -P ' || no_mpi='-P 0'
    as_user env LD_PRELOAD="$preload" timeout 60 "$folder/unreadable" $no_mpi -p $port -n 10 </dev/null 2>&1 &
    until ! kill -0 $! || as_user env LD_PRELOAD="$preload" timeout 60 "$folder/unreadable" $no_mpi localhost \
        -p $port -t tag_lat -n 10 -w 0 </dev/null 2>&1; do
        sleep 0.1
    done
    wait
}
if as_user test -r "$preload"; then
    expect "a program that cannot be read is told what to do" yes \
        "$([ "$(pair | count "may not read the program: chmod a+r $folder/unreadable")" -ge 1 ] && echo yes)"
fi

if command -v readelf >/dev/null; then
    for library in "$folder"/full/*.so*; do
        needed=$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
        expect "$(basename "$library") needs no UCX, CUDA or C++ library" "" \
            "$(echo "$needed" | grep -E 'libuc[pmst]|libcuda|libstdc|libgcc')"
    done
fi
exit "$((failures != 0))"
