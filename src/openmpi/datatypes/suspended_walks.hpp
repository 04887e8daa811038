// SPDX-License-Identifier: BSD-3-Clause
// Walks over datatypes of messages that are packed or unpacked piece by piece.
#pragma once

#include "openmpi/datatypes/type_walk.hpp"

#include <cstddef>

namespace gpushm::openmpi {

/** A walk over what `convertor` describes, standing at byte `begin`: the one that was suspended
 * there, so that a message in n pieces is not walked over n times from its beginning, or a new one.
 * Thread safe. */
BorrowedWalk walk_at(const OpalConvertor &convertor, size_t begin);

/** Keeps a walk of walk_at() for the next piece, if it is the kind that will have one: of a
 * convertor that was used from its first byte on. A new message in the same convertor starts at 0
 * again, and forgets it. */
void suspend(const OpalConvertor &convertor, BorrowedWalk walk);

}  // namespace gpushm::openmpi
