// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/opal_datatype.hpp"

#include "core/base/log.hpp"

#include <cstring>
#include <initializer_list>

namespace gpushm::openmpi {
namespace {

// Open MPI 4.1 and 5.0.
constexpr ConvertorLayout kLayout41 = {
    /*datatype*/ 40,
    /*description*/ 48,
    /*count*/ 56,
    /*local_size*/ 24,
    /*base*/ 72,
    /*converted*/ 120,
    /*flags*/ 20,
    /*stack*/ 80,
    /*stack_size*/ 64,
    /*set_position*/ 0,
    /*completed*/ 0x08000000,
    /*contiguous*/ 0x00100000,
    /*homogeneous*/ 0x00080000};

// Open MPI 6.0.
constexpr ConvertorLayout kLayout60 = {
    /*datatype*/ 16,
    /*description*/ 24,
    /*count*/ 32,
    /*local_size*/ 80,
    /*base*/ 88,
    /*converted*/ 64,
    /*flags*/ 112,
    /*stack*/ 96,
    /*stack_size*/ 120,
    /*set_position*/ 136,
    /*completed*/ 0x04000000,
    /*contiguous*/ 0x02000000,
    /*homogeneous*/ 0x01000000};

// The types of elements that begin and end a loop.
constexpr uint16_t kLoop = 0;     // OPAL_DATATYPE_LOOP
constexpr uint16_t kEndLoop = 1;  // OPAL_DATATYPE_END_LOOP

Opal the_opal;

bool find_functions(const OpenMpiLibrary &library, Opal *opal) {
    library.opal("opal_convertor_set_position_nocheck", &opal->set_position);  // not in 6.0
    const auto *architecture = static_cast<const int32_t *>(library.as_bound("opal_local_arch"));
    opal->architecture = architecture != nullptr ? *architecture : 0;
    return architecture != nullptr && library.opal("opal_convertor_pack", &opal->pack) &&
           library.opal("opal_convertor_unpack", &opal->unpack) &&
           library.opal("opal_convertor_raw", &opal->raw) &&
           library.opal("opal_datatype_copy_content_same_ddt", &opal->copy_content) &&
           library.opal("opal_convertor_create", &opal->create) &&
           library.opal("opal_convertor_prepare_for_send", &opal->prepare_for_send);
}

/** Whether the convertor, prepared for three integers at `buffer`, shows that in this layout. */
bool reads_as_prepared(const OpalConvertor &convertor, const void *integers, const char *buffer,
                       const ConvertorLayout &layout) {
    return convertor.datatype().handle() == integers && convertor.count() == 3 &&
           convertor.local_size() == 12 && convertor.base() == buffer &&
           convertor.converted() == 0 && !convertor.is_completed() &&
           (convertor.flags() & layout.contiguous) != 0 && !convertor.is_converting() &&
           convertor.stack() != nullptr && convertor.stack_size() > 0 &&
           convertor.stack_size() < 100;
}

/** Whether `layout` fits: prepares and runs a convertor of Open MPI and reads it. */
bool fits(const Opal &opal, const void *integers, const ConvertorLayout &layout) {
    // Never released, because only inline functions of Open MPI can release it. Once in a process.
    void *handle = opal.create(opal.architecture, 0);
    char buffer[12] = {};
    if (handle == nullptr || opal.prepare_for_send(handle, integers, 3, buffer) != 0) {
        return false;
    }
    const OpalConvertor convertor(handle, layout);
    if (!reads_as_prepared(convertor, integers, buffer, layout)) {
        return false;
    }
    iovec block = {};
    uint32_t count = 1;
    size_t bytes = 0;
    opal.raw(handle, &block, &count, &bytes);
    return block.iov_base == buffer && block.iov_len == sizeof(buffer) &&
           convertor.converted() == sizeof(buffer) && convertor.is_completed();
}

bool datatype_fits(const OpalDatatype &integers) {
    return integers.is_committed() && integers.size() == 4 && integers.extent() == 4 &&
           integers.is_dense();
}

/** Whether the description of four bytes is a block of one element, and the end of a loop behind
 * it. */
bool descriptions_fit(const Opal &opal, const void *integers) {
    void *handle = opal.create(opal.architecture, 0);  // never released, as in fits()
    char buffer[4] = {};
    if (handle == nullptr || opal.prepare_for_send(handle, integers, 1, buffer) != 0) {
        return false;
    }
    const TypeDescription description = OpalConvertor(handle, opal.layout).description();
    if (description.handle() == nullptr || description.elements() == nullptr ||
        description.count() != 1) {
        return false;
    }
    const void *block = description.elements();
    const void *end = static_cast<const char *>(block) + sizeof(TypeDescription::Element);
    return abi::load<uint32_t>(block, 4) == 1 && abi::load<size_t>(block, 8) == 1 &&
           abi::load<ptrdiff_t>(block, 16) == 4 && abi::load<ptrdiff_t>(block, 24) == 0 &&
           abi::load<uint16_t>(end, 2) == kEndLoop && abi::load<size_t>(end, 16) == 4;
}

}  // namespace

bool find_opal(const OpenMpiLibrary &library, Opal *opal) {
    const void *integers = library.as_bound("opal_datatype_int4");
    if (integers == nullptr || !find_functions(library, opal)) {
        GPUSHM_LOG(debug, "Open MPI %s does not export all datatype functions that gpushm needs",
                   library.version());
        return false;
    }
    for (const ConvertorLayout *layout : {&kLayout60, &kLayout41}) {
        // A library that exports the position function has the older layout.
        const bool is_older = opal->set_position != nullptr;
        if (is_older == (layout->set_position == 0) && datatype_fits(OpalDatatype(integers)) &&
            fits(*opal, integers, *layout)) {
            opal->layout = *layout;
            opal->knows_descriptions = descriptions_fit(*opal, integers);
            the_opal = *opal;
            return true;
        }
    }
    GPUSHM_LOG(debug, "Open MPI %s has datatypes of an unknown layout", library.version());
    return false;
}

const Opal &opal() {
    return the_opal;
}

TypeDescription::Element TypeDescription::element(size_t index) const {
    constexpr size_t kType = 2;
    constexpr size_t kPadding = 12;  // of loops, up to the next word
    Element element;
    auto *bytes = reinterpret_cast<char *>(element.data());
    memcpy(bytes, static_cast<const char *>(elements()) + index * sizeof(element), sizeof(element));
    const auto type = abi::load<uint16_t>(bytes, kType);
    if (type == kLoop || type == kEndLoop) {
        memset(bytes + kPadding, 0, 2 * sizeof(uint64_t) - kPadding);
    }
    return element;
}

void OpalConvertor::advance(size_t position) {
    set(layout_.converted, position);
    if (position == local_size()) {
        set(layout_.flags, flags() | layout_.completed);
    }
}

size_t OpalConvertor::find_element(size_t position) {
    if (position >= local_size() || (flags() & layout_.contiguous) != 0) {
        return position;
    }
    const auto set_position = layout_.set_position != 0
                                  ? get<Opal::SetPosition>(layout_.set_position)
                                  : opal().set_position;
    set_position(handle(), &position);
    return position;
}

}  // namespace gpushm::openmpi
