// SPDX-License-Identifier: BSD-3-Clause
// What this node allows processes to share: see node_limits.hpp.
#include "tools/node_limits.hpp"

#include "tools/environment.hpp"
#include "tools/subprocess.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace gpushm::tools {

namespace {

std::optional<uint64_t> soft_limit(int resource) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY) {
        return std::nullopt;
    }
    return limit.rlim_cur;
}

void look_at_shm(NodeLimits &limits) {
    struct statvfs status {};
    if (statvfs("/dev/shm", &status) == 0) {
        limits.shm_size_bytes = uint64_t{status.f_blocks} * status.f_frsize;
        limits.shm_free_bytes = uint64_t{status.f_bavail} * status.f_frsize;
    }
}

/** The errnos of opening descriptor `fd` of `owner` and of reading its memory. */
std::string try_to_share(pid_t owner, int fd, const char *address) {
    const std::string path = "/proc/" + std::to_string(owner) + "/fd/" + std::to_string(fd);
    const int attach_error = open(path.c_str(), O_RDWR | O_CLOEXEC) >= 0 ? 0 : errno;
    char byte = 0;
    const iovec local{&byte, 1};
    const iovec remote{const_cast<char *>(address), 1};
    const int cma_error = process_vm_readv(owner, &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
    return std::to_string(attach_error) + " " + std::to_string(cma_error);
}

/** Two children, since a parent may do more to its child than siblings may (Yama). */
void try_sharing(NodeLimits &limits) {
    static const char shared_byte = 1;
    const int fd = memfd_create("gpushm-info", MFD_CLOEXEC);
    if (fd < 0) {
        limits.memory_file_error = errno;
        return;
    }
    limits.attach_error = limits.cma_error = ENOSYS;
    const pid_t parent = getpid();
    const pid_t owner = fork();
    if (owner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent) {
            pause();
        }
        _exit(0);
    }
    if (owner > 0) {
        const auto outcome = call_in_child([&] { return try_to_share(owner, fd, &shared_byte); });
        const auto errors = split(outcome.value_or(""), " ");
        if (errors.size() == 2) {
            limits.attach_error = std::atoi(errors[0].c_str());
            limits.cma_error = std::atoi(errors[1].c_str());
        }
        kill(owner, SIGKILL);
        waitpid(owner, nullptr, 0);
    }
    close(fd);
}

std::string read_pid_namespace() {
    char text[64];
    const ssize_t length = readlink("/proc/self/ns/pid", text, sizeof(text));
    return length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
}

}  // namespace

NodeLimits look_at_node() {
    NodeLimits limits;
    look_at_shm(limits);
    limits.locked_memory_bytes = soft_limit(RLIMIT_MEMLOCK);
    limits.open_files = soft_limit(RLIMIT_NOFILE);
    limits.pid_namespace = read_pid_namespace();
    try_sharing(limits);
    return limits;
}

}  // namespace gpushm::tools
