// SPDX-License-Identifier: BSD-3-Clause
// How processes tell each other that they use a memory file.
#include "file_use.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace simcuda {

namespace {

struct flock lock_of(off_t place, short type) {
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = place;
    lock.l_len = 1;
    return lock;
}

}  // namespace

bool hold_place(int file, off_t place) {
    struct flock lock = lock_of(place, F_RDLCK);
    return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

void let_go_of_place(int file, off_t place) {
    struct flock lock = lock_of(place, F_UNLCK);
    fcntl(file, F_OFD_SETLK, &lock);
}

bool held_elsewhere(int file, off_t place) {
    struct flock lock = lock_of(place, F_WRLCK);  // would conflict with any other holder
    return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

FileUse::~FileUse() {
    close(file_);
}

std::unique_ptr<FileUse> FileUse::open(const char *path, off_t place) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) {
        return nullptr;
    }
    std::unique_ptr<FileUse> use(new FileUse(file));
    return hold_place(file, place) ? std::move(use) : nullptr;
}

}  // namespace simcuda
