// SPDX-License-Identifier: BSD-3-Clause
// CallRedirection: calls in other libraries reach the replacement, whenever the libraries were
// loaded. Calls in gpushm itself do not.
#include "openmpi/binding/call_redirection.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace gpushm::openmpi {
namespace {

constexpr int kAnswer = -77;
int answer() {
    return kAnswer;
}

constexpr const char *kLazy = "redirected_caller.so";
constexpr const char *kReadOnly = "redirected_caller_relro.so";
constexpr const char *kSlow = "redirected_caller_slow.so";

std::string beside_test(const std::string &file) {
    return CALLER_DIR "/.libs/" + file;
}

/** A library that calls getppid: one of those beside the test, or another one by its path. */
class Caller {
public:
    explicit Caller(const std::string &file) {
        const bool is_path = file.find('/') != std::string::npos;
        handle_ = dlopen((is_path ? file : beside_test(file)).c_str(), RTLD_LAZY | RTLD_LOCAL);
        EXPECT_NE(handle_, nullptr) << dlerror();
    }
    ~Caller() {
        if (handle_ != nullptr) {
            dlclose(handle_);
        }
    }
    Caller(const Caller &) = delete;
    Caller &operator=(const Caller &) = delete;

    int call() const { return function<int (*)()>("ask_for_parent")(); }
    int call_by_address() const { return function<int (*(*)())()>("address_of_getppid")()(); }
    int call_by_table() const { return function<int (*)()>("call_by_table")(); }
    int call_by_constant_table() const { return function<int (*)()>("call_by_constant_table")(); }
    void set_table(int (*value)()) const { function<void (*)(int (*)())>("set_table")(value); }

private:
    template <typename Function>
    Function function(const char *name) const {
        return reinterpret_cast<Function>(dlsym(handle_, name));
    }

    void *handle_;
};

/** The destructor restores the calls, for the next test. */
class RedirectionTest : public testing::Test {
protected:
    ~RedirectionTest() override {
        CallRedirection back;
        back.add("getppid", reinterpret_cast<void *>(&getppid));
        back.apply();
    }

