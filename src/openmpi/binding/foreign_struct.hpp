// SPDX-License-Identifier: BSD-3-Clause
// Members of a structure of which only offsets are known.
#pragma once

#include <cstddef>
#include <cstring>

namespace gpushm::openmpi {

/** A structure of Open MPI, owned by Open MPI. */
class ForeignStruct {
public:
    explicit ForeignStruct(const void *handle)
        : handle_(static_cast<char *>(const_cast<void *>(handle))) {}

    void *handle() const { return handle_; }

protected:
    template <typename T>
    T get(size_t offset) const {
        T value;
        memcpy(&value, handle_ + offset, sizeof(value));
        return value;
    }
    template <typename T>
    void set(size_t offset, const T &value) {
        memcpy(handle_ + offset, &value, sizeof(value));
    }
    char *at(size_t offset) const { return handle_ + offset; }

private:
    char *handle_;
};

}  // namespace gpushm::openmpi
