// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/copy_pieces.hpp"

#include "core/base/no_throw.hpp"
#include "core/copy/copy_any.hpp"
#include "core/copy/copy_operands.hpp"
#include "core/copy/engine_pool.hpp"
#include "core/copy/row_copy_list.hpp"
#include "core/copy/standby_policy.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/kernels/standby_protocol.hpp"
#include "core/memory/memory_query.hpp"
#include "core/pinning/pinned_buffer_pool.hpp"
#include "core/standby/standby_registry.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>

namespace gpushm {

// ---------------------------------------------------------------- fewer pieces

namespace {

size_t distance(const void *from, const void *to) {
    return reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from);
}

/** The distances from one row to the next, if `next` becomes one. A distance downwards in memory
 * comes out as enormous. */
CopyRows distances(const CopyPiece &piece, const CopyPiece &next) {
    return piece.rows.count > 1 ? piece.rows
                                : CopyRows{1, distance(piece.destination, next.destination),
                                           distance(piece.source, next.source)};
}

/** Whether `next` is the next row of `piece`. */
bool continues(const CopyPiece &piece, const CopyPiece &next) {
    constexpr size_t kMaxPitch = size_t{1} << 31;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH of all GPUs
    const CopyRows rows = distances(piece, next);
    return next.length == piece.length && rows.destination_pitch >= next.length &&
           rows.source_pitch >= next.length && rows.destination_pitch < kMaxPitch &&
           rows.source_pitch < kMaxPitch &&
           distance(piece.destination, next.destination) == rows.count * rows.destination_pitch &&
           distance(piece.source, next.source) == rows.count * rows.source_pitch;
}

bool adjoins(const CopyPiece &last, const CopyPiece &next) {
    return last.rows.count == 1 && distance(last.destination, next.destination) == last.length &&
           distance(last.source, next.source) == last.length;
}

/** Row number `row` as a piece of its own. */
CopyPiece nth_row(const CopyPiece &piece, size_t row) {
    return {static_cast<unsigned char *>(piece.destination) + row * piece.rows.destination_pitch,
            static_cast<const unsigned char *>(piece.source) + row * piece.rows.source_pitch,
            piece.length};
}

}  // namespace

void append_joined(std::vector<CopyPiece> *pieces, const CopyPiece &piece) {
    if (piece.length == 0) {
        return;
    }
    CopyPiece *last = pieces->empty() || piece.rows.count > 1 ? nullptr : &pieces->back();
    if (last != nullptr && adjoins(*last, piece)) {
        last->length += piece.length;
    } else if (last != nullptr && continues(*last, piece)) {
        last->rows = distances(*last, piece);
        ++last->rows.count;
    } else {
        pieces->push_back(piece);
    }
}

