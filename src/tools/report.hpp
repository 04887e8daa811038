// SPDX-License-Identifier: BSD-3-Clause
// The two forms of gpushm-info's report.
#pragma once

#include "tools/findings.hpp"

#include <string>

namespace gpushm::tools {

/** For people. Without colours, so that it can be written to a file. */
std::string text_report(const Findings &findings, const Verdict &verdict);

/** For programs: the findings as one JSON object, sizes in bytes, null for what is absent or
 * unknown.
 */
std::string json_report(const Findings &findings, const Verdict &verdict);

}  // namespace gpushm::tools
