// SPDX-License-Identifier: BSD-3-Clause
// Registered host memory whose pages change: copies go on with those that were registered.
#include "test_support.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <linux/io_uring.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr std::size_t kBytes = 256 << 10;
constexpr int kAccess = PROT_READ | PROT_WRITE;
constexpr int kGuardInstall = 102;  // MADV_GUARD_INSTALL of Linux 6.13
constexpr int kGuardRemove = 103;

// Memory whose pages change.
struct Changing {
    unsigned char *address;
    int file;  // -1: none
};

struct Change {
    const char *name;
    int flags;  // of mmap; without MAP_ANONYMOUS: of a file in memory
    std::function<bool(const Changing &)> apply;  // false if Linux does not know it
};

bool map_again(const Changing &memory, int flags) {
    return mmap(memory.address, kBytes, kAccess, flags | MAP_FIXED, memory.file, 0) ==
           memory.address;
}

bool truncate_and_extend(const Changing &memory) {
    return ftruncate(memory.file, 0) == 0 && ftruncate(memory.file, kBytes) == 0;
}

const std::vector<Change> &changes() {
    constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
    static const std::vector<Change> all = {
        {"munmap", kPrivate,
         [](const Changing &memory) {
             return munmap(memory.address, kBytes) == 0 && map_again(memory, kPrivate);
         }},
        {"mmap over it", kPrivate,
         [](const Changing &memory) { return map_again(memory, kPrivate); }},
        {"mremap", kPrivate,
         [](const Changing &memory) {
             void *const moved =
                 mremap(memory.address, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
             return moved != MAP_FAILED && munmap(moved, kBytes) == 0;
         }},
        {"MADV_DONTNEED", kPrivate,
         [](const Changing &memory) {
             return madvise(memory.address, kBytes, MADV_DONTNEED) == 0;
         }},
        {"MADV_GUARD_INSTALL", kPrivate,
         [](const Changing &memory) {
             return madvise(memory.address, kBytes, kGuardInstall) == 0 &&
                    madvise(memory.address, kBytes, kGuardRemove) == 0;
         }},
        {"ftruncate", MAP_SHARED, truncate_and_extend},
        {"ftruncate of a private mapping", MAP_PRIVATE, truncate_and_extend},
        {"FALLOC_FL_PUNCH_HOLE", MAP_SHARED,
         [](const Changing &memory) {
             return fallocate(memory.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes) ==
                    0;
         }},
        {"MADV_REMOVE", MAP_SHARED,
         [](const Changing &memory) { return madvise(memory.address, kBytes, MADV_REMOVE) == 0; }},
    };
    return all;
}

// What seems to change pages and does not.
const std::vector<Change> &no_changes() {
    constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
    static const std::vector<Change> all = {
        {"mprotect", kPrivate,
         [](const Changing &memory) {
             return mprotect(memory.address, kBytes, PROT_NONE) == 0 &&
                    mprotect(memory.address, kBytes, kAccess) == 0;
         }},
        {"MADV_PAGEOUT", kPrivate,
         [](const Changing &memory) { return madvise(memory.address, kBytes, MADV_PAGEOUT) == 0; }},
        {"MADV_FREE", kPrivate,
         [](const Changing &memory) { return madvise(memory.address, kBytes, MADV_FREE) == 0; }},
        {"MADV_MERGEABLE", kPrivate,
         [](const Changing &memory) {
             return madvise(memory.address, kBytes, MADV_MERGEABLE) == 0;
         }},
        {"a fork", kPrivate,
         [](const Changing &memory) {
             int ends[2];
             if (pipe(ends) != 0) {
                 return false;
             }
             const pid_t child = fork();
             if (child == 0) {  // lives while this process writes there
                 char byte = 0;
                 close(ends[1]);
                 _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
             }
             close(ends[0]);
             std::memset(memory.address, 7, kBytes);
             close(ends[1]);
             return waitpid(child, nullptr, 0) == child;
         }},
    };
    return all;
}

// Whether the driver pins what is registered. The simulated one cannot where Linux forbids io_uring
// or has no locked memory left.
bool driver_pins() {
    void *const driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (dlsym(driver, "simcuda_set") == nullptr) {
        return true;
    }
    Bytes memory(kBytes);
    const iovec buffer{memory.data(), memory.size()};
    io_uring_params params{};
    const int ring = static_cast<int>(syscall(SYS_io_uring_setup, 1, &params));
    const bool pins =
        ring >= 0 && syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) == 0;
    close(ring);
    return pins;
}

