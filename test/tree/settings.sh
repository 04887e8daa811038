#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# doc/user/settings.md has each option of the transport with its default, and no other. Checks the tree
# at $1, or this one.
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}" || exit 1
page=doc/user/settings.md

# Lines "NAME default".
in_code=$(sed -n 's/^ *{"\([A-Z_]*\)", "\([^"]*\)",$/\1 \2/p' src/uct_gpushm/*.cpp | sort)
# shellcheck disable=SC2016 # backquotes of Markdown
in_page=$(sed -n 's/^| `UCX_GPUSHM_\([A-Z_]*\)` | `\([^`]*\)` |.*/\1 \2/p' $page | sort)
[ -n "$in_code" ] && [ "$in_code" = "$in_page" ] && exit
echo "FAILED: src/uct_gpushm has these options:"
echo "$in_code"
echo "FAILED: $page has these:"
echo "$in_page"
exit 1
