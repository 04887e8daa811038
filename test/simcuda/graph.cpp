// SPDX-License-Identifier: BSD-3-Clause
// Graphs that were captured.
#include "graph.hpp"

#include "call.hpp"
#include "stream.hpp"

#include <map>

namespace simcuda {

namespace {

// What a graph and what is instantiated of it share.
using Operations = std::shared_ptr<const std::vector<Operation>>;

template <typename Handle>
std::map<Handle, Operations> &objects() {
    static auto &all = *new std::map<Handle, Operations>;
    return all;
}

template <typename Handle>
Handle add(Operations operations) {
    static std::uintptr_t last = 0x96a90000;
    const auto handle = reinterpret_cast<Handle>(++last);
    objects<Handle>()[handle] = std::move(operations);
    return handle;
}

// Null if there is no such object.
template <typename Handle>
Operations find(Handle handle) {
    const auto found = objects<Handle>().find(handle);
    return found == objects<Handle>().end() ? nullptr : found->second;
}

}  // namespace

CUgraph add_graph(std::vector<Operation> operations) {
    return add<CUgraph>(std::make_shared<const std::vector<Operation>>(std::move(operations)));
}

}  // namespace simcuda

using namespace simcuda;

extern "C" CUresult cuGraphDestroy(CUgraph graph) {
    static Call call{"cuGraphDestroy"};
    return call.given(graph).initialised([&](Lock &) -> CUresult {
        return objects<CUgraph>().erase(graph) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}

// The nodes are counted, but have no handles.
extern "C" CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, std::size_t *count) {
    static Call call{"cuGraphGetNodes"};
    return call.given(graph).initialised([&](Lock &) -> CUresult {
        const Operations operations = find(graph);
        if (operations == nullptr || count == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (nodes != nullptr) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        *count = operations->size();
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuGraphInstantiateWithFlags(CUgraphExec *handle, CUgraph graph,
                                                unsigned long long flags) {
    static Call call{"cuGraphInstantiateWithFlags"};
    return call.given(graph, flags).initialised([&](Lock &) -> CUresult {
        Operations operations = find(graph);
        if (operations == nullptr || handle == nullptr || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *handle = add<CUgraphExec>(std::move(operations));
        return CUDA_SUCCESS;
    });
}

extern "C" CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    static Call call{"cuGraphLaunch"};
    return call.given(handle, stream_handle)
        .with_context([&](Lock &lock, Context &context) -> CUresult {
            const Operations operations = find(handle);
            std::shared_ptr<Stream> stream;
            const CUresult result = find_usable_stream(stream_handle, context, &stream);
            if (result != CUDA_SUCCESS || operations == nullptr) {
                return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
            }
            for (const Operation &operation : *operations) {
                Engine::get().enqueue(lock, stream, operation);
            }
            return CUDA_SUCCESS;
        });
}

extern "C" CUresult cuGraphExecDestroy(CUgraphExec handle) {
    static Call call{"cuGraphExecDestroy"};
    return call.given(handle).initialised([&](Lock &) -> CUresult {
        return objects<CUgraphExec>().erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
