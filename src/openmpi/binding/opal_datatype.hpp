// SPDX-License-Identifier: BSD-3-Clause
// The members of OPAL's datatype and convertor that gpushm uses. The offsets are those of
// opal/datatype/opal_datatype.h and opal_convertor.h of Open MPI 4.1, 5.0 and 6.0, built without
// OPAL_ENABLE_DEBUG as in all distributions. find_opal() tests them on the running Open MPI first.
#pragma once

#include "openmpi/binding/foreign_struct.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

/** An opal_datatype_t. Every MPI_Datatype handle of Open MPI points to one. */
class OpalDatatype : public ForeignStruct {
public:
    using ForeignStruct::ForeignStruct;

    /** False also for null. No other member may be used then; MPI refuses such a datatype. */
    bool is_committed() const {
        return handle() != nullptr &&
               (get<uint16_t>(16) & 0x04) != 0;  // OPAL_DATATYPE_FLAG_COMMITTED
    }
    size_t size() const { return get<size_t>(24); }  // bytes of data
    ptrdiff_t true_lower_bound() const { return get<ptrdiff_t>(32); }
    ptrdiff_t lower_bound() const { return get<ptrdiff_t>(48); }
    ptrdiff_t extent() const { return get<ptrdiff_t>(56) - lower_bound(); }
    /** Where they are set, convertors take elements for one block each, or for one block all
     * together, whatever the description says: OPAL_DATATYPE_FLAG_CONTIGUOUS and _NO_GAPS. */
    uint16_t flags_of_layout() const { return get<uint16_t>(16) & 0x30; }
    /** Whether elements follow each other without gaps. */
    bool is_dense() const {
        return true_lower_bound() == 0 && lower_bound() == 0 &&
               extent() == static_cast<ptrdiff_t>(size()) &&
               get<ptrdiff_t>(40) == static_cast<ptrdiff_t>(size());
    }
};

/** A dt_type_desc_t: of what blocks and loops an element consists. Datatypes whose sizes, bounds,
 * flags_of_layout() and elements are equal have the same layout. Defined if
 * Opal::knows_descriptions. */
class TypeDescription : public ForeignStruct {
public:
    using ForeignStruct::ForeignStruct;

    /** A dt_elem_desc_t, as words. */
    using Element = std::array<uint64_t, 4>;

    size_t count() const { return get<size_t>(8); }
    /** What Open MPI does not define is 0. */
    Element element(size_t index) const;
    /** For tests of the structure. */
    const void *elements() const { return get<const void *>(16); }
};

/** The offsets of members of opal_convertor_t, in bytes, and flags. */
struct ConvertorLayout {
    size_t datatype;      // const opal_datatype_t *pDesc
    size_t description;   // const dt_type_desc_t *use_desc
    size_t count;         // size_t
    size_t local_size;    // size_t: bytes of all data
    size_t base;          // unsigned char *pBaseBuf
    size_t converted;     // size_t bConverted: bytes done
    size_t flags;         // uint32_t
    size_t stack;         // dt_stack_t *pStack
    size_t stack_size;    // uint32_t
    size_t set_position;  // function pointer fPosition; 0: the library exports the function instead
    uint32_t completed;   // flag CONVERTOR_COMPLETED
    uint32_t contiguous;  // flag CONVERTOR_NO_OP: one block, whose only position is `converted`
    uint32_t homogeneous;  // flag CONVERTOR_HOMOGENEOUS
};

/** The functions of OPAL that gpushm calls, and the layout of its convertor. */
struct Opal {
    using Convert = int32_t (*)(void *convertor, iovec *iov, uint32_t *count, size_t *bytes);
    using CopyContent = int32_t (*)(const void *datatype, int32_t count, char *destination,
                                    char *source);
    using SetPosition = int32_t (*)(void *convertor, size_t *position);

    Convert pack;
    Convert unpack;
    Convert raw;
    CopyContent copy_content;
    void *(*create)(int32_t architecture, int32_t mode);
    int32_t (*prepare_for_send)(void *convertor, const void *datatype, size_t count,
                                const void *buffer);
    SetPosition set_position;  // null: the convertor has a pointer to it
    int32_t architecture;
    ConvertorLayout layout;
    bool knows_descriptions;  // TypeDescription fits
};

/** Finds the functions in `library` and tests the layout. False, logged as debug, if a function is
 * missing or no known layout fits. */
bool find_opal(const OpenMpiLibrary &library, Opal *opal);

/** The result of the last successful find_opal(). */
const Opal &opal();

/** An opal_convertor_t. */
class OpalConvertor : public ForeignStruct {
public:
    OpalConvertor(void *handle, const ConvertorLayout &layout)
        : ForeignStruct(handle), layout_(layout) {}

    OpalDatatype datatype() const { return OpalDatatype(get<const void *>(layout_.datatype)); }
    TypeDescription description() const {
        return TypeDescription(get<const void *>(layout_.description));
    }
    size_t count() const { return get<size_t>(layout_.count); }
    size_t local_size() const { return get<size_t>(layout_.local_size); }
    char *base() const { return get<char *>(layout_.base); }
    size_t converted() const { return get<size_t>(layout_.converted); }
    bool is_completed() const { return (flags() & layout_.completed) != 0; }

    /** Whether elements are converted to or from another representation (MPI_Pack_external). */
    bool is_converting() const { return (flags() & layout_.homogeneous) == 0; }
    /** Sets the address of the elements. The caller restores it before it returns. */
    void set_base(void *base) { set(layout_.base, base); }

    /** Marks all bytes before `position` as done. Open MPI's own position in the datatype stays:
     * Open MPI does not use it, because gpushm converts every byte of GPU memory, and starts again
     * from the beginning if it has to go back. Moving that position for each piece would fail:
     * opal_convertor_generic_simple_position (4.1.4) leaves loops on its stack, and divides by zero
     * within elements. */
    void advance(size_t position);
    /** The begin of the element that contains `position`. The convertor must have been prepared for
     * sending, and cannot be used afterwards. */
    size_t find_element(size_t position);

    uint32_t flags() const { return get<uint32_t>(layout_.flags); }
    void *stack() const { return get<void *>(layout_.stack); }
    uint32_t stack_size() const { return get<uint32_t>(layout_.stack_size); }
    void set_stack(void *stack, uint32_t size) {
        set(layout_.stack, stack);
        set(layout_.stack_size, size);
    }

private:
    const ConvertorLayout &layout_;
};

}  // namespace gpushm::openmpi
