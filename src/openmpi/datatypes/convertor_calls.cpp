// SPDX-License-Identifier: BSD-3-Clause
// Messages of derived datatypes, MPI_Pack, MPI_Bsend, MPI_Sendrecv_replace, and the copies that
// collective operations make of a rank's own block use these functions.
#include "openmpi/datatypes/convertor_calls.hpp"

#include "core/memory/memory_query.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/datatypes/host_mirror.hpp"
#include "openmpi/datatypes/layout_cache.hpp"
#include "openmpi/datatypes/suspended_walks.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gpushm::openmpi {
namespace {

CopyPiece piece(Way way, char *packed, const Block &block) {
    return way == Way::pack ? CopyPiece{packed, block.address, block.length}
                            : CopyPiece{block.address, packed, block.length};
}

/** The copies between `packed` and bytes [begin, begin + length) of the convertor's packed data. */
std::vector<CopyPiece> pieces_between(const OpalConvertor &convertor, size_t begin, size_t length,
                                      char *packed, Way way) {
    BorrowedWalk walk = walk_at(convertor, begin);
    std::vector<CopyPiece> pieces;
    while (length > 0) {
        const Block block = walk->next(length);
        if (block.length == 0) {
            break;
        }
        pieces.push_back(piece(way, packed, block));
        packed += block.length;
        length -= block.length;
    }
    suspend(convertor, std::move(walk));
    return pieces;
}

/** Copies all elements of `convertor`. */
bool copy_all(const OpalConvertor &convertor, const PackedLayout &layout, char *packed, Way way) {
    char *const elements = convertor.base();
    const std::vector<CopyPiece> pieces = placed(layout.pieces, elements, packed, way);
    const MemoryInfo info = query_memory(elements + layout.first_byte);
    // Of a piece that is alone, copy_pieces() decides in which way it is copied.
    const bool by_kernel = pieces.size() > 1 && info.kind == MemoryKind::device &&
                           kernels_reach(layout, info, elements, packed, convertor.local_size());
    return (by_kernel ? copy_pieces_within(info, pieces) : copy_pieces(pieces)) == Status::ok;
}

/** Copies bytes [begin, begin + length) of the convertor's packed data from or to `packed`. */
bool copy_part(const OpalConvertor &convertor, size_t begin, size_t length, char *packed, Way way) {
    if (begin == 0 && length == convertor.local_size()) {
        if (const auto layout = LayoutCache::instance().find(convertor)) {
            return copy_all(convertor, *layout, packed, way);
        }
    }
    return copy_pieces(pieces_between(convertor, begin, length, packed, way)) == Status::ok;
}

/** Where a piece that is packed ends: after a whole element, as in Open MPI, which can then begin
 * again with a whole element if a network does not take the piece. */
size_t end_of_packing(const OpalConvertor &convertor, size_t end) {
    return end == convertor.local_size()
               ? end
               : BorrowedWalk()->find_element(convertor.datatype().handle(), convertor.count(),
                                              end);
}

bool concerns_gpu(const OpalConvertor &convertor, const iovec &packed) {
    return !convertor.is_completed() && packed.iov_base != nullptr &&
           (is_gpu_memory(convertor.datatype(), convertor.base()) ||
            is_gpu_memory(packed.iov_base));
}

/** Does what opal_convertor_pack and _unpack do. Returns 1: all is done; 0: more is left; negative:
 * a failure. `iov` and `*bytes` say how much was done. A piece that failed counts as done, because
 * UCP ignores the result and asks for a piece again until it gets data. */
int32_t convert(OpalConvertor convertor, iovec *iov, uint32_t *count, size_t *bytes, Way way) {
    *bytes = 0;
    uint32_t used = 0;
    while (used < *count && !convertor.is_completed()) {
        iovec &packed = iov[used++];
        const size_t begin = convertor.converted();
        const size_t room = begin + std::min(packed.iov_len, convertor.local_size() - begin);
        const size_t end = way == Way::pack ? end_of_packing(convertor, room) : room;
        packed.iov_len = end - begin;
        convertor.advance(end);
        *bytes += packed.iov_len;
        if (!copy_part(convertor, begin, packed.iov_len, static_cast<char *>(packed.iov_base),
                       way)) {
            report_lost(way == Way::pack ? "packing" : "unpacking");
            *count = used;
            return -1;
        }
    }
    *count = used;
    return convertor.is_completed() ? 1 : 0;
}

/** Lets Open MPI convert between representations, on copies in host memory. */
int32_t convert_in_host_memory(OpalConvertor convertor, iovec *iov, uint32_t *count, size_t *bytes,
                               Way way) {
    char *const base = convertor.base();
    const HostMirror elements(convertor.datatype().handle(), convertor.count(), base);
    if (*count != 1 || !elements.load("converting")) {
        return -1;
    }
    iovec &packed = *iov;
    void *const packed_base = packed.iov_base;
    const std::unique_ptr<char[]> packed_copy(new char[packed.iov_len]);
    if (way == Way::unpack &&
        !copy_or_report({{packed_copy.get(), packed_base, packed.iov_len}}, "converting")) {
        return -1;
    }
    packed.iov_base = packed_copy.get();
    convertor.set_base(elements.base());
    const int32_t result = way == Way::pack ? opal().pack(convertor.handle(), iov, count, bytes)
                                            : opal().unpack(convertor.handle(), iov, count, bytes);
    convertor.set_base(base);
    packed.iov_base = packed_base;
    const bool stored =
        way == Way::pack ? copy_or_report({{packed_base, packed_copy.get(), *bytes}}, "converting")
                         : elements.store("converting");
    return stored ? result : -1;
}

int32_t convert_gpu(OpalConvertor convertor, iovec *iov, uint32_t *count, size_t *bytes, Way way) {
    return convertor.is_converting() ? convert_in_host_memory(convertor, iov, count, bytes, way)
                                     : convert(convertor, iov, count, bytes, way);
}

int32_t pack(void *handle, iovec *iov, uint32_t *count, size_t *bytes) {
    const OpalConvertor convertor(handle, opal().layout);
    return concerns_gpu(convertor, *iov) ? convert_gpu(convertor, iov, count, bytes, Way::pack)
                                         : opal().pack(handle, iov, count, bytes);
}

int32_t unpack(void *handle, iovec *iov, uint32_t *count, size_t *bytes) {
    const OpalConvertor convertor(handle, opal().layout);
    return concerns_gpu(convertor, *iov) ? convert_gpu(convertor, iov, count, bytes, Way::unpack)
                                         : opal().unpack(handle, iov, count, bytes);
}

/** The range from the first to the last byte of all pieces. */
struct Span {
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;

