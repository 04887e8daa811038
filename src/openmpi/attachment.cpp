// SPDX-License-Identifier: BSD-3-Clause
// What gpushm does in a process that runs Open MPI.
#include "openmpi/attachment.hpp"

#include "core/log.hpp"
#include "openmpi/call_redirection.hpp"
#include "openmpi/convertor_calls.hpp"
#include "openmpi/gpu_memory.hpp"
#include "openmpi/opal_datatype.hpp"
#include "openmpi/predefined_operations.hpp"
#include "openmpi/user_operations.hpp"

#include <dlfcn.h>
#include <strings.h>

#include <cstdlib>
#include <mutex>

namespace gpushm::openmpi {
namespace {

/** Never destroyed: the functions stay changed. */
struct State {
    std::mutex mutex;
    bool attached = false;
    CallRedirection redirection;
};

State &state() {
    static State *const instance = new State;
    return *instance;
}

/** In place of dlopen in libopen-pal, by which Open MPI loads its components (by their whole path, so that it
 *  does not matter whose run path the loader looks at). */
void *open_component(const char *file, int mode) {
    void *const component = dlopen(file, mode);
    const std::lock_guard<std::mutex> lock(state().mutex);
    state().redirection.apply();
    return component;
}

bool is_switched_off() {
    const char *value = getenv("UCX_GPUSHM_OPENMPI");
    return value != nullptr && (strcasecmp(value, "n") == 0 || strcasecmp(value, "no") == 0 ||
                                strcasecmp(value, "0") == 0 || strcasecmp(value, "off") == 0);
}

void attach_to(const OpenMpiLibrary &library, State &attached) {
    Opal opal = {};
    if (!find_opal(library, &opal)) {
        GPUSHM_LOG(warn, "does not know Open MPI %s well enough: messages of contiguous GPU buffers work, derived "
                   "datatypes and reductions of them do not", library.version());
        return;
    }
    set_error_reporting(library);
    redirect_convertor_calls(&attached.redirection);
    replace_predefined_operations(library);
    redirect_user_operations(library, &attached.redirection);
    attached.redirection.add("dlopen", reinterpret_cast<void *>(&open_component), "libopen-pal.so");
    const size_t places = attached.redirection.apply();
    GPUSHM_LOG(debug, "attached to Open MPI %s, %zu places", library.version(), places);
}

}  // namespace

void attach() {
    State &attached = state();
    const std::lock_guard<std::mutex> lock(attached.mutex);
    OpenMpiLibrary library;
    if (attached.attached || is_switched_off() || !OpenMpiLibrary::find(&library)) {
        return;
    }
    attached.attached = true;
    attach_to(library, attached);
}

}  // namespace gpushm::openmpi
