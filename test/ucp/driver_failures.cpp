// SPDX-License-Identifier: BSD-3-Clause
// Makes every call of the CUDA driver that a message needs fail once, in each process, for each way
// that messages go (failing_calls.cpp), and says what came of it:
//
//   driver_failures [--full] [--way=TEXT] [--errors=999,2] [--mode=peer|none] [--rma=n] [--verbose]
//
// Allowed are correct data, and operations that end with an error. Wrong data that was said to be
// right, a hang, a crash and anything that is kept are faults; the exit status is then 1. 77: the
// driver cannot be told to fail.
#include "command.hpp"
#include "options.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <vector>

namespace gpushm::ucp_test {
namespace {

constexpr int kSkipped = 77;
constexpr int kSilenceMs = 40000;  // more than the patience of the processes

struct Case {
    size_t way;
    unsigned message;
    int role;
    std::string function;
    unsigned long n;
    int error;
};

std::string describe(const Case &one, const std::map<size_t, std::string> &ways) {
    std::ostringstream text;
    text << ways.at(one.way) << ": call " << one.n << " of " << one.function << " in process "
         << one.role << " fails with " << one.error;
    return text.str();
}

std::string last_lines(const std::string &text) {
    constexpr size_t kBytes = 2500;
    return text.size() > kBytes ? text.substr(text.find('\n', text.size() - kBytes) + 1) : text;
}

/** A folder that goes away with everything in it. */
class Folder {
public:
    Folder() {
        if (mkdtemp(path_) == nullptr) {
            perror("mkdtemp");
            exit(1);
        }
    }
    ~Folder() { run_command({"rm", "-r", path_}, {}); }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string file(const std::string &name) const { return std::string(path_) + "/" + name; }
    std::string text(const std::string &name) const {
        std::ifstream stream(file(name));
        return {std::istreambuf_iterator<char>(stream), {}};
    }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        if (DIR *folder = opendir(path_)) {
            while (const dirent *entry = readdir(folder)) {
                found.push_back(entry->d_name);
            }
            closedir(folder);
        }
        return found;
    }

private:
    char path_[64] = "/tmp/gpushm_failures_XXXXXX";
};

/** A pair of processes that reports lines. */
class PairOfProcesses {
public:
    PairOfProcesses(std::vector<std::string> arguments, const std::string &log) {
        int ends[2];
        if (pipe(ends) != 0) {
            perror("pipe");
            exit(1);
        }
        report_ = ends[0];
        fcntl(report_, F_SETFD, FD_CLOEXEC);
        arguments.insert(arguments.begin(), {program_folder() + "/ucp_peer", "failing-calls"});
        arguments.push_back("--deadline=3600");
        arguments.push_back("--report=" + std::to_string(ends[1]));
        std::vector<char *> argv;
        for (std::string &argument : arguments) {
            argv.push_back(argument.data());
        }
        argv.push_back(nullptr);
        pid_ = fork();
        if (pid_ == 0) {
            setpgid(0, 0);  // its children are killed with it
            const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            dup2(output, STDOUT_FILENO);
            dup2(output, STDERR_FILENO);
            execv(argv[0], argv.data());
            _exit(127);
        }
        setpgid(pid_, pid_);
        close(ends[1]);
    }
    ~PairOfProcesses() {
        kill(-pid_, SIGKILL);
        await();
        close(report_);
    }
    PairOfProcesses(const PairOfProcesses &) = delete;
    PairOfProcesses &operator=(const PairOfProcesses &) = delete;

    /** Calls `on_line` for each line until both processes have ended. False: they were silent for
     * too long. */
    bool read_lines(const std::function<void(const std::string &)> &on_line) {
        std::string pending;
        for (;;) {
            pollfd wanted = {report_, POLLIN, 0};
            if (poll(&wanted, 1, kSilenceMs) == 0) {
                return false;
            }
            char buffer[4096];
            const ssize_t count = read(report_, buffer, sizeof(buffer));
            if (count <= 0) {
                return true;
            }
            pending.append(buffer, static_cast<size_t>(count));
            for (size_t end; (end = pending.find('\n')) != std::string::npos;) {
                on_line(pending.substr(0, end));
                pending.erase(0, end + 1);
            }
        }
    }
    int exit_status() {
        await();
        return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128;
    }

private:
    void await() {
        if (pid_ > 0 && !awaited_) {
            awaited_ = waitpid(pid_, &status_, 0) == pid_;
        }
    }

    pid_t pid_ = -1;
    int report_ = -1;
    int status_ = 0;
    bool awaited_ = false;
};

class Sweep {
public:
    explicit Sweep(const Options &options) : options_(options) {}

    int run();

private:
    std::vector<std::string> common_arguments() const;
    std::string functions_called();
    void make_cases(const std::string &functions);
    void add_cases(const std::string &line);
    void write_cases() const;
    size_t run_from(size_t first);
    void note_result(size_t index, const std::string &result);
    void print_fault(size_t index, const char *what);

