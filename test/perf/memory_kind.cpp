// SPDX-License-Identifier: BSD-3-Clause
#include "memory_kind.hpp"

#include <stdexcept>

namespace gpushm::perf {
namespace {

struct Name {
    MemoryKind kind;
    const char *text;
};

constexpr Name kNames[] = {
    {MemoryKind::host, "host"}, {MemoryKind::pinned, "pinned"}, {MemoryKind::device, "device"},
    {MemoryKind::pool, "pool"}, {MemoryKind::vmm, "vmm"},       {MemoryKind::managed, "managed"},
};

}  // namespace

MemoryKind parse_memory_kind(const std::string &name) {
    for (const Name &known : kNames) {
        if (name == known.text) {
            return known.kind;
        }
    }
    throw std::runtime_error(
        name + ": the kinds of memory are host, pinned, device, pool, vmm and managed");
}

std::string name_of(MemoryKind kind) {
    for (const Name &known : kNames) {
        if (kind == known.kind) {
            return known.text;
        }
    }
    return "?";
}

bool is_device_memory(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::device:
        case MemoryKind::pool:
        case MemoryKind::vmm:
        case MemoryKind::unmappable:
        case MemoryKind::imported:
            return true;
        default:
            return false;
    }
}

bool takes_turns_on_one_gpu(MemoryKind from, MemoryKind to) {
    const auto on_gpu = [](MemoryKind kind) {
        return is_device_memory(kind) || kind == MemoryKind::managed;
    };
    return on_gpu(from) != on_gpu(to);
}

}  // namespace gpushm::perf
