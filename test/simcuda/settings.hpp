// SPDX-License-Identifier: BSD-3-Clause
// The SIMCUDA_* variables. README says what each means.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace simcuda {

// Which devices can access each other. Read while another thread may set it.
class PeerAccess {
public:
    static constexpr unsigned kMaxDevices = 64;

    PeerAccess() { set_all(true); }

    // "0" or "1" for all pairs of devices, "0-1=0" for one; several with commas. False, and nothing
    // changes, if it is malformed.
    bool parse(const std::string &text);

    bool between(unsigned one, unsigned other) const { return (rows_[one] >> other & 1) != 0; }

private:
    void set_all(bool access);
    void set(unsigned one, unsigned other, bool access);

    std::atomic<std::uint64_t> rows_[kMaxDevices];
};

class Settings {
public:
    // Read from the environment at the first call in the process.
    static Settings &get();

    // False if `variable` cannot change at run time or `value` is malformed.
    bool set(const std::string &variable, const std::string &value);

    unsigned device_count = 2;
    unsigned node = 0;                                 // which machine the devices are in
    std::size_t memory_bytes = std::size_t{16} << 30;  // of each device
    std::string counts_file;
    std::string trace_file;
    bool exclusive = false;        // a device has one context of all processes of the machine
    bool mps = false;              // kernels of all processes run at once
    bool launch_blocking = false;  // CUDA_LAUNCH_BLOCKING

    std::atomic<double> delay_us{5.0};
    std::atomic<double> bandwidth_gbs{25.0};
    std::atomic<double> kernel_start_us{5.0};
    std::atomic<double> kernel_time_scale{50.0};
    std::atomic<std::uint64_t> kernel_dies{0};  // after so many commands; 0: never
    std::atomic<std::uint64_t> seed{0};         // 0: no reordering beyond what the times give
    std::atomic<std::size_t> max_pinned_bytes{SIZE_MAX};
    PeerAccess peer_access;

private:
    Settings();
    void read_environment(const char *variable);
    bool set_at_start(const std::string &variable, const std::string &value);
};

// Replaces %p in the name of a file by the process id.
std::string with_process_id(std::string path);

}  // namespace simcuda
