// SPDX-License-Identifier: BSD-3-Clause
// Finds components and transports in the lists of the running UCX.
#pragma once

#include "uct_gpushm/abi/running.hpp"

#include <cstring>

namespace gpushm::abi {

/** The first object in a list of UCX whose name, at `name_offset` in the object, is `name`. Null:
 * there is none. `link_offset` is the offset of the list's link in the object. */
inline unsigned char *find_named(const ucs_list_link_t *list, size_t link_offset,
                                 size_t name_offset, const char *name) {
    for (ucs_list_link_t *link = list->next; link != list; link = link->next) {
        unsigned char *object = reinterpret_cast<unsigned char *>(link) - link_offset;
        if (strcmp(reinterpret_cast<const char *>(object + name_offset), name) == 0) {
            return object;
        }
    }
    return nullptr;
}

/** The uct_component_t with this name in `ucx`; null: there is none. */
inline unsigned char *find_component(const Running &ucx, const char *name) {
    const StructLayout<ComponentField> &layout = ucx.layout->component;
    return find_named(ucx.functions.components_list, layout[ComponentField::list],
                      layout[ComponentField::name], name);
}

}  // namespace gpushm::abi
