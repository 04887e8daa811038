// SPDX-License-Identifier: BSD-3-Clause
// The memory that the driver knows: allocated, registered or opened from another process.
#pragma once

#include "driver.hpp"
#include "file_use.hpp"
#include "known_host_pages.hpp"
#include "mapping.hpp"

#include <cstdint>
#include <map>
#include <memory>

namespace simcuda {

class AddressRange;
struct Context;
struct Device;
class MemoryPool;
class PhysicalMemory;

// What is mapped at an address of a reserved range.
struct VirtualMemory {
    std::shared_ptr<AddressRange> range;
    std::shared_ptr<PhysicalMemory> memory;
    CUmemGenericAllocationHandle handle;        // by which it was mapped
    std::map<const Device *, unsigned> access;  // CUmemAccess_flags; 0 for those that are not here
};

struct Allocation {
    enum class Kind {
        device,      // cuMemAlloc
        pool,        // cuMemAllocAsync
        vmm,         // cuMemMap: one mapping of physical memory
        ipc,         // cuIpcOpenMemHandle: another process's device memory
        managed,     // cuMemAllocManaged
        pinned,      // cuMemHostAlloc, cuMemAllocHost
        registered,  // cuMemHostRegister
    };

    Kind kind;
    std::uintptr_t base;
    std::size_t bytes;
    Device *device;               // where it lies or was allocated or registered
    Context *context;             // null for memory of a pool and of cuMemMap
    MemoryPool *pool = nullptr;   // of Kind::pool only
    unsigned flags = 0;           // of the call that made it
    unsigned long long id = 0;    // CU_POINTER_ATTRIBUTE_BUFFER_ID, never reused
    bool sync_memops = false;     // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
    bool exported = false;        // other processes may open it
    bool live = false;            // false once freed; operations in flight may still hold it
    char *engine_base = nullptr;  // where the engine reads and writes it
    std::size_t heap_offset = 0;  // its place in the device's heap, of device and pool memory

    std::unique_ptr<KnownHostPages> pages;       // of registered memory
    CUdevice last_prefetch = CU_DEVICE_INVALID;  // of managed memory: CU_DEVICE_CPU or a device

    // Of Kind::vmm only; view and alias are null then.
    std::unique_ptr<VirtualMemory> virtual_memory;

    std::unique_ptr<Mapping> view;   // what the application sees; null for registered memory
    std::unique_ptr<Mapping> alias;  // the engine's own view, where the application's faults
    std::unique_ptr<FileUse> use;    // of Kind::ipc: keeps the owner from using the memory again

    Allocation(Kind its_kind, Device *its_device, Context *its_context);
    ~Allocation();  // gives the memory back

    bool on_device() const {
        return kind == Kind::device || kind == Kind::pool || kind == Kind::ipc || kind == Kind::vmm;
    }
    bool in_heap() const { return kind == Kind::device || kind == Kind::pool; }
    bool host() const { return kind == Kind::pinned || kind == Kind::registered; }

    bool contains(std::uintptr_t address, std::size_t length) const {
        return address >= base && length <= bytes && address - base <= bytes - length;
    }

    // What the device may do with the memory, in bits of CUmemAccess_flags.
    unsigned access_of(const Device &accessor) const;

    char *engine_address(std::uintptr_t address) const { return engine_base + (address - base); }
};

// The place of the device's memory file that says that the allocation may be opened.
off_t exported_place(const Allocation &allocation);

// All allocations of the process, by address. Guarded by the driver's lock.
class Allocations {
public:
    static Allocations &get();

    // Gives it an id and makes it known.
    void add(std::shared_ptr<Allocation> allocation);

    // Null if the address is in no allocation.
    std::shared_ptr<Allocation> find(std::uintptr_t address) const;

    // An allocation that has a byte in the range, or null.
    std::shared_ptr<Allocation> find_overlap(std::uintptr_t address, std::size_t length) const;

    // Makes it unknown; its memory is given back when nobody uses it any more.
    void release(const std::shared_ptr<Allocation> &allocation);

    // Releases all that belong to a context.
    void release_all(const Context &context);

    // Bytes of Kind::pinned and Kind::registered.
    std::size_t pinned_bytes() const { return pinned_bytes_; }

private:
    using Map = std::map<std::uintptr_t, std::shared_ptr<Allocation>>;

    Map::iterator release(Map::iterator entry);

    Map by_base_;
    std::size_t pinned_bytes_ = 0;
    unsigned long long last_id_ = 0;
};

// Device memory of `bytes` on the device, its view and alias; null if there is none left. The
// caller adds it.
std::shared_ptr<Allocation> allocate_on_device(Allocation::Kind kind, Device &device,
                                               Context *context, std::size_t bytes);

// Pinned memory; null if there is none left. The caller adds it.
std::shared_ptr<Allocation> allocate_pinned(Context &context, std::size_t bytes);

}  // namespace simcuda
