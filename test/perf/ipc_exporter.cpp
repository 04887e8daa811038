// SPDX-License-Identifier: BSD-3-Clause
#include "ipc_exporter.hpp"

#include "../mpi/pattern.hpp"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace gpushm::perf {

void run_exporter(const Driver &driver, int device, size_t bytes, uint64_t seed) {
    driver.use_device(device);
    CUdeviceptr memory = 0;
    driver.require(driver.cuMemAlloc(&memory, bytes), "cuMemAlloc");
    std::vector<unsigned char> content(bytes);
    mpi_test::fill_pattern(content.data(), bytes, seed);
    driver.require(driver.cuMemcpyHtoD(memory, content.data(), bytes), "cuMemcpyHtoD");
    driver.require(driver.cuCtxSynchronize(), "cuCtxSynchronize");
    CUipcMemHandle handle;
    driver.require(driver.cuIpcGetMemHandle(&handle, memory), "cuIpcGetMemHandle");
    if (write(STDOUT_FILENO, &handle, sizeof(handle)) != sizeof(handle)) {
        return;
    }
    char end;
    while (read(STDIN_FILENO, &end, 1) > 0) {
    }
    driver.cuMemFree(memory);
}

ImportedMemory::ImportedMemory(const Driver &driver, int owner_device, size_t bytes, uint64_t seed,
                               int cpu)
    : driver_(driver) {
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) {
        throw std::runtime_error("cannot make a pipe");
    }
    std::vector<std::string> words = {program_invocation_name,
                                      "--role=exporter",
                                      "--devices=" + std::to_string(owner_device),
                                      "--bytes=" + std::to_string(bytes),
                                      "--seed=" + std::to_string(seed),
                                      "--cpus=" + std::to_string(cpu)};
    std::vector<char *> arguments;
    for (std::string &word : words) {
        arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, down[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, up[1], STDOUT_FILENO);
    const int failed =
        posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(down[0]);
    close(up[1]);
    to_exporter_ = down[1];
    const bool told = failed == 0 && read(up[0], &handle_, sizeof(handle_)) == sizeof(handle_);
    close(up[0]);
    if (!told) {
        throw std::runtime_error("the exporting process failed");
    }
    map();
}

void ImportedMemory::map() {
    driver_.require(
        driver_.cuIpcOpenMemHandle(&mapping_, handle_, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "cuIpcOpenMemHandle");
}

void ImportedMemory::map_again() {
    driver_.require(driver_.cuIpcCloseMemHandle(mapping_), "cuIpcCloseMemHandle");
    map();
}

ImportedMemory::~ImportedMemory() {
    driver_.cuIpcCloseMemHandle(mapping_);
    close(to_exporter_);
    waitpid(process_, nullptr, 0);
}

}  // namespace gpushm::perf
