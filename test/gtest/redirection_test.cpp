// SPDX-License-Identifier: BSD-3-Clause
// CallRedirection: calls of other libraries come to the replacement, ours do not, whenever they were loaded.
#include "openmpi/call_redirection.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <string>

namespace gpushm::openmpi {
namespace {

constexpr int kAnswer = -77;
int answer() { return kAnswer; }

constexpr const char *kLazy = "redirected_caller.so";
constexpr const char *kReadOnly = "redirected_caller_relro.so";

/** One of the two libraries beside the test. */
class Caller {
public:
    explicit Caller(const std::string &file) {
        handle_ = dlopen((std::string(CALLER_DIR "/.libs/") + file).c_str(), RTLD_LAZY | RTLD_LOCAL);
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
    int call_by_address() const {
        return function<int (*(*)())()>("address_of_getppid")()();
    }

private:
    template <typename Function>
    Function function(const char *name) const {
        return reinterpret_cast<Function>(dlsym(handle_, name));
    }

    void *handle_;
};

/** Gives the calls back at the end, for the next test. */
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
    for (int round = 0; round < 3; ++round) {  // unloaded between, and perhaps loaded to the same place
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

}  // namespace
}  // namespace gpushm::openmpi
