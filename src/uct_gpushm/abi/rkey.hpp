// SPDX-License-Identifier: BSD-3-Clause
// The first byte of a packed remote key, which says whether a key follows. UCX unpacks the keys of
// all domains of a component with one function, which does not get the domain. From UCX 1.19 on
// (first generation of protocols, an endpoint to the process itself) it also packs and unpacks keys
// of domains that have none.
#pragma once

#include <cstddef>

namespace gpushm::abi {

inline constexpr size_t kRkeyHeaderSize = 1;
inline constexpr unsigned char kRkeyWithoutKey = 0;
inline constexpr unsigned char kRkeyWithKey = 1;

}  // namespace gpushm::abi
