// SPDX-License-Identifier: BSD-3-Clause
// The parameters with which Open MPI sends through UCX. gpushm-run and processes that use MPI set
// them.
#pragma once

namespace gpushm::openmpi {

/** An MCA parameter; OMPI_MCA_<name> in the environment. */
struct McaDefault {
    const char *name;
    const char *value;
    /** Other names of the parameter, or null. If the user has set one of them, `name` must not be
     * set, because it would override that value. */
    const char *synonyms[2] = {};
};

// By itself Open MPI selects pml/ucx only with an InfiniBand device or a known GPU transport
// (opal/mca/common/ucx/common_ucx.c). openmpi-mca-params.conf of Debian and Ubuntu excludes it.
constexpr McaDefault kPml = {"pml", "ucx"};
constexpr McaDefault kUcxTransports = {
    "opal_common_ucx_tls", "any", {"pml_ucx_tls", "osc_ucx_tls"}};
constexpr McaDefault kUcxDevices = {
    "opal_common_ucx_devices", "any", {"pml_ucx_devices", "osc_ucx_devices"}};
// Used if gpushm does not decide for each window (window_selection.hpp). osc/ucx refuses
// MPI_Win_allocate_shared in Open MPI 4.1 (osc_ucx_component.c), so osc/sm stays for that. It must
// not serve other windows, because it copies with the CPU; its priority is 100.
constexpr McaDefault kOsc = {"osc", "ucx,sm"};
constexpr McaDefault kOscPriority = {"osc_ucx_priority", "200"};

/** A variable with the names of the parameters that gpushm has set in the environment, separated by
 * commas. A job that cannot send through UCX removes them (mca_settings.hpp). The prefix makes
 * mpirun pass it to other nodes. */
constexpr const char *kSetByGpushm = "OMPI_MCA_gpushm_defaults";

/** The parameters that a process has set by itself. A variable of its own, because MPI_Comm_spawn
 * of Open MPI 5.0 passes variables that were added since mpirun, and not those that were changed.
 */
constexpr const char *kSetByProcess = "OMPI_MCA_gpushm_defaults_of_process";

}  // namespace gpushm::openmpi
