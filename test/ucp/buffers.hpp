// SPDX-License-Identifier: BSD-3-Clause
// Buffers of the memory kinds that a test wants.
#pragma once

#include "../mpi/guarded_buffer.hpp"
#include "options.hpp"

#include <memory>
#include <vector>

namespace gpushm::ucp_test {

using mpi_test::CudaDriver;
using mpi_test::GuardedBuffer;
using mpi_test::MemoryKind;
using mpi_test::Message;

/** The driver, initialised, with device 0 current in this thread. Ends the test as skipped when
 * there is none. */
CudaDriver &cuda_driver();

/** `--kinds=host,device` or the fallback. */
std::vector<MemoryKind> kinds_of(const Options &options, const char *fallback);
/** `--sizes=1,2` or the fallback. */
std::vector<size_t> sizes_of(const Options &options, const char *fallback);

std::unique_ptr<GuardedBuffer> make_buffer(MemoryKind kind, size_t capacity);

/** The n-th message of a test: at one of several alignments, into a destination that is longer. */
Message nth_message(size_t n, size_t size);

/** Fails the test when a byte of the message, or around it, is not what it should be. */
void check_received(const GuardedBuffer &buffer, const Message &message);

}  // namespace gpushm::ucp_test
