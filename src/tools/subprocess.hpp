// SPDX-License-Identifier: BSD-3-Clause
// Asks another process: runs a program and reads its output, or runs a function in a child process,
// which may load a foreign library without harm to the caller.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gpushm::tools {

inline constexpr std::chrono::seconds kSubprocessTimeout{10};

/** Standard output of the program argv[0] (looked up in PATH if it has no '/'), with
 * `extra_entries`
 * ("NAME=VALUE") added to the environment; its standard error is dropped. Empty when it cannot be
 * started, fails, or takes longer than kSubprocessTimeout (it is then killed). */
std::optional<std::string> output_of(const std::vector<std::string> &argv,
                                     const std::vector<std::string> &extra_entries = {});

/** The addresses of `texts` and null, for execve(2). Valid as long as the texts. */
std::vector<char *> pointers_to(const std::vector<std::string> &texts);

/** The result of `function` in a child process whose output is dropped. Empty: the child died or
 * took longer than kSubprocessTimeout. The caller must have one thread only. */
std::optional<std::string> call_in_child(const std::function<std::string()> &function);

}  // namespace gpushm::tools
