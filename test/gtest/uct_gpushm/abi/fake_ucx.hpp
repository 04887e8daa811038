// SPDX-License-Identifier: BSD-3-Clause
// Loads one of the libraries made of abi_fake_ucx.cpp.
#pragma once

#include <dlfcn.h>
#include <string>
#include <unistd.h>

namespace abi_test {

class FakeUcx {
public:
    /** The libraries are in .libs beside the test program. */
    explicit FakeUcx(const std::string &name)
        : path_(folder() + "/.libs/libabi_fake_" + name + ".so") {
        handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
    }

    bool is_loaded() const { return handle_ != nullptr; }
    const std::string &path() const { return path_; }
    const void *code() const { return dlsym(handle_, "uct_md_open"); }
    std::string log() const {
        return reinterpret_cast<const char *(*)()>(dlsym(handle_, "fake_ucx_log"))();
    }

private:
    static std::string folder() {
        char program[4096];
        const ssize_t length = readlink("/proc/self/exe", program, sizeof(program));
        const std::string path(program, length > 0 ? static_cast<size_t>(length) : 0);
        return path.substr(0, path.rfind('/'));
    }

    std::string path_;
    void *handle_;  // never closed: the registration remembers it
};

}  // namespace abi_test
