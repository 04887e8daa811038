// SPDX-License-Identifier: BSD-3-Clause
// Addresses as numbers: those of other processes, and those that are counted with.
#pragma once

#include <cstdint>

namespace gpushm {

inline uint64_t to_number(const void *address) {
    return reinterpret_cast<uint64_t>(address);
}

inline unsigned char *to_pointer(uint64_t address) {
    return reinterpret_cast<unsigned char *>(address);
}

}  // namespace gpushm
