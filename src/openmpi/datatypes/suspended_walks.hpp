// SPDX-License-Identifier: BSD-3-Clause
// Keeps the walks over datatypes of messages that are packed or unpacked in pieces.
#pragma once

#include "openmpi/datatypes/type_walk.hpp"

#include <cstddef>

namespace gpushm::openmpi {

/** A walk over the elements of `convertor`, at byte `begin`: the walk that was suspended there, or
 * a new one. So a message of n pieces is not walked over n times from its begin. Thread safe. */
BorrowedWalk walk_at(const OpalConvertor &convertor, size_t begin);

/** Keeps a walk of walk_at() for the next piece, if the convertor was used from its first byte on.
 * A new message with this convertor starts at byte 0 and drops the walk. Thread safe. */
void suspend(const OpalConvertor &convertor, BorrowedWalk walk);

}  // namespace gpushm::openmpi
