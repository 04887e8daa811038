// SPDX-License-Identifier: BSD-3-Clause
// Test steps that need a process of their own.
#include "child_process.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

constexpr const char *kChildFlag = "--child";
constexpr int kParentSocket = 100;  // the descriptor in the child

std::map<std::string, ChildStep> &steps() {
    static std::map<std::string, ChildStep> all;
    return all;
}

[[noreturn]] void exec_step(std::vector<const char *> &argv,
                            const std::vector<std::string> &environment) {
    for (const std::string &variable : environment) {
        const std::size_t end = variable.find('=');
        setenv(variable.substr(0, end).c_str(), variable.substr(end + 1).c_str(), 1);
    }
    execv("/proc/self/exe", const_cast<char **>(argv.data()));
    std::perror("cannot start the test program again");
    _exit(127);
}

}  // namespace

ChildStepRegistration::ChildStepRegistration(const std::string &name, ChildStep step) {
    steps()[name] = step;
}

ChildProcess::ChildProcess(const std::string &step, const Arguments &arguments,
                           const std::vector<std::string> &environment) {
    std::vector<const char *> argv{"test", kChildFlag, step.c_str()};
    for (const std::string &argument : arguments) {
        argv.push_back(argument.c_str());
    }
    argv.push_back(nullptr);
    int ends[2] = {-1, -1};
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
    process_ = fork();
    if (process_ == 0) {
        dup2(ends[1], kParentSocket);
        exec_step(argv, environment);
    }
    close(ends[1]);
    socket_ = ends[0];
}

ChildProcess::~ChildProcess() {
    close(socket_);
    wait();
}

ChildResult ChildProcess::wait() {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    int status = 0;
    while (process_ > 0 && waitpid(process_, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > give_up) {
            kill(process_, SIGKILL);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (process_ > 0 && WIFEXITED(status)) {
        result_.exit_status = WEXITSTATUS(status);
    } else if (process_ > 0 && WIFSIGNALED(status)) {
        result_.signal = WTERMSIG(status);
    }
    process_ = -1;
    return result_;
}

ChildResult run_child(const std::string &step, const Arguments &arguments,
                      const std::vector<std::string> &environment) {
    return ChildProcess(step, arguments, environment).wait();
}

int parent_socket() {
    return kParentSocket;
}

bool release_peer(int socket) {
    const char byte = 1;
    return send(socket, &byte, 1, MSG_NOSIGNAL) == 1;
}

bool wait_for_peer(int socket) {
    char byte = 0;
    return recv(socket, &byte, 1, 0) == 1;
}

bool send_file(int socket, int file) {
    char byte = 1;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(file));
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

int receive_file(int socket) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    int file = -1;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1) {
        const cmsghdr *header = CMSG_FIRSTHDR(&message);
        if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
            std::memcpy(&file, CMSG_DATA(header), sizeof(file));
        }
    }
    return file;
}

bool run_as_child(int argc, char **argv, int *status) {
    if (argc < 3 || std::string(argv[1]) != kChildFlag) {
        return false;
    }
    const rlimit no_core{0, 0};  // some steps are meant to die
    setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL);  // sanitizers turn these into exits
    std::signal(SIGBUS, SIG_DFL);
    const auto step = steps().find(argv[2]);
    *status = step == steps().end() ? 126 : step->second(Arguments(argv + 3, argv + argc));
    return true;
}

void child_check_failed(const char *file, int line, const char *condition) {
    std::fprintf(stderr, "%s:%d: in the child process: %s\n", file, line, condition);
}
