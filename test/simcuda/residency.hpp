// SPDX-License-Identifier: BSD-3-Clause
// Where managed memory is: a page that a device touched is not in the CPU's page table until the
// CPU touches it again, as /proc/self/pagemap shows. The bytes always stay in one memory file.
#pragma once

#include "allocation.hpp"

namespace simcuda {

// Managed memory; null if there is none left. The caller adds it.
std::shared_ptr<Allocation> allocate_managed(Context &context, std::size_t bytes);

// Takes the pages of a range of managed memory from the CPU, as far as it has them.
void move_to_device(std::uintptr_t address, std::size_t bytes);

// Brings the pages of such a range into the CPU's page table.
void move_to_cpu(std::uintptr_t address, std::size_t bytes);

}  // namespace simcuda
