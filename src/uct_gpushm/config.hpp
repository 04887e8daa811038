// SPDX-License-Identifier: BSD-3-Clause
// The settings of an interface, UCX_GPUSHM_* (src/uct_gpushm/component.cpp has their texts).
#pragma once

#include "uct_gpushm/abi/abi.hpp"

#include <cstddef>

namespace gpushm::uct {

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
    int openmpi;  // of the documentation: openmpi/setup/attachment.cpp reads the environment, where
                  // it comes too early
    size_t openmpi_staging;
    size_t openmpi_buffered;
    int standby;
    double standby_life;
    double standby_beat;
};

}  // namespace gpushm::uct
