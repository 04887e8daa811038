// SPDX-License-Identifier: BSD-3-Clause
#include "operations_placement.hpp"

#include <stdexcept>

namespace gpushm::mpi_test::operations {
namespace {

template <MemoryKind kKind>
MemoryKind always(Role, int) {
    return kKind;
}

MemoryKind from_host_to_device(Role role, int) {
    return role == Role::source ? MemoryKind::host : MemoryKind::device;
}

MemoryKind from_device_to_host(Role role, int) {
    return role == Role::source ? MemoryKind::device : MemoryKind::host;
}

// Neighbouring ranks differ, and so do the two buffers of one rank.
MemoryKind by_rank(Role role, int rank) {
    constexpr MemoryKind kKinds[] = {MemoryKind::device, MemoryKind::host, MemoryKind::managed,
                                     MemoryKind::pinned};
    return kKinds[(rank + (role == Role::source ? 0 : 2)) % 4];
}

}  // namespace

std::vector<Placement> make_placements(const std::vector<std::string> &names) {
    std::vector<Placement> placements;
    for (const std::string &name : names) {
        if (name == "host") {
            placements.push_back({name, always<MemoryKind::host>});
        } else if (name == "device") {
            placements.push_back({name, always<MemoryKind::device>});
        } else if (name == "managed") {
            placements.push_back({name, always<MemoryKind::managed>});
        } else if (name == "pinned") {
            placements.push_back({name, always<MemoryKind::pinned>});
        } else if (name == "mixed") {
            placements.push_back({"host to device", from_host_to_device});
            placements.push_back({"device to host", from_device_to_host});
            placements.push_back({"kinds by rank", by_rank});
        } else {
            throw std::runtime_error("--kinds " + name +
                                     ": not one of host, device, managed, pinned, mixed");
        }
    }
    return placements;
}

}  // namespace gpushm::mpi_test::operations
