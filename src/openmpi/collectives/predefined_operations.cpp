// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/collectives/predefined_operations.hpp"

#include "core/base/log.hpp"
#include "core/copy/reduction.hpp"
#include "openmpi/binding/element_types.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/no_throw_calls.hpp"
#include "openmpi/binding/ompi_operation.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

namespace gpushm::openmpi {
namespace {

// ompi_op_base_handler_fn_1_0_0_t, and its form with three buffers (ompi/mca/op/op.h).
using TwoBuffers = void (*)(const void *in, void *inout, int *count, void **datatype, void *module);
using ThreeBuffers = void (*)(const void *first, const void *second, void *out, int *count,
                              void **datatype, void *module);

// In the order of ReductionOperation. Operations that the GPU does not compute follow.
constexpr std::array<const char *, 12> kSymbols = {
    "ompi_mpi_op_max",  "ompi_mpi_op_min",  "ompi_mpi_op_sum",    "ompi_mpi_op_prod",
    "ompi_mpi_op_land", "ompi_mpi_op_band", "ompi_mpi_op_lor",    "ompi_mpi_op_bor",
    "ompi_mpi_op_lxor", "ompi_mpi_op_bxor", "ompi_mpi_op_maxloc", "ompi_mpi_op_minloc"};

// OMPI_OP_BASE_TYPE_MAX of Open MPI 4.1, 5.0 and 6.0 (ompi/mca/op/op.h).
constexpr std::array<size_t, 3> kTypes = {41, 43, 44};
constexpr size_t kMaxTypes = 44;

/** The functions of an operation, by the number of the type. */
struct Functions {
    TwoBuffers two[kMaxTypes];
    ThreeBuffers three[kMaxTypes];
};

Functions originals[kSymbols.size()];  // of Open MPI, which were replaced

size_t elements(int count) {
    return static_cast<size_t>(std::max(count, 0));
}

char *bytes(const void *address) {
    return static_cast<char *>(const_cast<void *>(address));
}

/** Elements of a predefined type in host memory, with the padding in them. */
class HostElements {
public:
    HostElements(const OpalDatatype &type, int count, const void *buffer)
        : length_(static_cast<size_t>(type.extent()) * static_cast<size_t>(count)),
          buffer_(bytes(buffer)),
          is_copy_(is_gpu_memory(buffer)) {
        if (is_copy_) {
            memory_.reset(new char[length_]);  // not initialised
        }
    }
    char *data() const { return is_copy_ ? memory_.get() : buffer_; }
    bool load() const {
        return !is_copy_ || copy_or_report({{data(), buffer_, length_}}, "reducing");
    }
    void store() const {
        if (is_copy_) {
            copy_or_report({{buffer_, data(), length_}}, "reducing");
        }
    }

private:
    size_t length_;
    char *buffer_;
    bool is_copy_;
    std::unique_ptr<char[]> memory_;
};

/** The contract of reduce_by_gpu(). */
bool reduced_by_gpu(size_t operation, void *result, const void *first, const void *second,
                    size_t count, const void *datatype) {
    if (operation > static_cast<size_t>(ReductionOperation::bxor)) {
        return false;
    }
    const auto ours = static_cast<ReductionOperation>(operation);
    const std::optional<ElementNumbers> element = numbers_to_reduce(ours, datatype);
    const GpuReduction end =
        element && count > 0
            ? reduce_on_gpu(ours, element->type, result, first, second, count * element->count)
            : GpuReduction::left_to_cpu;
    if (end == GpuReduction::lost) {
        report_lost("reducing");
    }
    return end != GpuReduction::left_to_cpu;
}

void reduce_two(size_t operation, size_t number_of_type, const void *in, void *inout, int *count,
                void **datatype, void *module) {
    const TwoBuffers original = originals[operation].two[number_of_type];
    if (!is_gpu_memory(in) && !is_gpu_memory(inout)) {
        original(in, inout, count, datatype, module);
        return;
    }
    if (reduced_by_gpu(operation, inout, inout, in, elements(*count), *datatype)) {
        return;
    }
    const OpalDatatype type(*datatype);
    const HostElements source(type, *count, in);
    const HostElements target(type, *count, inout);
    if (source.load() && target.load()) {
        original(source.data(), target.data(), count, datatype, module);
        target.store();
    }
}

void reduce_three(size_t operation, size_t number_of_type, const void *first, const void *second,
                  void *out, int *count, void **datatype, void *module) {
    const ThreeBuffers original = originals[operation].three[number_of_type];
    if (!is_gpu_memory(first) && !is_gpu_memory(second) && !is_gpu_memory(out)) {
        original(first, second, out, count, datatype, module);
        return;
    }
    if (reduced_by_gpu(operation, out, first, second, elements(*count), *datatype)) {
        return;
    }
    const OpalDatatype type(*datatype);
    const HostElements left(type, *count, first);
    const HostElements right(type, *count, second);
    const HostElements target(type, *count, out);
    if (left.load() && right.load()) {
        original(left.data(), right.data(), target.data(), count, datatype, module);
        target.store();
    }
}

// A function for each operation and type, because Open MPI does not pass them. There are more than
// a thousand, so each one is short.

template <size_t Operation, size_t Type>
void two_of(const void *in, void *inout, int *count, void **datatype, void *module) {
    no_throw_call<reduce_two, OpalFailure>(Operation, Type, in, inout, count, datatype, module);
}

template <size_t Operation, size_t Type>
void three_of(const void *first, const void *second, void *out, int *count, void **datatype,
              void *module) {
    no_throw_call<reduce_three, OpalFailure>(Operation, Type, first, second, out, count, datatype,
                                             module);
}

template <size_t Operation, size_t... Type>
constexpr Functions functions_of(std::index_sequence<Type...>) {
    return {{two_of<Operation, Type>...}, {three_of<Operation, Type>...}};
}

template <size_t... Operation>
constexpr auto functions_of_all(std::index_sequence<Operation...>) {
    return std::array{functions_of<Operation>(std::make_index_sequence<kMaxTypes>())...};
}

constexpr auto kReplacements = functions_of_all(std::make_index_sequence<kSymbols.size()>());

bool all_there(void *const *modules, size_t types) {
    return std::find(modules, modules + types, nullptr) == modules + types;
}

/** Whether the tables have `types` types. Every type has a module, even if the operation does not
 * permit it. With a wrong number of types, the range of modules would contain functions, and every
 * operation lacks some of those. */
bool has_types(const OmpiOperation &operation, size_t types) {
    return operation.is_predefined() && all_there(operation.modules(types), types) &&
           all_there(operation.three_buffer_modules(types), types);
}

using Operations = std::array<void *, kSymbols.size()>;

Operations handles;  // of those that were replaced

/** Behind all of them: it is none of them. */
size_t index_of(const void *operation) {
    return static_cast<size_t>(std::find(handles.begin(), handles.end(), operation) -
                               handles.begin());
}

/** 0: the tables fit no known number of types. */
size_t number_of_types(const Operations &operations) {
    for (const size_t types : kTypes) {
        if (std::all_of(operations.begin(), operations.end(), [types](void *handle) {
                return has_types(OmpiOperation(handle), types);
            })) {
            return types;
        }
    }
    return 0;
}

/** Leaves a null pointer: the operation does not permit the type. */
template <typename Function>
void replace(void **place, Function replacement, Function *original) {
    void *const ours = reinterpret_cast<void *>(replacement);
    if (*place != nullptr && *place != ours) {
        *original = reinterpret_cast<Function>(*place);
        *place = ours;
    }
}

void replace_all(const OmpiOperation &operation, size_t index, size_t types) {
    void **two = operation.functions();
    void **three = operation.three_buffer_functions(types);
    for (size_t type = 0; type < types; ++type) {
        replace(&two[type], kReplacements[index].two[type], &originals[index].two[type]);
        replace(&three[type], kReplacements[index].three[type], &originals[index].three[type]);
    }
}

}  // namespace

bool gpus_compute(const void *operation, const void *datatype) {
    const size_t index = index_of(operation);
    return index <= static_cast<size_t>(ReductionOperation::bxor) &&
           numbers_to_reduce(static_cast<ReductionOperation>(index), datatype).has_value();
}

bool reduce_by_gpu(const void *operation, const void *datatype, void *result, const void *first,
                   const void *second, size_t count) {
    return reduced_by_gpu(index_of(operation), result, first, second, count, datatype);
}

ArrivalReduction reduction_on_arrival(const void *operation, const void *datatype, const void *own,
                                      bool own_is_first, size_t count) {
    const auto ours = static_cast<ReductionOperation>(index_of(operation));
    const ElementNumbers element = numbers_to_reduce(ours, datatype).value();
    return {ours, element.type, own, own_is_first, count * element.count};
}

void replace_predefined_operations(const OpenMpiLibrary &library) {
    Operations operations;
    for (size_t i = 0; i < kSymbols.size(); ++i) {
        operations[i] = library.as_bound(kSymbols[i]);
    }
    const bool complete =
        std::find(operations.begin(), operations.end(), nullptr) == operations.end();
    if (complete && !OmpiOperation(operations.back()).is_predefined()) {
        return;  // Open MPI has not set them up yet
    }
    const size_t types = complete ? number_of_types(operations) : 0;
    if (types == 0 && handles.back() != nullptr) {
        return;  // nor for this time, after its last end
    }
    if (types == 0) {
        GPUSHM_LOG_ONCE(
            warn,
            "the reduction operations of Open MPI %s have an unknown layout: reductions of GPU "
            "buffers do not work; use a release build of Open MPI 4.1, 5.0 or 6.0",
            library.version());
        return;
    }
    handles = operations;
    for (size_t i = 0; i < kSymbols.size(); ++i) {
        replace_all(OmpiOperation(operations[i]), i, types);
    }
}

}  // namespace gpushm::openmpi
