// SPDX-License-Identifier: BSD-3-Clause
#include "core/shm/descriptor_channel.hpp"

#include "core/base/abstract_address.hpp"
#include "core/base/log.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gpushm {
namespace {

constexpr char kPurpose[] = "descriptors";

// Processes of other users can send, too. More than a socket usually holds
// (net.unix.max_dgram_qlen).
constexpr unsigned kMaxDatagrams = 1024;

union Control {
    cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
};

/** The contents of one datagram. */
struct Attached {
    UniqueFd descriptor;
    bool same_user = false;
};

/** The descriptor of a control message that has only one; else none. All descriptors are taken, so
 * that none stays open. */
UniqueFd take_descriptors(cmsghdr *part) {
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    UniqueFd taken;
    for (size_t i = 0; i < count; ++i) {
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(descriptor), sizeof(descriptor));
        taken = UniqueFd(descriptor);
    }
    return count == 1 ? std::move(taken) : UniqueFd();
}

Attached take_attached(msghdr &message) {
    Attached attached;
    for (cmsghdr *part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET) {
            continue;
        }
        if (part->cmsg_type == SCM_RIGHTS) {
            attached.descriptor = take_descriptors(part);
        } else if (part->cmsg_type == SCM_CREDENTIALS) {
            ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof(sender));
            attached.same_user = sender.uid == geteuid();
        }
    }
    return attached;
}

}  // namespace

bool DescriptorReceiver::open(const Cookie &cookie) {
    if (socket_) {
        return true;
    }
    UniqueFd made = bind_abstract(kPurpose, cookie);
    const int yes = 1;
    // A sender that has not been told of this socket sends nothing before the option is set.
    if (!made || setsockopt(made.get(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) != 0) {
        GPUSHM_LOG_ONCE(warn,
                        "cannot make a socket for descriptors of GPU memory (%s): such memory is "
                        "copied through host memory; raise the limit of open files (ulimit -n)",
                        strerror(errno));
        return false;
    }
    socket_ = std::move(made);
    return true;
}

UniqueFd DescriptorReceiver::take_kept(const DescriptorTag &tag) {
    const auto found =
        std::find_if(kept_.begin(), kept_.end(), [&](const Kept &kept) { return kept.tag == tag; });
    if (found == kept_.end()) {
        return UniqueFd();
    }
    UniqueFd descriptor = std::move(found->descriptor);
    kept_.erase(found);
    return descriptor;
}

UniqueFd DescriptorReceiver::receive(const DescriptorTag &tag) {
    if (UniqueFd kept = take_kept(tag)) {
        return kept;
    }
    DescriptorTag received_tag = {};
    iovec data = {&received_tag, sizeof(received_tag)};
    for (unsigned i = 0; i < kMaxDatagrams; ++i) {
        Control control;
        msghdr message = {};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        const ssize_t length = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (length < 0) {
            return UniqueFd();
        }
        Attached attached = take_attached(message);
        if (length != sizeof(received_tag) || !attached.same_user || !attached.descriptor) {
            continue;
        }
        if (received_tag == tag) {
            return std::move(attached.descriptor);
        }
        if (kept_.size() == kMaxKept) {  // its sender may have died before it said that it has sent
            kept_.pop_front();
        }
        kept_.push_back({received_tag, std::move(attached.descriptor)});
    }
    GPUSHM_LOG_ONCE(warn,
                    "the socket for descriptors of GPU memory of this process never becomes empty: "
                    "such memory is copied through host memory; find the process that sends to "
                    "@gpushm-descriptors-... (ss -xap)");
    return UniqueFd();
}

bool send_descriptor(const Cookie &cookie, const DescriptorTag &tag, const UniqueFd &descriptor) {
    const UniqueFd sender(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    DescriptorTag sent_tag = tag;
    iovec data = {&sent_tag, sizeof(sent_tag)};
    Control control = {};
    msghdr message = {};
    message.msg_name = &address;
    message.msg_namelen = abstract_address(kPurpose, cookie, &address);
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr *part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = descriptor.get();
    memcpy(CMSG_DATA(part), &number, sizeof(number));
    const bool sent = sender && sendmsg(sender.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
                                    static_cast<ssize_t>(sizeof(tag));
    if (!sent) {
        GPUSHM_LOG(debug, "cannot hand a descriptor of GPU memory to a peer (%s)", strerror(errno));
    }
    return sent;
}

}  // namespace gpushm
