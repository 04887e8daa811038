// SPDX-License-Identifier: BSD-3-Clause
// Copies by the driver on one stream, as few calls as can be: what nothing built on them can beat.
#pragma once

#include "driver.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::perf {

enum class Direction { device_to_host, host_to_device, device_to_device };

/** Addresses as the calling process knows them; host memory is page-locked. */
struct Copy {
    char *destination;
    const char *source;
    size_t bytes;
};

/** A stream of a device's primary context, and events. */
class CopyQueue {
public:
    CopyQueue(const Driver &driver, int device, Direction direction, size_t events = 1);
    ~CopyQueue();
    CopyQueue(const CopyQueue &) = delete;
    CopyQueue &operator=(const CopyQueue &) = delete;

    void start(const Copy &copy);

    /** All in one driver call; false where the driver has none or refuses. */
    bool start_batch(const std::vector<Copy> &copies);

    /** Marks what has been started with event n; it is over when `reached` says so. */
    void mark(size_t n);
    bool reached(size_t n);

    /** Polls until all that has been started is over. */
    void finish();

private:
    void make_current() const { driver_.use_device(device_); }

    const Driver &driver_;
    int device_;
    Direction direction_;
    CUstream stream_ = nullptr;
    std::vector<CUevent> events_;
};

}  // namespace gpushm::perf
