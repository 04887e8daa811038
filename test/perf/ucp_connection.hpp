// SPDX-License-Identifier: BSD-3-Clause
// A UCP worker and its endpoint to the other side.
#pragma once

#include "side_pair.hpp"
#include "ucp_library.hpp"

#include <vector>

namespace gpushm::perf {

/** One thread. All calls throw std::runtime_error when UCP fails. */
class UcpConnection {
public:
    UcpConnection(const UcpLibrary &ucp, Side &side);

    /** Both sides must do it at the same time. */
    ~UcpConnection();
    UcpConnection(const UcpConnection &) = delete;
    UcpConnection &operator=(const UcpConnection &) = delete;

    void progress() const { ucp_.ucp_worker_progress(worker_); }
    Side::Progress progress_function() const {
        return [this] { progress(); };
    }

    /** Requests to be given to `wait`; null when over already. */
    ucs_status_ptr_t send(const void *data, size_t bytes, ucp_tag_t tag) const;
    ucs_status_ptr_t receive(void *data, size_t bytes, ucp_tag_t tag) const;

    void wait(ucs_status_ptr_t request) const;
    void wait_all(std::vector<ucs_status_ptr_t> *requests) const;

private:
    std::string worker_address() const;

    const UcpLibrary &ucp_;
    Side &side_;
    ucp_context_h context_ = nullptr;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h endpoint_ = nullptr;
};

}  // namespace gpushm::perf
