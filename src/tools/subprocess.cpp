// SPDX-License-Identifier: BSD-3-Clause
// Asking another process: see subprocess.hpp.
#include "tools/subprocess.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace gpushm::tools {

namespace {

using Clock = std::chrono::steady_clock;

/** Reads until the end of the stream; false when the time is over or reading fails. */
bool read_all(int fd, std::string &text) {
    const auto deadline = Clock::now() + kSubprocessTimeout;
    char buffer[4096];
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
        pollfd ready{fd, POLLIN, 0};
        const int events = left.count() > 0 ? poll(&ready, 1, static_cast<int>(left.count())) : 0;
        if (events < 0 && errno == EINTR) {
            continue;
        }
        if (events <= 0) {
            return false;
        }
        const ssize_t count = read(fd, buffer, sizeof(buffer));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return count == 0;
        }
        text.append(buffer, static_cast<size_t>(count));
    }
}

/** Runs `body` in a child with `output` (a pipe) as its argument and everything else silent; the
 * child exits with what `body` returns. */
std::optional<std::string> collect(const std::function<int(int output)> &body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return std::nullopt;
    }
    const pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return std::nullopt;
    }
    if (child == 0) {
        const int null_device = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null_device >= 0) {
            dup2(null_device, STDIN_FILENO);
            dup2(null_device, STDOUT_FILENO);
            dup2(null_device, STDERR_FILENO);
        }
        _exit(body(ends[1]));
    }
    close(ends[1]);
    std::string text;
    const bool complete = read_all(ends[0], text);
    close(ends[0]);
    if (!complete) {
        kill(child, SIGKILL);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!complete || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return std::nullopt;
    }
    return text;
}

bool write_all(int fd, const std::string &text) {
    size_t done = 0;
    while (done < text.size()) {
        const ssize_t count = write(fd, text.data() + done, text.size() - done);
        if (count < 0 && errno != EINTR) {
            return false;
        }
        done += count > 0 ? static_cast<size_t>(count) : 0;
    }
    return true;
}

}  // namespace

std::vector<char *> pointers_to(const std::vector<std::string> &texts) {
    std::vector<char *> pointers;
    pointers.reserve(texts.size() + 1);
    for (const std::string &text : texts) {
        pointers.push_back(const_cast<char *>(text.c_str()));
    }
    pointers.push_back(nullptr);
    return pointers;
}

std::optional<std::string> output_of(const std::vector<std::string> &argv,
                                     const std::vector<std::string> &extra_entries) {
    return collect([&](int output) {
        for (const std::string &entry : extra_entries) {
            const size_t equals = entry.find('=');
            setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
        }
        const std::vector<char *> pointers = pointers_to(argv);
        dup2(output, STDOUT_FILENO);
        execvp(pointers[0], pointers.data());
        return 127;
    });
}

std::optional<std::string> call_in_child(const std::function<std::string()> &function) {
    return collect([&](int output) { return write_all(output, function()) ? 0 : 1; });
}

}  // namespace gpushm::tools
