// SPDX-License-Identifier: BSD-3-Clause
// A process that stays, and peers that come and go:  come_and_go run [--peers=N] [--size=BYTES]
//
// Each peer sends one message, gets one back and ends. What the process that stays holds must not
// grow with the number of peers that it has seen. Status 0, 1 or 77 as those of all_to_all.
#include "../ucp/check.hpp"
#include "exchange.hpp"
#include "footprint.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace gpushm::scale_test {
namespace {

using ucp_test::fail;
using ucp_test::Options;

// UCP makes an endpoint of its own for a peer that asks for one (rendezvous) and keeps it as long
// as the worker (src/ucp/wireup/wireup.c, ucp_wireup_process_request), whatever the transport; with
// posix of UCX 1.13 that is 95 KiB a peer.
constexpr size_t kKeptKib = 64;

/** Both sides of one visit: the process that stays is rank 0, the peer rank 1. */
void visit(Member &member, Meeting &meeting, size_t size) {
    meeting.barrier(member.progress(), false);
    member.connect(meeting);
    member.exchange(size, MemoryKind::host, MemoryKind::host);
    meeting.barrier(member.progress(), false);
    member.disconnect();
    meeting.barrier(member.progress(), false);
}

std::string make_meeting() {
    return "/proc/" + std::to_string(getpid()) + "/fd/" +
           std::to_string(memfd_create("meeting", MFD_CLOEXEC));
}

pid_t start_peer(int argc, char **argv, const std::string &meeting) {
    const std::string option = "--meeting=" + meeting;
    std::vector<char *> arguments(argv, argv + argc);
    arguments.push_back(const_cast<char *>(option.c_str()));
    arguments.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
        execv("/proc/self/exe", arguments.data());
        perror("execv");
        _exit(1);
    }
    return pid;
}

int run(const Options &options, int argc, char **argv) {
    alarm(static_cast<unsigned>(options.number("deadline", 120)));
    const size_t peers = options.number("peers", 40);
    const size_t size = options.number("size", 8);
    Member staying(0, 2);
    std::vector<Footprint> columns;
    for (size_t n = 0; n < peers; ++n) {
        const std::string path = make_meeting();
        Meeting meeting(path, 2);
        meeting.publish_address(0, staying.address());
        const pid_t pid = start_peer(argc, argv, path);
        visit(staying, meeting, size);
        int status = 1;
        waitpid(pid, &status, 0);
        if (status != 0) {
            fail("peer %zu ended with %d", n, status);
        }
        close(std::stoi(path.substr(path.rfind('/') + 1)));
        for (int i = 0; i < 100; ++i) {
            staying.progress()();
        }
        // The first ones bring what is made once.
        if (n + 1 == peers / 2 || n + 1 == peers) {
            columns.push_back(measure({getpid()}));
        }
    }
    print_table({"half of them", "all peers"}, columns);
    const Footprint &half = columns[0];
    const Footprint &all = columns[1];
    if (all.most_descriptors > half.most_descriptors || all.segments > half.segments ||
        all.memory_kib > half.memory_kib + kKeptKib * (peers - peers / 2)) {
        fail("what is kept of peers that have gone grows");
    }
    return 0;
}

}  // namespace
}  // namespace gpushm::scale_test

int main(int argc, char **argv) {
    using namespace gpushm;
    const ucp_test::Options options(argc, argv);
    if (!options.has("meeting")) {
        return scale_test::run(options, argc, argv);
    }
    scale_test::Meeting meeting(options.text("meeting", ""), 2);
    scale_test::Member member(1, 2);
    meeting.publish_address(1, member.address());
    scale_test::visit(member, meeting, options.number("size", 8));
    return 0;
}
