// SPDX-License-Identifier: BSD-3-Clause
// Loads our kernels into contexts at moments when that holds up nobody.
#pragma once

#include <cuda.h>

namespace gpushm {

/** For a context that was just made. Does nothing before the first prepare_contexts(), nor when the context was
 *  prepared before. Thread safe. */
void prepare_context(CUcontext context);

/** Contexts that its thread makes while it lives are not prepared. */
class WithoutPreparation {
public:
    WithoutPreparation();
    ~WithoutPreparation();
    WithoutPreparation(const WithoutPreparation &) = delete;
    WithoutPreparation &operator=(const WithoutPreparation &) = delete;

private:
    bool before_;
};

/** For all primary contexts that there are, but for those in which the GPU is at work; for a process that has
 *  no peers yet. Ends stream captures of such a context. Thread safe. */
void prepare_contexts();

}  // namespace gpushm
