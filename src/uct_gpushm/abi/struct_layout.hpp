// SPDX-License-Identifier: BSD-3-Clause
// The layout of a structure whose declaration is not available, and access to its bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gpushm::abi {

/** Offset of a field that a layout does not have. */
inline constexpr size_t kAbsent = SIZE_MAX;

/** The size of a struct and the offsets of the fields that gpushm uses. `Field` is an enum of
 * consecutive values that ends with field_count. The layout of a newer release is made from that of
 * an older one by inserting, appending and removing fields. */
template <typename Field>
class StructLayout {
public:
    static constexpr size_t kFieldCount = static_cast<size_t>(Field::field_count);

    constexpr StructLayout() {
        for (size_t i = 0; i < kFieldCount; ++i) {
            offsets_[i] = kAbsent;
        }
    }

    constexpr size_t size() const { return size_; }
    constexpr size_t operator[](Field field) const { return offsets_[static_cast<size_t>(field)]; }
    constexpr bool has(Field field) const { return (*this)[field] != kAbsent; }

    /** Sets the offset of a field. The size does not change. */
    constexpr StructLayout &place(Field field, size_t offset) {
        offsets_[static_cast<size_t>(field)] = offset;
        return *this;
    }

    /** Inserts a field of `width` bytes at `offset`. Fields from there on move up. */
    constexpr StructLayout &insert(Field field, size_t offset, size_t width = sizeof(void *)) {
        insert_gap(offset, width);
        return place(field, offset);
    }

    /** Inserts `width` bytes at `offset` for a field that gpushm does not use. */
    constexpr StructLayout &insert_gap(size_t offset, size_t width) {
        for (size_t i = 0; i < kFieldCount; ++i) {
            if (offsets_[i] != kAbsent && offsets_[i] >= offset) {
                offsets_[i] += width;
            }
        }
        size_ += width;
        return *this;
    }

    constexpr StructLayout &append(Field field, size_t width = sizeof(void *)) {
        return insert(field, size_, width);
    }

    /** Appends pointers or words from `first` to `last` in the order of the enum. */
    constexpr StructLayout &append_words(Field first, Field last) {
        for (auto i = static_cast<size_t>(first); i <= static_cast<size_t>(last); ++i) {
            append(static_cast<Field>(i));
        }
        return *this;
    }
    constexpr StructLayout &remove(Field field, size_t width = sizeof(void *)) {
        const size_t removed = (*this)[field];
        offsets_[static_cast<size_t>(field)] = kAbsent;
        for (size_t i = 0; i < kFieldCount; ++i) {
            if (offsets_[i] != kAbsent && offsets_[i] > removed) {
                offsets_[i] -= width;
            }
        }
        size_ -= width;
        return *this;
    }

    /** The bit of a field in the field_mask of its struct. UCX numbers the bits in the order of the
     * fields (src/uct/api/v2/uct_v2.h). Valid if all fields of the mask are described. */
    constexpr uint64_t mask_bit(Field field) const {
        unsigned rank = 0;
        for (size_t i = 0; i < kFieldCount; ++i) {
            if (offsets_[i] != kAbsent && offsets_[i] < (*this)[field]) {
                ++rank;
            }
        }
        return has(field) ? uint64_t{1} << rank : 0;
    }

private:
    size_t size_ = 0;
    std::array<size_t, kFieldCount> offsets_{};
};

/** mask_bit() of every field, computed once, for use in each message. */
template <typename Field>
class MaskBits {
public:
    explicit MaskBits(const StructLayout<Field> &layout) {
        for (size_t i = 0; i < bits_.size(); ++i) {
            bits_[i] = layout.mask_bit(static_cast<Field>(i));
        }
    }
    uint64_t operator[](Field field) const { return bits_[static_cast<size_t>(field)]; }

private:
    std::array<uint64_t, StructLayout<Field>::kFieldCount> bits_;
};

template <typename T>
T load(const void *object, size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const unsigned char *>(object) + offset, sizeof(value));
    return value;
}

template <typename T>
void store(void *object, size_t offset, const T &value) {
    std::memcpy(static_cast<unsigned char *>(object) + offset, &value, sizeof(value));
}

/** A field of a struct with a field_mask; `otherwise` if its bit is not set. */
template <typename T, typename Field>
T load_if_set(const void *object, const StructLayout<Field> &layout, Field field,
              T otherwise = T()) {
    return (load<uint64_t>(object, 0) & layout.mask_bit(field)) != 0
               ? load<T>(object, layout[field])
               : otherwise;
}

/** Stores a field unless the running layout lacks it. */
template <typename T, typename Field>
void store(void *object, const StructLayout<Field> &layout, Field field, const T &value) {
    if (layout.has(field)) {
        store(object, layout[field], value);
    }
}

}  // namespace gpushm::abi
