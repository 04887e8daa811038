#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Compiles the kernels and writes them as the arrays of src/core/kernels/kernel_image.hpp. For make:
#   kernel_image.sh KERNELS.cu OUTPUT.cpp NVCC [OPTION...]
set -eu
export LC_ALL=C
kernel=$1 output=$2
shift 2
nvcc=$1

# Machine code for one of them runs on GPUs of the same major number and a higher minor one too.
wanted="70 75 80 86 89 90 100 103 120"
# PTX ISA 7.4 is that of CUDA 11.4, the oldest that gpushm works with (docs.nvidia.com, PTX ISA,
# release notes).
ptx_versions="7.4 7.5 7.6 7.7 7.8 8.0 8.1 8.2 8.3 8.4 8.5 8.6 8.7 8.8 9.0"

die() { echo "kernel_image.sh: $*" >&2; exit 1; }

work=$output.tmp
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$work"
mkdir -p "$work"

supported=" $("$nvcc" --list-gpu-code | tr -d '\r' | tr '\n' ' ') "
lowest="" newest="" code="" names=""
for number in $wanted; do
    case $supported in
    *" sm_$number "*)
        code="$code -gencode arch=compute_$number,code=sm_$number"
        names="$names sm_$number"
        lowest=${lowest:-$number}
        newest=$number
        ;;
    esac
done
[ -n "$lowest" ] || die "$nvcc compiles for none of: $wanted"

# Uncompressed, since an older driver does not know every method of compression.
# shellcheck disable=SC2086 # options
"$@" --no-compress -fatbin $code -o "$work/fatbin" "$kernel"
"$@" -ptx -arch="compute_$lowest" -o "$work/new.ptx" "$kernel"

# nvcc names its own PTX ISA whatever the code needs, and a driver refuses a newer one than it knows:
# the oldest that the assembler accepts for this code is named instead.
own_version=$(sed -n 's/^\.version *//p' "$work/new.ptx")
for ptx_version in $ptx_versions "$own_version"; do
    sed "s/^\.version .*/.version $ptx_version/" "$work/new.ptx" >"$work/old.ptx"
    "$nvcc" -cubin -arch="sm_$newest" -o "$work/cubin" "$work/old.ptx" >"$work/messages" 2>&1 && break
    if [ "$ptx_version" = "$own_version" ]; then
        cat "$work/messages" >&2
        die "the PTX of $kernel does not assemble"
    fi
done
printf '\0' >>"$work/old.ptx"

bytes() { od -An -v -tx1 "$1" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'; }

{
    cat <<EOF
// Made by src/core/kernels/kernel_image.sh from $(basename "$kernel").
// $("$nvcc" --version | grep release)
// machine code:$names
// PTX ISA $ptx_version: sm_$lowest
#include "core/kernels/kernel_image.hpp"

namespace gpushm {
namespace {

alignas(16) const unsigned char fatbin[] = {
EOF
    bytes "$work/fatbin"
    cat <<'EOF'
};

alignas(16) const unsigned char ptx[] = {
EOF
    bytes "$work/old.ptx"
    cat <<'EOF'
};

}  // namespace

KernelImage kernel_fatbin() { return {fatbin, sizeof(fatbin)}; }

KernelImage kernel_ptx() { return {ptx, sizeof(ptx)}; }

}  // namespace gpushm
EOF
} >"$work/cpp"
mv "$work/cpp" "$output"
