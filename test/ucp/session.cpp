// SPDX-License-Identifier: BSD-3-Clause
#include "session.hpp"

#include "check.hpp"

#include <sched.h>
#include <time.h>

#include <cstdio>

namespace gpushm::ucp_test {
namespace {

constexpr double kPatienceSeconds = 60;

}  // namespace

double now_seconds() {
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

bool is_stopped(pid_t process) {
    char state = '?';  // the letter of proc(5)
    const std::string path = "/proc/" + std::to_string(process) + "/stat";
    if (FILE *file = fopen(path.c_str(), "re")) {
        (void)!fscanf(file, "%*d (%*[^)]) %c", &state);
        fclose(file);
    }
    return state == 'T';
}

ucp_request_param_t plain_request() {
    ucp_request_param_t parameters = {};
    return parameters;
}

// ---------------------------------------------------------------- context

Context::Context(const ContextSettings &settings) {
    ucp_params_t parameters = {};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    parameters.features = settings.features;
    parameters.mt_workers_shared = settings.shared_by_threads ? 1 : 0;
    require(ucp_init(&parameters, nullptr, &context_), "ucp_init");
}

Context::~Context() {
    ucp_cleanup(context_);
}

// ---------------------------------------------------------------- worker

Worker::Worker(const Context &context, ucs_thread_mode_t mode) {
    ucp_worker_params_t parameters = {};
    parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    parameters.thread_mode = mode;
    require(ucp_worker_create(context.get(), &parameters, &worker_), "ucp_worker_create");
}

Worker::~Worker() {
    ucp_worker_destroy(worker_);
}

ucs_thread_mode_t Worker::thread_mode() const {
    ucp_worker_attr_t attributes = {};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE;
    require(ucp_worker_query(worker_, &attributes), "ucp_worker_query");
    return attributes.thread_mode;
}

std::string Worker::address() const {
    ucp_worker_attr_t attributes = {};
    attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
    require(ucp_worker_query(worker_, &attributes), "ucp_worker_query");
    const std::string address(reinterpret_cast<const char *>(attributes.address),
                              attributes.address_length);
    ucp_worker_release_address(worker_, attributes.address);
    return address;
}

Progress Worker::progress_function() const {
    return [this] { progress(); };
}

ucs_status_t Worker::wait(ucs_status_ptr_t request) const {
    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    const double deadline = now_seconds() + kPatienceSeconds;
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        if (progress() != 0) {
            continue;
        }
        if (now_seconds() > deadline) {
            fail("a request does not end");
        }
        sched_yield();  // there may be more threads than cores
    }
    ucp_request_free(request);
    return status;
}

// ---------------------------------------------------------------- endpoint

Endpoint::Endpoint(const Worker &worker, const std::string &address, ucp_err_handling_mode_t mode)
    : Endpoint(worker, mode) {
    require(create(address), "ucp_ep_create");
}

std::unique_ptr<Endpoint> Endpoint::try_connect(const Worker &worker, const std::string &address,
                                                ucp_err_handling_mode_t mode) {
    std::unique_ptr<Endpoint> endpoint(new Endpoint(worker, mode));
    return endpoint->create(address) == UCS_OK ? std::move(endpoint) : nullptr;
}

ucs_status_t Endpoint::create(const std::string &address) {
    ucp_ep_params_t parameters = {};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t *>(address.data());
    parameters.err_mode = mode_;
    parameters.err_handler.arg = &error_;
    parameters.err_handler.cb = [](void *error, ucp_ep_h, ucs_status_t status) {
        *static_cast<ucs_status_t *>(error) = status;
    };
    return ucp_ep_create(worker_.get(), &parameters, &ep_);
}

Endpoint::~Endpoint() {
    if (ep_ != nullptr) {
        close(mode_ == UCP_ERR_HANDLING_MODE_PEER ? UCP_EP_CLOSE_FLAG_FORCE : 0);
    }
}

ucs_status_t Endpoint::close(unsigned flags) {
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = flags;
    const ucs_status_t status = worker_.wait(ucp_ep_close_nbx(ep_, &parameters));
    ep_ = nullptr;
    return status;
}

// ---------------------------------------------------------------- session

Session::Session(Channel &channel, uint64_t features, ucp_err_handling_mode_t mode,
                 bool shared_by_threads)
    : context_({features, false}),
      worker_(context_, shared_by_threads ? UCS_THREAD_MODE_MULTI : UCS_THREAD_MODE_SINGLE) {
    connect(channel.exchange(worker_.address(), worker_.progress_function()), mode);
}

Session::Session(uint64_t features) : context_({features, false}), worker_(context_) {
    connect(worker_.address(), UCP_ERR_HANDLING_MODE_NONE);
}

void Session::connect(const std::string &address, ucp_err_handling_mode_t mode) {
    endpoint_ = std::make_unique<Endpoint>(worker_, address, mode);
}

}  // namespace gpushm::ucp_test
