# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check with several hosts, as far as one machine can show them.

step_two_hosts() {
    local name dir
    local -a libraries=()
    unshare --net --pid --ipc --uts --mount --fork true 2>/dev/null ||
        skip "needs the right to make namespaces (unshare --net --pid)"
    need iproute2 || skip "needs the program ip"
    made test/scale/all_to_all test/simcuda/libcuda.la
    made test/mpi/operations
    for name in libucx-cu12==1.18.1 libucx-cu12==1.22.0; do
        dir=$(fetch_wheel "$name") && libraries+=("$(wheel_prefix "$dir")/lib")
    done
    unshare --net --mount bash "$source_dir/contrib/ci/two_hosts.sh" "$prefix" "$plain" \
        "$root/tmp" "${libraries[@]}"
    [ ${#libraries[@]} = 2 ] || skip "UCX of the package index could not be downloaded"
}
