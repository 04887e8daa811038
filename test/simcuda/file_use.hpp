// SPDX-License-Identifier: BSD-3-Clause
// How processes tell each other that they use a place of a memory file: by advisory locks of open
// file descriptions (fcntl(2)), which the kernel takes back when the last descriptor of the
// description is closed, however its process ends. The places are bytes that nobody reads.
//
//   place                          held by                      while
//   offset of a piece of memory    who opened the memory        it is open
//   kExportedPlaces + buffer id    the owner of the memory      it may be opened
#pragma once

#include <memory>
#include <sys/types.h>

namespace simcuda {

constexpr off_t kExportedPlaces = off_t{1} << 48;

// The place is held by the description of `file`; several may hold one.
bool hold_place(int file, off_t place);

void let_go_of_place(int file, off_t place);

// Whether another description holds it.
bool held_elsewhere(int file, off_t place);

// A description of its own of somebody's memory file, closed when destroyed.
class FileUse {
public:
    ~FileUse();
    FileUse(const FileUse &) = delete;
    FileUse &operator=(const FileUse &) = delete;

    // Opens a file again and holds a place of it. Null if that fails. `path`: of /proc/PID/fd.
    static std::unique_ptr<FileUse> open(const char *path, off_t place);

    int file() const { return file_; }

private:
    explicit FileUse(int file) : file_(file) {}

    const int file_;
};

}  // namespace simcuda
