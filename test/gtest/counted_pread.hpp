// SPDX-License-Identifier: BSD-3-Clause
// How often the core calls pread(2), by which it asks where pages of managed memory lie. The test
// program is linked with --wrap=pread (ld(1)).
#pragma once

namespace gpushm::test {

/** Of all threads, since the program began. */
unsigned long pread_calls();

}  // namespace gpushm::test
