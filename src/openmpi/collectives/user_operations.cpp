// SPDX-License-Identifier: BSD-3-Clause
// Reduction operations of the application (MPI_Op_create), whose functions expect host memory.
#include "openmpi/collectives/user_operations.hpp"

#include "core/base/log.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/ompi_operation.hpp"
#include "openmpi/datatypes/host_mirror.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <utility>

namespace gpushm::openmpi {
namespace {

/** MPI_User_function. The types of `count` and `datatype` depend on the operation's flags. */
using UserFunction = void (*)(void *in, void *inout, void *count, void *datatype);

constexpr size_t kSlots = 256;  // operations of the application at the same time

/** One operation. It is filled before the replacement is put into the operation, and changed only
 * when that can no longer be called. */
struct Slot {
    void *operation = nullptr;  // null: free
    UserFunction function = nullptr;
    bool is_ours = false;  // the application has freed it; gpushm has a reference until its last
                           // request ends
};

struct State {
    std::mutex mutex;  // for taking and freeing slots
    std::array<Slot, kSlots> slots;
    void *(*type_from_fortran)(int32_t handle) = nullptr;
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

const void *datatype_of(const OmpiOperation &operation, const void *argument) {
    return operation.takes_fortran_handles()
               ? state().type_from_fortran(*static_cast<const int32_t *>(argument))
               : *static_cast<void *const *>(argument);
}

size_t count_of(const OmpiOperation &operation, const void *argument) {
    return operation.takes_big_counts() ? *static_cast<const size_t *>(argument)
                                        : static_cast<size_t>(*static_cast<const int *>(argument));
}

void call_with_host_memory(const Slot &slot, void *in, void *inout, void *count, void *datatype) {
    const OmpiOperation operation(slot.operation);
    const void *type = datatype_of(operation, datatype);
    const size_t elements = count_of(operation, count);
    const HostMirror source(type, elements, in);
    const HostMirror target(type, elements, inout);
    if (source.load("reducing") && target.load("reducing")) {
        slot.function(source.base(), target.base(), count, datatype);
        target.store("reducing");
    }
}

/** The function of a slot: MPI does not tell a function which operation it is called for. */
template <size_t Index>
void call_slot(void *in, void *inout, void *count, void *datatype) {
    call_with_host_memory(state().slots[Index], in, inout, count, datatype);
}

template <size_t... Index>
constexpr std::array<UserFunction, sizeof...(Index)> functions_of(std::index_sequence<Index...>) {
    return {no_throw_call<call_slot<Index>, OpalFailure>...};
}
constexpr auto kFunctions = functions_of(std::make_index_sequence<kSlots>());

/** Null: the operation has none. */
Slot *find_slot(const void *operation) {
    std::array<Slot, kSlots> &slots = state().slots;
    const auto found = std::find_if(slots.begin(), slots.end(), [operation](const Slot &slot) {
        return slot.operation != nullptr && slot.operation == operation;
    });
    return found != slots.end() ? &*found : nullptr;
}

/** Frees the slot of an operation that was freed while nonblocking reductions used it, if those
 * have ended, and returns the operation. Null: there is none. */
void *take_ended() {
    State &known = state();
    const std::lock_guard<std::mutex> lock(known.mutex);
    for (Slot &slot : known.slots) {
        if (slot.is_ours && OmpiOperation(slot.operation).references() == 1) {
            void *const operation = slot.operation;
            slot = Slot();
            return operation;
        }
    }
    return nullptr;
}

int free_operation(void **operation);

/** Without the mutex, because MPI may call an error handler of the application, which may call MPI.
 */
void free_ended() {
    while (void *operation = take_ended()) {
        replaced_by<free_operation>(&operation);
    }
}

void take_slot(const OmpiOperation &operation) {
    free_ended();
    State &known = state();
    const std::lock_guard<std::mutex> lock(known.mutex);
    if (Slot *const stale = find_slot(operation.handle())) {
        *stale = Slot();  // a library whose calls are not redirected has freed it
    }
    for (size_t i = 0; i < kSlots; ++i) {
        if (known.slots[i].operation == nullptr) {
            known.slots[i] = {operation.handle(),
                              reinterpret_cast<UserFunction>(*operation.user_function()), false};
            *operation.user_function() = reinterpret_cast<void *>(kFunctions[i]);
            return;
        }
    }
    GPUSHM_LOG_ONCE(
        warn,
        "the application has more than %zu MPI operations: further ones do not work on GPU "
        "buffers; free (MPI_Op_free) those that are not needed",
        kSlots);
}

int created(int result, void **handle) {
    if (result == kMpiSuccess && !OmpiOperation(*handle).has_other_language()) {
        take_slot(OmpiOperation(*handle));
    }
    return result;
}

int create(UserFunction function, int commutes, void **operation) {
    return created(replaced_by<create>(function, commutes, operation), operation);
}

int create_big(UserFunction function, int commutes, void **operation) {
    return created(replaced_by<create_big>(function, commutes, operation), operation);
}

/** An operation that a nonblocking reduction still uses lives on (coll_base_util.c,
 * ompi_coll_base_retain_op), and with it its slot. */
void keep_until_ended(const void *operation) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (Slot *const slot = find_slot(operation)) {
        slot->is_ours = true;
        OmpiOperation(slot->operation).add_reference();
    }
}

int free_operation(void **operation) {
    if (operation != nullptr) {
        keep_until_ended(*operation);
    }
    const int result = replaced_by<free_operation>(operation);
    free_ended();
    return result;
}

}  // namespace

void redirect_user_operations(const MpiTarget &target) {
    if (target.library.mpi("PMPI_Type_f2c", &state().type_from_fortran) &&
        target.redirect<free_operation>("Op_free")) {
        target.redirect<create>("Op_create");
        target.redirect<create_big>("Op_create_c");
    }
}

}  // namespace gpushm::openmpi
