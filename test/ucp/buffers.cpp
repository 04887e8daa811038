// SPDX-License-Identifier: BSD-3-Clause
#include "buffers.hpp"

#include "../mpi/pattern.hpp"
#include "check.hpp"

#include <stdexcept>

namespace gpushm::ucp_test {

CudaDriver &cuda_driver() {
    static const std::unique_ptr<CudaDriver> driver = [] {
        std::string reason;
        std::unique_ptr<CudaDriver> opened = CudaDriver::open(&reason);
        if (!opened) {
            skip(reason.c_str());
        }
        opened->use_device(0);
        return opened;
    }();
    return *driver;
}

std::vector<MemoryKind> kinds_of(const Options &options, const char *fallback) {
    std::vector<MemoryKind> kinds;
    for (const std::string &name : options.list("kinds", fallback)) {
        for (MemoryKind kind :
             {MemoryKind::host, MemoryKind::pinned, MemoryKind::device, MemoryKind::managed}) {
            if (name == to_string(kind)) {
                kinds.push_back(kind);
            }
        }
    }
    return kinds;
}

std::vector<size_t> sizes_of(const Options &options, const char *fallback) {
    std::vector<size_t> sizes;
    for (const std::string &size : options.list("sizes", fallback)) {
        sizes.push_back(std::stoul(size));
    }
    return sizes;
}

std::unique_ptr<GuardedBuffer> make_buffer(MemoryKind kind, size_t capacity) {
    try {
        return std::make_unique<GuardedBuffer>(kind == MemoryKind::host ? nullptr : &cuda_driver(),
                                               kind, capacity);
    } catch (const std::runtime_error &error) {
        fail("%s", error.what());
    }
}

Message nth_message(size_t n, size_t size) {
    static constexpr size_t kOffsets[] = {0, 1, 16, 3, 64};
    return {size, kOffsets[n % 5], size + 32, mpi_test::message_seed(n, size)};
}

void check_received(const GuardedBuffer &buffer, const Message &message) {
    const std::string wrong = buffer.check_destination(message);
    if (!wrong.empty()) {
        fail("%s memory, %zu bytes: %s", to_string(buffer.kind()), message.size, wrong.c_str());
    }
}

}  // namespace gpushm::ucp_test
