// SPDX-License-Identifier: BSD-3-Clause
// Being told when GPU memory or a context goes away, or somebody waits for all work of a GPU, whoever
// in the process asks the driver for it.
#pragma once

#include "core/memory_info.hpp"

#include <cstdint>

namespace gpushm {

/** Makes `function` begin with a jump to `hook`; `*original` then calls what `function` did, unless
 *  `original` is null. `name` is for messages. False, and nothing is changed, when it cannot. */
using PatchFunction = bool (*)(void *function, void *hook, const char *name, void **original);

/** Hooks every function of the driver by which device, managed or page-locked memory can go away,
 *  or host memory becomes page-locked. The functions themselves are changed, for the CUDA runtime,
 *  linked statically or not, CuPy and PyTorch call them through addresses of their own. From then
 *  on query_memory() remembers.
 *
 *  `freed` is called with each allocation that query_memory() has remembered, before it goes away,
 *  in the thread that calls the driver; it must not call the driver. Null: nobody wants to know.
 *
 *  False when there is no driver or when some function cannot be hooked, which is said in one line
 *  of debug output; nothing is remembered then. Later calls return what the first one did. Thread
 *  safe. The hooks stay until the process ends. */
bool install_driver_hooks(PatchFunction patch, void (*freed)(const MemoryInfo &allocation));

bool driver_hooks_installed();

/** Hooks what ends contexts, and nothing else: what install_driver_hooks() does, too, for a process whose memory
 *  somebody else watches. False when that failed. Thread safe. */
bool watch_contexts(PatchFunction patch);

/** Whether it did. */
bool contexts_are_watched();

/** Hooks copies of the application from and to host memory, and what page-locks it: without that HostPins would change
 *  what the application sees of memory that we have locked (copies that are asynchronous, refused, registered already).
 *  install_driver_hooks() does it, too. False when some cannot be hooked. Thread safe. */
bool watch_host_memory(PatchFunction patch);

/** Whether it did. */
bool host_memory_is_watched();

/** While it lives, copies that this thread submits are our own: they are as asynchronous as the driver has
 *  them. */
class OwnCopies {
public:
    OwnCopies();
    OwnCopies(const OwnCopies &) = delete;
    OwnCopies &operator=(const OwnCopies &) = delete;
    ~OwnCopies();

private:
    const bool outer_;  // what holds again when this one ends
};

/** Whether standby kernels make way for calls that wait for all work of a GPU, too. */
bool driver_waits_hooked();

/** Whether some thread is in a call of the driver that ends memory or a context: it may wait for all work of a GPU,
 *  and keep others from it. Unless driver_hooks_installed(), of contexts only. */
bool memory_is_ending();

/** Grows with every call that may destroy a context, before and after it; means nothing unless
 *  contexts_are_watched(). While it stays, a context that was alive is alive. */
uint64_t context_epoch();

}  // namespace gpushm
