#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Each source includes headers of its own folder and of those above it in src/layers, and
# doc/overview.md has the table of src/layers. Of the tree at $1, or of this one.
here=$(cd "$(dirname "$0")" && pwd)
src=${1:-$here/../..}/src

cd "$src" || exit 1
find . -name '*.[ch]pp' -o -name '*.cu' | sed 's|^\./||' | sort | xargs awk '
    FILENAME == "layers" {
        if ($1 != "" && $1 !~ /^#/) {
            rank[$1] = ++count
        }
        next
    }
    FNR == 1 {
        folder = FILENAME
        sub("/[^/]*$", "", folder)
        if (!(folder in rank)) {
            print "FAILED: src/layers does not have " folder ", where " FILENAME " is"
            failed = 1
        }
    }
    /^#include "[a-z_]*\// {
        included = $2
        gsub("\"", "", included)
        sub("/[^/]*$", "", included)
        if ((included in rank) && rank[included] > rank[folder]) {
            print "FAILED: " FILENAME ":" FNR " includes " $2 ", but src/layers has " folder " above " included
            failed = 1
        }
    }
    END {
        if (count == 0) {
            print "FAILED: src/layers has no folder"
        }
        exit failed || count == 0
    }' layers || exit 1

# The rows of the table, in their order.
expected=$(sed -n 's/^\([a-z][a-z_\/]*\)  *\(.*\)/| `src\/\1` | \2 |/p' layers)
written=$(sed -n '/^| `src\/[a-z_\/]*` | [^|]* |$/p' ../doc/overview.md)
[ "$expected" = "$written" ] || {
    echo "FAILED: the table of folders in doc/overview.md is not this one:"
    echo "$expected"
    exit 1
}
