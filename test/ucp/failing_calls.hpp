// SPDX-License-Identifier: BSD-3-Clause
// The ways of messages, and the driver calls that are made to fail in them.
#pragma once

#include "messenger.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace gpushm::ucp_test {

/** A message that goes a way of its own through a transport. */
struct Way {
    const char *name;
    Operation operation;  // tag, put or get
    Allocator from;
    Allocator to;
    size_t size;
    unsigned warm;             // messages before, in the same buffers
    bool new_buffers = false;  // for each message
    unsigned burst = 1;        // messages in each of which a call may fail
    bool one_device = false;   // both processes use device 0
    bool only_full = false;    // left out unless --full is given
};

const std::vector<Way> &ways();

/** Call `n` of `function` in process `role` returns `error`, in message `message` of a burst. */
struct FailingCall {
    size_t way = 0;
    unsigned message = 0;
    int role = 0;
    std::string function;
    unsigned long n = 0;
    int error = 0;
};

/** One line each: way, message, role, function, n, error. */
std::vector<FailingCall> read_cases(const std::string &path);

}  // namespace gpushm::ucp_test
