// SPDX-License-Identifier: BSD-3-Clause
// Copies between any kinds of memory: see copy_any.hpp.
#include "core/copy_any.hpp"

#include "core/engine_pool.hpp"
#include "core/host_regions.hpp"
#include "core/log.hpp"
#include "core/page_residency.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>

namespace gpushm {

namespace {

/** Which side's GPU copies between two buffers; null: none, a CPU does. */
struct Sides {
    std::optional<MemoryInfo> gpu_side;
    CopyDirection direction = CopyDirection::to_gpu;
};

Sides sides_of(const void *destination, const void *source, size_t length) {
    const MemoryInfo destination_info = query_memory(destination);
    if (gpu_copies(destination_info, destination, length)) {
        return {destination_info, CopyDirection::to_gpu};
    }
    if (HostRegions::instance().contains(source)) {
        return {};  // the usual case where no GPU copies: a message out of a slot
    }
    const MemoryInfo source_info = query_memory(source);
    if (gpu_copies(source_info, source, length)) {
        return {source_info, CopyDirection::from_gpu};
    }
    return {};
}

}  // namespace

Status start_any(CopyEngine &engine, void *destination, const void *source, size_t length,
                 CopyTicket *ticket) {
    *ticket = CopyTicket();
    if (length == 0) {
        return Status::ok;
    }
    const Sides sides = sides_of(destination, source, length);
    if (sides.gpu_side) {
        return engine.start({destination, source, length, *sides.gpu_side, sides.direction}, ticket);
    }
    memcpy(destination, source, length);
    return Status::ok;
}

namespace {

/** With an engine of the pool. */
Status copy_once(void *destination, const void *source, size_t length, const Sides &sides) {
    BorrowedEngine engine;
    const Status status =
        engine->copy({destination, source, length, *sides.gpu_side, sides.direction});
    if (status != Status::ok) {
        engine.discard();
    }
    return status;
}

/** The driver's synchronous copy, which needs nothing of ours. It waits for the application's default
 *  stream, so it is the last resort. */
Status copy_synchronously(void *destination, const void *source, size_t length,
                          const MemoryInfo &gpu_side) {
    const CudaDriver *driver = CudaDriver::get();
    CopyEngine engine;
    CurrentContext current(driver, engine.context_of(gpu_side));
    CUresult result = driver->memcpy_sync(device_pointer(destination), device_pointer(source),
                                          length);
    if (result == CUDA_SUCCESS) {
        // Between some kinds it returns before the bytes are there ("API synchronization behavior").
        result = driver->stream_synchronize(nullptr);
    }
    if (result != CUDA_SUCCESS) {
        GPUSHM_LOG(error, "cuMemcpy failed for a GPU copy of %zu bytes (%s): see whether the application "
                   "freed the buffer too early or a kernel faulted (compute-sanitizer)", length,
                   driver->error_name(result));
    }
    return result == CUDA_SUCCESS ? Status::ok : Status::gpu_error;
}

}  // namespace

/** UCP takes a copy between memory kinds for one that cannot fail: 1.13 goes on with what was in the
 *  destination (src/ucp/dt/dt.c), later ones end the process. So nothing is left untried. */
Status copy_any(void *destination, const void *source, size_t length) {
    constexpr int kAttempts = 3;
    Status status = Status::ok;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
        // Most calls are between host buffers and need no engine.
        const Sides sides = CudaDriver::get() != nullptr && length != 0
                                ? sides_of(destination, source, length)
                                : Sides();
        if (!sides.gpu_side) {
            if (length != 0) {
                memcpy(destination, source, length);
            }
            return Status::ok;
        }
        status = attempt < kAttempts
                     ? copy_once(destination, source, length, sides)
                     : copy_synchronously(destination, source, length, *sides.gpu_side);
        if (status == Status::ok) {
            break;
        }
    }
    return status;
}

