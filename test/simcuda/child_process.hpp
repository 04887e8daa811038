// SPDX-License-Identifier: BSD-3-Clause
// Test steps that need a process of their own: one in which CUDA was never initialised, which may
// die of a signal, or which plays the other side of IPC. The test program starts itself again.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

using Arguments = std::vector<std::string>;

// What the child does: returns its exit status, 0 if all is well.
using ChildStep = int (*)(const Arguments &);

// Makes a step known by its name; a namespace-scope object per step.
class ChildStepRegistration {
public:
    ChildStepRegistration(const std::string &name, ChildStep step);
};

struct ChildResult {
    int exit_status = -1;  // -1 if a signal ended it
    int signal = 0;        // 0 if none did
};

// A step that runs beside this process, with a socket between the two.
class ChildProcess {
public:
    // `environment`: "NAME=value", added to this process's.
    explicit ChildProcess(const std::string &step, const Arguments &arguments = {},
                          const std::vector<std::string> &environment = {});
    ~ChildProcess();  // waits
    ChildProcess(const ChildProcess &) = delete;

    int socket() const { return socket_; }

    // Waits for its end; it is killed (signal SIGKILL) if it takes longer than a minute.
    ChildResult wait();

private:
    pid_t process_;
    int socket_;
    ChildResult result_;
};

// For steps: the other end.
int parent_socket();

// Tells the other side to go on; waits until it does so. False if it has gone.
bool release_peer(int socket);
bool wait_for_peer(int socket);

// Passes a descriptor (SCM_RIGHTS). False, or -1, if that fails.
bool send_file(int socket, int file);
int receive_file(int socket);

// Runs the step in a new process and waits for its end.
ChildResult run_child(const std::string &step, const Arguments &arguments = {},
                      const std::vector<std::string> &environment = {});

// For main: runs the step that the command line asks for and sets its status. False if it asks for
// none.
bool run_as_child(int argc, char **argv, int *status);

// For steps: on a failed call or check, prints it and makes the step return 1.
#define CHILD_CHECK(condition)                                  \
    do {                                                        \
        if (!(condition)) {                                     \
            child_check_failed(__FILE__, __LINE__, #condition); \
            return 1;                                           \
        }                                                       \
    } while (0)

void child_check_failed(const char *file, int line, const char *condition);
