// SPDX-License-Identifier: BSD-3-Clause
// Memory that another process may put into and get from.
#pragma once

#include "scenarios.hpp"
#include "session.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace gpushm::ucp_test {

/** Memory that the other process may read and write. */
class ExposedMemory {
public:
    ExposedMemory(const Session &session, void *address, size_t length);
    ~ExposedMemory();
    ExposedMemory(const ExposedMemory &) = delete;
    ExposedMemory &operator=(const ExposedMemory &) = delete;

    std::string key() const;

private:
    const Session &session_;
    ucp_mem_h memory_ = nullptr;
};

/** Memory of the other process. */
struct RemoteMemory {
    RemoteMemory(const Session &session, uint64_t address, const std::string &packed_key);
    ~RemoteMemory();
    RemoteMemory(const RemoteMemory &) = delete;
    RemoteMemory &operator=(const RemoteMemory &) = delete;

    uint64_t address;
    ucp_rkey_h key = nullptr;
};

/** Tells the other process where memory is. */
void offer(Peer &peer, const void *address, const std::string &key);
/** What the other process offered. */
std::unique_ptr<RemoteMemory> accept(Peer &peer, const Session &session, const Progress &progress);

}  // namespace gpushm::ucp_test
