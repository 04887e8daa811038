// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/mpi_call.hpp"

#include "core/base/log.hpp"
#include "core/patching/function_redirection.hpp"

namespace gpushm::openmpi {

bool redirect_mpi_function(const OpenMpiLibrary &library, CallRedirection *redirection,
                           const std::string &name, void **original, void *replacement) {
    const std::string profiled_name = "PMPI_" + name;
    const std::string plain_name = "MPI_" + name;
    void *const profiled = library.mpi(profiled_name.c_str());
    void *const plain = library.mpi(plain_name.c_str());
    if (profiled == nullptr) {
        return false;
    }
    const auto redirect_callers = [&](const std::string &symbol, void *function) {
        GPUSHM_LOG(debug,
                   "%s cannot be changed: its callers are changed, except those that use dlsym",
                   symbol.c_str());
        if (library.as_called(symbol.c_str()) == function) {
            redirection->add_function(symbol.c_str(), function, replacement);
        }
    };
    *original = profiled;
    const bool is_changed = redirect_function(profiled, replacement, original);
    if (!is_changed) {
        redirect_callers(profiled_name, profiled);
    }
    // Both names are one function unless the compiler that built Open MPI has no aliases.
    void *original_of_plain = nullptr;
    const bool is_plain_changed =
        plain == profiled ? is_changed : redirect_function(plain, replacement, &original_of_plain);
    if (!is_plain_changed) {
        redirect_callers(plain_name, plain);
    }
    return true;
}

}  // namespace gpushm::openmpi
