// SPDX-License-Identifier: BSD-3-Clause
// What the compute mode EXCLUSIVE_PROCESS asks of a context: that its device has no other one.
#pragma once

#include <memory>

namespace simcuda {

// Held until it is destroyed or the process ends, however that happens: an abstract address of Unix
// sockets, which is taken once in a network namespace.
class DeviceClaim {
public:
    // Null if somebody has the device, here or in another process of the machine (SIMCUDA_NODE).
    static std::unique_ptr<DeviceClaim> make(unsigned physical);

    ~DeviceClaim();
    DeviceClaim(const DeviceClaim &) = delete;
    DeviceClaim &operator=(const DeviceClaim &) = delete;

private:
    explicit DeviceClaim(int socket) : socket_(socket) {}

    const int socket_;
};

}  // namespace simcuda
