#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes ./configure from configure.ac; needs autoconf, automake and libtool.
set -e
cd "$(dirname "$0")"
for tool in autoreconf automake libtoolize; do
    command -v "$tool" >/dev/null || {
        echo "autogen.sh: $tool is missing: install the packages autoconf, automake and libtool" >&2
        exit 1
    }
done
exec autoreconf --install --warnings=all,no-portability "$@"
