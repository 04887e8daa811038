// SPDX-License-Identifier: BSD-3-Clause
// What a test process holds of UCP: a context, workers, endpoints.
#pragma once

#include "channel.hpp"

#include <ucp/api/ucp.h>

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gpushm::ucp_test {

struct ContextSettings {
    uint64_t features = UCP_FEATURE_TAG;
    bool shared_by_threads = false;
};

class Context {
public:
    explicit Context(const ContextSettings &settings);
    ~Context();
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ucp_context_h get() const { return context_; }

private:
    ucp_context_h context_ = nullptr;
};

class Worker {
public:
    explicit Worker(const Context &context, ucs_thread_mode_t mode = UCS_THREAD_MODE_SINGLE);
    ~Worker();
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;

    ucp_worker_h get() const { return worker_; }
    ucs_thread_mode_t thread_mode() const;
    std::string address() const;
    unsigned progress() const { return ucp_worker_progress(worker_); }
    /** For a Channel. */
    Progress progress_function() const;

    /** Progresses until the request has ended, releases it and returns how it ended. `request` is
     * what an _nbx function returned. Fails the test after a minute. */
    ucs_status_t wait(ucs_status_ptr_t request) const;

private:
    ucp_worker_h worker_ = nullptr;
};

class Endpoint {
public:
    /** `address` is that of a worker. */
    Endpoint(const Worker &worker, const std::string &address,
             ucp_err_handling_mode_t mode = UCP_ERR_HANDLING_MODE_NONE);
    /** Null when UCX knows no way to the address. */
    static std::unique_ptr<Endpoint> try_connect(const Worker &worker, const std::string &address,
                                                 ucp_err_handling_mode_t mode);
    /** Closes by force where errors are handled, else after a flush. */
    ~Endpoint();
    Endpoint(const Endpoint &) = delete;
    Endpoint &operator=(const Endpoint &) = delete;

    ucp_ep_h get() const { return ep_; }
    /** What the error callback was told; UCS_OK while it was not called. */
    ucs_status_t error() const { return error_; }
    /** Closes; the request's status. flags: UCP_EP_CLOSE_FLAG_FORCE or 0. */
    ucs_status_t close(unsigned flags);
    /** The caller closes it. */
    ucp_ep_h release() { return std::exchange(ep_, nullptr); }

private:
    Endpoint(const Worker &worker, ucp_err_handling_mode_t mode) : worker_(worker), mode_(mode) {}
    ucs_status_t create(const std::string &address);

    const Worker &worker_;
    ucp_ep_h ep_ = nullptr;
    ucp_err_handling_mode_t mode_;
    ucs_status_t error_ = UCS_OK;
};

/** One worker of each process, connected. */
class Session {
public:
    Session(Channel &channel, uint64_t features,
            ucp_err_handling_mode_t mode = UCP_ERR_HANDLING_MODE_NONE,
            bool shared_by_threads = false);
    /** To oneself. */
    explicit Session(uint64_t features);

    const Context &context() const { return context_; }
    Worker &worker() { return worker_; }
    const Worker &worker() const { return worker_; }
    /** Null when disconnect() was called. */
    Endpoint *endpoint() { return endpoint_.get(); }
    ucp_ep_h ep() const { return endpoint_->get(); }
    void connect(const std::string &address, ucp_err_handling_mode_t mode);
    void disconnect() { endpoint_.reset(); }

private:
    Context context_;
    Worker worker_;
    std::unique_ptr<Endpoint> endpoint_;
};

/** Parameters of a request that nobody is told of when it completes. */
ucp_request_param_t plain_request();

/** Seconds of a clock that never goes back. */
double now_seconds();

/** By a signal (SIGSTOP). */
bool is_stopped(pid_t process);

}  // namespace gpushm::ucp_test
