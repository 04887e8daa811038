// SPDX-License-Identifier: BSD-3-Clause
#include "ucp_ranks.hpp"

#include <algorithm>
#include <cstring>

namespace gpushm::perf {
namespace {

constexpr ucp_tag_t kTag = 1;
// What is said at once fits into the page of the sides.
constexpr size_t kValues = SharedPage::kMaxAddress / sizeof(double);

}  // namespace

double UcpRanks::told_by(int speaker, double value) {
    const std::string text = side_.exchange(
        std::string(reinterpret_cast<const char *>(&value), sizeof(value)), progress_);
    if (rank() != speaker) {
        std::memcpy(&value, text.data(), sizeof(value));
    }
    return value;
}

std::string UcpRanks::first_text(const std::string &mine) {
    const std::string text = side_.exchange(mine, progress_);
    const bool mine_counts = !mine.empty() && (rank() == 0 || text.empty());
    return mine_counts ? mine : text;
}

void UcpRanks::add_up(std::vector<double> *values) {
    for (size_t at = 0; at < values->size(); at += kValues) {
        const size_t count = std::min(values->size() - at, kValues);
        const std::string text =
            side_.exchange(std::string(reinterpret_cast<const char *>(values->data() + at),
                                       count * sizeof(double)),
                           progress_);
        for (size_t i = 0; i < count; ++i) {
            double value;
            std::memcpy(&value, text.data() + i * sizeof(value), sizeof(value));
            (*values)[at + i] += value;
        }
    }
}

void UcpRanks::send(int, const void *data, size_t bytes) {
    connection_.wait(connection_.send(data, bytes, kTag));
}

void UcpRanks::receive(int, void *data, size_t bytes) {
    connection_.wait(connection_.receive(data, bytes, kTag));
}

void UcpRanks::start_send(int, const void *data, size_t bytes) {
    requests_.push_back(connection_.send(data, bytes, kTag));
}

void UcpRanks::start_receive(int, void *data, size_t bytes) {
    requests_.push_back(connection_.receive(data, bytes, kTag));
}

void UcpRanks::wait_next() {
    connection_.wait(requests_[waited_]);
    ++waited_;
}

void UcpRanks::wait_all() {
    while (waited_ < requests_.size()) {
        wait_next();
    }
    requests_.clear();
    waited_ = 0;
}

}  // namespace gpushm::perf
