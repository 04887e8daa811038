// SPDX-License-Identifier: BSD-3-Clause
// The options of an interface, UCX_GPUSHM_*: their texts, defaults and meaning.
#pragma once

#include "core/standby/standby_registry.hpp"
#include "core/transport/port.hpp"
#include "openmpi/settings/settings.hpp"
#include "uct_gpushm/abi/abi.hpp"

#include <cstddef>
#include <vector>

namespace gpushm::uct {

/** What UCX's parser fills. Sizes are bytes, times are seconds. */
struct InterfaceConfig {
    abi::IfaceConfigHead head;
    size_t ring_size;
    size_t ring_limit;
    size_t gpu_chunk;
    size_t host_chunk;
    unsigned mailbox_cells;
    int pin;
    int peer_mapping;
    int cma;
    size_t host_pin_limit;
    int openmpi;  // for its text only: openmpi/setup reads the environment before UCX parses this
    size_t openmpi_staging;
    size_t openmpi_host_collectives;
    size_t openmpi_buffered;
    int standby;
    double standby_life;
    double standby_beat;
};

/** The table that UCX parses and documents (ucx_info -cf). */
std::vector<abi::Option> options();

/** What the options mean to the parts of gpushm. Values out of range become the nearest allowed
 * ones; UCX_GPUSHM_MAILBOX_CELLS then logs one warning. */
PortConfig port_config(const InterfaceConfig &config);
StandbyConfig standby_config(const InterfaceConfig &config);
openmpi::Limits openmpi_limits(const InterfaceConfig &config);

}  // namespace gpushm::uct
