// SPDX-License-Identifier: BSD-3-Clause
// Modules, whose images nobody looks at, their functions, and launches of kernels.
#include "module.hpp"

#include "allocation.hpp"
#include "call.hpp"
#include "kernel.hpp"
#include "settings.hpp"
#include "stream.hpp"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace simcuda {

namespace {

struct Function {
    Context &context;
    const Kernel &kernel;
};

struct Module {
    Context &context;
    std::map<std::string, std::unique_ptr<Function>> functions{};  // those that were asked for
    std::map<std::string, std::shared_ptr<Allocation>> globals{};  // as well
};

using Modules = std::map<CUmodule, std::unique_ptr<Module>>;

Modules &modules() {
    static auto &all = *new Modules;
    return all;
}

// Null if `handle` names no function.
const Function *find_function(CUfunction handle) {
    for (const auto &module : modules()) {
        for (const auto &entry : module.second->functions) {
            if (reinterpret_cast<CUfunction>(entry.second.get()) == handle) {
                return entry.second.get();
            }
        }
    }
    return nullptr;
}

CUresult load(Call &call, CUmodule *handle, const void *image) {
    return call.given(image).with_context([&](Lock &lock, Context &context) -> CUresult {
        if (handle == nullptr || image == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Engine::get().wait_for_context(lock, context);  // seen with driver 580
        auto module = std::make_unique<Module>(Module{context});
        *handle = reinterpret_cast<CUmodule>(module.get());
        modules()[*handle] = std::move(module);
        trace_result(*handle);
        return CUDA_SUCCESS;
    });
}

// A variable of the module, 0 at first; null if there is no memory.
std::shared_ptr<Allocation> find_global(Module &module, const std::string &name,
                                        std::size_t bytes) {
    std::shared_ptr<Allocation> &known = module.globals[name];
    if (known == nullptr) {
        Context &context = module.context;
        known = allocate_on_device(Allocation::Kind::device, *context.device, &context, bytes);
        if (known != nullptr) {
            std::memset(known->engine_base, 0, bytes);
            Allocations::get().add(known);
        }
    }
    return known;
}

struct Shape {
    unsigned x;
    unsigned y;
    unsigned z;
};

bool launchable(const Shape &grid, const Shape &block) {
    constexpr unsigned long long kMaxThreads = 1024;
    const auto all = [](const Shape &shape) { return 1ull * shape.x * shape.y * shape.z; };
    const bool within_limits = grid.y <= 0xffff && grid.z <= 0xffff && block.x <= kMaxThreads &&
                               block.y <= kMaxThreads && block.z <= 64;
    return within_limits && all(grid) > 0 && all(block) > 0 && all(block) <= kMaxThreads;
}

CUresult launch(Lock &lock, const Function &function, const std::shared_ptr<Stream> &stream,
                const void *parameter) {
    const Kernel &kernel = function.kernel;
    const auto *bytes = static_cast<const char *>(parameter);
    Operation operation;
    operation.runner = Operation::Runner::kernel;
    operation.fills_device = kernel.fills_device;
    operation.duration = Engine::get().kernel_start_time();
    operation.run = [run = kernel.run, &context = function.context,
                     copied = std::vector<char>(bytes, bytes + kernel.parameter_bytes)](
                        Lock &held) { return run(held, context, copied.data()); };
    const Position end = Engine::get().enqueue(lock, stream, std::move(operation));
    if (Settings::get().launch_blocking) {
        Engine::get().wait(lock, end);
    }
    return stream->context.sticky_error;
}

}  // namespace

void destroy_modules(const Context &context) {
    for (auto entry = modules().begin(); entry != modules().end();) {
        const bool of_context = &entry->second->context == &context;
        entry = of_context ? modules().erase(entry) : std::next(entry);
    }
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuModuleLoadData(CUmodule *handle, const void *image) {
    static Call call{"cuModuleLoadData"};
    return load(call, handle, image);
}

extern "C" CUresult cuModuleLoadDataEx(CUmodule *handle, const void *image, unsigned int,
                                       CUjit_option *, void **) {
    static Call call{"cuModuleLoadDataEx"};
    return load(call, handle, image);
}

extern "C" CUresult cuModuleUnload(CUmodule handle) {
    static Call call{"cuModuleUnload", Call::Kind::unsafe};
    return call.given(handle).with_context([&](Lock &lock, Context &) -> CUresult {
        const auto found = modules().find(handle);
        if (found == modules().end()) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        Engine::get().wait_for_context(lock, found->second->context);
        for (const auto &global : found->second->globals) {
            Allocations::get().release(global.second);
        }
        modules().erase(handle);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuModuleGetFunction(CUfunction *handle, CUmodule module_handle,
                                        const char *name) {
    static Call call{"cuModuleGetFunction"};
    return call.given(module_handle).with_context([&](Lock &, Context &) -> CUresult {
        if (handle == nullptr || name == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto found = modules().find(module_handle);
        if (found == modules().end()) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        const Kernel *kernel = find_kernel(name);
        if (kernel == nullptr) {
            return CUDA_ERROR_NOT_FOUND;
        }
        Module &module = *found->second;
        auto &function = module.functions[name];
        if (function == nullptr) {
            function = std::make_unique<Function>(Function{module.context, *kernel});
        }
        *handle = reinterpret_cast<CUfunction>(function.get());
        trace_result(*handle);
        return CUDA_SUCCESS;
    });
}

#undef cuModuleGetGlobal
extern "C" CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, std::size_t *bytes,
                                         CUmodule module_handle, const char *name) {
    static Call call{"cuModuleGetGlobal"};
    return call.given(module_handle).with_context([&](Lock &, Context &) -> CUresult {
        if (name == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto found = modules().find(module_handle);
        if (found == modules().end()) {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        const std::size_t size = global_bytes(name);
        if (size == 0) {
            return CUDA_ERROR_NOT_FOUND;
        }
        const auto global = find_global(*found->second, name, size);
        if (global == nullptr) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (address != nullptr) {
            *address = global->base;
        }
        if (bytes != nullptr) {
            *bytes = size;
        }
        trace_result(global->base);
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes,
                                   CUstream stream_handle, void **parameters, void **extra) {
    static Call call{"cuLaunchKernel"};
    return call.given(handle, stream_handle)
        .with_context([&](Lock &lock, Context &context) -> CUresult {
            constexpr unsigned kMaxSharedBytes = 48 << 10;
            const Function *function = find_function(handle);
            if (function == nullptr) {
                return CUDA_ERROR_INVALID_HANDLE;
            }
            if (parameters == nullptr && extra != nullptr) {
                return CUDA_ERROR_NOT_SUPPORTED;
            }
            if (parameters == nullptr || extra != nullptr || shared_bytes > kMaxSharedBytes ||
                !launchable({grid_x, grid_y, grid_z}, {block_x, block_y, block_z})) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            std::shared_ptr<Stream> stream;
            const CUresult result = find_usable_stream(stream_handle, context, &stream);
            if (result != CUDA_SUCCESS) {
                return result;
            }
            return &stream->context == &function->context
                       ? launch(lock, *function, stream, parameters[0])
                       : CUDA_ERROR_INVALID_HANDLE;
        });
}
