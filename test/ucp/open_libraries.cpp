// SPDX-License-Identifier: BSD-3-Clause
// A program that is not linked to UCX but opens one, or several, when it runs:
//   open_libraries [namespace:]LIBUCP=gpushm|other ...
//
// Each libucp is opened with RTLD_LOCAL, after "namespace:" in a link-map namespace of its own
// (dlmopen(3)). Each sends messages to itself, all at the same time, over gpushm or not, as was
// said. Status 0 when it was so and every byte came.
#include "../mpi/pattern.hpp"

#include <ucp/api/ucp.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::ucp_test {
namespace {

constexpr size_t kSizes[] = {8, 9000, 300001};

[[noreturn]] void fail(const std::string &reason) {
    fprintf(stderr, "FAILED: %s\n", reason.c_str());
    fflush(nullptr);
    _exit(1);
}

void *open_library(const std::string &name) {
    static const std::string prefix = "namespace:";
    void *handle = name.compare(0, prefix.size(), prefix) == 0
                       ? dlmopen(LM_ID_NEWLM, name.c_str() + prefix.size(), RTLD_NOW | RTLD_LOCAL)
                       : dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        fail(dlerror());
    }
    return handle;
}

// The type is that of the header, the function that of the library.
#define CALL(function) reinterpret_cast<decltype(&(function))>(symbol(#function))

/** An endpoint from a worker to itself, in one UCX. */
class Library {
public:
    explicit Library(const std::string &name) : name_(name), handle_(open_library(name)) {
        ucp_params_t parameters = {};
        parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
        parameters.features = UCP_FEATURE_TAG;
        ucp_context_h context = nullptr;
        check(CALL(ucp_init_version)(UCP_API_MAJOR, UCP_API_MINOR, &parameters, nullptr, &context));
        const ucp_worker_params_t worker_parameters = {};
        check(CALL(ucp_worker_create)(context, &worker_parameters, &worker_));
        size_t length = 0;
        ucp_ep_params_t endpoint = {};
        endpoint.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        ucp_address_t *address = nullptr;
        check(CALL(ucp_worker_get_address)(worker_, &address, &length));
        endpoint.address = address;
        check(CALL(ucp_ep_create)(worker_, &endpoint, &ep_));
    }

    bool uses_gpushm() const {
        char *text = nullptr;
        size_t length = 0;
        FILE *stream = open_memstream(&text, &length);
        CALL(ucp_ep_print_info)(ep_, stream);
        fclose(stream);
        const bool found = strstr(text, "gpushm/gpushm") != nullptr;
        free(text);
        return found;
    }

    void start(uint64_t seed) {
        const ucp_request_param_t parameters = {};
        for (const size_t size : kSizes) {
            sent_.emplace_back(size);
            received_.emplace_back(size);
            mpi_test::fill_pattern(sent_.back().data(), size, seed + size);
            requests_.push_back(CALL(ucp_tag_recv_nbx)(worker_, received_.back().data(), size, size,
                                                       ~ucp_tag_t{0}, &parameters));
            requests_.push_back(
                CALL(ucp_tag_send_nbx)(ep_, sent_.back().data(), size, size, &parameters));
        }
    }

    /** True when all is over. */
    bool progress() {
        CALL(ucp_worker_progress)(worker_);
        return std::none_of(requests_.begin(), requests_.end(), [this](ucs_status_ptr_t request) {
            return UCS_PTR_IS_PTR(request) &&
                   CALL(ucp_request_check_status)(request) == UCS_INPROGRESS;
        });
    }

    void check_messages() const {
        for (ucs_status_ptr_t request : requests_) {
            check(UCS_PTR_IS_PTR(request) ? CALL(ucp_request_check_status)(request)
                                          : UCS_PTR_STATUS(request));
        }
        if (sent_ != received_) {
            fail(name_ + ": wrong data");
        }
    }

private:
    void *symbol(const char *symbol_name) const {
        void *found = dlsym(handle_, symbol_name);
        if (found == nullptr) {
            fail(dlerror());
        }
        return found;
    }
    void check(ucs_status_t status) const {
        if (status != UCS_OK) {
            fail(name_ + ": status " + std::to_string(status));
        }
    }

    std::string name_;
    void *handle_;
    ucp_worker_h worker_ = nullptr;
    ucp_ep_h ep_ = nullptr;
    std::vector<std::vector<unsigned char>> sent_;
    std::vector<std::vector<unsigned char>> received_;
    std::vector<ucs_status_ptr_t> requests_;
};

void run(const std::vector<std::string> &arguments) {
    std::vector<std::unique_ptr<Library>> libraries;
    for (const std::string &argument : arguments) {
        const size_t end = argument.rfind('=');
        libraries.push_back(std::make_unique<Library>(argument.substr(0, end)));
        if (libraries.back()->uses_gpushm() != (argument.substr(end + 1) == "gpushm")) {
            fail("not as was said: " + argument);
        }
    }
    uint64_t seed = 1;
    for (const auto &library : libraries) {
        library->start(seed++);
    }
    for (bool over = false; !over;) {
        over = true;
        for (const auto &library : libraries) {
            over &= library->progress();
        }
    }
    for (const auto &library : libraries) {
        library->check_messages();
    }
}

}  // namespace
}  // namespace gpushm::ucp_test

int main(int argc, char **argv) {
    gpushm::ucp_test::run({argv + 1, argv + argc});
    fflush(nullptr);
    _exit(0);  // nothing was closed
}
