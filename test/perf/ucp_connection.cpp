// SPDX-License-Identifier: BSD-3-Clause
#include "ucp_connection.hpp"

namespace gpushm::perf {

UcpConnection::UcpConnection(const UcpLibrary &ucp, Side &side) : ucp_(ucp), side_(side) {
    ucp_params_t context_parameters = {};
    context_parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    context_parameters.features = UCP_FEATURE_TAG;
    ucp_.require(ucp_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &context_parameters, nullptr,
                                       &context_),
                 "ucp_init");
    ucp_worker_params_t worker_parameters = {};
    worker_parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
    ucp_.require(ucp_.ucp_worker_create(context_, &worker_parameters, &worker_),
                 "ucp_worker_create");
    const std::string address = side_.exchange(worker_address(), progress_function());
    ucp_ep_params_t endpoint_parameters = {};
    endpoint_parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    endpoint_parameters.address = reinterpret_cast<const ucp_address_t *>(address.data());
    ucp_.require(ucp_.ucp_ep_create(worker_, &endpoint_parameters, &endpoint_), "ucp_ep_create");
}

UcpConnection::~UcpConnection() {
    ucp_request_param_t parameters = {};
    ucs_status_ptr_t request = ucp_.ucp_ep_close_nbx(endpoint_, &parameters);
    if (UCS_PTR_IS_PTR(request)) {
        while (ucp_.ucp_request_check_status(request) == UCS_INPROGRESS) {
            progress();
        }
        ucp_.ucp_request_free(request);
    }
    side_.barrier(progress_function());
    ucp_.ucp_worker_destroy(worker_);
    ucp_.ucp_cleanup(context_);
}

std::string UcpConnection::worker_address() const {
    ucp_worker_attr_t attributes = {};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    ucp_.require(ucp_.ucp_worker_query(worker_, &attributes), "ucp_worker_query");
    const std::string address(reinterpret_cast<const char *>(attributes.address),
                              attributes.address_length);
    ucp_.ucp_worker_release_address(worker_, attributes.address);
    return address;
}

ucs_status_ptr_t UcpConnection::send(const void *data, size_t bytes, ucp_tag_t tag) const {
    ucp_request_param_t parameters = {};
    return ucp_.ucp_tag_send_nbx(endpoint_, data, bytes, tag, &parameters);
}

ucs_status_ptr_t UcpConnection::receive(void *data, size_t bytes, ucp_tag_t tag) const {
    ucp_request_param_t parameters = {};
    return ucp_.ucp_tag_recv_nbx(worker_, data, bytes, tag, ~ucp_tag_t{0}, &parameters);
}

void UcpConnection::wait(ucs_status_ptr_t request) const {
    if (!UCS_PTR_IS_PTR(request)) {
        ucp_.require(UCS_PTR_STATUS(request), "a message");
        return;
    }
    ucs_status_t status;
    while ((status = ucp_.ucp_request_check_status(request)) == UCS_INPROGRESS) {
        progress();
    }
    ucp_.ucp_request_free(request);
    ucp_.require(status, "a message");
}

void UcpConnection::wait_all(std::vector<ucs_status_ptr_t> *requests) const {
    for (ucs_status_ptr_t request : *requests) {
        wait(request);
    }
    requests->clear();
}

}  // namespace gpushm::perf
