// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/setup/attachment.hpp"

#include "core/base/log.hpp"
#include "core/base/no_throw.hpp"
#include "core/cuda/cuda_driver.hpp"
#include "core/patching/function_redirection.hpp"
#include "openmpi/binding/call_redirection.hpp"
#include "openmpi/binding/element_types.hpp"
#include "openmpi/binding/first_rank.hpp"
#include "openmpi/binding/gpu_memory.hpp"
#include "openmpi/binding/opal_datatype.hpp"
#include "openmpi/collectives/collective_calls.hpp"
#include "openmpi/collectives/predefined_operations.hpp"
#include "openmpi/collectives/user_operations.hpp"
#include "openmpi/datatypes/convertor_calls.hpp"
#include "openmpi/datatypes/matched_receives.hpp"
#include "openmpi/datatypes/message_calls.hpp"
#include "openmpi/files/file_calls.hpp"
#include "openmpi/one_sided/dynamic_windows.hpp"
#include "openmpi/one_sided/one_sided_calls.hpp"
#include "openmpi/one_sided/window_selection.hpp"
#include "openmpi/one_sided/worlds_endpoints.hpp"
#include "openmpi/settings/mca_defaults.hpp"
#include "openmpi/settings/mca_parameters.hpp"
#include "openmpi/settings/mca_settings.hpp"
#include "openmpi/settings/pml_ucx.hpp"
#include "openmpi/settings/settings.hpp"
#include "openmpi/setup/accelerator_table.hpp"
#include "openmpi/setup/sessions.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

