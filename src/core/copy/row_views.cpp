// SPDX-License-Identifier: BSD-3-Clause
#include "core/copy/row_views.hpp"

#include "core/memory/memory_query.hpp"

#include <utility>

namespace gpushm {

uint64_t StridedRows::bytes() const {
    uint64_t all = 0;
    uint64_t span = 0;
    uint64_t end = 0;
    const bool possible = length > 0 && count > 0 && pitch >= length &&
                          !__builtin_mul_overflow(count, length, &all) &&
                          !__builtin_mul_overflow(count, pitch, &span) &&
                          !__builtin_add_overflow(address, span, &end);
    return possible ? all : 0;
}

RowViews &RowViews::instance() {
    // Never destroyed: MPI may be used while the process ends.
    static RowViews *const views = new RowViews;
    return *views;
}

// ---------------------------------------------------------------- the table

bool RowViews::View::is_gone() const {
    const uint64_t now = look_up_memory(block).buffer_id;
    return now != 0 && now != buffer_id;  // 0: there is no memory, or the driver does not say
}

void RowViews::Table::add(std::shared_ptr<View> view) {
    const void *const block = view->block;
    views_[block] = std::move(view);
    count_.store(views_.size(), std::memory_order_release);
}

void RowViews::Table::remove(const void *block) {
    views_.erase(block);
    count_.store(views_.size(), std::memory_order_release);
}

std::shared_ptr<RowViews::View> RowViews::Table::find(const void *block) const {
    const auto found = views_.find(block);
    return found != views_.end() ? found->second : nullptr;
}

std::shared_ptr<RowViews::View> RowViews::make_view(const void *block, const StridedRows &rows,
                                                    PackRows pack) {
    auto view = std::make_shared<View>();
    view->block = block;
    view->buffer_id = look_up_memory(block).buffer_id;
    view->rows = rows;
    view->pack_rows = pack;
    return view;
}

void RowViews::add_source(const void *block, const StridedRows &rows, PackRows pack) {
    std::shared_ptr<View> view = make_view(block, rows, pack);
    const std::lock_guard<std::mutex> lock(mutex_);
    sources_.add(std::move(view));
}

void RowViews::hide_source(const void *block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const std::shared_ptr<View> view = sources_.find(block)) {
        view->hidden = true;
    }
}

bool RowViews::fill_untold(const void *block) {
    std::shared_ptr<View> view;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        view = sources_.find(block);
        if (view == nullptr || view->told || view->is_gone()) {
            return false;
        }
        view->hidden = true;
    }
    return pack(*view);
}

bool RowViews::move_source(const void *block, const void *address) {
    std::shared_ptr<View> view;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        view = sources_.find(block);
        if (view == nullptr || view->readings != 0) {
            return false;
        }
        view->hidden = true;
    }
    const std::lock_guard<std::mutex> packing(view->packing);
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t bytes = view->rows.bytes();
    view->rows = {reinterpret_cast<uintptr_t>(address), bytes, 1, bytes};
    return true;
}

bool RowViews::is_being_read(const void *block) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<View> view = sources_.find(block);
    return view != nullptr && view->readings != 0;
}

void RowViews::add_destination(void *block, const StridedRows &rows) {
    std::shared_ptr<View> view = make_view(block, rows, nullptr);
    const std::lock_guard<std::mutex> lock(mutex_);
    destinations_.add(std::move(view));
}

void RowViews::remove(const void *block) {
    if (sources_.empty() && destinations_.empty()) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    sources_.remove(block);
    destinations_.remove(block);
}

/** The view of the block of `length` bytes at `block`; null: there is none. The caller has the
 * lock.
 */
std::shared_ptr<RowViews::View> RowViews::find_whole(const Table &table, const void *block,
                                                     size_t length) {
    std::shared_ptr<View> found = table.find(block);
    return found != nullptr && found->rows.bytes() == length ? found : nullptr;
}

std::optional<StridedRows> RowViews::destination(const void *address, size_t length) const {
    if (destinations_.empty()) {
        return std::nullopt;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<View> view = find_whole(destinations_, address, length);
    return view != nullptr ? std::optional(view->rows) : std::nullopt;
}

std::optional<RowViews::Source> RowViews::source(const void *address, size_t length) {
    if (sources_.empty()) {
        return std::nullopt;
    }
    auto reading = std::make_shared<RowReading>();
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<View> view = find_whole(sources_, address, length);
    if (view == nullptr || !view->may_be_told()) {
        return std::nullopt;
    }
    view->told = true;
    ++view->readings;
    reading->view_ = view;
    return Source{view->rows, std::move(reading)};
}

RowReading::~RowReading() {
    if (view_ != nullptr) {
        const std::lock_guard<std::mutex> lock(RowViews::instance().mutex_);
        --view_->readings;
    }
}

void RowViews::set_filled(const void *block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const std::shared_ptr<View> found = destinations_.find(block)) {
        found->filled = true;
    }
}

bool RowViews::is_filled(const void *block) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::shared_ptr<View> found = destinations_.find(block);
    return found != nullptr && found->filled;
}

// ---------------------------------------------------------------- packing

std::vector<std::shared_ptr<RowViews::View>> RowViews::unpacked(const void *address,
                                                                size_t length) const {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    std::vector<std::shared_ptr<View>> found;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto &[block, view] : sources_.views()) {
        const auto first = reinterpret_cast<uintptr_t>(block);
        if (!view->packed && first < begin + length && begin < first + view->rows.bytes() &&
            !view->is_gone()) {
            found.push_back(view);
        }
    }
    return found;
}

bool RowViews::pack(View &view) {
    const std::lock_guard<std::mutex> lock(view.packing);
    if (!view.packed) {
        view.packed = view.pack_rows(const_cast<void *>(view.block), view.rows);
    }
    return view.packed;
}

bool RowViews::pack_overlapping(const void *address, size_t length) {
    bool done = true;
    for (const std::shared_ptr<View> &view : unpacked(address, length)) {
        done = pack(*view) && done;
    }
    return done;
}

std::optional<StridedRows> RowViews::name_source(const void *address, size_t length,
                                                 const void **block) {
    if (sources_.empty()) {
        return std::nullopt;
    }
    const std::vector<std::shared_ptr<View>> inside = unpacked(address, length);
    if (inside.size() == 1) {
        const std::lock_guard<std::mutex> lock(mutex_);
        View &only = *inside.front();
        if (only.may_be_told()) {
            only.told = true;
            *block = only.block;
            return only.rows;
        }
    }
    pack_overlapping(address, length);
    return std::nullopt;
}

}  // namespace gpushm
