// SPDX-License-Identifier: BSD-3-Clause
// Events of libucm, by which UCX learns what happens to memory.
#include "uct_gpushm/abi/abi.hpp"

#include <ucm/api/ucm.h>

namespace gpushm::abi {
namespace {

/** ucm_event_t with room behind: mem_type grew by two members in UCX 1.22 (src/ucm/api/ucm.h),
 *  which nobody reads in an event of freed memory. */
union MemoryEvent {
    ucm_event_t event;
    unsigned char room[128];
};

}  // namespace

void report_memory_freed(void *address, size_t length, ucs_memory_type_t mem_type) {
    MemoryEvent event = {};
    event.event.mem_type.address = address;
    event.event.mem_type.size = length;
    event.event.mem_type.mem_type = mem_type;
    const Symbols &ucx = symbols();
    ucx.ucm_event_enter();
    ucx.ucm_event_dispatch(UCM_EVENT_MEM_TYPE_FREE, &event);
    ucx.ucm_event_leave();
}

}  // namespace gpushm::abi