    const Options &options_;
    const Folder folder_;
    std::map<size_t, std::string> ways_;
    std::vector<Case> cases_;
    std::map<std::string, size_t> results_;
    size_t leaks_ = 0;
};

std::vector<std::string> Sweep::common_arguments() const {
    std::vector<std::string> arguments = {"--mode=" + options_.text("mode", "peer"),
                                          "--rma=" + options_.text("rma", "y"),
                                          "--way=" + options_.text("way", "")};
    if (options_.has("full")) {
        arguments.push_back("--full");
    }
    return arguments;
}

/** All functions that the processes of all ways call, as a list with commas. */
std::string Sweep::functions_called() {
    setenv("SIMCUDA_COUNTS", folder_.file("counts.%p").c_str(), 1);
    std::vector<std::string> arguments = common_arguments();
    arguments.push_back("--count");
    PairOfProcesses processes(arguments, folder_.file("log"));
    processes.read_lines([](const std::string &) {});
    const int status = processes.exit_status();
    unsetenv("SIMCUDA_COUNTS");
    if (status != 0) {
        fprintf(stderr, "%s", folder_.text("log").c_str());
        exit(status);
    }
    std::set<std::string> functions;
    for (const std::string &name : folder_.names()) {
        if (name.compare(0, 7, "counts.") == 0) {
            std::istringstream counts(folder_.text(name));
            std::string function;
            for (unsigned long count; counts >> function >> count;) {
                functions.insert(function);
            }
        }
    }
    std::string list;
    for (const std::string &function : functions) {
        list += (list.empty() ? "" : ",") + function;
    }
    return list;
}

/** "count WAY MESSAGE ROLE FUNCTION N" */
void Sweep::add_cases(const std::string &line) {
    std::istringstream words(line);
    std::string word;
    Case one = {};
    unsigned long count = 0;
    words >> word >> one.way >> one.message >> one.role >> one.function >> count;
    const bool full = options_.has("full");
    // How often a function is polled depends on the time of day; each n only up to here.
    const unsigned long each = full ? 40 : 1;
    for (const std::string &error : options_.list("errors", full ? "999,2" : "999")) {
        one.error = std::stoi(error);
        for (one.n = 1; one.n <= std::min(count, each); ++one.n) {
            cases_.push_back(one);
        }
        if (count > each) {
            one.n = count;
            cases_.push_back(one);
        }
    }
}

void Sweep::make_cases(const std::string &functions) {
    std::vector<std::string> arguments = common_arguments();
    arguments.push_back("--count");
    arguments.push_back("--functions=" + functions);
    PairOfProcesses processes(arguments, folder_.file("log"));
    processes.read_lines([&](const std::string &line) {
        std::istringstream words(line);
        std::string word;
        size_t way = 0;
        words >> word >> way;
        if (word == "way") {
            std::getline(words >> std::ws, ways_[way]);
        } else if (word == "count") {
            add_cases(line);
        }
    });
    std::stable_sort(cases_.begin(), cases_.end(),
                     [](const Case &a, const Case &b) { return a.way < b.way; });
}

void Sweep::write_cases() const {
    std::ofstream file(folder_.file("cases"));
    for (const Case &one : cases_) {
        file << one.way << ' ' << one.message << ' ' << one.role << ' ' << one.function << ' '
             << one.n << ' ' << one.error << '\n';
    }
}

void Sweep::print_fault(size_t index, const char *what) {
    printf("%s: %s\n", what, describe(cases_[index], ways_).c_str());
    fflush(stdout);
}

void Sweep::note_result(size_t index, const std::string &result) {
    ++results_[result];
    if (result == "wrong") {
        print_fault(index, "WRONG DATA");
    } else if (options_.has("verbose") && result != "data") {
        print_fault(index, result.c_str());
    }
}

/** Runs cases until all are done or the processes are gone. Returns the next one. */
size_t Sweep::run_from(size_t first) {
    std::vector<std::string> arguments = common_arguments();
    arguments.push_back("--cases=" + folder_.file("cases"));
    arguments.push_back("--first=" + std::to_string(first));
    PairOfProcesses processes(arguments, folder_.file("log"));
    size_t next = first;
    const bool ended = processes.read_lines([&](const std::string &line) {
        std::istringstream words(line);
        std::string word;
        std::string result;
        words >> word;
        if (word == "case") {
            words >> next >> result;
            note_result(next, result);
            ++next;
        } else if (word == "leak") {
            ++leaks_;
            printf("KEPT: %s, before case %zu\n", line.c_str(), next);
        }
    });
    if (ended && processes.exit_status() == 0) {
        return cases_.size();
    }
    const std::string log = folder_.text("log");
    const bool hangs = !ended || log.find(": hangs") != std::string::npos ||
                       log.find("a request does not end") != std::string::npos;
    if (next == cases_.size()) {
        printf("CRASH at the end\n%s", log.c_str());
        ++results_["crash"];
        return next;
    }
    ++results_[hangs ? "hang" : "crash"];
    print_fault(next, hangs ? "HANG" : "CRASH");
    if (options_.has("verbose")) {
        printf("%s", last_lines(log).c_str());
    }
    return next + 1;
}

int Sweep::run() {
    make_cases(functions_called());
    write_cases();
    for (size_t next = 0; next < cases_.size();) {
        next = run_from(next);
    }
    for (const auto &[way, name] : ways_) {
        const auto count = std::count_if(cases_.begin(), cases_.end(),
                                         [way = way](const Case &one) { return one.way == way; });
        printf("%-40s %ld cases\n", name.c_str(), static_cast<long>(count));
    }
    printf(
        "%zu cases: %zu correct data, %zu errors (%zu of one side only), %zu wrong, %zu hangs, "
        "%zu crashes, %zu kept something\n",
        cases_.size(), results_["data"], results_["error"] + results_["untold"], results_["untold"],
        results_["wrong"], results_["hang"], results_["crash"], leaks_);
    if (cases_.empty()) {
        return kSkipped;
    }
    return results_["wrong"] + results_["hang"] + results_["crash"] + leaks_ == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gpushm::ucp_test

int main(int argc, char **argv) {
    using namespace gpushm::ucp_test;
    std::vector<char *> arguments(argv, argv + argc);
    arguments.insert(arguments.begin() + 1, const_cast<char *>("sweep"));
    const Options options(static_cast<int>(arguments.size()), arguments.data());
    return Sweep(options).run();
}
