// SPDX-License-Identifier: BSD-3-Clause
// How a test process says that something is wrong: one line on stderr, and exit status 1.
#pragma once

#include <ucs/type/status.h>

#include <string>

namespace gpushm::ucp_test {

/** What the process is doing; stands in front of the line of fail(). With GPUSHM_TEST_TRACE in the
 * environment each goes to stderr. */
void set_activity(const std::string &activity);
const std::string &activity();

[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Ends the test as one that cannot be run here (exit status 77). */
[[noreturn]] void skip(const char *reason);

/** Fails unless `status` is UCS_OK. */
void require(ucs_status_t status, const char *what);

}  // namespace gpushm::ucp_test