namespace gpushm::openmpi {
namespace {

/** The state of the Open MPI in this process: not examined yet, left as it is, or changed for GPU
 * buffers. */
enum class Stage { none, left_alone, attached };

/** Never destroyed, because the functions stay changed. */
struct State {
    std::mutex mutex;
    Stage stage = Stage::none;
    CallRedirection redirection;
    // Calls are redirected once, also if Open MPI is initialised again with other components.
    bool session_calls_redirected = false;
    bool window_calls_redirected = false;
    int (*pmix_commit)() = nullptr;
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

void redirect_within(void *component) {
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().redirection.apply();
    OpenMpiLibrary library;
    if (state().stage == Stage::attached && OpenMpiLibrary::find(&library)) {
        decide_for_windows(library, component);
    }
}

/** Replaces dlopen in libopen-pal, with which Open MPI loads its components. It passes whole paths,
 * so the run path of the caller does not matter. */
void *open_component(const char *file, int mode) {
    void *const component = dlopen(file, mode);
    if (component != nullptr) {  // otherwise dlerror() must stay for Open MPI
        as_possible([component] { redirect_within(component); });
    }
    return component;
}

/** Replaces MPIX_Query_cuda_support, whose answer in Open MPI 4.1 depends on how that was built. */
int query_cuda_support() {
    return 1;
}

void redirect_query(const MpiTarget &target) {
    constexpr char kName[] = "MPIX_Query_cuda_support";
    void *const query = target.library.mpi(kName);
    void *const replacement = reinterpret_cast<void *>(&query_cuda_support);
    void *original = nullptr;
    if (query != nullptr && !redirect_function(query, replacement, &original)) {
        target.redirection->add(kName, replacement);
    }
}

void watch_components(State &attached) {
    attached.redirection.add("dlopen", reinterpret_cast<void *>(&open_component),
                             {"libopen-pal.so"});
}

bool is_switched_off() {
    return switches_off(getenv("UCX_GPUSHM_OPENMPI"));
}

void redirect_for_gpu_memory(const MpiTarget &target) {
    redirect_convertor_calls(target.redirection);
    redirect_message_calls(target.library, target.redirection);
    redirect_collective_calls(target);
    redirect_user_operations(target);
    redirect_file_calls(target);
    redirect_query(target);
}

/** Changes Open MPI's functions, if their structures are known. Without a CUDA driver, which other
 * processes of the job may have, changes only functions that host memory needs as well. */
void attach_to(const OpenMpiLibrary &library, State &attached) {
    Opal opal = {};
    attached.stage = Stage::left_alone;
    if (has_own_accelerator(library)) {
        GPUSHM_LOG(debug, "Open MPI %s handles GPU buffers itself", library.version());
        prefer_ucx_for_windows(library);
        return;
    }
    if (!find_opal(library, &opal)) {
        GPUSHM_LOG(warn,
                   "Open MPI %s has structures of an unknown layout: messages of contiguous GPU "
                   "buffers work, derived datatypes and reductions do not; use a release build of "
                   "Open MPI 4.1, 5.0 or 6.0",
                   library.version());
        prefer_ucx_for_windows(library);
        return;
    }
    const MpiTarget target = {library, &attached.redirection};
    attached.stage = Stage::attached;
    prepare_window_components(library);
    decide_for_windows(library, nullptr);
    set_error_reporting(library);
    find_element_types(library);
    redirect_one_sided_calls(target);
    redirect_dynamic_windows(target);
    redirect_endpoints_of_worlds(target);
    redirect_matched_receives(target);
    watch_components(attached);
    if (CudaDriver::get() != nullptr) {
        redirect_for_gpu_memory(target);
    }
}

/** uct_query_components of the preload library beside the plugin, which registers gpushm in the UCX
 * that calls it. Null, logged: the library cannot be opened. */
void *find_way_into_ucx() {
    Dl_info self;
    if (dladdr(reinterpret_cast<void *>(&attach), &self) == 0) {
        return nullptr;
    }
    const std::string path = self.dli_fname;
    const std::string preload = path.substr(0, path.find_last_of('/') + 1) + "libgpushm_preload.so";
    void *const library = dlopen(preload.c_str(), RTLD_LAZY | RTLD_LOCAL);
    void *const function = library != nullptr ? dlsym(library, "uct_query_components") : nullptr;
    if (function == nullptr) {
        GPUSHM_LOG(error, "%s; Open MPI goes on without gpushm: install gpushm again", dlerror());
    }
    return function;
}

/** Replaces PMIx_Commit, which Open MPI 5.0 and later call after they have selected the component
 * for messages and set up their operations. */
int commit_then_attach() {
    const int result = state().pmix_commit();
    if (!as_possible([] { attach(); })) {
        GPUSHM_LOG(error,
                   "memory allocation failed while gpushm attached to Open MPI: GPU buffers do not "
                   "work in this process; raise its memory limit");
    }
    return result;
}

/** Lets Open MPI send without UCX and gpushm, because pml/ucx supports neither sessions nor the
 * failure of processes. Open MPI's pml/ob1 asks the accelerator framework about GPU memory. */
void prepare_without_ucx(const OpenMpiLibrary &library, State &attached) {
    cancel_defaults();
    if (!is_switched_off() && CudaDriver::get() != nullptr &&
        library.mpi("PMIx_Commit", &attached.pmix_commit)) {
        attached.redirection.add("PMIx_Commit", reinterpret_cast<void *>(&commit_then_attach),
                                 {"libmpi.so", "libopen_mpi.so"});  // the second one in 6.0
        if (!std::exchange(attached.window_calls_redirected, true)) {
            explain_refused_windows({library, &attached.redirection});
        }
    }
}

/** Logs one line for the whole job. */
void say_why_not(const std::string &obstacle) {
    if (!is_later_rank(getenv)) {
        GPUSHM_LOG(warn, "%s; Open MPI goes on without gpushm", obstacle.c_str());
    }
}

/** Makes an Open MPI that has not selected its components yet send through UCX and gpushm, or
 * select as without gpushm if that is not possible. */
void choose_components(const OpenMpiLibrary &library, State &attached) {
    if (begins_with_session(library) || tolerates_faults(library)) {
        prepare_without_ucx(library, attached);
        return;
    }
    const bool was_told = getenv(kSetByGpushm) != nullptr || getenv(kSetByProcess) != nullptr;
    if (!was_told && (is_switched_off() || !has_component(library, "pml", "ucx"))) {
        return;  // without UCX there is nothing to do
    }
    const std::string obstacle = is_the_users(kPml) ? "" : why_not_through_ucx(library);
    if (!obstacle.empty()) {
        cancel_defaults();
        say_why_not(obstacle);
        return;
    }
    void *const query_components = is_switched_off() ? nullptr : find_way_into_ucx();
    if (query_components != nullptr) {
        set_defaults();
        if (!std::exchange(attached.session_calls_redirected, true)) {
            redirect_session_calls({library, &attached.redirection});
        }
        attached.redirection.add("uct_query_components", query_components, {"libucp"});
        watch_components(attached);
    }
}

}  // namespace

void become_default() {
    State &attached = state();
    const std::lock_guard<std::mutex> lock(attached.mutex);
    OpenMpiLibrary library;
    if (!OpenMpiLibrary::find(&library)) {
        return;
    }
    choose_components(library, attached);
    attached.redirection.apply();
}

void attach() {
    State &attached = state();
    const std::lock_guard<std::mutex> lock(attached.mutex);
    OpenMpiLibrary library;
    if (attached.stage == Stage::left_alone || is_switched_off() ||
        !OpenMpiLibrary::find(&library) || !library.is_in_use()) {
        return;
    }
    if (attached.stage == Stage::none) {
        attach_to(library, attached);
    }
    if (attached.stage == Stage::attached && CudaDriver::get() != nullptr) {
        // Open MPI fills these tables whenever it is initialised. 5.0 and later do so again after
        // the last session has ended, and fill the table of operations after they have initialised
        // UCX.
        fill_accelerator_table(library);
        replace_predefined_operations(library);
    }
    const size_t places = attached.redirection.apply();
    GPUSHM_LOG(debug, "changed %zu places of Open MPI %s", places, library.version());
}

}  // namespace gpushm::openmpi
