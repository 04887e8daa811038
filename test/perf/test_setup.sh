# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=sh disable=SC2034 # the files that read this one use the variables
# The beginning of the tests in this folder. `.` reads it in the build folder.
build=$PWD
here=$(cd "$(dirname "$0")" && pwd)
programs=$build/test/perf
run="$build/gpushm-run --plugin-dir=$build/test/ucp/plugins"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

# fail WHAT: with what the last command has printed into $work/out
fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$work/out" | tail -150  # a row tells why it failed
    failures=$((failures + 1))
}

command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
unset LD_PRELOAD UCX_PLUGIN_PATH UCX_MODULES UCX_TLS
export UCX_WARN_UNUSED_ENV_VARS=n