class RegisteredPagesTest : public DriverTest {
protected:
    void SetUp() override {
        DriverTest::SetUp();
        if (!driver_pins()) {
            GTEST_SKIP() << "io_uring is not permitted here";
        }
    }

    // What a copy from the registration finds there after the change, when 2 was written to where
    // 1 had been; 0 if Linux does not know the change.
    static int byte_after(const Change &change) {
        DeviceMemory device(kBytes);
        Changing memory = {nullptr, -1};
        if ((change.flags & MAP_ANONYMOUS) == 0) {
            memory.file = memfd_create("registered pages", MFD_CLOEXEC);
            EXPECT_EQ(ftruncate(memory.file, kBytes), 0);
        }
        void *const mapped = mmap(nullptr, kBytes, kAccess, change.flags, memory.file, 0);
        EXPECT_NE(mapped, MAP_FAILED);
        memory.address = static_cast<unsigned char *>(mapped);
        std::memset(mapped, 1, kBytes);
        EXPECT_CU(cu().cuMemHostRegister(mapped, kBytes, CU_MEMHOSTREGISTER_PORTABLE));
        const bool known = change.apply(memory);
        if (known) {
            std::memset(mapped, 2, kBytes);
            EXPECT_CU(cu().cuMemcpyHtoD(device.address(), mapped, kBytes));
            EXPECT_CU(cu().cuMemsetD8(device.address() + 1, 3, 1));
            check_write(memory, device.address());
        }
        EXPECT_CU(cu().cuMemHostUnregister(mapped));
        munmap(mapped, kBytes);
        close(memory.file);
        const Bytes found = device.read();
        EXPECT_TRUE(!known || found == expected(found.front())) << change.name;
        return known ? found.front() : 0;
    }

private:
    static Bytes expected(unsigned char value) {
        Bytes bytes(kBytes, value);
        bytes[1] = 3;
        return bytes;
    }

    // A copy to the registration goes to the pages from which one is read.
    static void check_write(const Changing &memory, CUdeviceptr device) {
        unsigned char first = 0;
        EXPECT_CU(cu().cuMemcpyDtoH(&first, device, 1));
        EXPECT_CU(cu().cuMemcpyDtoH(memory.address, device, 2));
        EXPECT_EQ(memory.address[1], first == 2 ? 3 : 2);
    }
};

TEST_F(RegisteredPagesTest, copies_use_the_pages_that_were_registered) {
    for (const Change &change : changes()) {
        const int byte = byte_after(change);
        EXPECT_TRUE(byte == 1 || byte == 0) << change.name << ": " << byte;
    }
}

TEST_F(RegisteredPagesTest, which_stay_those_of_the_process_otherwise) {
    for (const Change &change : no_changes()) {
        const int byte = byte_after(change);
        EXPECT_TRUE(byte == 2 || byte == 0) << change.name << ": " << byte;
    }
}

// A child that stops this process again and again, and lets it go on. It ends by itself, after it
// has let the process go on: a child that is killed may leave the process stopped.
class Stopper {
public:
    Stopper() : ends_(make_shared_flag()), process_(getpid()), child_(fork()) {
        if (child_ == 0) {
            while (!ends_->load()) {
                kill(process_, SIGSTOP);
                kill(process_, SIGCONT);
                usleep(50);
            }
            _exit(0);
        }
    }
    ~Stopper() {
        ends_->store(true);
        waitpid(child_, nullptr, 0);
        munmap(ends_, sizeof(*ends_));
    }

private:
    using Flag = std::atomic<bool>;
    static Flag *make_shared_flag() {
        void *const memory =
            mmap(nullptr, sizeof(Flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return new (memory) Flag(false);
    }

    Flag *const ends_;
    const pid_t process_;
    const pid_t child_;
};

TEST_F(RegisteredPagesTest, are_copied_while_the_process_is_stopped_and_goes_on) {
    Bytes host(kBytes);
    EXPECT_CU(cu().cuMemHostRegister(host.data(), host.size(), CU_MEMHOSTREGISTER_PORTABLE));
    DeviceMemory device(host.size());
    {
        const Stopper stopper;
        for (int i = 0; i < 300; ++i) {
            const Bytes content = fresh_bytes(host.size());
            host = content;
            EXPECT_CU(cu().cuMemcpyHtoD(device.address(), host.data(), host.size()));
            std::fill(host.begin(), host.end(), 0);
            EXPECT_CU(cu().cuMemcpyDtoH(host.data(), device.address(), host.size()));
            ASSERT_TRUE(host == content) << "copy " << i;
        }
    }
    EXPECT_CU(cu().cuMemHostUnregister(host.data()));
}

}  // namespace