    void add(const void *address, size_t length) {
        const auto place = reinterpret_cast<uintptr_t>(address);
        begin = std::min(begin, place);
        end = std::max(end, place + length);
    }
    bool overlaps(const Span &other) const { return begin < other.end && other.begin < end; }
};

bool may_overlap(const std::vector<CopyPiece> &pieces) {
    Span to;
    Span from;
    for (const CopyPiece &piece : pieces) {
        to.add(piece.destination, piece.length);
        from.add(piece.source, piece.length);
    }
    return to.overlaps(from);
}

/** Copies pieces through host memory, because their sources and destinations overlap: the Bruck
 * algorithm moves blocks within the receive buffer (ompi_coll_base_allgather_intra_bruck). */
bool move_pieces(const std::vector<CopyPiece> &pieces) {
    size_t bytes = 0;
    for (const CopyPiece &piece : pieces) {
        bytes += piece.length;
    }
    const std::unique_ptr<char[]> between(new char[bytes]);
    std::vector<CopyPiece> first;
    std::vector<CopyPiece> second;
    char *place = between.get();
    for (const CopyPiece &piece : pieces) {
        first.push_back({place, piece.source, piece.length});
        second.push_back({piece.destination, place, piece.length});
        place += piece.length;
    }
    return copy_or_report(first, "copying") && copy_or_report(second, "copying");
}

int32_t copy_gpu_content(const void *datatype, size_t count, char *destination, char *source) {
    BorrowedWalk walk;
    walk->start(datatype, count, source);
    std::vector<CopyPiece> pieces;
    for (Block block = walk->next(SIZE_MAX); block.length > 0; block = walk->next(SIZE_MAX)) {
        pieces.push_back({destination + (block.address - source), block.address, block.length});
    }
    const bool copied =
        may_overlap(pieces) ? move_pieces(pieces) : copy_or_report(pieces, "copying");
    return copied ? 0 : -1;
}

/** Copies elements between two buffers of one datatype. */
int32_t copy_content(const void *datatype, int32_t count, char *destination, char *source) {
    const OpalDatatype type(datatype);
    if (count <= 0 || (!is_gpu_memory(type, destination) && !is_gpu_memory(type, source))) {
        return opal().copy_content(datatype, count, destination, source);
    }
    return copy_gpu_content(datatype, static_cast<size_t>(count), destination, source);
}

}  // namespace

void redirect_convertor_calls(CallRedirection *redirection) {
    redirect_call<pack, OpalFailure>(redirection, "opal_convertor_pack");
    redirect_call<unpack, OpalFailure>(redirection, "opal_convertor_unpack");
    redirect_call<copy_content, OpalFailure>(redirection, "opal_datatype_copy_content_same_ddt");
}

}  // namespace gpushm::openmpi
