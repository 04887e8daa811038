# SPDX-License-Identifier: BSD-3-Clause
# Root file systems of other Debian releases, made by mmdebstrap and kept in the user's cache, for
# steps of contrib/check. To be sourced after lib.sh. Commands that fail write to $log.

chroot_cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpushm

# own_mounts CMD...: with a mount table of its own. In a chroot whose root is no mount point unshare
# cannot make everything private (mount_namespaces(7)); the command then has to do that itself.
own_mounts() {
    if unshare -m true 2>/dev/null; then
        unshare -m "$@"
    else
        unshare -m --propagation unchanged "$@"
    fi
}

# The archive and the options of apt of this machine, for mmdebstrap.
debian_mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -E '/debian/?$' | head -n 1
}

debian_apt_options() {
    apt-config dump 2>/dev/null |
        sed -n 's/^\(Acquire::\(http\|https\|Check-\|Retries\).*\);$/--aptopt=\1/p'
}

# debian_archive SUITE PACKAGES [OPTIONS...]: prints the path of an archive with the file system of
# that Debian and the packages (a list with commas); OPTIONS go to mmdebstrap.
debian_archive() {
    local suite=$1 packages=$2 archive part
    local -a options
    shift 2
    archive=$chroot_cache/$suite-$(cksum <<<"$packages" | cut -d ' ' -f 1).tar
    if [ ! -s "$archive" ]; then
        need mmdebstrap >&2 || return 1
        mkdir -p "$chroot_cache"
        mapfile -t options < <(debian_apt_options)
        part=$archive.$$
        # shellcheck disable=SC2046 # without a mirror there is no such argument
        if ! mmdebstrap --quiet --format=tar --variant=minbase "${options[@]}" "$@" \
            ${packages:+--include="$packages"} "$suite" "$part" $(debian_mirror) >&2; then
            rm -f "$part"
            return 1
        fi
        mv "$part" "$archive"
    fi
    say "$archive"
}

# unpack_debian DIR SUITE PACKAGES [OPTIONS...]: a root file system in DIR; ends the step as skipped
# when there is no way to one here.
unpack_debian() {
    local dir=$1 archive
    shift
    [ "$(id -u)" = 0 ] || skip "needs root"
    own_mounts true 2>/dev/null || skip "needs the right to mount (unshare -m)"
    archive=$(debian_archive "$@") || skip "mmdebstrap did not work: $(tail -n 1 "$log")"
    mkdir -p "$dir"
    tar -C "$dir" --exclude='./dev/*' -xf "$archive"
}

# copy_tree DIR: this tree as it is in the repository, without what autogen.sh makes: the Autotools of the release
# that DIR belongs to are to make it.
copy_tree() {
    mkdir -p "$1"
    tar -C "$source_dir" --exclude-vcs --exclude=./build --exclude=./build-aux --exclude=./m4 --exclude=./configure \
        --exclude=./aclocal.m4 --exclude=./autom4te.cache -cf - . | tar -C "$1" --no-same-owner -xf -
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
