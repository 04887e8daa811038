// SPDX-License-Identifier: BSD-3-Clause
// An allocation of another process that is mapped into this one, by CUDA IPC or by a file
// descriptor.
#pragma once

#include "core/base/unique_fd.hpp"
#include "core/mapping/mapping_prior.hpp"
#include "core/memory/buffer_key.hpp"

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace gpushm {

/** What the owner sends so that an allocation can be mapped. */
struct MappingHandle {
    BufferKey::Sharing sharing;
    CUipcMemHandle ipc;   // ipc_handle
    UniqueFd descriptor;  // file_descriptor
};

/** One mapped allocation of a peer. It is unmapped after its last reference is gone: a mapping of
 * CUDA IPC by defer_free(), because the driver waits for the work of the GPU; a mapping of a
 * descriptor in the background. */
class PeerMapping {
public:
    /** Opens a handle of the allocation that `name` names, in `context`, which is current. Null,
     * logged where the driver gives a reason, when that fails. `*is_taken`: because the
     * driver has a mapping open, of memory that was at its address in the owner before, or of the
     * application in another context. */
    static std::shared_ptr<PeerMapping> open(const BufferKey &name, CUcontext context,
                                             const MappingHandle &handle, bool *is_taken);
    virtual ~PeerMapping() = default;
    /** Where the byte at `address` of the owner lies in this process; null when [address, +length)
     * is not all within the allocation. */
    unsigned char *locate(const BufferKey &name, uint64_t address, uint64_t length) const;
    /** Whether it is still mapped; at most one driver call. */
    virtual bool alive() const { return true; }
    /** A message uses the mapping, which takes `seconds` less than without it. `is_new`:
     * IpcMappingCache::missed() was not called for it. */
    void note_use(double seconds, bool is_new);

protected:
    PeerMapping(unsigned char *data, size_t length) : data_(data), length_(length) {}

    unsigned char *data_;
    size_t length_;

private:
    friend class IpcMappingCache;
    MappingPrior *prior_ = nullptr;
    std::atomic<bool> awaits_return_{false};  // it was mapped at the first message of its buffer
};

}  // namespace gpushm
