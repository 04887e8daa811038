// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/core/hooks/hooks_support.hpp"

#include "core/cuda/stream_captures.hpp"
#include "core/hooks/driver_hooks.hpp"
#include "core/hooks/system_call_watch.hpp"
#include "core/memory/known_host_pages.hpp"
#include "core/pinning/host_registration_cache.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include "test/gtest/uct_gpushm/abi/component.hpp"

#include <mutex>

namespace gpushm::test {
namespace {

std::mutex freed_mutex;

void on_freed(const MemoryInfo &allocation) {
    const std::lock_guard<std::mutex> lock(freed_mutex);
    freed().push_back(allocation);
}

void forget_pages(void *address, size_t length) {
    KnownHostPages::instance().forget(address, length);
    HostRegistrationCache::instance().invalidate(address, length);
}

}  // namespace

std::vector<MemoryInfo> &freed() {
    static std::vector<MemoryInfo> all;
    return all;
}

bool install_all_hooks() {
    static const bool done = [] {
        const bool watching = abi_test::register_test_component() &&
                              abi::subscribe_unmap(forget_pages) &&
                              watch_system_calls(abi::patch_function) &&
                              install_driver_hooks(abi::patch_function, on_freed);
        if (watching) {
            KnownHostPages::instance().trust();
            watch_stream_captures(abi::patch_function);
            watch_early_returns(abi::patch_function);
        }
        return watching;
    }();
    return done;
}

void HookedTest::SetUp() {
#if !defined(__x86_64__)
    GTEST_SKIP() << "not every libucm can";
#endif
    ASSERT_TRUE(install_all_hooks());
}

}  // namespace gpushm::test
