// SPDX-License-Identifier: BSD-3-Clause
// For builds without nvcc.
#include "core/standby_image.hpp"

namespace gpushm {

StandbyImage standby_fatbin() { return {nullptr, 0}; }

StandbyImage standby_ptx() { return {nullptr, 0}; }

}  // namespace gpushm
