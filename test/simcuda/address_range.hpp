// SPDX-License-Identifier: BSD-3-Clause
// Reserved addresses, into which physical memory is mapped: cuMemAddressReserve, cuMemMap.
#pragma once

#include "driver.hpp"
#include "mapping.hpp"

#include <memory>

namespace simcuda {

struct Allocation;
class PhysicalMemory;

class AddressRange {
public:
    // `view` is what the application sees, which always faults; the engine finds the memory that is
    // mapped there at the same distance from the begin of `alias`, of the same size.
    AddressRange(std::unique_ptr<Mapping> view, std::unique_ptr<Mapping> alias)
        : view_(std::move(view)), alias_(std::move(alias)) {}

    std::uintptr_t base() const { return reinterpret_cast<std::uintptr_t>(view_->address()); }
    std::size_t bytes() const { return view_->bytes(); }
    bool contains(std::uintptr_t address, std::size_t length) const {
        return address >= base() && length <= bytes() && address - base() <= bytes() - length;
    }
    char *engine_address(std::uintptr_t address) const {
        return alias_->address() + (address - base());
    }

    // Maps the begin of the memory; false if there is no memory for page tables.
    bool map(std::uintptr_t address, std::size_t bytes, const PhysicalMemory &memory);
    void unmap(std::uintptr_t address, std::size_t bytes);

    // Null if the address is not reserved.
    static std::shared_ptr<AddressRange> find(std::uintptr_t address);

private:
    const std::unique_ptr<Mapping> view_;
    const std::unique_ptr<Mapping> alias_;
};

}  // namespace simcuda
