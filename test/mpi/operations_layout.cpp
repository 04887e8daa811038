// SPDX-License-Identifier: BSD-3-Clause
#include "operations_layout.hpp"

#include <algorithm>

namespace gpushm::mpi_test::operations {
namespace {

// The extent is rounded up to what the strictest of the elements asks for (MPI 4.1, 5.1.6).
Bounds bounds_of(const std::vector<Piece> &pieces) {
    bool empty = true;
    ptrdiff_t alignment = 1;
    ptrdiff_t lower = 0;
    ptrdiff_t upper = 0;
    for (const Piece &piece : pieces) {
        if (piece.count == 0) {
            continue;
        }
        const Bounds bounds = piece.layout->bounds();
        const ptrdiff_t first = piece.displacement + bounds.lower;
        const ptrdiff_t end = first + piece.count * bounds.extent;
        lower = empty ? first : std::min(lower, first);
        upper = empty ? end : std::max(upper, end);
        empty = false;
        for (const Block &block : piece.layout->blocks()) {
            alignment = std::max(alignment, static_cast<ptrdiff_t>(block.unit));
        }
    }
    return {lower, (upper - lower + alignment - 1) / alignment * alignment};
}

// Blocks that continue each other become one.
void append(std::vector<Block> &blocks, Block block) {
    if (!blocks.empty()) {
        Block &last = blocks.back();
        if (last.offset + static_cast<ptrdiff_t>(last.length) == block.offset &&
            last.unit == block.unit && last.padding == block.padding) {
            last.length += block.length;
            return;
        }
    }
    blocks.push_back(block);
}

std::vector<Block> blocks_of(const std::vector<Piece> &pieces) {
    std::vector<Block> blocks;
    for (const Piece &piece : pieces) {
        for (int i = 0; i < piece.count; ++i) {
            for (Block block : piece.layout->blocks()) {
                block.offset += piece.displacement + i * piece.layout->bounds().extent;
                append(blocks, block);
            }
        }
    }
    return blocks;
}

}  // namespace

Layout::Layout(std::string name, MPI_Datatype type, std::vector<Block> blocks, Bounds bounds)
    : name_(std::move(name)), type_(type), blocks_(std::move(blocks)), bounds_(bounds) {
    for (const Block &block : blocks_) {
        const ptrdiff_t end = block.offset + static_cast<ptrdiff_t>(block.length);
        span_.first = packed_size_ == 0 ? block.offset : std::min(span_.first, block.offset);
        span_.end = packed_size_ == 0 ? end : std::max(span_.end, end);
        packed_size_ += block.length;
    }
}

LayoutPtr Layout::derived(std::string name, MPI_Datatype type, std::vector<Block> blocks,
                          Bounds bounds) {
    MPI_Type_commit(&type);
    auto layout = std::make_shared<Layout>(std::move(name), type, std::move(blocks), bounds);
    layout->derived_ = true;
    return layout;
}

Layout::~Layout() {
    if (derived_) {
        MPI_Type_free(&type_);
    }
}

Layout::Span Layout::span(int count) const {
    if (count == 0) {
        return {0, 0};
    }
    const ptrdiff_t last = (count - 1) * bounds_.extent;
    return {span_.first + std::min<ptrdiff_t>(0, last), span_.end + std::max<ptrdiff_t>(0, last)};
}

LayoutPtr basic(std::string name, MPI_Datatype type, size_t size) {
    return std::make_shared<Layout>(std::move(name), type, std::vector<Block>{{0, size, size}},
                                    Bounds{0, static_cast<ptrdiff_t>(size)});
}

LayoutPtr derive(std::string name, MPI_Datatype type, const std::vector<Piece> &pieces) {
    return derive(std::move(name), type, pieces, bounds_of(pieces));
}

LayoutPtr derive(std::string name, MPI_Datatype type, const std::vector<Piece> &pieces,
                 Bounds bounds) {
    return Layout::derived(std::move(name), type, blocks_of(pieces), bounds);
}

void *Items::address(int item) const {
    return buffer_ == nullptr ? nullptr
                              : buffer_->address(origin_ + item * layout_->bounds().extent);
}

// Calls visit_block(block, its position in the buffer, its size, where it starts in the stream).
template <typename Visit>
void Items::visit(int first, size_t stream_size, Visit &&visit_block) const {
    size_t at = 0;
    for (ptrdiff_t item = first; at < stream_size; ++item) {
        for (const Block &block : layout_->blocks()) {
            const size_t size = std::min(block.length, stream_size - at);
            visit_block(block, origin_ + item * layout_->bounds().extent + block.offset, size, at);
            at += size;
        }
    }
}

Bytes Items::pack(int first, int count) const {
    Bytes stream(static_cast<size_t>(count) * layout_->packed_size());
    visit(first, stream.size(), [&](const Block &, ptrdiff_t position, size_t size, size_t at) {
        std::copy_n(buffer_->content(position), size, stream.data() + at);
    });
    return stream;
}

void Items::fill(int first, const Bytes &stream) const {
    visit(first, stream.size(), [&](const Block &, ptrdiff_t position, size_t size, size_t at) {
        buffer_->fill(position, stream.data() + at, size);
    });
}

void Items::expect(int first, const Bytes &stream) const {
    visit(first, stream.size(), [&](const Block &, ptrdiff_t position, size_t size, size_t at) {
        buffer_->expect(position, stream.data() + at, size);
    });
}

void Items::change(int first, const Bytes &stream) const {
    visit(first, stream.size(), [&](const Block &, ptrdiff_t position, size_t size, size_t at) {
        buffer_->change(position, stream.data() + at, size);
    });
}

void Items::ignore_items(int first, int count) const {
    const size_t size = static_cast<size_t>(count) * layout_->packed_size();
    visit(first, size, [&](const Block &, ptrdiff_t position, size_t length, size_t) {
        buffer_->ignore(position, length);
    });
}

void Items::ignore_padding(int first, int count) const {
    const size_t size = static_cast<size_t>(count) * layout_->packed_size();
    visit(first, size, [&](const Block &block, ptrdiff_t position, size_t length, size_t) {
        if (block.padding) {
            buffer_->ignore(position, length);
        }
    });
}

// external32 is big-endian (MPI 4.1, 14.5.2).
Bytes to_external(const Layout &layout, const Bytes &stream) {
    Bytes external = stream;
    for (auto at = external.begin(); at != external.end();) {
        for (const Block &block : layout.blocks()) {
            for (size_t done = 0; done < block.length; done += block.unit, at += block.unit) {
                std::reverse(at, at + static_cast<ptrdiff_t>(block.unit));
            }
        }
    }
    return external;
}

}  // namespace gpushm::mpi_test::operations
