#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The documents name files that exist: each relative link of a *.md file, also the heading behind
# a "#", and each file of this tree that README names. Checks the tree at $1, or this one.
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# exists FILE: a name that begins with a dot is not in an archive of the sources, so it is looked for
# only in a repository.
exists() {
    case $1 in
    .[a-z]* | */.[a-z]*) [ -e "$1" ] || [ ! -e .git ] ;;
    *) [ -e "$1" ] ;;
    esac
}

# links FILE: a line "number target" for each link outside of code.
links() {
    awk '
        /^ *```/ { code = !code; next }
        code { next }
        {
            gsub(/`[^`]*`/, "")
            while (match($0, /\]\([^)]*\)/)) {
                print FNR, substr($0, RSTART + 2, RLENGTH - 3)
                $0 = substr($0, RSTART + RLENGTH)
            }
            if (match($0, /^\[[^]]*\]: */)) {
                print FNR, substr($0, RLENGTH + 1)
            }
        }' "$1"
}

# anchors FILE: what a link puts behind "#" to reach each heading.
anchors() {
    awk '
        /^ *```/ { code = !code; next }
        !code && /^#+ / {
            sub(/^#+ +/, "")
            $0 = tolower($0)
            gsub(/[^a-z0-9_ -]/, "")
            gsub(/ /, "-")
            print
        }' "$1"
}

# check_link FILE LINE TARGET
check_link() {
    case $3 in
    *://* | mailto:*) return ;;
    esac
    path=${3%%#*}
    anchor=${3#"$path"}
    linked=$1
    [ -z "$path" ] || linked=$(dirname "$1")/$path
    if ! exists "$linked"; then
        echo "FAILED: $1:$2: $3: there is no such file"
    elif [ -n "$anchor" ] && ! anchors "$linked" | grep -qxF -e "${anchor#?}"; then
        echo "FAILED: $1:$2: $3: there is no such heading"
    fi
}

{
    find . -maxdepth 1 -name '*.md'
    find contrib doc src test -name '*.md'
} | sed 's|^\./||' | sort >"$work/files"
while read -r file; do
    links "$file" | while read -r line target; do
        check_link "$file" "$line" "$target"
    done
done <"$work/files" >"$work/failures"

# README is plain text: a word that begins with a folder of this tree names a file. A program is made
# of a source of its name.
for word in $(tr -s ' \t"(),;:' '\n' <README | sed 's/\.$//' | sort -u); do
    case $word in
    contrib/* | doc/* | src/* | test/* | .ci/* | [A-Z]*.md | LICENSE | NEWS)
        exists "$word" || exists "$word.cpp" ||
            echo "FAILED: README: $word: there is no such file"
        ;;
    esac
done >>"$work/failures"

cat "$work/failures"
[ -s "$work/files" ] || { echo "FAILED: there is no *.md"; exit 1; }
[ ! -s "$work/failures" ]
