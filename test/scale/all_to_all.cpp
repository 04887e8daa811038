// SPDX-License-Identifier: BSD-3-Clause
// Processes that connect all to all:  all_to_all run [--key=value ...]
//
//   --processes=N        in all (default 8)
//   --first=F --count=C  of which this command starts F .. F + C - 1 (default: all)
//   --meeting=FILE       through which processes of several commands meet; one file a test
//   --kinds, --sizes     of messages: all pairs of kinds (default host), sizes (default 8)
//   --report             prints what the processes take of the node, and the time to connect
//   --neighbours=NAME    the transport that must be on the way to processes of this command, and
//                        must not be on the way to those of others
//   --most-memory=MIB --most-descriptors=N   fails when one process takes more (with --report)
//   --deadline=SECONDS   default 120
//
// Status 0 when all was right, 1 when not, 77 when it cannot be run here.
#include "../ucp/check.hpp"
#include "exchange.hpp"
#include "footprint.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace gpushm::scale_test {
namespace {

using ucp_test::fail;
using ucp_test::Options;

struct Plan {
    explicit Plan(const Options &options)
        : processes(options.number("processes", 8)),
          first(options.number("first", 0)),
          count(options.number("count", processes - first)),
          report(options.has("report")),
          neighbours(options.text("neighbours", "")),
          kinds(ucp_test::kinds_of(options, "host")),
          sizes(ucp_test::sizes_of(options, "8")) {
        if (processes < 2 || processes > kMaxProcesses || first + count > processes ||
            (report && count != processes) || kinds.empty() || sizes.empty()) {
            fail("bad numbers; see the head of all_to_all.cpp");
        }
    }
    bool is_neighbour(size_t rank) const { return rank >= first && rank < first + count; }

    size_t processes;
    size_t first;
    size_t count;
    bool report;
    std::string neighbours;
    std::vector<MemoryKind> kinds;
    std::vector<size_t> sizes;
};

// ---------------------------------------------------------------- a process of the test

void check_transports(const Plan &plan, const Member &member, size_t rank) {
    for (size_t peer = 0; peer < plan.processes && !plan.neighbours.empty(); ++peer) {
        if (peer == rank) {
            continue;
        }
        const std::string names = member.transports_to(peer);
        const bool found = (" " + names).find(" " + plan.neighbours + " ") != std::string::npos;
        if (found != plan.is_neighbour(peer)) {
            fail("process %zu reaches process %zu by: %s", rank, peer, names.c_str());
        }
        if (rank == plan.first) {
            printf("process %zu to process %zu: %s\n", rank, peer, names.c_str());
        }
    }
}

void take_part(const Plan &plan, Meeting &meeting, size_t rank) {
    Member member(rank, plan.processes);
    meeting.publish_address(rank, member.address());
    const Progress progress = member.progress();
    const auto barrier = [&] { meeting.barrier(progress, plan.report); };
    barrier();
    const double start = ucp_test::now_seconds();
    member.connect(meeting);
    member.exchange(8, MemoryKind::host, MemoryKind::host);
    meeting.report_milliseconds(static_cast<uint64_t>((ucp_test::now_seconds() - start) * 1000));
    barrier();
    check_transports(plan, member, rank);
    for (MemoryKind source : plan.kinds) {
        for (MemoryKind destination : plan.kinds) {
            for (size_t size : plan.sizes) {
                member.exchange(size, source, destination);
            }
        }
    }
    barrier();
    member.disconnect();
    barrier();
}

const std::vector<const char *> kBarrierTitles = {"at start", "connected", "messages", "closed"};

// ---------------------------------------------------------------- who starts them

std::vector<pid_t> start_processes(const Plan &plan, int argc, char **argv,
                                   const std::string &meeting) {
    std::vector<pid_t> pids;
    for (size_t rank = plan.first; rank < plan.first + plan.count; ++rank) {
        const std::string rank_option = "--rank=" + std::to_string(rank);
        const std::string meeting_option = "--meeting=" + meeting;
        std::vector<char *> arguments(argv, argv + argc);
        arguments.push_back(const_cast<char *>(rank_option.c_str()));
        arguments.push_back(const_cast<char *>(meeting_option.c_str()));
        arguments.push_back(nullptr);
        const pid_t pid = fork();
        if (pid == 0) {
            execv("/proc/self/exe", arguments.data());
            perror("execv");
            _exit(1);
        }
        pids.push_back(pid);
    }
    return pids;
}

class Children {
public:
    explicit Children(std::vector<pid_t> pids, double deadline)
        : pids_(std::move(pids)), running_(pids_), deadline_(ucp_test::now_seconds() + deadline) {}

