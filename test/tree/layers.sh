#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks the tree at $1, or this one:
# - Each source includes headers of its own folder and of folders above it in src/layers.
# - No unit includes itself by way of others; a header and the source of the same name are one unit.
# - doc/architecture.md has the table of src/layers.
here=$(cd "$(dirname "$0")" && pwd)
src=${1:-$here/../..}/src

# Units that include each other and have not been separated yet, one knot a line. A knot that is gone
# fails the test until its line is removed.
known_knots='core/transport/link core/transport/port
openmpi/one_sided/whole_keys openmpi/one_sided/whole_region
uct_gpushm/domains uct_gpushm/memory_copy_domain
uct_gpushm/endpoint uct_gpushm/shared_memory_interface'

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

# Prints one line for each knot: the units that include each other, directly or by way of others.
knots=$(find . -name '*.[ch]pp' -o -name '*.cu' | sed 's|^\./||' | sort | xargs awk '
    function reaches(from, to,    i, next_unit, count, queue, seen, at) {
        queue[count = 1] = from
        for (at = 1; at <= count; ++at) {
            for (i = 1; i <= degree[queue[at]]; ++i) {
                next_unit = edge[queue[at], i]
                if (next_unit == to) {
                    return 1
                }
                if (!(next_unit in seen)) {
                    seen[next_unit]
                    queue[++count] = next_unit
                }
            }
        }
        return 0
    }
    FNR == 1 {
        unit = FILENAME
        sub("\\.[^.]*$", "", unit)
        if (!(unit in degree)) {
            degree[unit] = 0
            units[++unit_count] = unit
        }
    }
    /^#include "[a-z_]*\// {
        included = $2
        gsub("\"", "", included)
        sub("\\.[^.]*$", "", included)
        if (included != unit && !((unit, included) in known)) {
            known[unit, included]
            edge[unit, ++degree[unit]] = included
        }
    }
    END {
        for (u = 1; u <= unit_count; ++u) {
            if (units[u] in told || !reaches(units[u], units[u])) {
                continue
            }
            line = units[u]
            for (v = u + 1; v <= unit_count; ++v) {
                if (reaches(units[u], units[v]) && reaches(units[v], units[u])) {
                    line = line " " units[v]
                    told[units[v]]
                }
            }
            print line
        }
    }')
[ "$knots" = "$known_knots" ] || {
    echo "FAILED: these units include each other, with a header and its source as one unit:"
    echo "$knots"
    echo "known_knots in test/tree/layers.sh has:"
    echo "$known_knots"
    exit 1
}

# The rows of the table, in their order.
expected=$(sed -n 's/^\([a-z][a-z_\/]*\)  *\(.*\)/| `src\/\1` | \2 |/p' layers)
written=$(sed -n '/^| `src\/[a-z_\/]*` | [^|]* |$/p' ../doc/architecture.md)
[ "$expected" = "$written" ] || {
    echo "FAILED: the table of folders in doc/architecture.md is not this one:"
    echo "$expected"
    exit 1
}
