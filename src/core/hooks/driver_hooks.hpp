// SPDX-License-Identifier: BSD-3-Clause
// Being told when GPU memory or a context goes away, or somebody waits for all work of a GPU,
// whoever in the process asks the driver for it.
#pragma once

#include "core/cuda/driver_patch.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/memory_info.hpp"

namespace gpushm {

/** Hooks every function of the driver by which device, managed or page-locked memory can go away,
 * or host memory becomes page-locked. The functions themselves are changed, for the CUDA runtime,
 * linked statically or not, CuPy and PyTorch call them through addresses of their own. From then
 * on query_memory() remembers.
 *
 * `freed` is called with each allocation that query_memory() has remembered, before it goes away,
 * in the thread that calls the driver; it must not call the driver. Null: nobody wants to know.
 *
 * False when there is no driver or when some function cannot be hooked, which is said in one line
 * of debug output; nothing is remembered then. Later calls return what the first one did. Thread
 * safe. The hooks stay until the process ends. */
bool install_driver_hooks(PatchFunction patch, void (*freed)(const MemoryInfo &allocation));

/** Hooks what ends contexts, and nothing else: what install_driver_hooks() does, too, for a process
 * whose memory somebody else watches. False when that failed. Thread safe. */
bool watch_contexts(PatchFunction patch);

/** Hooks copies of the application from and to host memory, and what page-locks it: without that
 * HostRegistrationCache would change what the application sees of memory that we have locked
 * (copies that are asynchronous, refused, registered already). install_driver_hooks() does it, too.
 * False when some cannot be hooked. Thread safe. */
bool watch_host_memory(PatchFunction patch);

/** Hooks copies and memsets of the application that may return before they are done, what it starts
 * behind them and how it waits for them: query_memory() then waits for them instead of making them
 * synchronous. After install_driver_hooks() and watch_stream_captures(). False when nothing has
 * changed. Thread safe. */
bool watch_early_returns(PatchFunction patch);

}  // namespace gpushm
