// SPDX-License-Identifier: BSD-3-Clause
// The parameters with which Open MPI sends through UCX: gpushm-run sets them, and so do processes
// that use MPI.
#pragma once

namespace gpushm::openmpi {

/** An MCA parameter; OMPI_MCA_<name> in the environment. */
struct McaDefault {
    const char *name;
    const char *value;
    /** Other names of the same parameter: setting `name` as well would take the user's value from
     * him. Null: none. */
    const char *synonyms[2] = {};
};

// Open MPI takes pml/ucx by itself only on an InfiniBand device or a known GPU transport
// (opal/mca/common/ucx/common_ucx.c), and Debian's and Ubuntu's openmpi-mca-params.conf exclude it.
constexpr McaDefault kPml = {"pml", "ucx"};
constexpr McaDefault kUcxTransports = {
    "opal_common_ucx_tls", "any", {"pml_ucx_tls", "osc_ucx_tls"}};
constexpr McaDefault kUcxDevices = {
    "opal_common_ucx_devices", "any", {"pml_ucx_devices", "osc_ucx_devices"}};
// Where gpushm does not decide for each window (window_selection.hpp). osc/ucx refuses
// MPI_Win_allocate_shared in Open MPI 4.1 (osc_ucx_component.c), so osc/sm must stay for it; but it
// is to have no other window, since it copies by the CPU. sm's priority is 100.
constexpr McaDefault kOsc = {"osc", "ucx,sm"};
constexpr McaDefault kOscPriority = {"osc_ucx_priority", "200"};

/** The parameters which gpushm has set in the environment, separated by commas: a job that cannot
 * send through UCX takes them back (mca_settings.hpp). No parameter of Open MPI, but mpirun hands
 * it to other nodes with these. */
constexpr const char *kSetByGpushm = "OMPI_MCA_gpushm_defaults";

/** Those that a process has set by itself. MPI_Comm_spawn of Open MPI 5.0 hands variables to the
 * new processes that are new since mpirun, and not those that have changed. */
constexpr const char *kSetByProcess = "OMPI_MCA_gpushm_defaults_of_process";

}  // namespace gpushm::openmpi
