// SPDX-License-Identifier: BSD-3-Clause
// The description of a copy, and of how it ends.
#pragma once

#include "core/base/copy_rows.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/memory/memory_info.hpp"
#include "core/memory/memory_query.hpp"

#include <cstddef>
#include <memory>

namespace gpushm {

struct CopyBatch;
class MailboxReceiver;
class RowReading;

/** Which way a copy goes, seen from the GPU. The direction decides the stream, so that both
 * directions of the link are busy at once. A copy between two GPU buffers is to_gpu. */
enum class CopyDirection { to_gpu, from_gpu };

/** Where the side of a copy lies that is not `gpu_side`, as far as the caller knows. */
enum class OtherSide { unknown, same_gpu, elsewhere };

/** What is to be copied. */
struct CopyJob {
    void *destination;
    const void *source;
    size_t length;               // bytes of a row
    const MemoryInfo &gpu_side;  // of one side, which needs a GPU: its context copies
    CopyDirection direction;
    /** kernels_reach() is true for both sides. false: the engine finds out. */
    bool in_reach = false;
    CopyRows rows = {};
    /** The source is page-locked host memory. The engine knows by itself what lies in segments of
     * SegmentTable. */
    bool from_host = false;
    /** The destination is host memory. Needed where gpu_side describes the destination. */
    bool to_host = false;
    /** The engine has nothing else to do than this transfer: latency counts, not throughput. */
    bool urgent = false;
    /** The source is memory of gpu_side, and may be freed before the copy begins. Then the copy
     * fails. */
    bool source_may_go = false;
    OtherSide other_side = OtherSide::unknown;  // same_gpu: and in_reach
    /** One side is a peer's memory, which is mapped here and is of another GPU: from the first byte
     * of its first row to the last one of its last row. 0: the engine asks the driver where both
     * sides are, which says of mapped memory that it is of the GPU that maps it. */
    size_t peer_extent = 0;
    /** Of a copy within a GPU: the source may be unmapped when the copy has ended, whatever kernels
     * are in streams. A kernel that was cancelled reads nothing there then. */
    bool source_may_be_unmapped = false;
    /** Of a copy within a GPU: kernels of this process run there at once, although other processes
     * use it. */
    bool has_turn = false;
    size_t transfer_bytes = 0;  // of the transfer of which this is a piece; 0: it is the whole
    /** While a CopyEngine::Scope lives and other copies are under way, this one may be collected
     * with later ones, up to so many bytes. 0: it is not. Not for copies within a GPU, which a
     * kernel of the application may hold up. */
    size_t joint_bytes = 0;
    /** What query_memory() says of the side that is not gpu_side. Null: the engine asks. */
    const MemoryInfo *other_info = nullptr;
    /** The mailbox whose message this thread is handling; the source may be its payload. Null:
     * none. */
    const MailboxReceiver *mailbox = nullptr;

    /** Of all rows. */
    size_t bytes() const { return length * rows.count; }
    /** From the first byte of the first row to the last one of the last row. */
    size_t extent(size_t pitch) const { return (rows.count - 1) * pitch + length; }
};

/** A launch of one of our kernels. */
struct KernelLaunch {
    Kernel kernel;
    unsigned blocks;
    unsigned threads;  // of a block
    void *parameters;  // the struct that is its only parameter
    unsigned blocks_y = 1;
    const void *host_memory = nullptr;  // what it reads of PinnedBufferPool; null: nothing
};

/** How CopyEngine::run() ended. */
enum class KernelsEnd {
    ran,      // all of them
    refused,  // the driver did not launch one: those before it have ended, those behind it were not
              // launched either
    unknown,  // some of those that were launched may still run
};

/** A copy under way, or over; null batch: complete from the start. A ticket may outlive its engine.
 */
struct CopyTicket {
    std::shared_ptr<CopyBatch> batch;
    size_t index = 0;
    std::shared_ptr<RowReading> reading = nullptr;  // of a copy that reads rows of RowViews
};

/** The most jobs that CopyEngine::start_by_kernel() takes. */
constexpr size_t kMaxKernelJobs = 1024;

}  // namespace gpushm
