// SPDX-License-Identifier: BSD-3-Clause
#include "core/base/memory_map.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace gpushm {

bool for_each_mapping(const std::function<bool(const MemoryMapping &)> &visit) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == nullptr) {
        return false;
    }
    char line[512];
    bool more = true;
    while (more && fgets(line, sizeof(line), maps) != nullptr) {
        MemoryMapping mapping = {};
        char access[5] = "";
        int path_at = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %*s %n", &mapping.begin,
                   &mapping.end, access, &path_at) >= 3) {
            mapping.readable = access[0] == 'r';
            mapping.writable = access[1] == 'w';
            mapping.shared = access[3] == 's';
            line[strcspn(line, "\n")] = '\0';
            mapping.path = line + path_at;
            more = visit(mapping);
        }
    }
    fclose(maps);
    return true;
}

}  // namespace gpushm
