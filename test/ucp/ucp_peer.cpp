// SPDX-License-Identifier: BSD-3-Clause
// The test program that uses UCX:  ucp_peer SCENARIO [--key=value ...]
//
// It starts itself once for each process of the scenario, before UCX or CUDA are touched,
// and ends with 0 when all was right, 1 when something was wrong or took longer than --deadline
// seconds, 77 when the scenario cannot be run here. --user1=N runs the second process as user N;
// --hidden1=y lets nobody but root look into it (/proc/PID/fd, process_vm_readv).
// --standby-least=N,
// --standby-most=N: what the standby kernel does in each process (standby_log.hpp).
#include "allocation.hpp"
#include "check.hpp"
#include "scenarios.hpp"
#include "standby_log.hpp"

#include <ucp/api/ucp.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace gpushm::ucp_test {
namespace {

struct Scenario {
    const char *name;
    int processes;
    void (*run)(Peer &peer);
    bool second_is_killed = false;
};

/** Prints "1.13". */
void version(Peer &) {
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    ucp_get_version(&major, &minor, &release);
    printf("%u.%u\n", major, minor);
}

/** What this driver lacks. */
void kinds(Peer &) {
    use_device(0);
    printf("%zu kinds of memory, %d devices\n", all_allocators().size(), device_count());
}

/** Prints where the driver is, unless it can be told to fail by itself. */
void driver_path(Peer &) {
    Dl_info info = {};
    if (driver_control("simcuda_set") != nullptr) {
        skip("this driver has controls");
    }
    if (dladdr(driver_control("cuInit"), &info) != 0) {
        printf("%s\n", info.dli_fname);
    }
}

constexpr Scenario kScenarios[] = {
    {"version", 1, version},
    {"kinds", 1, kinds},
    {"driver-path", 1, driver_path},
    {"tag", 2, tagged_messages},
    {"am", 2, active_messages},
    {"stream", 2, streams},
    {"rma", 2, put_and_get},
    {"atomics", 2, atomics},
    {"window", 2, window},
    {"loopback", 1, loopback},
    {"matrix", 2, matrix},
    {"failing-calls", 2, failing_calls},
    {"visibility", 2, visibility},
    {"waiting-kernel", 2, waiting_kernel},
    {"captures", 2, captures},
    {"reallocated", 2, reallocated},
    {"freed-while-mapped", 2, freed_while_mapped},
    {"freed-beside-kernel", 2, freed_beside_kernel},
    {"own-ipc-handle", 2, own_ipc_handle},
    {"context-reset", 2, context_reset},
    {"changed-pages", 2, changed_pages},
    {"fork", 2, fork_in_the_middle},
    {"other-contexts", 2, other_contexts},
    {"several-devices", 2, several_devices},
    {"visible-devices", 2, visible_devices},
    {"taken-device", 2, taken_device},
    {"wakeup", 2, sleeping_ping_pong},
    {"killed", 2, killed_peer, true},
    {"stopped", 2, stopped_peer},
    {"few-descriptors", 2, few_descriptors},
    {"close-flush", 2, close_with_flush},
    {"close-force", 2, close_by_force},
    {"close-stopped", 2, close_beside_stopped},
    {"waiting", 1, waiting_messages},
    {"waiting-put", 1, put_among_waiting},
    {"threads", 2, threads},
    {"many", 2, many_endpoints},
    {"changing-kinds", 1, changing_kinds},
    {"reused-addresses", 1, reused_addresses},
    {"cuda-before", 1, cuda_before_ucx},
    {"cuda-after", 1, cuda_after_ucx},
    {"lookups", 2, lookups},
    {"allocated-by-ucx", 1, allocated_by_ucx},
    {"foreign", 2, foreign_peer},
    {"standby-messages", 2, standby_messages},
    {"standby-visibility", 2, standby_visibility},
    {"standby-full-gpu", 2, standby_full_gpu},
    {"standby-other-thread", 2, standby_other_thread},
    {"standby-driver-calls", 2, standby_driver_calls},
    {"standby-fork", 2, standby_fork},
    {"standby-dies", 2, standby_dies},
};

const Scenario &find_scenario(const std::string &name) {
    for (const Scenario &scenario : kScenarios) {
        if (name == scenario.name) {
            return scenario;
        }
    }
    fail("no scenario \"%s\"", name.c_str());
}

pid_t start_process(int role, int socket, int argc, char **argv, const Options &options) {
    const std::string role_option = "--role=" + std::to_string(role);
    const std::string socket_option = "--socket=" + std::to_string(socket);
    std::vector<char *> arguments(argv, argv + argc);
    arguments.push_back(const_cast<char *>(role_option.c_str()));
    arguments.push_back(const_cast<char *>(socket_option.c_str()));
    arguments.push_back(nullptr);
    const pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    const auto user = static_cast<uid_t>(options.number("user1", 0));
    if (role == 1 && user != 0 && (setgid(user) != 0 || setuid(user) != 0)) {
        skip("only root can run a process as another user");
    }
    if (socket >= 0) {
        fcntl(socket, F_SETFD, 0);  // the other process's end stays closed here
    }
    execv("/proc/self/exe", arguments.data());
    perror("execv");
    _exit(1);
}

/** Waits for all; kills the rest when one has failed. The worst exit status. */
int await_processes(const std::vector<pid_t> &pids, const Scenario &scenario, double seconds) {
    // SIGALRM interrupts waitpid.
    struct sigaction interrupt = {};
    interrupt.sa_handler = [](int) {};
    sigaction(SIGALRM, &interrupt, nullptr);
    alarm(static_cast<unsigned>(seconds));
    int result = 0;
    for (size_t left = pids.size(); left != 0;) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0) {
            fprintf(stderr, "FAILED: hangs, killed after %.0f s\n", seconds);
            status = 1 << 8;
        } else {
            --left;
        }
        if (pid > 0 && WIFSIGNALED(status)) {
            const bool wanted =
                scenario.second_is_killed && pid == pids[1] && WTERMSIG(status) == SIGKILL;
            if (wanted) {
                continue;
            }
            fprintf(stderr, "FAILED: process %d ended by signal %d\n", pid, WTERMSIG(status));
            status = 1 << 8;
        }
        if (result == 0 && WEXITSTATUS(status) != 0) {
            result = WEXITSTATUS(status);
            for (pid_t other : pids) {
                kill(other, SIGKILL);
            }
            while (wait(nullptr) > 0) {
            }
            break;
        }
    }
    alarm(0);
    return result;
}