namespace {

/** Leaves every ticket used up. */
Status wait_all(CopyEngine &engine, std::vector<CopyTicket> &tickets) {
    Status worst = Status::ok;
    for (CopyTicket &ticket : tickets) {
        const Status status = engine.wait(&ticket);
        worst = status == Status::ok ? worst : status;
    }
    return worst;
}

/** Pieces that lie at equal distances on both sides. */
struct Grid {
    CopyPiece first;
    CopyRows rows;
};

size_t distance(const void *from, const void *to) {
    return reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
}

/** From one row to the next, if `next` becomes one; what goes down in memory comes out as enormous. */
CopyRows distances(const Grid &grid, const CopyPiece &next) {
    return grid.rows.count > 1 ? grid.rows
                               : CopyRows{1, distance(grid.first.destination, next.destination),
                                          distance(grid.first.source, next.source)};
}

/** Whether `next` is one more row. */
bool continues(const Grid &grid, const CopyPiece &next) {
    constexpr size_t kMostPitch = size_t{1} << 31;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs
    const CopyRows rows = distances(grid, next);
    return next.length == grid.first.length && rows.destination_pitch >= next.length &&
           rows.source_pitch >= next.length && rows.destination_pitch < kMostPitch &&
           rows.source_pitch < kMostPitch &&
           distance(grid.first.destination, next.destination) ==
               rows.count * rows.destination_pitch &&
           distance(grid.first.source, next.source) == rows.count * rows.source_pitch;
}

bool adjoins(const CopyPiece &last, const CopyPiece &next) {
    return distance(last.destination, next.destination) == last.length &&
           distance(last.source, next.source) == last.length;
}

std::vector<Grid> find_grids(const std::vector<CopyPiece> &pieces) {
    std::vector<Grid> grids;
    for (const CopyPiece &piece : pieces) {
        Grid *last = grids.empty() ? nullptr : &grids.back();
        if (last != nullptr && last->rows.count == 1 && adjoins(last->first, piece)) {
            last->first.length += piece.length;
        } else if (last != nullptr && continues(*last, piece)) {
            last->rows = distances(*last, piece);
            ++last->rows.count;
        } else {
            grids.push_back({piece, CopyRows()});
        }
    }
    return grids;
}

void copy_by_cpu(const Grid &grid) {
    auto *to = static_cast<unsigned char *>(grid.first.destination);
    const auto *from = static_cast<const unsigned char *>(grid.first.source);
    for (size_t row = 0; row < grid.rows.count; ++row) {
        memcpy(to + row * grid.rows.destination_pitch, from + row * grid.rows.source_pitch,
               grid.first.length);
    }
}

/** Whether rows at `address` are in one allocation, or all in memory that the driver does not know: elements of
 *  absolute addresses may lie at equal distances by chance. */
bool lie_together(const void *address, size_t pitch, const Grid &grid) {
    constexpr size_t kPage = 4096;  // the least that one kind of memory takes
    const auto *begin = static_cast<const unsigned char *>(address);
    const size_t span = (grid.rows.count - 1) * pitch + grid.first.length;
    const MemoryInfo info = query_memory(address);
    if (info.base != nullptr) {
        const size_t offset = static_cast<size_t>(begin - static_cast<unsigned char *>(info.base));
        return span <= info.length && offset <= info.length - span;
    }
    for (size_t look = kPage; look < span + kPage; look += kPage) {
        const size_t row = std::min(look / pitch, grid.rows.count - 1);
        if (query_memory(begin + row * pitch).base != nullptr) {
            return false;
        }
    }
    return true;
}

Status start_together(CopyEngine &engine, const Grid &grid, CopyTicket *ticket) {
    const CopyPiece &first = grid.first;
    const Sides sides = sides_of(first.destination, first.source, first.length);
    if (sides.gpu_side) {
        return engine.start({first.destination, first.source, first.length, *sides.gpu_side,
                             sides.direction, false, grid.rows}, ticket);
    }
    copy_by_cpu(grid);
    return Status::ok;
}

/** Rows of which not all are in one allocation on either side come one by one. */
std::vector<Grid> separate_scattered(const std::vector<Grid> &grids) {
    std::vector<Grid> separated;
    for (const Grid &grid : grids) {
        const CopyPiece &first = grid.first;
        const CopyRows &rows = grid.rows;
        if (rows.count == 1 || (lie_together(first.destination, rows.destination_pitch, grid) &&
                                lie_together(first.source, rows.source_pitch, grid))) {
            separated.push_back(grid);
            continue;
        }
        auto *destination = static_cast<unsigned char *>(first.destination);
        const auto *source = static_cast<const unsigned char *>(first.source);
        for (size_t row = 0; row < rows.count; ++row) {
            separated.push_back({{destination + row * rows.destination_pitch,
                                  source + row * rows.source_pitch, first.length},
                                 CopyRows()});
        }
    }
    return separated;
}

/** Adds what has to be waited for to `tickets`. */
Status start_grid(CopyEngine &engine, const Grid &grid, std::vector<CopyTicket> *tickets) {
    // Fewer are better off among the single copies of a batch (0.65 us each, and 3 us for a call).
    constexpr size_t kLeastRows = 6;
    const CopyPiece &first = grid.first;
    const bool together = grid.rows.count == 1 || grid.rows.count >= kLeastRows;
    auto *destination = static_cast<unsigned char *>(first.destination);
    const auto *source = static_cast<const unsigned char *>(first.source);
    Status status = Status::ok;
    for (size_t row = 0; row < (together ? 1 : grid.rows.count); ++row) {
        CopyTicket ticket;
        status = first.length == 0 ? Status::ok
                 : together        ? start_together(engine, grid, &ticket)
                                   : start_any(engine, destination + row * grid.rows.destination_pitch,
                                               source + row * grid.rows.source_pitch, first.length,
                                               &ticket);
        if (status == Status::in_progress) {
            tickets->push_back(std::move(ticket));
        } else if (status != Status::ok) {
            return status;
        }
    }
    return Status::ok;
}

/** Consecutive grids that one launch can take, as far as their first bytes tell. */
class KernelGroup {
public:
    /** False when `grid` begins another group. */
    bool add(const Grid &grid) {
        const CopyPiece &first = grid.first;
        const Sides sides = sides_of(first.destination, first.source, first.length);
        if (first.length == 0 || !sides.gpu_side || !fits(sides)) {
            return false;
        }
        infos_.push_back(*sides.gpu_side);
        direction_ = sides.direction;
        jobs_.push_back({first.destination, first.source, first.length, infos_.back(), direction_,
                         false, grid.rows});
        return true;
    }
    const std::vector<CopyJob> &jobs() const { return jobs_; }

private:
    bool fits(const Sides &sides) const {
        return jobs_.empty() ||
               (jobs_.size() < kMostKernelJobs && direction_ == sides.direction &&
                infos_.front().context == sides.gpu_side->context &&
                infos_.front().device == sides.gpu_side->device);
    }

