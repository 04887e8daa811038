// SPDX-License-Identifier: BSD-3-Clause
// How a remote key of ours begins. UCX unpacks the keys of all domains of a component with one
// function that is not told the domain, and from 1.19 on (protocol v1, an endpoint to oneself) it
// also packs and unpacks keys of domains that have none. So a byte in front says which it is.
#pragma once

#include <cstddef>

namespace gpushm::abi {

inline constexpr size_t kRkeyHeaderSize = 1;
inline constexpr unsigned char kRkeyWithoutKey = 0;
inline constexpr unsigned char kRkeyWithKey = 1;

}  // namespace gpushm::abi
