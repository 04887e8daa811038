#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Every page of doc/design is in the table of doc/overview.md, every page of doc/decisions in its
# index. The classes that the overview and the pages of doc/design name are in the source. The
# overview has at most 200 lines, the glossary at most 40 words. Of the tree at $1, or of this one.
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}/doc" || exit 1

failed=0
fail() {
    echo "FAILED: $1"
    failed=1
}

# expect_linked PAGE INDEX TARGET
expect_linked() {
    grep -qF "($3)" "$2" || fail "doc/$2 has no link to doc/$1"
}

for page in design/*.md; do
    expect_linked "$page" overview.md "$page"
done
for page in decisions/*.md; do
    [ "$page" = decisions/README.md ] ||
        expect_linked "$page" decisions/README.md "${page#decisions/}"
done

# Names of several words in backquotes, such as `CopyEngine`.
for class in $(grep -ohE '`[A-Z][a-z]+([A-Z][a-z]+)+' overview.md design/*.md | tr -d '`' | sort -u); do
    grep -rqw "$class" ../src ../test ||
        fail "doc/overview.md or doc/design names $class, which is not in the source"
done

lines=$(wc -l <overview.md)
[ "$lines" -le 200 ] || fail "doc/overview.md has $lines lines, at most 200 are allowed"
rows=$(grep -c '^|' glossary.md)
[ "$rows" -le 42 ] || fail "doc/glossary.md has $((rows - 2)) words, at most 40 are allowed"
exit "$failed"
