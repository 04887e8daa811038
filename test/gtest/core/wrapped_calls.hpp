// SPDX-License-Identifier: BSD-3-Clause
// Calls of the core, of the system and for memory, that tests step into. The test program is linked
// with --wrap (ld(1)) for each of them; without an object of this file they do what they always do.
#pragma once

#include <cstddef>
#include <functional>

namespace gpushm::test {

/** While it lives, every mapping of one shared file in this process is the same mapping. Two
 * threads that talk through a segment, which each of them attached for itself, then use the same
 * addresses, and ThreadSanitizer sees what they do to each other. One at a time. */
class OneMappingPerFile {
public:
    OneMappingPerFile();
    /** All mappings made meanwhile must be gone. */
    ~OneMappingPerFile();
    OneMappingPerFile(const OneMappingPerFile &) = delete;
    OneMappingPerFile &operator=(const OneMappingPerFile &) = delete;
};

/** While it lives, mmap(2) of a file fails with ENOMEM. */
class NoMappings {
public:
    NoMappings();
    ~NoMappings();
    NoMappings(const NoMappings &) = delete;
    NoMappings &operator=(const NoMappings &) = delete;
};

/** While it lives, one call fails as it does when memory or descriptors are used up: the n-th (from
 * 0) of memfd_create, posix_fallocate, mmap of a file, open, socket and pidfd_open together. */
class FailingCall {
public:
    explicit FailingCall(unsigned n);
    ~FailingCall();
    FailingCall(const FailingCall &) = delete;
    FailingCall &operator=(const FailingCall &) = delete;
    /** Which call it was; null when there were not so many. */
    const char *name() const;
};

/** While it lives, posix_fallocate is interrupted as by a quick timer: always when it is to reserve
 * more than `longest` bytes, and else every other time. */
class InterruptedReservations {
public:
    explicit InterruptedReservations(size_t longest);
    ~InterruptedReservations();
    InterruptedReservations(const InterruptedReservations &) = delete;
    InterruptedReservations &operator=(const InterruptedReservations &) = delete;
};

/** While it lives, copies between processes work so many times and are refused (EPERM) then. */
class RefusedCopies {
public:
    RefusedCopies(unsigned reads_before, unsigned writes_before);
    ~RefusedCopies();
    RefusedCopies(const RefusedCopies &) = delete;
    RefusedCopies &operator=(const RefusedCopies &) = delete;
    /** Copies of both kinds that were tried. */
    unsigned reads() const;
    unsigned writes() const;
};

/** While it lives, what forked children take of the heap and give back is counted, from their first
 * instruction on, in each child for itself. */
class HeapCallsOfChildren {
public:
    HeapCallsOfChildren();
    ~HeapCallsOfChildren();
    HeapCallsOfChildren(const HeapCallsOfChildren &) = delete;
    HeapCallsOfChildren &operator=(const HeapCallsOfChildren &) = delete;
    unsigned count() const;
};

/** While it lives, every socket of the core has another datagram, an empty one, as from a sender
 * that never stops. It does stop after kMax, so that a test ends that fails. */
class EndlessDatagrams {
public:
    static constexpr unsigned kMax = 1u << 20;

    EndlessDatagrams();
    ~EndlessDatagrams();
    EndlessDatagrams(const EndlessDatagrams &) = delete;
    EndlessDatagrams &operator=(const EndlessDatagrams &) = delete;
    /** Whether the core went on until there were none. */
    bool all_taken() const;
};

/** While it lives, one allocation of this thread fails (std::bad_alloc): the n-th, from 0. */
class FailingHeap {
public:
    explicit FailingHeap(unsigned n);
    ~FailingHeap();
    FailingHeap(const FailingHeap &) = delete;
    FailingHeap &operator=(const FailingHeap &) = delete;
    /** False when there were not so many. */
    bool has_failed() const;
};

/** Runs `action` just before the next poll(2) of the core, once. */
void before_next_poll(std::function<void()> action);

}  // namespace gpushm::test
