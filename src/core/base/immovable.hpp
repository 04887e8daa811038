// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace gpushm {

/** A base of classes whose objects are neither copied nor moved, because others point to them. */
struct Immovable {
    Immovable() = default;
    Immovable(const Immovable &) = delete;
    Immovable &operator=(const Immovable &) = delete;
};

}  // namespace gpushm
