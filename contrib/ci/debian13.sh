# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check which runs contrib/quickstart on Debian 13 (g++ 14, UCX 1.18, Open MPI
# 5.0), in a chroot.

debian13_packages=g++,make,pkg-config,autoconf,automake,libtool,libhwloc-dev
debian13_packages+=,libucx-dev,ucx-utils,libopenmpi-dev,openmpi-bin
# For the step trixie, which has the same file system.
debian13_packages+=,$mpi_packages

step_debian13() {
    local dir=$root/tmp/debian13 kernel=--without-nvcc
    unpack_debian "$dir" trixie "$debian13_packages"
    mkdir -p "$dir/usr/local/cuda/include" "$dir/opt/gpushm"
    cp -L "$cuda_dir/include/cuda.h" "$dir/usr/local/cuda/include/"
    # There is no nvcc, so its product is taken there.
    if grep '^#define HAVE_KERNELS' "$plain/config.h"; then
        make -C "$plain" src/core/kernels/kernel_image.cpp
        cp "$plain/src/core/kernels/kernel_image.cpp" "$dir/opt/"
        kernel=--with-kernel-image=/opt/kernel_image.cpp
    fi
    copy_tree "$dir/opt/gpushm"
    in_chroot "$dir" bash /opt/gpushm/contrib/quickstart --simulated -- --enable-werror \
        "$kernel" CXXFLAGS=-O0
}
