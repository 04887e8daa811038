// SPDX-License-Identifier: BSD-3-Clause
#include "neighbour_exchange.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpushm::perf {

Mode parse_mode(const std::string &text) {
    if (text == "device") {
        return Mode::device;
    }
    if (text == "staged") {
        return Mode::staged;
    }
    if (text == "none") {
        return Mode::none;
    }
    throw std::runtime_error(text + ": GPU memory is communicated as device, staged or none");
}

NeighbourExchange::NeighbourExchange(const Driver &driver, Mode mode, const StepCell &cell,
                                     int peer)
    : driver_(driver), mode_(mode), cell_(cell), peer_(peer) {
    if (mode_ == Mode::staged) {
        const size_t bytes = std::max(cell_.neighbours * cell_.bytes, sizeof(double));
        host_send_ = std::make_unique<Memory>(&driver_, MemoryKind::pinned, bytes);
        host_receive_ = std::make_unique<Memory>(&driver_, MemoryKind::pinned, bytes);
    }
    requests_.assign(2 * cell_.neighbours, MPI_REQUEST_NULL);
}

NeighbourExchange::~NeighbourExchange() {
    free_persistent();
}

void NeighbourExchange::free_persistent() {
    for (MPI_Request &request : requests_) {
        if (request != MPI_REQUEST_NULL) {
            MPI_Request_free(&request);
        }
    }
}

char *NeighbourExchange::address(char *device, const std::unique_ptr<Memory> &host,
                                 unsigned neighbour) const {
    return (host ? host->address() : device) + neighbour * cell_.bytes;
}

void NeighbourExchange::use(char *send, char *receive) {
    send_ = send;
    receive_ = receive;
    if (cell_.exchange == Exchange::persistent && mode_ != Mode::none) {
        free_persistent();
        make_persistent();
    }
}

void NeighbourExchange::make_persistent() {
    const int bytes = static_cast<int>(cell_.bytes);
    for (unsigned i = 0; i < cell_.neighbours; ++i) {
        const int tag = static_cast<int>(i);
        MPI_Recv_init(target(i), bytes, MPI_BYTE, peer_, tag, MPI_COMM_WORLD, &requests_[2 * i]);
        MPI_Send_init(source(i), bytes, MPI_BYTE, peer_, tag, MPI_COMM_WORLD,
                      &requests_[2 * i + 1]);
    }
}

void NeighbourExchange::copy_to_host() {
    for (unsigned i = 0; mode_ == Mode::staged && i < cell_.neighbours; ++i) {
        driver_.require(
            driver_.cuMemcpyDtoH(source(i), device_pointer(send_ + i * cell_.bytes), cell_.bytes),
            "cuMemcpyDtoH");
    }
}

void NeighbourExchange::copy_to_device() {
    for (unsigned i = 0; mode_ == Mode::staged && i < cell_.neighbours; ++i) {
        driver_.require(driver_.cuMemcpyHtoD(device_pointer(receive_ + i * cell_.bytes), target(i),
                                             cell_.bytes),
                        "cuMemcpyHtoD");
    }
}

void NeighbourExchange::exchange() {
    if (mode_ == Mode::none) {
        return;
    }
    const int bytes = static_cast<int>(cell_.bytes);
    const int count = static_cast<int>(requests_.size());
    switch (cell_.exchange) {
        case Exchange::sendrecv:
            for (unsigned i = 0; i < cell_.neighbours; ++i) {
                MPI_Sendrecv(source(i), bytes, MPI_BYTE, peer_, 0, target(i), bytes, MPI_BYTE,
                             peer_, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            break;
        case Exchange::isend:
            for (unsigned i = 0; i < cell_.neighbours; ++i) {
                MPI_Irecv(target(i), bytes, MPI_BYTE, peer_, static_cast<int>(i), MPI_COMM_WORLD,
                          &requests_[i]);
            }
            for (unsigned i = 0; i < cell_.neighbours; ++i) {
                MPI_Isend(source(i), bytes, MPI_BYTE, peer_, static_cast<int>(i), MPI_COMM_WORLD,
                          &requests_[cell_.neighbours + i]);
            }
            MPI_Waitall(count, requests_.data(), MPI_STATUSES_IGNORE);
            break;
        case Exchange::persistent:
            MPI_Startall(count, requests_.data());
            MPI_Waitall(count, requests_.data(), MPI_STATUSES_IGNORE);
            break;
    }
}

void NeighbourExchange::reduce(char *value) {
    if (mode_ == Mode::device) {
        MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    } else if (mode_ == Mode::staged) {
        char *host = host_send_->address();
        driver_.require(driver_.cuMemcpyDtoH(host, device_pointer(value), sizeof(double)),
                        "cuMemcpyDtoH");
        MPI_Allreduce(MPI_IN_PLACE, host, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        driver_.require(driver_.cuMemcpyHtoD(device_pointer(value), host, sizeof(double)),
                        "cuMemcpyHtoD");
    }
}

}  // namespace gpushm::perf
