// SPDX-License-Identifier: BSD-3-Clause
// Graphs that were captured: lists of operations, in the order in which they were queued.
#pragma once

#include "engine.hpp"

#include <vector>

namespace simcuda {

CUgraph add_graph(std::vector<Operation> operations);

}  // namespace simcuda
