# SPDX-License-Identifier: BSD-3-Clause
# The step of contrib/check which runs contrib/quickstart on Debian 13 (g++ 14, UCX 1.18, Open MPI
# 5.0), in a chroot made by mmdebstrap and kept in the user's cache.

debian13_packages=g++,make,pkg-config,autoconf,automake,libtool,libhwloc-dev
debian13_packages+=,libucx-dev,ucx-utils,libopenmpi-dev,openmpi-bin
debian13_cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpushm

# The archive and the options of apt of this machine, for mmdebstrap.
debian13_mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -E '/debian/?$' | head -n 1
}

debian13_apt_options() {
    apt-config dump 2>/dev/null |
        sed -n 's/^\(Acquire::\(http\|https\|Check-\|Retries\).*\);$/--aptopt=\1/p'
}

# Prints the path of an archive with the file system of a Debian 13 that has all that is needed.
debian13_archive() {
    local archive part
    local -a options
    archive=$debian13_cache/debian13-$(cksum <<<"$debian13_packages" | cut -d ' ' -f 1).tar
    if [ ! -s "$archive" ]; then
        need mmdebstrap >&2 || return 1
        mkdir -p "$debian13_cache"
        mapfile -t options < <(debian13_apt_options)
        part=$archive.$$
        # shellcheck disable=SC2046 # without a mirror there is no such argument
        if ! mmdebstrap --quiet --format=tar --variant=minbase "${options[@]}" \
            --include="$debian13_packages" trixie "$part" $(debian13_mirror) >&2; then
            rm -f "$part"
            return 1
        fi
        mv "$part" "$archive"
    fi
    say "$archive"
}

# in_chroot DIR CMD...: with /proc, /sys and /dev of this machine, mounted for the command only.
in_chroot() {
    local dir=$1
    shift
    # shellcheck disable=SC2016 # for the shell with its own mounts
    own_mounts sh -c 'dir=$0
        mount --bind "$dir" "$dir" && mount --make-private "$dir" || exit 1
        for mount in proc sys dev; do mount --rbind "/$mount" "$dir/$mount" || exit 1; done
        exec chroot "$dir" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"' \
        "$dir" "$@"
}

step_debian13() {
    local archive dir=$root/tmp/debian13
    [ "$(id -u)" = 0 ] || skip "needs root"
    own_mounts true 2>/dev/null || skip "needs the right to mount (unshare -m)"
    archive=$(debian13_archive) || skip "mmdebstrap did not work: $(tail -n 1 "$log")"
    mkdir -p "$dir"
    tar -C "$dir" --exclude='./dev/*' -xf "$archive"
    mkdir -p "$dir/usr/local/cuda/include" "$dir/opt/gpushm"
    cp -L "$cuda_dir/include/cuda.h" "$dir/usr/local/cuda/include/"
    # Without what autogen.sh makes: it is to be made by the Autotools of Debian 13.
    tar -C "$source_dir" --exclude-vcs --exclude=./build --exclude=./build-aux --exclude=./m4 \
        --exclude=./configure --exclude=./aclocal.m4 --exclude=./autom4te.cache -cf - . |
        tar -C "$dir/opt/gpushm" -xf -
    in_chroot "$dir" bash /opt/gpushm/contrib/quickstart --simulated --full -- --enable-werror
}