int launch(int argc, char **argv, const Options &options, const Scenario &scenario) {
    int sockets[2] = {-1, -1};
    if (scenario.processes == 2 &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        perror("socketpair");
        return 1;
    }
    const StandbyLogs logs(options);
    std::vector<pid_t> pids;
    for (int role = 0; role < scenario.processes; ++role) {
        pids.push_back(start_process(role, sockets[role], argc, argv, options));
    }
    for (int socket : sockets) {
        close(socket);
    }
    const int result =
        await_processes(pids, scenario, static_cast<double>(options.number("deadline", 60)));
    logs.remove(pids);
    return result;
}

}  // namespace
}  // namespace gpushm::ucp_test

int main(int argc, char **argv) {
    using namespace gpushm::ucp_test;
    const Options options(argc, argv);
    const Scenario &scenario = find_scenario(options.scenario());
    if (!options.has("role")) {
        return launch(argc, argv, options, scenario);
    }
    set_activity(scenario.name);
    const auto role = static_cast<int>(options.number("role", 0));
    if (role == 1 && options.has("hidden1")) {
        prctl(PR_SET_DUMPABLE, 0);
    }
    const std::string socket = options.text("socket", "-1");
    Channel channel(std::stoi(socket));
    Peer peer = {role, channel, options};
    run_with_standby_log(peer, scenario.run);
    return 0;
}
