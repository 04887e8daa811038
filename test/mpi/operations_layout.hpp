// SPDX-License-Identifier: BSD-3-Clause
// Where the data of an MPI datatype lies, by an account of our own: nothing here asks MPI, so that
// it can tell right from wrong.
#pragma once

#include "operations_buffer.hpp"

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

using Bytes = std::vector<unsigned char>;

// Bytes that lie side by side.
struct Block {
    ptrdiff_t offset;
    size_t length;
    size_t unit;           // size of the elements in it
    bool padding = false;  // a copy carries it, arithmetic may leave anything in it
};

struct Bounds {
    ptrdiff_t lower;
    ptrdiff_t extent;
};

// An MPI datatype and its type map.
class Layout {
public:
    // A predefined type.
    Layout(std::string name, MPI_Datatype type, std::vector<Block> blocks, Bounds bounds);
    // A type of the program, which is committed now and freed by the destructor.
    static std::shared_ptr<const Layout> derived(std::string name, MPI_Datatype type,
                                                 std::vector<Block> blocks, Bounds bounds);
    ~Layout();
    Layout(const Layout &) = delete;
    Layout &operator=(const Layout &) = delete;

    const std::string &name() const { return name_; }
    MPI_Datatype type() const { return type_; }
    const std::vector<Block> &blocks() const { return blocks_; }  // in the order of the type map
    Bounds bounds() const { return bounds_; }
    size_t packed_size() const { return packed_size_; }

    // The first byte of `count` items, and the first behind them, from their address.
    struct Span {
        ptrdiff_t first;
        ptrdiff_t end;
    };
    Span span(int count) const;

private:
    std::string name_;
    MPI_Datatype type_;
    std::vector<Block> blocks_;
    Bounds bounds_;
    size_t packed_size_ = 0;
    Span span_{0, 0};  // of one item
    bool derived_ = false;
};

using LayoutPtr = std::shared_ptr<const Layout>;

// `count` items of a layout, `displacement` bytes from the address of the whole.
struct Piece {
    LayoutPtr layout;
    ptrdiff_t displacement;
    int count;
};

LayoutPtr basic(std::string name, MPI_Datatype type, size_t size);

// The type that MPI made of `pieces`. Its bounds are those which the pieces give it.
LayoutPtr derive(std::string name, MPI_Datatype type, const std::vector<Piece> &pieces);
// The same with bounds of its own.
LayoutPtr derive(std::string name, MPI_Datatype type, const std::vector<Piece> &pieces,
                 Bounds bounds);

// Items of a layout in a buffer. The data of items is given as a stream: their elements side by
// side in the order of the type map. The buffer and the layout must outlive it.
class Items {
public:
    Items() = default;  // no buffer: its address is null
    Items(Buffer &buffer, const Layout &layout, int count, ptrdiff_t origin = 0)
        : buffer_(&buffer), layout_(&layout), count_(count), origin_(origin) {}

    void *address(int item = 0) const;

    // Items of another layout in the same buffer, from `displacement` bytes on.
    Items part(ptrdiff_t displacement, const Layout &layout, int count) const {
        return {*buffer_, layout, count, origin_ + displacement};
    }

    MPI_Datatype type() const { return layout_->type(); }
    int count() const { return count_; }

    // The stream of items [first, first + count) before the operation.
    Bytes pack(int first, int count) const;

    // From item `first` on; see Buffer. A stream may end within an item.
    void fill(int first, const Bytes &stream) const;
    void expect(int first, const Bytes &stream) const;
    void change(int first, const Bytes &stream) const;

    // Bytes [0, size) from the address may have any content afterwards.
    void ignore(size_t size) const { buffer_->ignore(origin_, size); }

    // The data of items [first, first + count) is not checked.
    void ignore_items(int first, int count) const;

    // The padding of items [first, first + count) is not checked.
    void ignore_padding(int first, int count) const;

private:
    template <typename Visit>
    void visit(int first, size_t stream_size, Visit &&visit_block) const;

    Buffer *buffer_ = nullptr;
    const Layout *layout_ = nullptr;
    int count_ = 0;
    ptrdiff_t origin_ = 0;  // in the buffer
};

// A stream of items in the representation "external32".
Bytes to_external(const Layout &layout, const Bytes &stream);

}  // namespace gpushm::mpi_test::operations
