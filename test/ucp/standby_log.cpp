// SPDX-License-Identifier: BSD-3-Clause
#include "standby_log.hpp"

#include "check.hpp"
#include "session.hpp"

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

constexpr double kSecondsForMore = 15;

struct Use {
    unsigned long long launches = 0;
    unsigned long long copies = 0;
    bool given_up = false;
};

/** What the log says that was not read yet: of the context that had most copies, for each line
 * counts from the beginning of a context. */
void add_use_of_kernel(std::ifstream &log, Use *use) {
    static const std::string kSays = "the standby kernel was launched ";
    fflush(nullptr);  // UCX's log among others
    if (!log.is_open()) {
        const char *folder = getenv(kFolder);
        log.open(std::string(folder != nullptr ? folder : "") + "/" + std::to_string(getpid()));
    }
    unsigned long long most_launches = 0;
    unsigned long long most_copies = 0;
    for (std::string line; std::getline(log, line);) {
        const size_t at = line.find(kSays);
        unsigned long long launches = 0;
        unsigned long long copies = 0;
        if (at != std::string::npos &&
            sscanf(line.c_str() + at + kSays.size(), "%llu times, took %llu copies", &launches,
                   &copies) == 2) {
            most_launches = std::max(most_launches, launches);
            most_copies = std::max(most_copies, copies);
        }
        use->given_up |= line.find("launches return when it has left") != std::string::npos;
    }
    log.clear();  // its end, for now
    use->launches += most_launches;
    use->copies += most_copies;
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

void run_with_standby_log(Peer &peer, void (*run)(Peer &peer)) {
    const size_t least = peer.options.number("standby-least", 0);
    const double until = now_seconds() + kSecondsForMore;
    std::ifstream log;
    Use use;
    bool again = true;
    while (again) {
        run(peer);
        if (!is_wanted(peer.options)) {
            return;
        }
        add_use_of_kernel(log, &use);
        again = use.copies < least && !use.given_up && now_seconds() < until;
        if (least != 0) {
            again |= peer.channel.exchange(again ? "again" : "enough", {}) == "again";
        }
    }
    const bool too_few = use.copies < least;
    if (too_few && use.given_up) {
        printf("the standby kernel was given up: this machine is too busy\n");
    } else if (too_few || use.launches > peer.options.number("standby-most", ~size_t{0})) {
        fail("the standby kernel took %llu copies in %llu launches", use.copies, use.launches);
    }
}

}  // namespace gpushm::ucp_test