    std::deque<MemoryInfo> infos_;  // jobs refer to them
    CopyDirection direction_ = CopyDirection::to_gpu;
    std::vector<CopyJob> jobs_;
};

/** The same for all grids. */
Status start_grids(CopyEngine &engine, const std::vector<Grid> &grids,
                   std::vector<CopyTicket> *tickets) {
    for (auto next = grids.begin(); next != grids.end();) {
        KernelGroup group;
        const auto begin = next;
        while (next != grids.end() && group.add(*next)) {
            ++next;
        }
        if (next == begin) {
            ++next;
        } else if (engine.start_by_kernel(group.jobs(), tickets)) {
            continue;
        }
        for (auto grid = begin; grid != next; ++grid) {
            const Status status = start_grid(engine, *grid, tickets);
            if (status != Status::ok) {
                return status;
            }
        }
    }
    return Status::ok;
}

Status copy_together(const std::vector<CopyPiece> &pieces) {
    BorrowedEngine engine;
    std::vector<CopyTicket> tickets;
    Status status = Status::ok;
    {
        CopyEngine::Scope scope(*engine);
        status = start_grids(*engine, separate_scattered(find_grids(pieces)), &tickets);
        const Status ended = wait_all(*engine, tickets);
        status = ended != Status::ok ? ended : status;
    }
    if (status != Status::ok) {
        engine.discard();
    }
    return status;
}

}  // namespace

Status copy_pieces(const std::vector<CopyPiece> &pieces) {
    if (CudaDriver::get() != nullptr && pieces.size() > 1 && copy_together(pieces) == Status::ok) {
        return Status::ok;
    }
    for (const CopyPiece &piece : pieces) {
        const Status status = copy_any(piece.destination, piece.source, piece.length);
        if (status != Status::ok) {
            return status;
        }
    }
    return Status::ok;
}

}  // namespace gpushm