    CallRedirection redirection_;
};

TEST_F(RedirectionTest, ReachesLibrariesThatAreLoaded) {
    const int parent = getppid();
    for (const char *file : {kLazy, kReadOnly}) {
        const Caller caller(file);
        ASSERT_EQ(caller.call(), parent);
        redirection_.add("getppid", reinterpret_cast<void *>(&answer));
        EXPECT_GE(redirection_.apply(), 1u);
        EXPECT_EQ(caller.call(), kAnswer) << file;
        EXPECT_EQ(caller.call_by_address(), kAnswer) << file;
        EXPECT_EQ(getppid(), parent) << "calls of our own stay";
        redirection_.add("getppid", reinterpret_cast<void *>(&getppid));
        redirection_.apply();
        EXPECT_EQ(caller.call(), parent);
    }
}

TEST_F(RedirectionTest, ReachesLibrariesThatAreLoadedLater) {
    redirection_.add("getppid", reinterpret_cast<void *>(&answer));
    redirection_.apply();
    for (int round = 0; round < 3;
         ++round) {  // unloaded between, and perhaps loaded to the same place
        const Caller lazy(kLazy);
        const Caller read_only(kReadOnly);
        redirection_.apply();
        EXPECT_EQ(lazy.call(), kAnswer);
        EXPECT_EQ(read_only.call(), kAnswer);
    }
    EXPECT_EQ(redirection_.apply(), 0u) << "nothing new is loaded";
}

TEST_F(RedirectionTest, KeepsToTheLibrariesThatAreNamed) {
    const int parent = getppid();
    const Caller lazy(kLazy);
    const Caller read_only(kReadOnly);
    redirection_.add("getppid", reinterpret_cast<void *>(&answer),
                     {"no_such_library", "redirected_caller_"});
    redirection_.apply();
    EXPECT_EQ(read_only.call(), kAnswer);
    EXPECT_EQ(lazy.call(), parent);
}

TEST_F(RedirectionTest, ReachesPointersInData) {
    for (const char *file : {kLazy, kReadOnly}) {
        const Caller caller(file);
        redirection_.add_function("getppid", reinterpret_cast<void *>(&getppid),
                                  reinterpret_cast<void *>(&answer));
        redirection_.apply();
        EXPECT_EQ(caller.call(), kAnswer) << file;
        EXPECT_EQ(caller.call_by_table(), kAnswer) << file;
        EXPECT_EQ(caller.call_by_constant_table(), kAnswer) << file;
    }
}

TEST_F(RedirectionTest, LeavesPointersThatTheProgramHasChanged) {
    const Caller caller(kLazy);
    caller.set_table(getpid);
    redirection_.add_function("getppid", reinterpret_cast<void *>(&getppid),
                              reinterpret_cast<void *>(&answer));
    redirection_.apply();
    EXPECT_EQ(caller.call_by_table(), getpid());
    EXPECT_EQ(caller.call_by_constant_table(), kAnswer);
}

/** Whether the loader lists an object of this name. */
bool is_in_list(const char *file) {
    const auto compare = [](dl_phdr_info *object, size_t, void *name) {
        return strstr(object->dlpi_name, static_cast<const char *>(name)) != nullptr ? 1 : 0;
    };
    return dl_iterate_phdr(compare, const_cast<char *>(file)) != 0;
}

TEST_F(RedirectionTest, WaitsForLibrariesThatAnotherThreadIsLoading) {
    ASSERT_EQ(access(beside_test(kSlow).c_str(), R_OK), 0);
    redirection_.add("getppid", reinterpret_cast<void *>(&answer));
    redirection_.apply();
    int result = 0;
    std::atomic<bool> applied = false;
    std::thread loader([&] {
        const Caller caller(kSlow);
        while (!applied) {
            std::this_thread::yield();
        }
        result = caller.call();
    });
    while (!is_in_list(kSlow)) {
        std::this_thread::yield();
    }
    EXPECT_GE(redirection_.apply(), 1u);
    applied = true;
    loader.join();
    EXPECT_EQ(result, kAnswer);
}

/** Writes a copy of kReadOnly to `path` whose read-only part ends within a page, as some linkers
 * write it. False: that failed. */
bool write_partly_read_only(const std::string &path) {
    std::ifstream in(beside_test(kReadOnly), std::ios::binary);
    std::string image((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    Elf64_Ehdr header;
    memcpy(&header, image.data(), sizeof(header));
    for (size_t i = 0; i < header.e_phnum; ++i) {
        char *const place = &image[header.e_phoff + i * sizeof(Elf64_Phdr)];
        Elf64_Phdr segment;
        memcpy(&segment, place, sizeof(segment));
        if (segment.p_type == PT_GNU_RELRO) {
            segment.p_memsz -= sizeof(void *);
            memcpy(place, &segment, sizeof(segment));
            return static_cast<bool>(std::ofstream(path, std::ios::binary) << image);
        }
    }
    return false;
}

/** The mappings of a file, with their permissions. */
std::string mappings_of(const std::string &file) {
    std::ifstream maps("/proc/self/maps");
    std::string found;
    for (std::string line; std::getline(maps, line);) {
        found += line.find(file) != std::string::npos ? line + "\n" : "";
    }
    return found;
}

TEST_F(RedirectionTest, LeavesPagesAsProtectedAsTheyWere) {
    const std::string partly_read_only =
        testing::TempDir() + "redirected_caller_partly." + std::to_string(getpid());
    ASSERT_TRUE(write_partly_read_only(partly_read_only));
    redirection_.add("getppid", reinterpret_cast<void *>(&answer));
    for (const std::string &file : {std::string(kLazy), std::string(kReadOnly), partly_read_only}) {
        const Caller caller(file);
        const std::string before = mappings_of(file);
        EXPECT_GE(redirection_.apply(), 1u);
        EXPECT_EQ(caller.call(), kAnswer) << file;
        EXPECT_EQ(mappings_of(file), before);
    }
    unlink(partly_read_only.c_str());
}

}  // namespace
}  // namespace gpushm::openmpi
