// SPDX-License-Identifier: BSD-3-Clause
// The structures with which a component describes itself to MCA 2.1 of Open MPI 4.1, 5.0 and 6.0.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace gpushm::openmpi {

/** mca_base_component_2_1_0_t (opal/mca/mca.h). */
struct McaComponent {
    int mca_version[3];
    char project_name[16];
    int project_version[3];
    char type_name[32];  // of the framework
    int type_version[3];
    char component_name[64];
    int component_version[3];
    int (*open)();
    int (*close)();
    int (*query)(void **module, int *priority);
    int (*register_parameters)();
    int32_t flags;
    char reserved[28];
};
static_assert(sizeof(McaComponent) == 224 && offsetof(McaComponent, component_name) == 84,
              "MCA 2.1");

/** mca_base_component_data_t (opal/mca/mca.h), which follows McaComponent. */
struct McaComponentData {
    uint32_t checkpoint;
    char reserved[32];
};

}  // namespace gpushm::openmpi
