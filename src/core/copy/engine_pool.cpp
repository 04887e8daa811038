// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/engine_pool.hpp"

#include <mutex>
#include <utility>
#include <vector>

namespace gpushm {
namespace {

struct Pool {
    std::mutex mutex;
    std::vector<std::unique_ptr<CopyEngine>> idle;  // has room for all that were made
    size_t made = 0;
};

/** Never destroyed: at process exit the driver may be gone before us. */
Pool &pool() {
    static Pool *const instance = new Pool;
    return *instance;
}

}  // namespace

BorrowedEngine::BorrowedEngine() {
    const std::lock_guard<std::mutex> lock(pool().mutex);
    if (pool().idle.empty()) {
        pool().idle.reserve(pool().made + 1);  // to give one back allocates nothing
        engine_ = std::make_unique<CopyEngine>();
        ++pool().made;
    } else {
        engine_ = std::move(pool().idle.back());
        pool().idle.pop_back();
    }
}

BorrowedEngine::~BorrowedEngine() {
    if (engine_) {
        const std::lock_guard<std::mutex> lock(pool().mutex);
        pool().idle.push_back(std::move(engine_));
    }
}

}  // namespace gpushm
