// SPDX-License-Identifier: BSD-3-Clause
// Whether a GPU has anything to do for this process.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gpushm {

/** Whether no kernel and no copy runs in the context or waits to run, of any library in the
 * process. Work that waits for an event counts. Takes 10 us if so, else `proof_ns`. False of a
 * context that has failed, and where the driver does not tell (before CUDA 12.5).
 *
 * The caller makes sure that the context is alive and that no stream of it is being captured,
 * because the question ends a capture. Thread safe. */
bool context_is_idle(CUcontext context, uint64_t proof_ns);

/** Whether is_quiescent() can answer: it needs a driver of CUDA 12.5, watch_contexts() and
 * watch_stream_captures(). */
bool quiescence_is_known();

/** Whether cuMemFree, cuMemHostUnregister and cuIpcCloseMemHandle, which wait for all work of the
 * context, would return at once; also when the context has ended. While such a call waits, no other
 * thread can launch, copy or record an event in the context (test/simcuda/conformance_free.cpp). A
 * message would then never arrive if a kernel of the application waits for it.
 *
 * The answer holds until a kernel is started, which other threads may do at any time. Kernels of
 * gpushm, in all contexts, leave their GPUs for the question; false if one does not leave. False
 * while a stream is captured, or while another thread makes such a call (memory_is_ending()); a
 * call that is not seen or begins during the question delays the answer.
 *
 * `id`: context_id() when the context was alive. Thread safe. */
bool is_quiescent(CUcontext context, unsigned long long id);

}  // namespace gpushm
