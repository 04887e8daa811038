// SPDX-License-Identifier: BSD-3-Clause
// cuda_copy, the transport between memory types of a UCX that was built with CUDA.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::abi {

/** A domain of cuda_copy, opened once in a process. Thread safe. */
class CudaCopy {
public:
    /** Null if the running UCX has no cuda_copy, or if cuda_copy has found no GPU. To be used in
     * calls by UCX after it has loaded its modules. */
    static CudaCopy *get();

    /** uct_md_mem_query of cuda_copy's domain; `mem_attr` has the layout of the running UCX. Its
     * answer is more complete than gpushm's, and it keeps UCX's memory-type cache up to date. */
    ucs_status_t mem_query(const void *address, size_t length, void *mem_attr);

private:
    CudaCopy() = default;
    static CudaCopy *open();

    uct_md_h md_ = nullptr;
    ucs_status_t (*mem_query_)(uct_md_h md, const void *address, size_t length,
                               void *mem_attr) = nullptr;
};

}  // namespace gpushm::abi