namespace {

/** The same copies in fewer pieces, in the same order. */
std::vector<CopyPiece> join_pieces(const std::vector<CopyPiece> &pieces) {
    std::vector<CopyPiece> joined;
    for (const CopyPiece &piece : pieces) {
        append_joined(&joined, piece);
    }
    return joined;
}

/** Whether rows at `address` are in one allocation, or all in memory that the driver does not know.
 * Elements of absolute addresses may lie at equal distances by chance. */
bool lie_together(const void *address, size_t pitch, const CopyPiece &piece) {
    constexpr size_t kPage = 4096;  // the smallest range of one kind of memory
    const auto *begin = static_cast<const unsigned char *>(address);
    const size_t span = (piece.rows.count - 1) * pitch + piece.length;
    const MemoryInfo info = query_memory(address);
    if (info.base != nullptr) {
        const size_t offset = static_cast<size_t>(begin - static_cast<unsigned char *>(info.base));
        return span <= info.length && offset <= info.length - span;
    }
    for (size_t look = kPage; look < span + kPage; look += kPage) {
        const size_t row = std::min(look / pitch, piece.rows.count - 1);
        if (query_memory(begin + row * pitch).base != nullptr) {
            return false;
        }
    }
    return true;
}

/** Replaces pieces whose rows are in several allocations, on either side, by their rows. */
std::vector<CopyPiece> separate_scattered(const std::vector<CopyPiece> &pieces) {
    std::vector<CopyPiece> separated;
    for (const CopyPiece &piece : pieces) {
        if (piece.rows.count == 1 ||
            (lie_together(piece.destination, piece.rows.destination_pitch, piece) &&
             lie_together(piece.source, piece.rows.source_pitch, piece))) {
            separated.push_back(piece);
            continue;
        }
        for (size_t row = 0; row < piece.rows.count; ++row) {
            separated.push_back(nth_row(piece, row));
        }
    }
    return separated;
}

// ---------------------------------------------------------------- copies

/** Waits for all tickets, and uses them up. The first failure, else ok. */
Status wait_all(CopyEngine &engine, std::vector<CopyTicket> &tickets) {
    Status worst = Status::ok;
    for (CopyTicket &ticket : tickets) {
        const Status status = engine.wait(&ticket);
        worst = status == Status::ok ? worst : status;
    }
    return worst;
}

CopyJob job_of(const CopyPiece &piece, const CopySides &sides) {
    CopyJob job = job_between(piece.destination, piece.source, piece.length, sides);
    job.rows = piece.rows;
    return job;
}

/** All rows by one call. `sides` are those of the piece. */
Status start_together(CopyEngine &engine, const CopyPiece &piece, const CopySides &sides,
                      CopyTicket *ticket) {
    if (sides.gpu_side) {
        return engine.start(job_of(piece, sides), ticket);
    }
    for (size_t row = 0; row < piece.rows.count; ++row) {
        const CopyPiece one = nth_row(piece, row);
        memcpy(one.destination, one.source, one.length);
    }
    return Status::ok;
}

/** start_together(). Adds what has to be waited for to `tickets`. */
Status start_part(CopyEngine &engine, const CopyPiece &part, const CopySides &sides,
                  std::vector<CopyTicket> *tickets) {
    tickets->emplace_back();  // before the copy begins
    const Status status = start_together(engine, part, sides, &tickets->back());
    if (status == Status::in_progress) {
        return Status::ok;
    }
    tickets->pop_back();
    return status;
}

/** Adds what has to be waited for to `tickets`. */
Status start_piece(CopyEngine &engine, const CopyPiece &piece, const CopySides &sides,
                   std::vector<CopyTicket> *tickets) {
    // Fewer are better off among the single copies of a batch: doc/decisions/copy-many-pieces.md.
    constexpr size_t kMinRows = 6;
    const size_t rows_together = piece.rows.count >= kMinRows ? piece.rows.count : 1;
    for (size_t row = 0; row < piece.rows.count; row += rows_together) {
        const bool is_whole = rows_together == piece.rows.count;
        const CopyPiece part = is_whole ? piece : nth_row(piece, row);
        // Rows of managed memory may reside on different sides.
        const Status status = start_part(
            engine, part, is_whole ? sides : copy_sides(part.destination, part.source, part.length),
            tickets);
        if (status != Status::ok) {
            return status;
        }
    }
    return Status::ok;
}

/** Consecutive pieces that one launch may copy. Decides by the first bytes of each piece. */
class KernelGroup {
public:
    /** Takes the piece at `begin`, and those behind it that go with it into one launch. */
    KernelGroup(const std::vector<CopyPiece> &pieces, size_t begin) {
        for (size_t i = begin; i < pieces.size(); ++i) {
            const CopyPiece &piece = pieces[i];
            const CopySides sides = copy_sides(piece.destination, piece.source, piece.length);
            const bool is_first = sides_.empty();
            if (!is_first && !fits(sides)) {
                break;
            }
            sides_.push_back(sides);
            if (!sides_.back().gpu_side) {
                break;
            }
            jobs_.push_back(job_of(piece, sides_.back()));
        }
    }
    /** How many pieces there are, at least one. */
    size_t size() const { return sides_.size(); }
    const CopySides &sides(size_t index) const { return sides_[index]; }
    /** A job for each piece. Empty: the CPU copies the only one. */
    const std::vector<CopyJob> &jobs() const { return jobs_; }

private:
    bool fits(const CopySides &sides) const {
        return sides.gpu_side && jobs_.size() < kMaxKernelJobs &&
               sides_.front().direction == sides.direction &&
               sides_.front().gpu_side->context == sides.gpu_side->context &&
               sides_.front().gpu_side->device == sides.gpu_side->device;
    }

