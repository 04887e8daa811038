// SPDX-License-Identifier: BSD-3-Clause
// Which GPU memory of other processes is mapped into this one, and when a mapping is made.
#pragma once

#include "core/base/fork_safe.hpp"
#include "core/mapping/mapping_prior.hpp"
#include "core/mapping/peer_mapping.hpp"
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
#include <utility>

namespace gpushm {

/** The mappings of the process. A mapping is made at the first or second message of a buffer as
 * long as experience recommends it (MappingPrior) and the owner lets something be mapped.
 * Otherwise it is made when the time that was lost without it equals its cost, so that the total
 * never exceeds twice the optimum (the rule of "ski rental"; Karlin et al., Algorithmica 1988).
 * Where the driver does not open a handle yet, the owner is asked again at the 2nd, 4th, 8th, ...
 * message.
 * Costs: doc/decisions/mapping-costs.md.
 *
 * Thread safe. */
class IpcMappingCache {
public:
    static IpcMappingCache &instance();

    /** The mapping of a peer's buffer for copies in `context`; null when there is none. */
    std::shared_ptr<PeerMapping> find(const BufferKey &name, CUcontext context);

    /** Changes whenever find() may answer otherwise than before; the end of a context counts.
     * Without hooks it changes with every call. */
    uint64_t generation();

    /** The driver sets up the access to another GPU with the first mapping of its memory and ends
     * it with the last one, 1 ms each (doc/decisions/mapping-costs.md). So one mapping of each GPU
     * stays. Its memory is of a peer that keeps it (announced_memory()).
     *
     * Whether such memory of the GPU `device` (BufferKey::device) is mapped, or asked for, in the
     * context with this id. */
    bool keeps_access(unsigned long long context_id, uint64_t device);
    /** The caller maps `name` for that: find() and missed() follow. False: its owner gives no
     * handle. */
    bool keep_access(const BufferKey &name, CUcontext context, unsigned long long context_id);

    /** A message did not use a mapping, which took `seconds` more. `ready`: only the mapping was
     * missing. True when the caller must ask the owner for a handle, once for each buffer and
     * context. */
    bool missed(const BufferKey &name, CUcontext context, double seconds, bool ready);

    /** The answer of the owner: opens the handle for every context that asked for it; the caller
     * has a ContextLifetimeLock. Null: the owner gives none, and the buffer is not asked for
     * again. */
    void receive(uint64_t owner, uint64_t buffer_id, const MappingHandle *handle);

    /** Whether `owner`, which a peer names in its keys, is the peer's process `pid`, according to
     * the process that named it first. So memory of a broken peer is not taken for memory of
     * another process. */
    bool belongs_to(uint64_t owner, pid_t pid);

    /** The owner freed the buffer, or must not be asked any more. */
    void forget_buffer(uint64_t owner, uint64_t buffer_id);
    void forget_process(uint64_t owner);

private:
    friend class ForkSafe<IpcMappingCache>;
    enum class State { counted, requested, mapped, refused };
    using Key = std::tuple<uint64_t, uint64_t, CUcontext>;  // owner, buffer id, context
    struct Entry {
        State state = State::counted;
        uint64_t messages = 0;  // that did not use a mapping
        uint64_t next_try = 1;  // the owner is not asked before that message
        bool on_trust = false;  // it was asked for at the first message
        double missed_seconds = 0;
        BufferKey name;
        unsigned long long context_id = 0;  // when it was requested
        std::shared_ptr<PeerMapping> mapping;
        std::list<Key>::iterator age;
    };
    struct Owner {
        pid_t pid;              // that named the owner first
        unsigned refusals = 0;  // in a row
    };
    using Entries = std::map<Key, Entry>;

    IpcMappingCache();
    Entry &touch(const Key &key);
    bool is_worth_asking(Entry &entry, bool ready);
    bool is_keeper(const Key &key) const;
    bool lets_map(uint64_t owner) const;
    void note_outcome(uint64_t owner, bool mapped);
    void free_place_of(uint64_t owner, uint64_t buffer_id);
    void forget_replaced(const BufferKey &name);
    void open(const Key &key, Entry &entry, const MappingHandle &handle);
    void count_cost(const Key &key, double seconds);
    void erase(Entries::iterator entry);
    template <typename Condition>
    void erase_if(uint64_t owner, Condition condition);
    template <typename Action>
    void for_each(uint64_t owner, uint64_t buffer_id, Action action);
    void bound();

    std::atomic<uint64_t> generation_{0};  // written with mutex_ held
    std::atomic<uint64_t> unhooked_generation_{uint64_t{1} << 63};
    std::mutex mutex_;
    Entries entries_;
    std::list<Key> ages_;               // least recently used first
    std::map<uint64_t, Owner> owners_;  // known by belongs_to()
    double cost_seconds_;               // of opening and closing, as measured
    MappingPrior prior_;
    bool any_opened_ = false;
    std::map<std::pair<unsigned long long, uint64_t>, Key> keepers_;  // context id, device
    size_t mapped_ = 0;
};

}  // namespace gpushm
