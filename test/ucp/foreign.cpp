// SPDX-License-Identifier: BSD-3-Clause
// A peer whose gpushm is of another protocol version, or of another user.
#include "check.hpp"
#include "session.hpp"
#include "scenarios.hpp"

#include "uct_gpushm/addresses.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace gpushm::ucp_test {
namespace {

/** How a device address of gpushm begins inside of a worker's address. */
std::string device_address_start() {
    uct::DeviceAddress address = {};
    address.kind = uct::InterfaceKind::shared_memory;
    address.protocol_version = static_cast<uint8_t>(kProtocolVersion);
    address.user_id = geteuid();
    return std::string(reinterpret_cast<const char *>(&address),
                       offsetof(uct::DeviceAddress, node));
}

std::string changed_address(std::string address, const std::string &what) {
    const std::string start = device_address_start();
    size_t changes = 0;
    for (size_t at = address.find(start); at != std::string::npos;
         at = address.find(start, at + 1)) {
        address[at + (what == "version" ? offsetof(uct::DeviceAddress, protocol_version)
                                        : offsetof(uct::DeviceAddress, user_id))] ^= 0x40;
        ++changes;
    }
    if (changes == 0) {
        fail("no device address of gpushm in the worker's address");
    }
    return address;
}

}  // namespace

void foreign_peer(Peer &peer) {
    set_activity("foreign peer");
    const Context context({UCP_FEATURE_TAG, false});
    const Worker worker(context);
    const Progress progress = worker.progress_function();
    const std::string address = peer.channel.exchange(worker.address(), progress);
    const Endpoint endpoint(worker, changed_address(address, peer.options.text("what", "version")));
    const ucp_request_param_t parameters = plain_request();
    int out = 40 + peer.role;
    int in = 0;
    ucs_status_ptr_t receive =
        ucp_tag_recv_nbx(worker.get(), &in, sizeof(in), 1, ~ucp_tag_t{0}, &parameters);
    require(worker.wait(ucp_tag_send_nbx(endpoint.get(), &out, sizeof(out), 1, &parameters)),
            "send");
    require(worker.wait(receive), "receive");
    if (in != 41 - peer.role) {
        fail("expected %d, got %d", 41 - peer.role, in);
    }
    peer.channel.barrier(progress);
}

}  // namespace gpushm::ucp_test
