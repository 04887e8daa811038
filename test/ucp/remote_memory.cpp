// SPDX-License-Identifier: BSD-3-Clause
#include "remote_memory.hpp"

#include "check.hpp"

namespace gpushm::ucp_test {

ExposedMemory::ExposedMemory(const Session &session, void *address, size_t length)
    : session_(session) {
    ucp_mem_map_params_t parameters = {};
    parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    parameters.address = address;
    parameters.length = length;
    require(ucp_mem_map(session.context().get(), &parameters, &memory_), "ucp_mem_map");
}

ExposedMemory::~ExposedMemory() {
    ucp_mem_unmap(session_.context().get(), memory_);
}

std::string ExposedMemory::key() const {
    void *buffer = nullptr;
    size_t length = 0;
    require(ucp_rkey_pack(session_.context().get(), memory_, &buffer, &length), "ucp_rkey_pack");
    const std::string key(static_cast<const char *>(buffer), length);
    ucp_rkey_buffer_release(buffer);
    return key;
}

RemoteMemory::RemoteMemory(const Session &session, uint64_t address, const std::string &packed_key)
    : address(address) {
    require(ucp_ep_rkey_unpack(session.ep(), packed_key.data(), &key), "ucp_ep_rkey_unpack");
}

RemoteMemory::~RemoteMemory() {
    ucp_rkey_destroy(key);
}

void offer(Peer &peer, const void *address, const std::string &key) {
    const auto place = reinterpret_cast<uint64_t>(address);
    peer.channel.send(std::string(reinterpret_cast<const char *>(&place), sizeof(place)) + key);
}

std::unique_ptr<RemoteMemory> accept(Peer &peer, const Session &session, const Progress &progress) {
    const std::string offered = peer.channel.receive(progress);
    uint64_t address = 0;
    offered.copy(reinterpret_cast<char *>(&address), sizeof(address));
    return std::make_unique<RemoteMemory>(session, address, offered.substr(sizeof(address)));
}

}  // namespace gpushm::ucp_test
