// SPDX-License-Identifier: BSD-3-Clause
// UCX's own transport between memory kinds, cuda_copy, in a UCX that was built with CUDA.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::abi {

/** Opens a domain of cuda_copy for ourselves, once. Thread safe. */
class CudaCopy {
public:
    /** Null where the running UCX has no cuda_copy, or that found no GPU. For calls by UCX after it
     * has loaded its modules. */
    static CudaCopy *get();

    /** uct_md_mem_query of cuda_copy's domain: `mem_attr` is as UCX declares it in this version. It
     * knows more of GPU memory than our answers, and it keeps UCX's memory-type cache. */
    ucs_status_t mem_query(const void *address, size_t length, void *mem_attr);

private:
    CudaCopy() = default;
    static CudaCopy *open();

    uct_md_h md_ = nullptr;
    ucs_status_t (*mem_query_)(uct_md_h md, const void *address, size_t length,
                               void *mem_attr) = nullptr;
};

}  // namespace gpushm::abi
