// SPDX-License-Identifier: BSD-3-Clause
#include "test/gtest/core/wrapped_calls.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

// The names are those that ld --wrap looks for.
extern "C" {
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t length);
int __real_poll(pollfd *events, nfds_t count, int timeout);
int __real_memfd_create(const char *name, unsigned flags);
int __real_posix_fallocate(int fd, off_t offset, off_t length);
int __real_open(const char *path, int flags, ...);
int __real_socket(int domain, int type, int protocol);
long __real_syscall(long number, ...);
ssize_t __real_recv(int fd, void *data, size_t length, int flags);
ssize_t __real_recvmsg(int fd, msghdr *message, int flags);
decltype(process_vm_readv) __real_process_vm_readv;
decltype(process_vm_writev) __real_process_vm_writev;
void *__real__Znwm(size_t size);   // operator new
void __real__ZdlPv(void *memory);  // operator delete
void __real__ZdlPvm(void *memory, size_t size);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t length);
int __wrap_poll(pollfd *events, nfds_t count, int timeout);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_posix_fallocate(int fd, off_t offset, off_t length);
int __wrap_open(const char *path, int flags, ...);
int __wrap_socket(int domain, int type, int protocol);
long __wrap_syscall(long number, ...);
ssize_t __wrap_recv(int fd, void *data, size_t length, int flags);
ssize_t __wrap_recvmsg(int fd, msghdr *message, int flags);
decltype(process_vm_readv) __wrap_process_vm_readv;
decltype(process_vm_writev) __wrap_process_vm_writev;
void *__wrap__Znwm(size_t size);
void __wrap__ZdlPv(void *memory);
void __wrap__ZdlPvm(void *memory, size_t size);
}

namespace {

struct SharedMapping {
    void *address;
    int uses;
};

std::mutex mutex;
/** As all mutexes of the core: a forked child has not the thread that may have had it. */
[[maybe_unused]] const int watched =
    pthread_atfork(nullptr, nullptr, [] { new (&mutex) std::mutex; });
bool share_mappings = false;
bool refuse_mappings = false;
std::map<ino_t, SharedMapping> shared_mappings;
std::function<void()> poll_action;

/** How many calls of a kind succeed before they fail. */
struct Budget {
    bool limited = false;
    unsigned remaining = 0;
    unsigned used = 0;

    /** Counts a call; false when it fails. */
    bool take() {
        ++used;
        return !limited || remaining-- != 0;
    }
};

Budget resources;
const char *failed_call = nullptr;
bool interrupt_reservations = false;
off_t longest_reservation = 0;  // that is not interrupted
bool last_was_interrupted = false;
Budget read_budget;
Budget write_budget;
std::atomic<unsigned> datagrams_left{0};  // EndlessDatagrams
std::atomic<long> heap_failure{
    -1};  // FailingHeap: so many succeed before the one that fails; negative: none
std::thread::id heap_thread;
pid_t parent_of_counted = 0;  // HeapCallsOfChildren; 0: none
unsigned heap_calls = 0;

/** Of a child, which has one thread. */
void count_heap_call() {
    if (parent_of_counted != 0 && getpid() != parent_of_counted) {
        ++heap_calls;
    }
}

/** Whether another datagram has come; it is empty. */
bool datagram_comes() {
    return datagrams_left.load() != 0 && --datagrams_left != 0;
}

/** Whether this call is the one of FailingCall, which fails with `error`. */
bool fails(const char *name, int error) {
    std::lock_guard<std::mutex> lock(mutex);
    if (resources.take()) {
        return false;
    }
    failed_call = name;
    resources = {};  // the others succeed
    errno = error;
    return true;
}

/** Whether a signal comes while `length` bytes are reserved. */
bool is_interrupted(off_t length) {
    std::lock_guard<std::mutex> lock(mutex);
    last_was_interrupted =
        interrupt_reservations && (length > longest_reservation || !last_was_interrupted);
    return last_was_interrupted;
}

/** Copies unless that is refused, as all later ones are then. */
template <typename Function, typename... Arguments>
ssize_t copy(Function function, Budget *budget, Arguments... arguments) {
    {
        std::lock_guard<std::mutex> lock(mutex);
        if (!budget->take()) {
            budget->remaining = 0;
            errno = EPERM;
            return -1;
        }
    }
    return function(arguments...);
}

}  // namespace

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && fails("mmap", ENOMEM)) {
        return MAP_FAILED;
    }
    std::lock_guard<std::mutex> lock(mutex);
    if (refuse_mappings && fd >= 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    struct stat status;
    if (!share_mappings || fd < 0 || fstat(fd, &status) != 0) {
        return __real_mmap(address, length, protection, flags, fd, offset);
    }
    const auto known = shared_mappings.find(status.st_ino);
    if (known != shared_mappings.end()) {
        ++known->second.uses;
        return known->second.address;
    }
    void *result = __real_mmap(address, length, protection, flags, fd, offset);
    shared_mappings[status.st_ino] = {result, 1};
    return result;
}

int __wrap_munmap(void *address, size_t length) {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto mapping = shared_mappings.begin(); mapping != shared_mappings.end(); ++mapping) {
        if (mapping->second.address == address) {
            if (--mapping->second.uses > 0) {
                return 0;
            }
            shared_mappings.erase(mapping);
            break;
        }
    }
    return __real_munmap(address, length);
}

int __wrap_poll(pollfd *events, nfds_t count, int timeout) {
    std::function<void()> action;
    {
        std::lock_guard<std::mutex> lock(mutex);
        action = std::exchange(poll_action, nullptr);
    }
    if (action) {
        action();
    }
    return __real_poll(events, count, timeout);
}

