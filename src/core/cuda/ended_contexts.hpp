// SPDX-License-Identifier: BSD-3-Clause
// What belongs to contexts of the driver, and goes when they have ended.
#pragma once

#include "core/cuda/cuda_driver.hpp"

#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace gpushm {

/** By the context and its id (CudaDriver::context_id()), for a later context may have the same
 * handle. */
template <typename Object>
using ByContext = std::map<std::pair<CUcontext, unsigned long long>, std::shared_ptr<Object>>;

/** Takes out what belongs to contexts that have ended. Asks the driver for each; allocates nothing.
 */
template <typename Object>
ByContext<Object> take_ended(ByContext<Object> &objects) {
    ByContext<Object> ended;
    for (auto object = objects.begin(); object != objects.end();) {
        const auto next = std::next(object);
        if (!CudaDriver::get()->context_is_alive(object->first.first, object->first.second)) {
            ended.insert(objects.extract(object));
        }
        object = next;
    }
    return ended;
}

/** How many contexts with this handle have ended, by note_end_of_context(): tells them apart where
 * the driver does not (before CUDA 12.0). Thread safe. */
unsigned long long count_ended(CUcontext handle);

/** The context has ended; a later one may have its handle. Thread safe; std::bad_alloc: nothing is
 * noted. */
void note_end_of_context(CUcontext handle);

}  // namespace gpushm