    std::deque<CopySides> sides_;  // jobs refer to them
    std::vector<CopyJob> jobs_;
};

// Half of what PinnedBufferPool has for their lists.
constexpr size_t kMaxLaunches = PinnedBufferPool::kBlocks / 2;

/** Whether the standby kernel makes all copies. */
bool are_left_to_standby(CopyEngine &engine, const std::vector<CopyJob> &jobs) {
    return !jobs.empty() && jobs.size() <= kMostCopiesOfRows &&
           std::all_of(jobs.begin(), jobs.end(),
                       [&](const CopyJob &job) { return engine.is_left_to_standby(job); });
}

/** Adds what has to be waited for to `tickets`. */
Status start_group(CopyEngine &engine, const std::vector<CopyPiece> &pieces, size_t begin,
                   const KernelGroup &group, std::vector<CopyTicket> *tickets) {
    const bool by_standby = are_left_to_standby(engine, group.jobs());
    if (!by_standby && !group.jobs().empty() && engine.start_by_kernel(group.jobs(), tickets)) {
        return Status::ok;
    }
    const auto start_one = by_standby ? start_part : start_piece;
    for (size_t i = 0; i < group.size(); ++i) {
        const Status status = start_one(engine, pieces[begin + i], group.sides(i), tickets);
        if (status != Status::ok) {
            return status;
        }
    }
    return Status::ok;
}

/** Adds what has to be waited for to `tickets`. */
Status start_pieces(CopyEngine &engine, const std::vector<CopyPiece> &pieces,
                    std::vector<CopyTicket> *tickets) {
    Status status = Status::ok;
    for (size_t begin = 0; begin < pieces.size() && status == Status::ok;) {
        if (tickets->size() >= kMaxLaunches * kMaxKernelJobs) {
            const Status ended = wait_all(engine, *tickets);
            tickets->clear();
            if (ended != Status::ok) {
                return ended;
            }
        }
        const KernelGroup group(pieces, begin);
        status = start_group(engine, pieces, begin, group, tickets);
        begin += group.size();
    }
    return status;
}

Status copy_together(const std::vector<CopyPiece> &pieces) {
    BorrowedEngine engine;
    std::vector<CopyTicket> tickets;
    Status status = Status::ok;
    {
        const CopyEngine::Scope scope(*engine);
        if (!as_possible([&] {
                status = start_pieces(*engine, separate_scattered(join_pieces(pieces)), &tickets);
            })) {
            status = Status::out_of_memory;
        }
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
    const bool several = pieces.size() > 1 || (!pieces.empty() && pieces.front().rows.count > 1);
    if (CudaDriver::get() != nullptr && several && copy_together(pieces) == Status::ok) {
        return Status::ok;
    }
    for (const CopyPiece &piece : pieces) {
        for (size_t row = 0; row < piece.rows.count; ++row) {
            const CopyPiece one = nth_row(piece, row);
            const Status status = copy_any(one.destination, one.source, one.length);
            if (status != Status::ok) {
                return status;
            }
        }
    }
    return Status::ok;
}

// ---------------------------------------------------------------- within a GPU

namespace {

/** Adds pieces [begin, end). False: a piece is not for the kernel, or there is no memory. */
bool add_pieces(const std::vector<CopyPiece> &pieces, size_t begin, size_t end, RowCopyList *list) {
    for (size_t i = begin; i < end; ++i) {
        const CopyPiece &piece = pieces[i];
        const RowCopy copy = row_copy(piece.destination, piece.source, piece.length, piece.rows);
        if (!list->has_room() || words_of(copy) == 0 || words_of(copy) > kMaxRowCopyWords) {
            return false;
        }
        list->add(copy);
    }
    return true;
}

/** Copies pieces [begin, end), which need at most kMaxLaunches, and waits. False: not all were
 * copied. */
bool run_lists(CopyEngine &engine, const MemoryInfo &gpu_side, const std::vector<CopyPiece> &pieces,
               size_t begin, size_t end) {
    std::deque<RowCopyList> lists;
    std::vector<KernelLaunch> launches;
    for (size_t next = begin; next < end; next += RowCopyList::kMax) {
        const size_t list_end = std::min(end, next + RowCopyList::kMax);
        RowCopyList &list = lists.emplace_back(list_end - next);
        if (!add_pieces(pieces, next, list_end, &list)) {
            return false;
        }
        launches.push_back(list.launch());
    }
    const KernelsEnd how = engine.run(gpu_side, launches);
    if (how == KernelsEnd::unknown) {
        std::for_each(lists.begin(), lists.end(), [](RowCopyList &list) { list.leave(); });
    }
    return how == KernelsEnd::ran;
}

/** False: not all pieces were copied. */
bool copy_by_kernel(const MemoryInfo &gpu_side, const std::vector<CopyPiece> &pieces) {
    constexpr size_t kMaxAtOnce = kMaxLaunches * RowCopyList::kMax;
    BorrowedEngine engine;
    for (size_t begin = 0; begin < pieces.size(); begin += kMaxAtOnce) {
        if (!run_lists(*engine, gpu_side, pieces, begin,
                       std::min(pieces.size(), begin + kMaxAtOnce))) {
            engine.discard();
            return false;
        }
    }
    return true;
}

bool may_be_for_standby(const CopyPiece &piece) {
    const size_t most = piece.rows.count == 1 ? kMaxStandbyBytes : kStandbyMostRowBytes;
    return piece.length <= most / piece.rows.count;
}

/** Whether the standby kernel makes all copies. Counts them for it if it is not there. */
bool are_left_to_standby(const std::vector<CopyPiece> &pieces) {
    if (pieces.empty() || pieces.size() > kMostCopiesOfRows ||
        !std::all_of(pieces.begin(), pieces.end(), may_be_for_standby)) {
        return false;
    }
    BorrowedEngine engine;
    const KernelGroup group(pieces, 0);
    if (group.size() != pieces.size()) {
        return false;
    }
    const bool are_left = are_left_to_standby(*engine, group.jobs());
    if (!are_left) {
        engine->note_for_standby(group.jobs());
    }
    return are_left;
}

}  // namespace

Status copy_pieces_within(const MemoryInfo &gpu_side, const std::vector<CopyPiece> &pieces) {
    if (are_left_to_standby(pieces)) {
        return copy_pieces(pieces);
    }
    const bool copied = has_kernel(gpu_side, Kernel::copy_rows) && copy_by_kernel(gpu_side, pieces);
    return copied ? Status::ok : copy_pieces(pieces);
}

}  // namespace gpushm
