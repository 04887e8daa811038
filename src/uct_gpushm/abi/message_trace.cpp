// SPDX-License-Identifier: BSD-3-Clause
// Does what uct_iface_trace_am of UCX does (src/uct/base/uct_iface.h), which is a macro.
#include "uct_gpushm/abi/abi.hpp"
#include "uct_gpushm/abi/layout.hpp"

namespace gpushm::abi {

void trace_am(Iface *iface, uct_am_trace_type_t type, uint8_t id, const void *data, size_t length,
              size_t total) {
    char text[256] = "";
    if (const auto tracer = load<uct_am_tracer_t>(iface, kBaseIfaceAmTracer)) {
        tracer(load<void *>(iface, kBaseIfaceAmTracer + sizeof(tracer)), type, id, data, length,
               text, sizeof(text) - 1);
    }
    log_line(UCS_LOG_LEVEL_TRACE_DATA, "%s am_id %u len %zu %s",
             type == UCT_AM_TRACE_TYPE_SEND ? "TX" : "RX", static_cast<unsigned>(id), total, text);
}

void trace_transfer(const char *operation, size_t length) {
    log_line(UCS_LOG_LEVEL_TRACE_DATA, "%s [length %zu]", operation, length);
}

}  // namespace gpushm::abi
