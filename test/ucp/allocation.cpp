// SPDX-License-Identifier: BSD-3-Clause
#include "allocation.hpp"

#include "../mpi/pattern.hpp"
#include "check.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gpushm::ucp_test {
namespace {

constexpr Allocator kAll[] = {Allocator::host,   Allocator::pinned,      Allocator::registered,
                              Allocator::device, Allocator::vmm,         Allocator::vmm_shared,
                              Allocator::pool,   Allocator::managed_cpu, Allocator::managed_gpu};
constexpr uint64_t kGuardSeed = 0x6775617264;  // any constant
constexpr size_t kPage = 4096;

CUdevice current_device() {
    CUdevice device = 0;
    require(cuda().cuCtxGetDevice_(&device), "cuCtxGetDevice");
    return device;
}

CUmemAllocationProp physical_memory(bool exportable) {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = current_device();
    if (exportable) {
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    return properties;
}

/** Whether the function is there and does not say that it is not supported. */
bool has(Allocator allocator) {
    const CudaApi &api = cuda();
    switch (allocator) {
        case Allocator::pool:
            return api.cuMemAllocAsync_ != nullptr && api.cuMemFreeAsync_ != nullptr;
        case Allocator::vmm:
        case Allocator::vmm_shared: {
            if (api.cuMemCreate_ == nullptr || api.cuMemMap_ == nullptr ||
                api.cuMemSetAccess_ == nullptr || api.cuMemAddressReserve_ == nullptr ||
                api.cuMemGetAllocationGranularity_ == nullptr) {
                return false;
            }
            const CUmemAllocationProp wanted = physical_memory(allocator == Allocator::vmm_shared);
            size_t granularity = 0;
            CUmemGenericAllocationHandle handle = 0;
            if (api.cuMemGetAllocationGranularity_(
                    &granularity, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
                api.cuMemCreate_(&handle, granularity, &wanted, 0) != CUDA_SUCCESS) {
                return false;
            }
            require(api.cuMemRelease_(handle), "cuMemRelease");
            return true;
        }
        case Allocator::managed_gpu:
            return api.prefetch != nullptr;
        default:
            return true;
    }
}

std::vector<unsigned char> &scratch(size_t size) {
    thread_local std::vector<unsigned char> memory;
    if (memory.size() < size) {
        memory.resize(size);
    }
    return memory;
}

/** The context of the allocation is current while this lives. */
class InContext {
public:
    explicit InContext(CUcontext context) {
        if (context != nullptr) {
            require(cuda().cuCtxGetCurrent_(&before_), "cuCtxGetCurrent");
            changed_ = before_ != context;
            if (changed_) {
                require(cuda().cuCtxSetCurrent_(context), "cuCtxSetCurrent");
            }
        }
    }
    ~InContext() {
        if (changed_) {
            require(cuda().cuCtxSetCurrent_(before_), "cuCtxSetCurrent");
        }
    }
    InContext(const InContext &) = delete;
    InContext &operator=(const InContext &) = delete;

private:
    CUcontext before_ = nullptr;
    bool changed_ = false;
};

}  // namespace

const char *to_string(Allocator allocator) {
    switch (allocator) {
        case Allocator::host:
            return "host";
        case Allocator::pinned:
            return "pinned";
        case Allocator::registered:
            return "registered";
        case Allocator::device:
            return "device";
        case Allocator::vmm:
            return "vmm";
        case Allocator::vmm_shared:
            return "vmm_shared";
        case Allocator::pool:
            return "pool";
        case Allocator::managed_cpu:
            return "managed_cpu";
        case Allocator::managed_gpu:
            return "managed_gpu";
    }
    return "unknown";
}

std::vector<Allocator> all_allocators() {
    static const std::vector<Allocator> found = [] {
        std::vector<Allocator> usable;
        for (Allocator allocator : kAll) {
            if (has(allocator)) {
                usable.push_back(allocator);
            } else {
                printf("skipped: %s: this driver does not have it\n", to_string(allocator));
            }
        }
        return usable;
    }();
    return found;
}

std::vector<Allocator> allocators_of(const Options &options, const std::string &key) {
    if (!options.has(key)) {
        return all_allocators();
    }
    std::vector<Allocator> chosen;
    for (const std::string &name : options.list(key, "")) {
        const auto named = std::find_if(std::begin(kAll), std::end(kAll),
                                        [&](Allocator one) { return name == to_string(one); });
        if (named == std::end(kAll)) {
            fail("--%s=%s: no such memory", key.c_str(), name.c_str());
        }
        if (*named == Allocator::host || has(*named)) {
            chosen.push_back(*named);
        } else {
            printf("skipped: %s: this driver does not have it\n", name.c_str());
        }
    }
    if (chosen.empty()) {
        skip("this driver has none of the kinds of memory");
    }
    return chosen;
}

// ---------------------------------------------------------------- Allocation

Allocation::Allocation(Allocator allocator, size_t bytes)
    : allocator_(allocator), bytes_(std::max<size_t>(bytes, 1)) {
    CUdeviceptr address = 0;
    void *memory = nullptr;
    if (allocator != Allocator::host) {
        require(cuda().cuCtxGetCurrent_(&context_), "cuCtxGetCurrent");
    }
    switch (allocator) {
        case Allocator::host:
        case Allocator::registered:
            if (posix_memalign(&memory, kPage, bytes_) != 0) {
                fail("no memory for %zu bytes", bytes_);
            }
            data_ = static_cast<unsigned char *>(memory);
            if (allocator == Allocator::registered) {
                require(cuda().cuMemHostRegister_(memory, bytes_, CU_MEMHOSTREGISTER_PORTABLE),
                        "cuMemHostRegister");
            }
            return;
        case Allocator::pinned:
            require(cuda().cuMemHostAlloc_(&memory, bytes_, CU_MEMHOSTALLOC_PORTABLE),
                    "cuMemHostAlloc");
            data_ = static_cast<unsigned char *>(memory);
            return;
        case Allocator::vmm:
            map_physical_memory(false);
            return;
        case Allocator::vmm_shared:
            map_physical_memory(true);
            return;
        case Allocator::device:
            require(cuda().cuMemAlloc_(&address, bytes_), "cuMemAlloc");
            break;
        case Allocator::pool:
            require(cuda().cuMemAllocAsync_(&address, bytes_, nullptr), "cuMemAllocAsync");
            require(cuda().cuStreamSynchronize_(nullptr), "cuStreamSynchronize");
            break;
        case Allocator::managed_cpu:
        case Allocator::managed_gpu:
            require(cuda().cuMemAllocManaged_(&address, bytes_, CU_MEM_ATTACH_GLOBAL),
                    "cuMemAllocManaged");
            break;
    }
    data_ = reinterpret_cast<unsigned char *>(address);
}

Allocation::~Allocation() {
    const InContext current(context_);
    const CUdeviceptr address = device_address(data_);
    switch (allocator_) {
        case Allocator::registered:
            require(cuda().cuMemHostUnregister_(data_), "cuMemHostUnregister");
            free(data_);
            return;
        case Allocator::host:
            free(data_);
            return;
        case Allocator::pinned:
            require(cuda().cuMemFreeHost_(data_), "cuMemFreeHost");
            return;
        case Allocator::vmm:
        case Allocator::vmm_shared:
            require(cuda().cuMemUnmap_(address, mapped_bytes_), "cuMemUnmap");
            require(cuda().cuMemRelease_(handle_), "cuMemRelease");
            require(cuda().cuMemAddressFree_(address, mapped_bytes_), "cuMemAddressFree");
            return;
        case Allocator::pool:
            require(cuda().cuMemFreeAsync_(address, nullptr), "cuMemFreeAsync");
            require(cuda().cuStreamSynchronize_(nullptr), "cuStreamSynchronize");
            return;
        case Allocator::device:
        case Allocator::managed_cpu:
        case Allocator::managed_gpu:
            require(cuda().cuMemFree_(address), "cuMemFree");
            return;
    }
}

void Allocation::map_physical_memory(bool exportable) {
    const CUmemAllocationProp properties = physical_memory(exportable);
    size_t granularity = 0;
    require(cuda().cuMemGetAllocationGranularity_(&granularity, &properties,
                                                  CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            "cuMemGetAllocationGranularity");
    mapped_bytes_ = (bytes_ + granularity - 1) / granularity * granularity;
    CUdeviceptr address = 0;
    require(cuda().cuMemCreate_(&handle_, mapped_bytes_, &properties, 0), "cuMemCreate");
    require(cuda().cuMemAddressReserve_(&address, mapped_bytes_, 0, 0, 0), "cuMemAddressReserve");
    require(cuda().cuMemMap_(address, mapped_bytes_, 0, handle_, 0), "cuMemMap");
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    require(cuda().cuMemSetAccess_(address, mapped_bytes_, &access, 1), "cuMemSetAccess");
    data_ = reinterpret_cast<unsigned char *>(address);
}

bool Allocation::is_device_memory() const {
    return allocator_ == Allocator::device || allocator_ == Allocator::vmm ||
           allocator_ == Allocator::vmm_shared || allocator_ == Allocator::pool;
}

void Allocation::write(size_t offset, const void *from, size_t bytes) {
    const InContext current(context_);
    if (is_device_memory()) {
        copy_by_driver(data_ + offset, from, bytes);
    } else if (bytes != 0) {
        std::memcpy(data_ + offset, from, bytes);
    }
    move_pages();
}

void Allocation::read(size_t offset, void *to, size_t bytes) const {
    const InContext current(context_);
    if (is_device_memory() || allocator_ == Allocator::managed_gpu) {
        copy_by_driver(to, data_ + offset, bytes);
    } else if (bytes != 0) {
        std::memcpy(to, data_ + offset, bytes);
    }
}

void Allocation::move_pages() const {
    if (allocator_ == Allocator::managed_gpu) {
        require(cuda().prefetch(device_address(data_), bytes_, current_device(), nullptr),
                "cuMemPrefetchAsync");
        require(cuda().cuCtxSynchronize_(), "cuCtxSynchronize");
    }
}

// ---------------------------------------------------------------- GuardedAllocation

void GuardedAllocation::prepare_source(const Placement &place) {
    std::vector<unsigned char> &content = scratch(place.size);
    mpi_test::fill_pattern(content.data(), place.size, place.seed);
    memory_.write(kGuardBytes + place.misalignment, content.data(), place.size);
}

void GuardedAllocation::prepare_destination(const Placement &place) {
    const size_t total = place.capacity + 2 * kGuardBytes;
    std::vector<unsigned char> &content = scratch(total);
    mpi_test::fill_pattern(content.data(), kGuardBytes, kGuardSeed);
    mpi_test::fill_poison(content.data() + kGuardBytes, place.capacity, place.seed);
    mpi_test::fill_pattern(content.data() + kGuardBytes + place.capacity, kGuardBytes, kGuardSeed);
    memory_.write(place.misalignment, content.data(), total);
}

std::string GuardedAllocation::find_fault(const Placement &place) const {
    std::vector<unsigned char> &content = scratch(place.capacity + 2 * kGuardBytes);
    memory_.read(place.misalignment, content.data(), place.capacity + 2 * kGuardBytes);
    const unsigned char *message = content.data() + kGuardBytes;
    const char *where = "message";
    auto wrong = mpi_test::find_pattern_mismatch(message, place.size, place.seed);
    if (!wrong) {
        where = "behind the message";
        wrong = mpi_test::find_poison_mismatch(message + place.size, place.capacity - place.size,
                                               place.seed, place.size);
    }
    if (!wrong) {
        where = "behind the buffer";
        wrong = mpi_test::find_pattern_mismatch(message + place.capacity, kGuardBytes, kGuardSeed);
    }
    if (!wrong) {
        where = "4096 bytes in front of the buffer";
        wrong = mpi_test::find_pattern_mismatch(content.data(), kGuardBytes, kGuardSeed);
    }
    if (!wrong) {
        return "";
    }
    char text[160];
    snprintf(text, sizeof(text), "%s: byte %zu is 0x%02x instead of 0x%02x", where, wrong->position,
             wrong->got, wrong->expected);
    return text;
}

void GuardedAllocation::check(const Placement &place) const {
    const std::string fault = find_fault(place);
    if (!fault.empty()) {
        fail("%s memory, %zu bytes, misalignment %zu: %s", to_string(memory_.allocator()),
             place.size, place.misalignment, fault.c_str());
    }
}

}  // namespace gpushm::ucp_test
