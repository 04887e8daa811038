// SPDX-License-Identifier: BSD-3-Clause
// Test steps that need a process of their own.
#include "child_process.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

constexpr const char* kChildFlag = "--child";

std::map<std::string, ChildStep>& steps()
{
    static std::map<std::string, ChildStep> all;
    return all;
}

[[noreturn]] void exec_step(std::vector<const char*>& argv,
                            const std::vector<std::string>& environment)
{
    for (const std::string& variable : environment) {
        const std::size_t end = variable.find('=');
        setenv(variable.substr(0, end).c_str(), variable.substr(end + 1).c_str(), 1);
    }
    execv("/proc/self/exe", const_cast<char**>(argv.data()));
    std::perror("cannot start the test program again");
    _exit(127);
}

} // namespace

ChildStepRegistration::ChildStepRegistration(const std::string& name, ChildStep step)
{
    steps()[name] = step;
}

ChildResult run_child(const std::string& step, const Arguments& arguments,
                      const std::vector<std::string>& environment)
{
    std::vector<const char*> argv{"test", kChildFlag, step.c_str()};
    for (const std::string& argument : arguments) {
        argv.push_back(argument.c_str());
    }
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        exec_step(argv, environment);
    }
    ChildResult result;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    int status = 0;
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > give_up) {
            kill(child, SIGKILL);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (child > 0 && WIFEXITED(status)) {
        result.exit_status = WEXITSTATUS(status);
    } else if (child > 0 && WIFSIGNALED(status)) {
        result.signal = WTERMSIG(status);
    }
    return result;
}

bool run_as_child(int argc, char** argv, int* status)
{
    if (argc < 3 || std::string(argv[1]) != kChildFlag) {
        return false;
    }
    const rlimit no_core{0, 0}; // some steps are meant to die
    setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL); // sanitizers turn these into exits
    std::signal(SIGBUS, SIG_DFL);
    const auto step = steps().find(argv[2]);
    *status = step == steps().end() ? 126 : step->second(Arguments(argv + 3, argv + argc));
    return true;
}

void child_check_failed(const char* file, int line, const char* condition)
{
    std::fprintf(stderr, "%s:%d: in the child process: %s\n", file, line, condition);
}