int __wrap_memfd_create(const char *name, unsigned flags) {
    return fails("memfd_create", EMFILE) ? -1 : __real_memfd_create(name, flags);
}

int __wrap_posix_fallocate(int fd, off_t offset, off_t length) {
    if (is_interrupted(length)) {
        return EINTR;
    }
    return fails("posix_fallocate", ENOSPC) ? ENOSPC : __real_posix_fallocate(fd, offset, length);
}

int __wrap_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    return fails("open", EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __wrap_socket(int domain, int type, int protocol) {
    return fails("socket", EMFILE) ? -1 : __real_socket(domain, type, protocol);
}

long __wrap_syscall(long number, ...) {
    long values[6];  // as many as a system call has at most (syscall(2))
    va_list arguments;
    va_start(arguments, number);
    for (long &value : values) {
        value = va_arg(arguments, long);
    }
    va_end(arguments);
    if (number == SYS_pidfd_open && fails("pidfd_open", EMFILE)) {
        return -1;
    }
    return __real_syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

ssize_t __wrap_process_vm_readv(pid_t pid, const iovec *local, unsigned long local_count,
                                const iovec *remote, unsigned long remote_count,
                                unsigned long flags) noexcept {
    return copy(__real_process_vm_readv, &read_budget, pid, local, local_count, remote,
                remote_count, flags);
}

ssize_t __wrap_process_vm_writev(pid_t pid, const iovec *local, unsigned long local_count,
                                 const iovec *remote, unsigned long remote_count,
                                 unsigned long flags) noexcept {
    return copy(__real_process_vm_writev, &write_budget, pid, local, local_count, remote,
                remote_count, flags);
}

ssize_t __wrap_recv(int fd, void *data, size_t length, int flags) {
    return datagram_comes() ? 0 : __real_recv(fd, data, length, flags);
}

ssize_t __wrap_recvmsg(int fd, msghdr *message, int flags) {
    if (!datagram_comes()) {
        return __real_recvmsg(fd, message, flags);
    }
    message->msg_controllen = 0;
    return 0;
}

void *__wrap__Znwm(size_t size) {
    count_heap_call();
    if (heap_failure.load() >= 0 && std::this_thread::get_id() == heap_thread &&
        heap_failure-- == 0) {
        throw std::bad_alloc();
    }
    return __real__Znwm(size);
}

void __wrap__ZdlPv(void *memory) {
    count_heap_call();
    __real__ZdlPv(memory);
}

void __wrap__ZdlPvm(void *memory, size_t size) {
    count_heap_call();
    __real__ZdlPvm(memory, size);
}

namespace gpushm::test {

FailingCall::FailingCall(unsigned n) {
    std::lock_guard<std::mutex> lock(mutex);
    resources = {true, n, 0};
    failed_call = nullptr;
}

FailingCall::~FailingCall() {
    std::lock_guard<std::mutex> lock(mutex);
    resources = {};
}

const char *FailingCall::name() const {
    std::lock_guard<std::mutex> lock(mutex);
    return failed_call;
}

RefusedCopies::RefusedCopies(unsigned reads_before, unsigned writes_before) {
    std::lock_guard<std::mutex> lock(mutex);
    read_budget = {true, reads_before, 0};
    write_budget = {true, writes_before, 0};
}

RefusedCopies::~RefusedCopies() {
    std::lock_guard<std::mutex> lock(mutex);
    read_budget = {};
    write_budget = {};
}

unsigned RefusedCopies::reads() const {
    std::lock_guard<std::mutex> lock(mutex);
    return read_budget.used;
}

unsigned RefusedCopies::writes() const {
    std::lock_guard<std::mutex> lock(mutex);
    return write_budget.used;
}

OneMappingPerFile::OneMappingPerFile() {
    std::lock_guard<std::mutex> lock(mutex);
    share_mappings = true;
}

OneMappingPerFile::~OneMappingPerFile() {
    std::lock_guard<std::mutex> lock(mutex);
    share_mappings = false;
}

NoMappings::NoMappings() {
    std::lock_guard<std::mutex> lock(mutex);
    refuse_mappings = true;
}

NoMappings::~NoMappings() {
    std::lock_guard<std::mutex> lock(mutex);
    refuse_mappings = false;
}

InterruptedReservations::InterruptedReservations(size_t longest) {
    std::lock_guard<std::mutex> lock(mutex);
    interrupt_reservations = true;
    longest_reservation = static_cast<off_t>(longest);
}

InterruptedReservations::~InterruptedReservations() {
    std::lock_guard<std::mutex> lock(mutex);
    interrupt_reservations = false;
}

EndlessDatagrams::EndlessDatagrams() {
    datagrams_left = kMax;
}

EndlessDatagrams::~EndlessDatagrams() {
    datagrams_left = 0;
}

bool EndlessDatagrams::all_taken() const {
    return datagrams_left == 0;
}

FailingHeap::FailingHeap(unsigned n) {
    heap_thread = std::this_thread::get_id();
    heap_failure = n;
}

FailingHeap::~FailingHeap() {
    heap_failure = -1;
}

bool FailingHeap::has_failed() const {
    return heap_failure < 0;
}

HeapCallsOfChildren::HeapCallsOfChildren() {
    parent_of_counted = getpid();
}

HeapCallsOfChildren::~HeapCallsOfChildren() {
    parent_of_counted = 0;
}

unsigned HeapCallsOfChildren::count() const {
    return heap_calls;
}

void before_next_poll(std::function<void()> action) {
    std::lock_guard<std::mutex> lock(mutex);
    poll_action = std::move(action);
}

}  // namespace gpushm::test
