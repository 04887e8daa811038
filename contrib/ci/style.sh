# SPDX-License-Identifier: BSD-3-Clause
# The steps of contrib/check that read the sources: how they are laid out, and what tools find in them.
# A tool that is not there is named in the line of the step, which then counts as skipped.

# version_14 TOOL: prints the name of the program. Another version formats otherwise and finds other things.
version_14() {
    local name
    for name in "$1-14" "$1"; do
        if [[ $("$name" --version 2>/dev/null) == *"version 14."* ]]; then
            say "$name"
            return 0
        fi
    done
    return 1
}

# files_named PATTERN...: files of the tree, by their names, a line each.
files_named() {
    local pattern
    local -a tests=()
    for pattern in "$@"; do tests+=(-o -name "$pattern"); done
    find src test contrib -type f \( "${tests[@]:1}" \) ! -name kernel_image.cpp | sort
}

check_format() {
    local program
    program=$(version_14 clang-format) || { missing+=" clang-format-14"; return 0; }
    files_named '*.cpp' '*.hpp' '*.h' '*.cu' | xargs "$program" --dry-run -Werror
}

# All shell scripts: those that are run, and those that others source, which bash reads.
check_scripts() {
    local -a run sourced
    is_there shellcheck || { missing+=" shellcheck"; return 0; }
    mapfile -t run < <(find .ci autogen.sh contrib src test -type f -exec grep -l -m 1 -E '^#!/bin/(ba)?sh' {} + | sort)
    mapfile -t sourced < <(files_named '*.sh' | xargs grep -L '^#!')
    shellcheck --severity=warning "${run[@]}" && shellcheck --severity=warning --shell=bash "${sourced[@]}"
}

check_spelling() {
    is_there codespell || { missing+=" codespell"; return 0; }
    codespell --ignore-words contrib/ci/spelling README NEWS ./*.md configure.ac Makefile.am doc src test contrib
}

# What the sources of src/ and test/ are compiled with, and names that some get from their makefiles.
tidy_flags() {
    say -std=c++17 -Wall -Wextra -DHAVE_CONFIG_H "-I$plain" "-I$source_dir/src" "-I$source_dir" \
        "-I$source_dir/test/gtest" -idirafter "$cuda_dir/include" "$(pkg-config --cflags gtest)" \
        -DOMPI_SKIP_MPICXX "$(mpicxx --showme:compile)" -DFAKE_MAJOR=1 -DFAKE_MINOR=18 '-DCALLER_DIR=""' \
        '-DGPUSHM_TEST_PLUGIN=""' '-DGPUSHM_PLUGIN_DIR=""'
}

# tidy: clang-tidy, with .clang-tidy, over the sources whose names it reads; of the rest of those in the tree
# abi/headers_test.cpp needs sources of UCX.
tidy() {
    local program
    program=$(version_14 clang-tidy) || { missing+=" clang-tidy-14"; return 0; }
    tidy_flags | tr ' ' '\n' >"$root/tmp/compile_flags.txt"
    grep -v -e abi/headers_test.cpp |
        xargs -r -n 4 -P "$jobs" "$program" -p "$root/tmp" --quiet 2> >(grep -v ' generated\.$' >&2)
}

all_sources() { files_named '*.cpp' | grep -E '^(src|test)/'; }

# What the working tree is compared with: the newest tag, the main branch, or the commit before this one.
last_release() {
    git describe --tags --abbrev=0 2>/dev/null || git rev-parse --verify --quiet origin/main ||
        git rev-parse --verify --quiet HEAD~1
}

# changed_sources BASE: of a header, the source of its name.
changed_sources() {
    git diff --name-only "$1" -- src test | sed -n 's/\.[ch]pp$/.cpp/p' | sort -u | grep -x -F -f <(all_sources)
}

# The first of them: a change of everything is for the step tidy. Tests are read only when they change: to read all of
# them takes as long as to read src/.
check_changes() {
    local base most=20
    local -a changed
    base=$(last_release) || { missing+=" git"; return 0; }
    mapfile -t changed < <(changed_sources "$base")
    say "${#changed[@]} sources have changed since $base"
    [ ${#changed[@]} -le $most ] || say "clang-tidy reads $most of them here; the step tidy reads all"
    tidy < <(printf '%s\n' "${changed[@]:0:$most}")
}

step_style() {
    local missing='' name failures=''
    cd "$source_dir"
    for name in format scripts spelling changes; do
        "check_$name" || failures+=" $name"
    done
    [ -z "$failures" ] || { say "failed:$failures"; return 1; }
    [ -z "$missing" ] || skip "not to be had:$missing (the others passed)"
}

step_tidy() {
    local missing=''
    cd "$source_dir"
    tidy < <(all_sources | grep '^src/')
    [ -z "$missing" ] || skip "not to be had:$missing"
}
