// SPDX-License-Identifier: BSD-3-Clause
#include "copy_queue.hpp"

namespace gpushm::perf {

CopyQueue::CopyQueue(const Driver &driver, int device, Direction direction, size_t events)
    : driver_(driver), device_(device), direction_(direction), events_(events) {
    make_current();
    driver_.require(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (CUevent &event : events_) {
        driver_.require(driver_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
}

CopyQueue::~CopyQueue() {
    driver_.cuStreamSynchronize(stream_);
    for (CUevent event : events_) {
        driver_.cuEventDestroy(event);
    }
    driver_.cuStreamDestroy(stream_);
}

void CopyQueue::start(const Copy &copy) {
    CUresult result = CUDA_SUCCESS;
    switch (direction_) {
        case Direction::device_to_host:
            result = driver_.cuMemcpyDtoHAsync(copy.destination, device_pointer(copy.source),
                                               copy.bytes, stream_);
            break;
        case Direction::host_to_device:
            result = driver_.cuMemcpyHtoDAsync(device_pointer(copy.destination), copy.source,
                                               copy.bytes, stream_);
            break;
        case Direction::device_to_device:
            result = driver_.cuMemcpyDtoDAsync(device_pointer(copy.destination),
                                               device_pointer(copy.source), copy.bytes, stream_);
            break;
    }
    driver_.require(result, "starting a copy");
}

bool CopyQueue::start_batch(const std::vector<Copy> &copies) {
#if CUDA_VERSION >= 12080
    if (driver_.cuMemcpyBatchAsync == nullptr) {
        return false;
    }
    std::vector<CUdeviceptr> destinations, sources;
    std::vector<size_t> sizes;
    for (const Copy &copy : copies) {
        destinations.push_back(device_pointer(copy.destination));
        sources.push_back(device_pointer(copy.source));
        sizes.push_back(copy.bytes);
    }
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    size_t first = 0;
#if CUDA_VERSION >= 13000
    return driver_.cuMemcpyBatchAsync(destinations.data(), sources.data(), sizes.data(),
                                      sizes.size(), &attributes, &first, 1,
                                      stream_) == CUDA_SUCCESS;
#else
    size_t failed = 0;
    return driver_.cuMemcpyBatchAsync(destinations.data(), sources.data(), sizes.data(),
                                      sizes.size(), &attributes, &first, 1, &failed,
                                      stream_) == CUDA_SUCCESS;
#endif
#else
    static_cast<void>(copies);
    return false;
#endif
}

void CopyQueue::mark(size_t n) {
    driver_.require(driver_.cuEventRecord(events_[n], stream_), "cuEventRecord");
}

bool CopyQueue::reached(size_t n) {
    const CUresult result = driver_.cuEventQuery(events_[n]);
    if (result == CUDA_ERROR_NOT_READY) {
        return false;
    }
    driver_.require(result, "a copy");
    return true;
}

void CopyQueue::finish() {
    mark(0);
    while (!reached(0)) {
    }
}

}  // namespace gpushm::perf
