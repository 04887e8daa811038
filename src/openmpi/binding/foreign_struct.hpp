// SPDX-License-Identifier: BSD-3-Clause
// Access to the members of a structure by their offsets.
#pragma once

#include "uct_gpushm/abi/struct_layout.hpp"

#include <cstddef>

namespace gpushm::openmpi {

/** A structure of Open MPI, which owns it. */
class ForeignStruct {
public:
    explicit ForeignStruct(const void *handle)
        : handle_(static_cast<char *>(const_cast<void *>(handle))) {}

    void *handle() const { return handle_; }

protected:
    template <typename T>
    T get(size_t offset) const {
        return abi::load<T>(handle_, offset);
    }
    template <typename T>
    void set(size_t offset, const T &value) {
        abi::store(handle_, offset, value);
    }
    char *at(size_t offset) const { return handle_ + offset; }

private:
    char *handle_;
};

}  // namespace gpushm::openmpi
