// SPDX-License-Identifier: BSD-3-Clause
// Hooks that see when GPU memory or a context goes away, or a thread waits for all work of a GPU,
// by any call of the process into the driver.
#pragma once

#include "core/cuda/driver_patch.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/memory/memory_info.hpp"

namespace gpushm {

/** Hooks every function of the driver by which device, managed or page-locked memory can go away,
 * or host memory becomes page-locked. The functions themselves are changed: the CUDA runtime,
 * linked statically or not, CuPy and PyTorch call them through addresses of their own. From then
 * on query_memory() remembers.
 *
 * `freed` is called with each allocation that query_memory() has remembered, before it goes
 * away, in the thread that calls the driver; it must not call the driver. It may be null.
 *
 * False when there is no driver or when some function cannot be hooked, with one line of debug
 * output; nothing is remembered then. Later calls return what the first one did. Thread safe.
 * The hooks stay until the process ends. */
bool install_driver_hooks(PatchFunction patch, void (*freed)(const MemoryInfo &allocation));

/** Hooks only the functions that end contexts, as install_driver_hooks() does too: for a process
 * whose memory another library watches. False when that failed. Thread safe. */
bool watch_contexts(PatchFunction patch);

/** Hooks copies of the application from and to host memory, and functions that page-lock it, as
 * install_driver_hooks() does too. Without them HostRegistrationCache would change what the
 * application sees of memory that it has locked (copies that are asynchronous, refused, registered
 * already). False when some cannot be hooked. Thread safe. */
bool watch_host_memory(PatchFunction patch);

/** Hooks copies and memsets of the application that may return before they are done, the work that
 * it starts after them and its waits for them. query_memory() then waits for the copies instead of
 * making them synchronous. After install_driver_hooks() and watch_stream_captures(). False when
 * nothing has changed. Thread safe. */
bool watch_early_returns(PatchFunction patch);

}  // namespace gpushm
