// SPDX-License-Identifier: BSD-3-Clause
// The SIMCUDA_* variables. README says what each means.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace simcuda {

class Settings {
public:
    // Read from the environment at the first call in the process.
    static Settings& get();

    // False if `variable` cannot change at run time or `value` is malformed.
    bool set(const std::string& variable, const std::string& value);

    unsigned device_count = 2;
    std::size_t memory_bytes = std::size_t{16} << 30; // of each device
    std::string counts_file;

    std::atomic<double> delay_us{5.0};
    std::atomic<double> bandwidth_gbs{25.0};
    std::atomic<std::uint64_t> seed{0}; // 0: no reordering beyond what the times give
    std::atomic<std::size_t> max_pinned_bytes{SIZE_MAX};
    std::atomic<bool> peer_access{true};

private:
    Settings();
    void read_environment(const char* variable);
    bool set_at_start(const std::string& variable, const std::string& value);
};

} // namespace simcuda
