// SPDX-License-Identifier: BSD-3-Clause
// GPU memory of another process, opened by CUDA IPC.
#pragma once

#include "driver.hpp"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace gpushm::perf {

/** The other process: allocates `bytes` on `device`, filled with the pattern of `seed`, tells the
 * handle on descriptor 1 and stays until descriptor 0 ends. */
void run_exporter(const Driver &driver, int device, size_t bytes, uint64_t seed);

/** Starts this program again as the exporter, bound to `cpu` (negative: any), and opens its memory
 * in the current context. The mapping and the process end with the object. */
class ImportedMemory {
public:
    ImportedMemory(const Driver &driver, int owner_device, size_t bytes, uint64_t seed, int cpu);
    ~ImportedMemory();
    ImportedMemory(const ImportedMemory &) = delete;
    ImportedMemory &operator=(const ImportedMemory &) = delete;

    char *address() const { return reinterpret_cast<char *>(mapping_); }

    /** Closes the mapping and opens it again. */
    void map_again();

private:
    void map();

    const Driver &driver_;
    CUipcMemHandle handle_ = {};
    pid_t process_ = -1;
    int to_exporter_ = -1;
    CUdeviceptr mapping_ = 0;
};

}  // namespace gpushm::perf
