// SPDX-License-Identifier: BSD-3-Clause
// Objects that belong to contexts of the driver, and go when these have ended.
#pragma once

#include "core/cuda/cuda_driver.hpp"

#include <iterator>
#include <map>
#include <memory>
#include <utility>

namespace gpushm {

/** The key is the context and its id (CudaDriver::context_id()): a later context may have the
 * handle of an ended one. */
template <typename Object>
using ByContext = std::map<std::pair<CUcontext, unsigned long long>, std::shared_ptr<Object>>;

/** Null: there is none. */
template <typename Object>
std::shared_ptr<Object> find_object(const ByContext<Object> &objects, CUcontext context,
                                    unsigned long long id) {
    const auto found = objects.find({context, id});
    return found != objects.end() ? found->second : nullptr;
}

/** Takes out the objects of contexts that have ended. Asks the driver for each context; allocates
 * nothing. */
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

}  // namespace gpushm
