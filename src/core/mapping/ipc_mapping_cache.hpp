// SPDX-License-Identifier: BSD-3-Clause
// GPU memory of other processes that is mapped into this one, by CUDA IPC or by a file descriptor.
#pragma once

#include "core/base/fork_safe.hpp"
#include "core/base/unique_fd.hpp"
#include "core/mapping/mapping_prior.hpp"
#include "core/memory/buffer_key.hpp"

#include <cuda.h>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

namespace gpushm {

/** One mapped allocation of a peer. Unmapped after its last reference is gone: by defer_free()
 * what was opened by CUDA IPC, for the driver takes 0.2 ms and waits for what the GPU does; in the
 * background what came as a descriptor. */
class PeerMapping {
public:
    virtual ~PeerMapping() = default;
    /** Where the byte at `address` of the owner lies here; null when [address, +length) is not all
     * within the allocation. */
    unsigned char *locate(const BufferKey &name, uint64_t address, uint64_t length) const;
    /** Whether it is still mapped; at most one driver call. */
    virtual bool alive() const { return true; }
    /** A message goes through it, which takes `seconds` less than without. `is_new`: missed() has
     * not been told of it. */
    void note_use(double seconds, bool is_new);

protected:
    PeerMapping(unsigned char *data, size_t length) : data_(data), length_(length) {}

    unsigned char *data_;
    size_t length_;

private:
    friend class IpcMappingCache;
    MappingPrior *prior_ = nullptr;
    std::atomic<bool> awaits_return_{false};  // of a buffer that was mapped at its first message
};

/** What the owner gives of an allocation so that it can be mapped. */
struct MappingHandle {
    BufferKey::Sharing sharing;
    CUipcMemHandle ipc;   // ipc_handle
    UniqueFd descriptor;  // file_descriptor
};

/** The mappings of the process. To open one takes 0.1 to 10 ms, to close it 0.2 ms. It is made at a
 * buffer's first or second message as long as that is what experience recommends (MappingPrior) and
 * its owner lets something be mapped. Else it is made when the time that was lost by not having it
 * is as long as what it costs, so that the whole never costs more than twice the best (the rule is
 * that of "ski rental"; Karlin et al., Algorithmica 1988).
 *
 * Thread safe. */
class IpcMappingCache {
public:
    static IpcMappingCache &instance();

    /** The mapping of a peer's buffer for copies in `context`; null when there is none. */
    std::shared_ptr<PeerMapping> find(const BufferKey &name, CUcontext context);

    /** Changes whenever find() may answer otherwise than before, which includes that a context may
     * have ended: from call to call where nobody would tell of that. */
    uint64_t generation();

    /** Whether the process has mapped nothing yet; true once: the caller is to. */
    bool may_begin() {
        return !any_opened_.load(std::memory_order_relaxed) && !begun_.exchange(true);
    }

    /** A message went another way, which took `seconds` more than it would with a mapping. `ready`:
     * a mapping was all that it lacked. True when the caller is to ask the owner for a handle; that
     * is once for a buffer and context. */
    bool missed(const BufferKey &name, CUcontext context, double seconds, bool ready);

    /** Opens a handle for every context that asked for it, while the caller has a
     * ContextLifetimeLock; without one, the buffer is not asked for again. */
    void receive(uint64_t owner, uint64_t buffer_id, const MappingHandle *handle);

    /** Whether the owner that a peer names in its keys is that peer's process `pid`, by who named
     * it first: what a broken one gives of its memory is not taken for another's. */
    bool belongs_to(uint64_t owner, pid_t pid);

    /** The owner freed it, or must not be asked any more. */
    void forget_buffer(uint64_t owner, uint64_t buffer_id);
    void forget_process(uint64_t owner);

private:
    friend class ForkSafe<IpcMappingCache>;
    enum class State { counted, requested, mapped, refused };
    using Key = std::tuple<uint64_t, uint64_t, CUcontext>;  // owner, buffer id, context
    struct Entry {
        State state = State::counted;
        uint64_t messages = 0;  // that went another way
        bool on_trust = false;  // it was asked for at the first of them
        double missed_seconds = 0;
        BufferKey name;
        unsigned long long context_id = 0;  // when it was requested
        std::shared_ptr<PeerMapping> mapping;
        std::list<Key>::iterator age;
    };
    struct Owner {
        pid_t pid;              // by who named it first
        unsigned refusals = 0;  // since something of it was mapped
    };
    using Entries = std::map<Key, Entry>;

    IpcMappingCache();
    Entry &touch(const Key &key);
    bool is_worth_asking(Entry &entry, bool ready);
    bool lets_map(uint64_t owner) const;
    void note_outcome(uint64_t owner, bool mapped);
    void open(Entry &entry, CUcontext context, const MappingHandle &handle);
    void count_cost(double seconds);
    void erase(Entries::iterator entry);
    void bound();

    std::atomic<uint64_t> generation_{0};  // written with mutex_ held
    std::atomic<uint64_t> unhooked_generation_{uint64_t{1} << 63};
    std::mutex mutex_;
    Entries entries_;
    std::list<Key> ages_;               // least recently used first
    std::map<uint64_t, Owner> owners_;  // that belongs_to() was told of
    double cost_seconds_;               // of opening and closing, as measured
    MappingPrior prior_;
    std::atomic<bool> begun_{false};
    std::atomic<bool> any_opened_{false};  // written with mutex_ held
    size_t mapped_ = 0;
};

}  // namespace gpushm
