# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check which runs the two commands of README in a Debian 12 that has nothing but its
# smallest set of packages: a machine that has everything does not show what they lack.

# Whatever of this machine reaches the network: variables of proxies, and certificates, for one may stand between.
bare_network() {
    env | grep -i -E '^(https?|no)_proxy=' || true
    say PIP_CERT=/opt/certificates.crt
}

# in_bare CMD...: as root, with this machine's way to the network.
in_bare() {
    local -a network
    mapfile -t network < <(bare_network)
    in_chroot "$root/tmp/bare" env DEBIAN_FRONTEND=noninteractive "${network[@]}" "$@"
}

# as_bare_user COMMAND: as a user who may install nothing, beside the tree.
as_bare_user() { in_bare su user -c "cd && $1"; }

prepare_bare() {
    local dir=$root/tmp/bare
    unpack_debian "$dir" bookworm ''
    cp -L /etc/resolv.conf "$dir/etc/resolv.conf"
    cp -L /etc/ssl/certs/ca-certificates.crt "$dir/opt/certificates.crt"
    [ ! -r /etc/pip.conf ] || cp /etc/pip.conf "$dir/etc/pip.conf"
    in_bare useradd -m user
    copy_tree "$dir/home/user/gpushm"
    in_bare chown -R user: /home/user/gpushm
}

# quickstart of a user to whom packages are missing: the command that it prints is all that he needs.
bare_user() {
    local output=$root/tmp/output command
    absent as_bare_user "gpushm/contrib/quickstart" >"$output" 2>&1
    cat "$output"
    grep 'Then run me again' "$output"
    command=$(sed -n "s/^ *su -c '\(.*\)'$/\1/p" "$output")
    in_bare sh -c "$command"
    as_bare_user gpushm/contrib/quickstart | tee "$output"
    # And what it says last is to be done.
    command=$(tail -n 1 "$output")
    as_bare_user "${command%PROGRAM} gpushm/build/quickstart/test/mpi/pairs --quick"
}

# The same as root, in a tree that cannot be written to.
bare_root() {
    local output=$root/tmp/output command
    # shellcheck disable=SC2016 # for the shell in the chroot
    local read_only='mount --bind /home/user/gpushm /home/user/gpushm &&
        mount -o remount,bind,ro /home/user/gpushm && exec /home/user/gpushm/contrib/"$@"'
    in_bare sh -c 'rm /home/user/gpushm/configure && mkdir /opt/build &&
        mv /home/user/gpushm/build/cuda /opt/build && rm -r /home/user/gpushm/build'
    in_bare sh -c "$read_only" sh quickstart --build /opt/build -- CXXFLAGS=-O0 --without-nvcc | tee "$output"
    command=$(tail -n 1 "$output")
    in_bare sh -c "${command%PROGRAM} /opt/build/quickstart/test/mpi/pairs --quick"
    # Not optimised: no test has the time to end.
    in_bare env CXXFLAGS=-O0 sh -c "$read_only" sh check --build /opt/build --start 15 | tee "$output"
    grep -E '^[0-9]+ passed, 0 failed' "$output"
}

step_bare() {
    prepare_bare
    bare_user
    bare_root
}
