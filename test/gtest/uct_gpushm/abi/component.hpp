// SPDX-License-Identifier: BSD-3-Clause
// The smallest component that the adapters accept. Tests call it through UCX's public API. It
// records its calls and answers with values that no other field has.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace abi_test {

inline constexpr size_t kKeySize = 40;
inline constexpr uct_rkey_t kRkey = 0x5eed;

/** The calls of the component. Every test resets them. */
struct Told {
    void *registered_address = nullptr;
    size_t registered_length = 0;
    int deregistrations = 0;
    int invalidations = 0;  // among them
    ucs_memory_type_t alloc_type = UCS_MEMORY_TYPE_LAST;
    int frees = 0;
    int domains_closed = 0;
    int domain_queries = 0;
    int keys_unpacked = 0;
    bool key_was_right = false;
    uct_rkey_t released_rkey = 0;
    gpushm::abi::PerfEstimate estimate{};
    size_t device_addr_length = 0;
    size_t iface_addr_length = 0;
    bool had_iface_addr = false;
    bool throw_in_mem_reg = false;
    bool answer_unreachable = false;
    uint64_t connected_to = 0;  // the address of an interface
};
Told &told();

struct Config {
    gpushm::abi::IfaceConfigHead head;
    int flag;
    size_t size;
    unsigned count;
    int ternary;
    double time;
};
/** The options with which the last interface was opened. */
extern Config last_config;

/** The memory that "keyed" and "copy" report as GPU memory. */
inline constexpr size_t kGpuSize = 4096;
inline constexpr ucs_sys_device_t kSystemDevice = 5;
unsigned char *gpu_memory();

/** Its domains: "keyed" has keys, "copy" has no keys, "broken" cannot be opened. */
const gpushm::abi::ComponentDescription &test_component();

/** Registers the component in the UCX under test, once. */
bool register_test_component();

}  // namespace abi_test
