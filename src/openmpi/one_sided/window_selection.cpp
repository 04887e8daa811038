// SPDX-License-Identifier: BSD-3-Clause
// Open MPI asks each of its components for windows how much it wants to have one that is being
// made, in the same order in all processes of the communicator, and takes the one with the highest
// answer (ompi/mca/osc/base/osc_base_init.c). osc/ucx answers by a parameter; our function stands
// before it.
#include "openmpi/one_sided/window_selection.hpp"

#include "core/base/log.hpp"
#include "core/cuda/cuda_use.hpp"
#include "core/memory/memory_query.hpp"
#include "openmpi/binding/mca_component.hpp"
#include "openmpi/binding/mpi_call.hpp"
#include "openmpi/settings/mca_defaults.hpp"
#include "openmpi/settings/mca_parameters.hpp"
#include "openmpi/settings/mca_settings.hpp"

#include <dirent.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_set>

namespace gpushm::openmpi {
namespace {

/** component_query of ompi/mca/osc/osc.h. The unit of displacements, which we pass on, is an int
 * before Open MPI 6. */
using Query = int (*)(void *window, void **base, size_t size, ptrdiff_t unit, void *communicator,
                      void *info, int flavor);

constexpr char kComponent[] = "mca_osc_ucx_component";

/** component_select: a window is made by the component that was chosen. */
using Select = int (*)(void *window, void **base, size_t size, ptrdiff_t unit, void *communicator,
                       void *info, int flavor, int *model);

/** ompi_osc_base_component_t of ompi/mca/osc/osc.h, of versions 3 and 4 of the framework. */
struct OscComponent {
    McaComponent description;
    McaComponentData data;
    int (*init)(bool progress_threads, bool mpi_threads);
    Query query;
    Select select;
};

constexpr int kMadeOfGivenMemory = 1;  // MPI_WIN_FLAVOR_CREATE
constexpr int kDefaultPriority = 60;   // of osc/ucx; 4.1 does not look at devices

struct State {
    Query query = nullptr;  // of osc/ucx
    Select select = nullptr;
    bool is_user_set = false;
    int own_priority = 0;  // at most what osc/ucx has in an Open MPI without gpushm
    int (*allreduce)(const void *send, void *receive, int count, void *datatype, void *operation,
                     void *communicator) = nullptr;
    void *int_type = nullptr;
    void *max = nullptr;
    std::shared_mutex mutex;
    std::unordered_set<const void *> left_to_others;
};

/** Never destroyed: the function stays in its place. */
State &state() {
    static State *const instance = new State;
    return *instance;
}

/** What was once seen stays so: this process may have no other component then. */
bool uses_cuda() {
    static std::atomic<bool> used{false};
    if (!used && process_uses_cuda()) {
        used = true;
    }
    return used;
}

/** Whether any process of the communicator needs osc/ucx; each asks at the same time. */
bool any_uses_cuda(void *communicator, const void *memory) {
    const int own = uses_cuda() || query_memory(memory).needs_gpu() ? 1 : 0;
    int any = 1;
    const State &known = state();
    return known.allreduce(&own, &any, 1, known.int_type, known.max, communicator) != kMpiSuccess ||
           any != 0;
}

int query(void *window, void **base, size_t size, ptrdiff_t unit, void *communicator, void *info,
          int flavor) {
    State &known = state();
    const void *const memory = flavor == kMadeOfGivenMemory && base != nullptr ? *base : nullptr;
    const bool is_for_ucx = any_uses_cuda(communicator, memory);
    {
        const std::lock_guard<std::shared_mutex> lock(known.mutex);
        known.left_to_others.insert(window);  // until osc/ucx has it
    }
    GPUSHM_LOG(debug, "a window %s",
               is_for_ucx ? "goes to osc/ucx" : "of programs without CUDA is left to Open MPI");
    if (!is_for_ucx && known.own_priority == 0) {
        return 0;  // the last choice; it does not get ready
    }
    const int priority = known.query(window, base, size, unit, communicator, info, flavor);
    return is_for_ucx ? priority : std::min(priority, known.own_priority);
}

int select(void *window, void **base, size_t size, ptrdiff_t unit, void *communicator, void *info,
           int flavor, int *model) {
    forget_window(window);
    return state().select(window, base, size, unit, communicator, info, flavor, model);
}

/** On which Open MPI 5.0 and later take osc/ucx (opal/mca/common/ucx/common_ucx.c). */
bool has_mellanox_device() {
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir("/sys/class/infiniband"), closedir);
    bool found = false;
    while (const dirent *entry = folder != nullptr && !found ? readdir(folder.get()) : nullptr) {
        found = strncmp(entry->d_name, "mlx", 3) == 0;
    }
    return found;
}

/** osc/ucx as far as we know it; a newer one is left as it is. */
bool is_known(const McaComponent &component) {
    const int version = component.type_version[0];
    return strcmp(component.type_name, "osc") == 0 &&
           strcmp(component.component_name, "ucx") == 0 && (version == 3 || version == 4);
}

bool find_functions(const OpenMpiLibrary &library, State *known) {
    known->int_type = library.as_bound("ompi_mpi_int");
    known->max = library.as_bound("ompi_mpi_op_max");
    return known->int_type != nullptr && known->max != nullptr &&
           library.mpi("PMPI_Allreduce", &known->allreduce);
}

/** osc/rdma needs Open MPI's own transports, which 5.0 makes ready for pml/ob1 only; 4.1 and 6.0 do
 * that themselves. To be called before processes tell each other their addresses. */
void get_own_transports_ready(const OpenMpiLibrary &library) {
    int (*init)(bool progress_threads, bool mpi_threads) = nullptr;
    const auto *threads = static_cast<const bool *>(library.as_bound("ompi_mpi_thread_multiple"));
    if (!uses_cuda() && library.mpi("mca_bml_base_init", &init)) {
        init(false, threads != nullptr && *threads);
    }
}

}  // namespace

void prepare_window_components(const OpenMpiLibrary &library) {
    State &known = state();
    known.is_user_set = is_the_users(kOscPriority);
    known.own_priority =
        library.version()[0] == '4' || has_mellanox_device() ? kDefaultPriority : 0;
    if (!has_component(library, "osc", "ucx")) {
        return;
    }
    if (const std::optional<std::string> list = value_in_files(library, kOsc.name)) {
        const std::string with_ucx = allowing(*list, "ucx");
        set_default({kOsc.name, with_ucx.c_str()});
    }
    set_default(kOscPriority);
    get_own_transports_ready(library);
}

void prefer_ucx_for_windows(const OpenMpiLibrary &library) {
    if (has_component(library, "osc", "ucx") && !is_the_users(kOsc)) {
        set_default(kOsc);
        set_default(kOscPriority);
    }
}

void decide_for_windows(const OpenMpiLibrary &library, void *component) {
    State &known = state();
    auto *const found = static_cast<OscComponent *>(
        component != nullptr ? dlsym(component, kComponent) : library.as_bound(kComponent));
    if (found == nullptr || known.is_user_set || !is_known(found->description) ||
        !find_functions(library, &known)) {
        return;
    }
    if (found->query != query) {
        known.query = found->query;
        known.select = found->select;
        found->query = query;
        found->select = select;
    }
}

bool is_left_to_others(const void *window) {
    State &known = state();
    const std::shared_lock<std::shared_mutex> lock(known.mutex);
    return known.left_to_others.count(window) != 0;
}

void forget_window(const void *window) {
    State &known = state();
    const std::lock_guard<std::shared_mutex> lock(known.mutex);
    known.left_to_others.erase(window);
}

}  // namespace gpushm::openmpi
