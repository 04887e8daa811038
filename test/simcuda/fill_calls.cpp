// SPDX-License-Identifier: BSD-3-Clause
// The calls by which programs fill device memory from the device.
#include "fill_calls.hpp"

namespace {

constexpr std::size_t kBytes = FillBuffers::kBytes;
constexpr std::size_t kRowBytes = 4096;  // which cuMemAllocPitch gives to rows of that length
constexpr std::size_t kRows = kBytes / kRowBytes;

// Parameters that a call takes by their address.
template <typename Parameters>
struct Passed {
    Parameters parameters;
    operator const Parameters *() const { return &parameters; }
};

Passed<CUDA_MEMCPY2D> rows_of(const FillBuffers &buffers) {
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = buffers.from;
    rows.dstDevice = buffers.to;
    rows.srcPitch = rows.dstPitch = kRowBytes;
    rows.WidthInBytes = kRowBytes;
    rows.Height = kRows;
    return {rows};
}

// Two slices. `Rows`: CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER.
template <typename Rows>
Passed<Rows> slices_of(const FillBuffers &buffers) {
    Rows rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = buffers.from;
    rows.dstDevice = buffers.to;
    rows.srcPitch = rows.dstPitch = kRowBytes;
    rows.srcHeight = rows.dstHeight = kRows / 2;
    rows.WidthInBytes = kRowBytes;
    rows.Height = kRows / 2;
    rows.Depth = 2;
    return {rows};
}

Passed<CUDA_MEMCPY3D_PEER> peer_slices_of(const FillBuffers &buffers) {
    auto rows = slices_of<CUDA_MEMCPY3D_PEER>(buffers);
    rows.parameters.srcContext = rows.parameters.dstContext = buffers.context;
    return rows;
}

template <typename Value>
Bytes bytes_of(Value value) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(&value);
    return Bytes(bytes, bytes + sizeof(value));
}

constexpr unsigned char kByte = 0x5a;
constexpr unsigned short kShort = 0x1234;
constexpr unsigned kWord = 0x89abcdef;

// A call of `function`, with the arguments of this form.
#define FILL_CALL(function, symbol, form, pattern, ...)                                   \
    FillCall {                                                                            \
        symbol, form, pattern, [](void *address, const FillBuffers &b, CUstream stream) { \
            static_cast<void>(stream);                                                    \
            return reinterpret_cast<decltype(&function)>(address)(__VA_ARGS__);           \
        }                                                                                 \
    }
#define COPY_NOW(function, symbol, ...) FILL_CALL(function, symbol, "_ptds", Bytes(), __VA_ARGS__)
#define COPY_LATER(function, symbol, ...) \
    FILL_CALL(function, symbol, "_ptsz", Bytes(), __VA_ARGS__, stream)

// The memsets of a value.
#define MEMSETS(bits, value)                                                                       \
    FILL_CALL(cuMemsetD##bits, "cuMemsetD" #bits "_v2", "_ptds", bytes_of(value), b.to, value,     \
              kBytes / sizeof(value)),                                                             \
        FILL_CALL(cuMemsetD##bits##Async, "cuMemsetD" #bits "Async", "_ptsz", bytes_of(value),     \
                  b.to, value, kBytes / sizeof(value), stream),                                    \
        FILL_CALL(cuMemsetD2D##bits, "cuMemsetD2D" #bits "_v2", "_ptds", bytes_of(value), b.to,    \
                  kRowBytes, value, kRowBytes / sizeof(value), kRows),                             \
        FILL_CALL(cuMemsetD2D##bits##Async, "cuMemsetD2D" #bits "Async", "_ptsz", bytes_of(value), \
                  b.to, kRowBytes, value, kRowBytes / sizeof(value), kRows, stream)

}  // namespace

std::string FillCall::name() const {
    const std::size_t version = symbol.rfind("_v2");
    return symbol.substr(0, version);
}

Bytes FillCall::expected(const Bytes &from) const {
    Bytes all = from;
    for (std::size_t i = 0; i < all.size() && !pattern.empty(); ++i) {
        all[i] = pattern[i % pattern.size()];
    }
    return all;
}

void PrintTo(const FillCall &call, std::ostream *output) {
    *output << call.symbol;
}

const std::vector<FillCall> &fill_calls() {
    static const std::vector<FillCall> calls = {
        COPY_NOW(cuMemcpy, "cuMemcpy", b.to, b.from, kBytes),
        COPY_NOW(cuMemcpyDtoD, "cuMemcpyDtoD_v2", b.to, b.from, kBytes),
        COPY_NOW(cuMemcpyPeer, "cuMemcpyPeer", b.to, b.context, b.from, b.context, kBytes),
        COPY_NOW(cuMemcpy2D, "cuMemcpy2D_v2", rows_of(b)),
        COPY_NOW(cuMemcpy2DUnaligned, "cuMemcpy2DUnaligned_v2", rows_of(b)),
        COPY_NOW(cuMemcpy3D, "cuMemcpy3D_v2", slices_of<CUDA_MEMCPY3D>(b)),
        COPY_NOW(cuMemcpy3DPeer, "cuMemcpy3DPeer", peer_slices_of(b)),
        COPY_LATER(cuMemcpyAsync, "cuMemcpyAsync", b.to, b.from, kBytes),
        COPY_LATER(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", b.to, b.from, kBytes),
        COPY_LATER(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", b.to, b.context, b.from, b.context,
                   kBytes),
        COPY_LATER(cuMemcpy2DAsync, "cuMemcpy2DAsync_v2", rows_of(b)),
        COPY_LATER(cuMemcpy3DAsync, "cuMemcpy3DAsync_v2", slices_of<CUDA_MEMCPY3D>(b)),
        COPY_LATER(cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", peer_slices_of(b)),
        MEMSETS(8, kByte),
        MEMSETS(16, kShort),
        MEMSETS(32, kWord),
    };
    return calls;
}
