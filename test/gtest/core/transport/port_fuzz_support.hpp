// SPDX-License-Identifier: BSD-3-Clause
// What the fuzz tests share: how many mutations, memory that shows what was written into it.
#pragma once

#include "test/gtest/core/transport/port_support.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace gpushm::test {

/** What the environment wants: FUZZ_MUTATIONS of them, from the numbers of FUZZ_SEED. */
struct FuzzPlan {
    const uint64_t seed = number_from("FUZZ_SEED", 1);
    const uint64_t mutations = number_from("FUZZ_MUTATIONS", 1000000);

    FuzzPlan() {
        printf("seed %llu, %llu mutations\n", static_cast<unsigned long long>(seed),
               static_cast<unsigned long long>(mutations));
    }

private:
    static uint64_t number_from(const char *variable, uint64_t otherwise) {
        const char *text = getenv(variable);
        return text != nullptr ? strtoull(text, nullptr, 0) : otherwise;
    }
};

/** Memory that a peer may use, with canaries around. */
class SharedArea {
public:
    static constexpr size_t kRegistered = 16384;

    SharedArea() : bytes_(new unsigned char[kMargin + kRegistered + kMargin]) {
        memset(bytes_.get(), kCanary, kMargin + kRegistered + kMargin);
        registration_ = std::make_unique<Registration>(bytes_.get() + kMargin, kRegistered);
    }
    RemoteMemory remote() const { return registration_->at(); }
    bool written() const {
        const unsigned char *begin = bytes_.get() + kMargin;
        return std::any_of(begin, begin + kRegistered,
                           [](unsigned char byte) { return byte != kCanary; });
    }
    bool canaries() const {
        const auto is_canary = [](unsigned char byte) { return byte == kCanary; };
        const unsigned char *behind = bytes_.get() + kMargin + kRegistered;
        return std::all_of(bytes_.get(), bytes_.get() + kMargin, is_canary) &&
               std::all_of(behind, behind + kMargin, is_canary);
    }

private:
    static constexpr size_t kMargin = 4096;
    static constexpr unsigned char kCanary = 0xc3;

    std::unique_ptr<unsigned char[]> bytes_;
    std::unique_ptr<Registration> registration_;
};

/** What happened at all: a fuzzer that is turned away at the door finds nothing. */
struct Effects {
    uint64_t messages = 0;
    uint64_t writes = 0;         // into registered memory
    uint64_t transfers[8] = {};  // of the victim, by Status

    void expect_at_least(uint64_t some_messages, uint64_t some_writes, uint64_t some_ends) const {
        EXPECT_GT(messages, some_messages);
        EXPECT_GT(writes, some_writes);
        for (const Status status : {Status::ok, Status::gpu_error, Status::peer_failed}) {
            EXPECT_GT(transfers[static_cast<size_t>(status)], some_ends)
                << static_cast<int>(status);
        }
    }
};

/** A transfer whose memory is gone as soon as it has ended. */
struct LocalTransfer {
    LocalTransfer(size_t length, Effects &effects)
        : memory(new unsigned char[length]), effects(effects) {}
    Completion completion() { return {complete, this}; }

    std::unique_ptr<unsigned char[]> memory;
    unsigned calls = 0;
    Effects &effects;

private:
    static void complete(void *self, Status status) {
        auto *transfer = static_cast<LocalTransfer *>(self);
        ++transfer->effects.transfers[static_cast<size_t>(status)];
        transfer->memory.reset();
        ++transfer->calls;
    }
};

}  // namespace gpushm::test
