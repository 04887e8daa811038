// SPDX-License-Identifier: BSD-3-Clause
#include "standby_log.hpp"

#include "check.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace gpushm::ucp_test {
namespace {

constexpr const char *kFolder = "GPUSHM_TEST_STANDBY_LOGS";

bool is_wanted(const Options &options) {
    return options.has("standby-least") || options.has("standby-most");
}

struct Use {
    unsigned long long launches = 0;
    unsigned long long copies = 0;
    bool given_up = false;
};

/** Of the context that had most copies; each log line counts from the beginning. */
Use use_of_kernel(const std::string &path) {
    static const std::string kSays = "the standby kernel was launched ";
    Use use;
    std::ifstream log(path);
    for (std::string line; std::getline(log, line);) {
        const size_t at = line.find(kSays);
        unsigned long long launches = 0;
        unsigned long long copies = 0;
        if (at != std::string::npos &&
            sscanf(line.c_str() + at + kSays.size(), "%llu times, took %llu copies", &launches,
                   &copies) == 2) {
            use.launches = std::max(use.launches, launches);
            use.copies = std::max(use.copies, copies);
        }
        use.given_up |= line.find("launches return when it has left") != std::string::npos;
    }
    return use;
}

}  // namespace

StandbyLogs::StandbyLogs(const Options &options) {
    if (!is_wanted(options)) {
        return;
    }
    char path[] = "/tmp/gpushm_standby_XXXXXX";
    if (mkdtemp(path) == nullptr) {
        fail("mkdtemp");
    }
    folder_ = path;
    setenv(kFolder, path, 1);
    setenv("UCX_LOG_LEVEL", "debug", 1);
    setenv("UCX_LOG_FILE", (folder_ + "/%p").c_str(), 1);
}

void StandbyLogs::remove(const std::vector<pid_t> &processes) const {
    if (folder_.empty()) {
        return;
    }
    for (pid_t process : processes) {
        unlink((folder_ + "/" + std::to_string(process)).c_str());
    }
    rmdir(folder_.c_str());
}

void check_standby_log(const Options &options) {
    if (!is_wanted(options)) {
        return;
    }
    fflush(nullptr);  // UCX's log among others
    const char *folder = getenv(kFolder);
    const Use use =
        use_of_kernel(std::string(folder != nullptr ? folder : "") + "/" + std::to_string(getpid()));
    const bool too_few = use.copies < options.number("standby-least", 0);
    if (too_few && use.given_up) {
        printf("the standby kernel was given up: this machine is too busy\n");
    } else if (too_few || use.launches > options.number("standby-most", ~size_t{0})) {
        fail("the standby kernel took %llu copies in %llu launches", use.copies, use.launches);
    }
}

}  // namespace gpushm::ucp_test
