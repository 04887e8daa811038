// SPDX-License-Identifier: BSD-3-Clause
#include "staged_way.hpp"

#include <algorithm>

namespace gpushm::perf {

StagedWay::StagedWay(Ranks &ranks, const Driver &driver, const Shape &shape)
    : ranks_(ranks), driver_(driver), shape_(shape) {
    if (shape.source_on_gpu) {
        sent_ = std::make_unique<Memory>(&driver, MemoryKind::pinned, shape.bytes);
    }
    if (shape.destination_on_gpu) {
        received_ = std::make_unique<Memory>(&driver, MemoryKind::pinned, shape.bytes);
    }
    driver_.require(driver_.cuStreamCreate(&out_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    driver_.require(driver_.cuStreamCreate(&in_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

StagedWay::~StagedWay() {
    for (CUevent event : events_) {
        driver_.cuEventDestroy(event);
    }
    driver_.cuStreamDestroy(in_);
    driver_.cuStreamDestroy(out_);
}

CUevent StagedWay::event(size_t n) {
    while (events_.size() <= n) {
        CUevent made = nullptr;
        driver_.require(driver_.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
        events_.push_back(made);
    }
    return events_[n];
}

std::vector<StagedWay::Piece> StagedWay::pieces_of(const std::vector<Message> &messages,
                                                   const Memory *host) const {
    std::vector<Piece> pieces;
    // Where all messages have a buffer of their own there is as much page-locked memory; otherwise
    // they share it as they share their buffers.
    const size_t places = std::max<size_t>(shape_.bytes / shape_.message, 1);
    for (size_t i = 0; i < messages.size(); ++i) {
        const Message &message = messages[i];
        char *const place =
            host == nullptr ? message.address : host->address() + i % places * shape_.message;
        const size_t step = shape_.piece == 0 ? message.bytes : shape_.piece;
        for (size_t at = 0; at < message.bytes; at += step) {
            pieces.push_back(
                {message.address + at, place + at, std::min(step, message.bytes - at)});
        }
    }
    return pieces;
}

void StagedWay::send(int to, const Message &message) {
    start_sends(to, {message});
    finish();
}

void StagedWay::receive(int from, const Message &message) {
    start_receives(from, {message});
    finish();
}

void StagedWay::start_receives(int from, const std::vector<Message> &messages) {
    to_receive_ = pieces_of(messages, received_.get());
    for (const Piece &piece : to_receive_) {
        ranks_.start_receive(from, piece.host, piece.bytes);
    }
}

void StagedWay::start_sends(int to, const std::vector<Message> &messages) {
    const std::vector<Piece> pieces = pieces_of(messages, sent_.get());
    const bool copies_ahead = sent_ && shape_.piece != 0;
    for (size_t i = 0; copies_ahead && i < pieces.size(); ++i) {
        const Piece &piece = pieces[i];
        driver_.require(
            driver_.cuMemcpyDtoHAsync(piece.host, device_pointer(piece.user), piece.bytes, out_),
            "cuMemcpyDtoHAsync");
        driver_.require(driver_.cuEventRecord(event(i), out_), "cuEventRecord");
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
        const Piece &piece = pieces[i];
        if (copies_ahead) {
            driver_.require(driver_.cuEventSynchronize(events_[i]), "a copy to the host");
        } else if (sent_) {
            driver_.require(
                driver_.cuMemcpyDtoH(piece.host, device_pointer(piece.user), piece.bytes),
                "cuMemcpyDtoH");
        }
        ranks_.start_send(to, piece.host, piece.bytes);
    }
}

void StagedWay::finish() {
    for (const Piece &piece : to_receive_) {
        ranks_.wait_next();
        if (received_ && shape_.piece != 0) {
            driver_.require(
                driver_.cuMemcpyHtoDAsync(device_pointer(piece.user), piece.host, piece.bytes, in_),
                "cuMemcpyHtoDAsync");
        } else if (received_) {
            driver_.require(
                driver_.cuMemcpyHtoD(device_pointer(piece.user), piece.host, piece.bytes),
                "cuMemcpyHtoD");
        }
    }
    to_receive_.clear();
    ranks_.wait_all();
    if (received_ && shape_.piece != 0) {
        driver_.require(driver_.cuStreamSynchronize(in_), "a copy to the GPU");
    }
}

}  // namespace gpushm::perf
