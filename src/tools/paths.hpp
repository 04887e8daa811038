// SPDX-License-Identifier: BSD-3-Clause
// Names of files.
#pragma once

#include <string>
#include <vector>

namespace gpushm::tools {

/** `path` with its symbolic links resolved; `path` itself where that fails. */
std::string resolved(const std::string &path);

/** Behind the last '/'. */
std::string file_name(const std::string &path);

/** The existing paths that match a pattern of glob(3). */
std::vector<std::string> matches_of(const std::string &pattern);

}  // namespace gpushm::tools