    const std::vector<pid_t> &pids() const { return pids_; }
    /** The worst exit status so far. */
    int status() const { return status_; }
    bool all_ended() const { return running_.empty(); }

    /** Looks who has ended; ends all when one has failed, or when it takes too long. */
    void poll() {
        for (size_t i = running_.size(); i-- > 0;) {
            int ended = 0;
            if (waitpid(running_[i], &ended, WNOHANG) == running_[i]) {
                running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
                note(WIFEXITED(ended) ? WEXITSTATUS(ended) : 1);
            }
        }
        if (status_ == 0 && ucp_test::now_seconds() > deadline_) {
            fprintf(stderr, "FAILED: takes too long\n");
            note(1);
        }
    }

private:
    void note(int status) {
        if (status_ == 0 && status != 0) {
            status_ = status;
            std::for_each(running_.begin(), running_.end(), [](pid_t pid) { kill(pid, SIGKILL); });
        }
    }

    std::vector<pid_t> pids_;
    std::vector<pid_t> running_;
    double deadline_;
    int status_ = 0;
};

int check_limits(const Options &options, const std::vector<Footprint> &columns) {
    int status = 0;
    for (const Footprint &footprint : columns) {
        const size_t mib = footprint.memory_kib / 1024 / footprint.processes;
        if (mib > options.number("most-memory", SIZE_MAX) ||
            footprint.most_descriptors > options.number("most-descriptors", SIZE_MAX)) {
            status = 1;
        }
    }
    if (status != 0) {
        fprintf(stderr, "FAILED: a process takes more than it may\n");
    }
    return status;
}

int report(const Plan &plan, const Options &options, Meeting &meeting, Children &children) {
    const double start = ucp_test::now_seconds();
    std::vector<Footprint> columns;
    const auto failed = [&] {
        children.poll();
        return children.status() != 0;
    };
    for (size_t n = 1; n <= kBarrierTitles.size(); ++n) {
        if (!meeting.wait_for_barrier(n, failed)) {
            return children.status();
        }
        const double seconds = ucp_test::now_seconds() - start;
        columns.push_back(measure(children.pids()));
        columns.back().seconds = seconds;
        meeting.observed(n);
    }
    printf("%zu processes; connected, with a message each way, after %.1f s\n", plan.processes,
           static_cast<double>(meeting.longest_milliseconds()) / 1000);
    print_table(kBarrierTitles, columns);
    return check_limits(options, columns);
}

int run(const Plan &plan, const Options &options, int argc, char **argv) {
    std::string path = options.text("meeting", "");
    if (path.empty()) {
        path = "/proc/" + std::to_string(getpid()) + "/fd/" +
               std::to_string(memfd_create("meeting", MFD_CLOEXEC));
    }
    Meeting meeting(path, plan.processes);
    Children children(start_processes(plan, argc, argv, path),
                      static_cast<double>(options.number("deadline", 120)));
    const int status = plan.report ? report(plan, options, meeting, children) : 0;
    while (!children.all_ended()) {
        children.poll();
        usleep(1000);
    }
    return children.status() != 0 ? children.status() : status;
}

}  // namespace
}  // namespace gpushm::scale_test

int main(int argc, char **argv) {
    using namespace gpushm;
    const ucp_test::Options options(argc, argv);
    const scale_test::Plan plan(options);
    if (!options.has("rank")) {
        return scale_test::run(plan, options, argc, argv);
    }
    scale_test::Meeting meeting(options.text("meeting", ""), plan.processes);
    scale_test::take_part(plan, meeting, options.number("rank", 0));
    return 0;
}
