# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check that holds the descriptions of UCX (src/uct_gpushm/abi/layout.cpp)
# against the headers of UCX's sources: source packages of Debian, and what lies beside them.

ucx_sources=$chroot_cache/ucx

# fetch_ucx_source SUITE: gets the source of the UCX in that release of Debian into a folder of that name, where
# it is kept for the next time. apt-get has lists of its own for it: those of this machine
# stay as they are.
fetch_ucx_source() {
    local dir=$ucx_sources/$1 lists=$ucx_sources/$1.apt mirror
    local part=$dir.part
    local -a apt=(apt-get -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false
        -o Dir::Etc::SourceList="$lists/sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$lists/lists" -o Dir::Cache="$lists/cache")
    if [ ! -d "$dir" ]; then
        mirror=$(debian_mirror)
        [ -n "$mirror" ] || return 1
        rm -rf "$part" "$lists"
        mkdir -p "$part" "$lists/lists/partial" "$lists/cache"
        say "deb-src $mirror $1 main" >"$lists/sources"
        logged "${apt[@]}" update && (cd "$part" && logged "${apt[@]}" source ucx) && mv "$part"/ucx-*/ "$dir"
        rm -rf "$part" "$lists"
    fi
    [ -d "$dir" ]
}

# compare_headers SOURCE DIR: builds the comparison in DIR and runs it.
compare_headers() {
    local source=$1 dir=$2
    local api=$source/src/uct/api
    mkdir -p "$dir/uct/api"
    # UCX's configure makes version.h. What else it decides does not change the structs (but for
    # --enable-stats), so these headers only need to compile. Valgrind's need not be there.
    sed -n 's/^define(\[ucx_ver_\(major\|minor\|patch\)\], *\([0-9]*\)).*/s,@\U\1_VERSION@,\2,/p' \
        "$source/configure.ac" >"$dir/version.sed"
    sed -f "$dir/version.sed" "$api/version.h.in" >"$dir/uct/api/version.h"
    sed -nE 's/^ +(UCT_[A-Z0-9_]+) +=.*/{"\1", static_cast<uint64_t>(\1)},/p' \
        "$api/uct.h" "$api/v2/uct_v2.h" >"$dir/ucx_constants.inc"
    # shellcheck disable=SC2046 # options
    g++ -std=c++17 -D_GNU_SOURCE -DENABLE_PARAMS_CHECK=0 -DENABLE_DEBUG_DATA=0 -DNVALGRIND \
        -I"$dir" -I"$source/src" -I"$source_dir/src" -o "$dir/compare" \
        "$source_dir/test/gtest/uct_gpushm/abi/headers_test.cpp" \
        "$source_dir/src/uct_gpushm/abi/layout.cpp" $(pkg-config --cflags --libs gtest_main) &&
        "$dir/compare" --gtest_brief=1
}

step_headers() {
    local suite source name missing='' failures='' compared=0
    need dpkg-dev || say "sources of Debian cannot be unpacked"
    for suite in bookworm trixie sid; do
        fetch_ucx_source $suite || missing+=" $suite"
    done
    for source in "$ucx_sources"/*/; do
        [ -r "$source/src/uct/api/uct.h" ] || continue
        name=$(basename "$source")
        say "---- $name"
        compared=$((compared + 1))
        compare_headers "$source" "$root/tmp/$name" || failures+=" $name"
    done
    [ -z "$failures" ] || { say "failed:$failures"; return 1; }
    [ -z "$missing" ] ||
        skip "$compared sources passed; apt cannot download the source package ucx of:$missing. Unpack UCX's sources" \
            "(apt-get source ucx there, or a release from github.com/openucx/ucx) as $ucx_sources/NAME;" \
            "contrib/check headers then takes them"
}
