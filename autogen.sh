#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Makes ./configure from configure.ac; needs autoconf, automake, libtool and pkg-config.
set -e
cd "$(dirname "$0")"
for tool in autoreconf automake libtoolize pkg-config; do
    command -v "$tool" >/dev/null || {
        echo "autogen.sh: $tool is missing: install the packages autoconf, automake, libtool and pkg-config" >&2
        exit 1
    }
done
exec autoreconf --install --warnings=all,no-portability "$@"
