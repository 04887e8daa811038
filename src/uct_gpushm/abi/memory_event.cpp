// SPDX-License-Identifier: BSD-3-Clause
// Events of libucm: gpushm reports freed GPU memory to UCX and learns of unmapped host memory.
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/abi/callbacks.hpp"

#include <ucm/api/ucm.h>

#include <dlfcn.h>

#include <cstring>

namespace gpushm::abi {
namespace {

/** ucm_event_t with room behind it: `mem_type` has two more members from UCX 1.22 on
 * (src/ucm/api/ucm.h), which UCX does not read in an event of freed memory. */
union MemoryEvent {
    ucm_event_t event;
    unsigned char room[128];
};

/** After UCX's registration caches, whose priorities are 500 to 1000. */
constexpr int kPriority = 2000;

using UnmapCallback = void (*)(void *address, size_t length);

void on_unmap(int, void *event, void *callback) {
    const auto &unmapped = static_cast<const ucm_event_t *>(event)->vm_unmapped;
    guarded([&] {
        reinterpret_cast<UnmapCallback>(callback)(unmapped.address, unmapped.size);
        return UCS_OK;
    });
}

/** ucm_event_installer_t (src/ucm/event/event.h, UCX 1.13 to 1.23). */
struct EventInstaller {
    ucs_status_t (*install)(int events);
    void (*get_existing_allocations)(void *handler);
    ucs_list_link_t list;
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

bool subscribe_unmap(UnmapCallback callback) {
    const Symbols &ucx = symbols();
    return ucx.ucm_set_event_handler != nullptr &&
           ucx.ucm_set_event_handler(UCM_EVENT_VM_UNMAPPED, kPriority, on_unmap,
                                     reinterpret_cast<void *>(callback)) == UCS_OK;
}

bool ucx_watches_cuda() {
    const Symbols &ucx = symbols();
    const ucs_list_link_t *installers = ucx.ucm_event_installer_list;
    if (installers == nullptr || ucx.ucm_set_event_handler == nullptr) {
        return false;
    }
    // libucm loads its modules when it installs an event that nobody has declared external.
    // Open MPI declares VM_UNMAPPED (opal/mca/common/ucx), but no event of GPU memory.
    ucx.ucm_set_event_handler(
        UCM_EVENT_MEM_TYPE_FREE, kPriority, [](int, void *, void *) {}, nullptr);
    for (const ucs_list_link_t *link = installers->next; link != installers; link = link->next) {
        const auto *installer = reinterpret_cast<const EventInstaller *>(
            reinterpret_cast<const char *>(link) - offsetof(EventInstaller, list));
        Dl_info info;
        if (dladdr(reinterpret_cast<void *>(installer->install), &info) != 0 &&
            strstr(info.dli_fname, "ucm_cuda") != nullptr) {
            return true;
        }
    }
    return false;
}

}  // namespace gpushm::abi
