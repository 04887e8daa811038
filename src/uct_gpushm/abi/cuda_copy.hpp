// SPDX-License-Identifier: BSD-3-Clause
// cuda_copy, the transport between memory types of a UCX that was built with CUDA.
#pragma once

#include "uct_gpushm/abi/abi.hpp"

namespace gpushm::abi {

/** A domain of cuda_copy. */
struct CudaCopy {
    uct_md_h md;
    /** uct_md_mem_query of the domain; `mem_attr` has the layout of the running UCX. Its answer is
     * more complete than gpushm's, and it keeps UCX's memory-type cache up to date. */
    ucs_status_t (*mem_query)(uct_md_h md, const void *address, size_t length, void *mem_attr);
};

/** The domain, which is opened once in a process. Null if the running UCX has no cuda_copy, or if
 * cuda_copy has found no GPU. To be used in calls by UCX after it has loaded its modules. Thread
 * safe. */
const CudaCopy *cuda_copy();

}  // namespace gpushm::abi
