// SPDX-License-Identifier: BSD-3-Clause
#include "side_pair.hpp"

#include "figures.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace gpushm::perf {
namespace {

constexpr int kTimeLimit = 124;  // as timeout(1)
constexpr int kSignalled = 128;  // and the number of the signal, as in a shell

int make_page() {
    const int page = memfd_create("page", 0);
    if (page < 0 || ftruncate(page, sizeof(SharedPage)) != 0) {
        throw std::runtime_error("cannot make shared memory");
    }
    return page;
}

pid_t start_side(int argc, char **argv, int number, int page) {
    std::string role = "--role=" + std::to_string(number);
    std::string descriptor = "--page=" + std::to_string(page);
    std::vector<char *> arguments(argv, argv + argc);
    arguments.push_back(role.data());
    arguments.push_back(descriptor.data());
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child != 0) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // stays when the process executes another program
    if (getppid() == parent) {
        execv("/proc/self/exe", arguments.data());
    }
    _exit(127);
}

/** 0 for none yet. */
pid_t wait_a_little(int *status) {
    const pid_t ended = waitpid(-1, status, WNOHANG);
    if (ended == 0) {
        usleep(2000);
    }
    return ended;
}

}  // namespace

Side::Side(int number, int page) : number_(number) {
    void *mapped = mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    if (mapped == MAP_FAILED) {
        throw std::runtime_error("cannot map shared memory");
    }
    page_ = static_cast<SharedPage *>(mapped);
}

void Side::barrier(const Progress &progress) {
    page_->arrived[number_].count.store(++barriers_, std::memory_order_release);
    while (page_->arrived[1 - number_].count.load(std::memory_order_acquire) < barriers_) {
        progress();
    }
}

std::string Side::exchange(const std::string &bytes, const Progress &progress) {
    if (bytes.size() > SharedPage::kMaxAddress) {
        throw std::runtime_error("too much for one exchange between the sides");
    }
    std::memcpy(page_->address[number_], bytes.data(), bytes.size());
    page_->address_bytes[number_] = bytes.size();
    barrier(progress);
    const std::string other(page_->address[1 - number_], page_->address_bytes[1 - number_]);
    barrier(progress);  // both have read before either writes again
    return other;
}

uint64_t Side::agree(uint64_t samples, const Progress &progress) {
    barrier(progress);  // the other side has read the last one
    if (number_ == 0) {
        page_->samples = samples;
    }
    barrier(progress);
    return page_->samples;
}

double Side::both_finished() const {
    return std::max(page_->finished[0], page_->finished[1]);
}

int run_sides(int argc, char **argv, double limit_seconds) {
    const int page = make_page();
    pid_t sides[2];
    for (int i = 0; i < 2; ++i) {
        sides[i] = start_side(argc, argv, i, page);
    }
    const double end = now_us() + limit_seconds * 1e6;
    int result = 0;
    for (int running = 2; running > 0;) {
        int status = 0;
        const pid_t ended = wait_a_little(&status);
        const bool late = result == 0 && now_us() > end;
        if (ended > 0) {
            --running;
            std::replace(sides, sides + 2, ended, pid_t{-1});
        }
        const bool failed = ended > 0 && status != 0;
        if (result == 0 && (failed || late)) {
            result = late                ? kTimeLimit
                     : WIFEXITED(status) ? WEXITSTATUS(status)
                                         : kSignalled + WTERMSIG(status);
            for (const pid_t side : sides) {
                if (side > 0) {
                    kill(side, SIGKILL);
                }
            }
        }
    }
    return result;
}

std::string reason_of(int status, double limit_seconds) {
    if (status == kTimeLimit) {
        std::ostringstream text;
        text << "not ready after " << limit_seconds << " s";
        return text.str();
    }
    return status > kSignalled
               ? "a process was ended by signal " + std::to_string(status - kSignalled)
               : "";
}

}  // namespace gpushm::perf
