// SPDX-License-Identifier: BSD-3-Clause
// OPAL's description of a datatype and its convertor, as far as we read them. The offsets are those
// of opal/datatype/opal_datatype.h and opal_convertor.h of Open MPI 4.1, 5.0 and 6.0, built without
// OPAL_ENABLE_DEBUG as all distributions do; they are tried out on the Open MPI that runs before
// anything uses them.
#pragma once

#include "openmpi/binding/foreign_struct.hpp"
#include "openmpi/binding/open_mpi_library.hpp"

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace gpushm::openmpi {

/** An opal_datatype_t, which every MPI_Datatype handle of Open MPI points to. */
class OpalDatatype : public ForeignStruct {
public:
    using ForeignStruct::ForeignStruct;

    /** Ready for use; nothing else may be asked of one that is not (null, too), which MPI refuses.
     */
    bool is_committed() const {
        return handle() != nullptr &&
               (get<uint16_t>(16) & 0x04) != 0;  // OPAL_DATATYPE_FLAG_COMMITTED
    }
    size_t size() const { return get<size_t>(24); }  // bytes of data
    ptrdiff_t true_lower_bound() const { return get<ptrdiff_t>(32); }
    ptrdiff_t extent() const { return get<ptrdiff_t>(56) - get<ptrdiff_t>(48); }
    /** Elements follow each other without gaps. */
    bool is_dense() const {
        return true_lower_bound() == 0 && get<ptrdiff_t>(48) == 0 &&
               extent() == static_cast<ptrdiff_t>(size()) &&
               get<ptrdiff_t>(40) == static_cast<ptrdiff_t>(size());
    }
};

/** Where opal_convertor_t keeps what we need, in bytes from its beginning. */
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
    uint32_t completed;   // of flags, CONVERTOR_COMPLETED
    uint32_t
        contiguous;  // of flags, CONVERTOR_NO_OP: one block, which has no position but `converted`
    uint32_t homogeneous;  // of flags, CONVERTOR_HOMOGENEOUS
};

/** The functions of OPAL that we call, and the layout that goes with them. */
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
    SetPosition set_position;  // null where the convertor has it
    int32_t architecture;
    ConvertorLayout layout;
};

/** Fills in what `library` has; false, with one line of debug output, when it has not all of it or
 * keeps it elsewhere. */
bool find_opal(const OpenMpiLibrary &library, Opal *opal);

/** The one that find_opal() found last. */
const Opal &opal();

/** An opal_convertor_t. */
class OpalConvertor : public ForeignStruct {
public:
    OpalConvertor(void *handle, const ConvertorLayout &layout)
        : ForeignStruct(handle), layout_(layout) {}

    OpalDatatype datatype() const { return OpalDatatype(get<const void *>(layout_.datatype)); }
    const void *description() const { return get<const void *>(layout_.description); }
    size_t count() const { return get<size_t>(layout_.count); }
    size_t local_size() const { return get<size_t>(layout_.local_size); }
    char *base() const { return get<char *>(layout_.base); }
    size_t converted() const { return get<size_t>(layout_.converted); }
    bool is_completed() const { return (flags() & layout_.completed) != 0; }

    /** Elements of another representation than this machine's (MPI_Pack_external), which are
     * converted on the way. */
    bool is_converting() const { return (flags() & layout_.homogeneous) == 0; }
    /** Where the elements are; for the time of a call only. */
    void set_base(void *base) { set(layout_.base, base); }

    /** Notes that everything before `position` is done. Where Open MPI itself would go on in the
     * datatype is not kept up to date: it does not ask, since every byte of GPU memory passes
     * through us, and if it has to go back it begins anew. Moving its own position again and again
     * is out of the question: it forgets to take loops off its stack, and divides by zero within
     * elements (opal_convertor_generic_simple_position, 4.1.4). */
    void advance(size_t position);
    /** The beginning of the element in which `position` lies. To be asked once, of a convertor that
     * was just prepared for sending, which is used up by that. */
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
