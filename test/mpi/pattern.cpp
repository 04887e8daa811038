// SPDX-License-Identifier: BSD-3-Clause
// The pattern is a counter-based generator: word i depends on the seed and i only.
#include "pattern.hpp"

#include <algorithm>
#include <cstring>

namespace gpushm::mpi_test {
namespace {

constexpr size_t kWord = sizeof(uint64_t);

// The output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t word_at(uint64_t seed, size_t index) {
    return mix(seed + (index + 1) * 0x9e3779b97f4a7c15u);
}

void fill(unsigned char *data, size_t size, uint64_t seed, uint64_t flip) {
    for (size_t at = 0; at < size; at += kWord) {
        const uint64_t word = word_at(seed, at / kWord) ^ flip;
        std::memcpy(data + at, &word, std::min(kWord, size - at));
    }
}

std::optional<Mismatch> compare(const unsigned char *data, size_t size, uint64_t seed, size_t first,
                                uint64_t flip) {
    size_t at = 0;
    while (at < size) {
        const size_t in_word = (first + at) % kWord;
        const size_t count = std::min(kWord - in_word, size - at);
        const uint64_t word = word_at(seed, (first + at) / kWord) ^ flip;
        unsigned char expected[kWord];
        std::memcpy(expected, &word, kWord);
        if (std::memcmp(data + at, expected + in_word, count) != 0) {
            for (size_t i = 0;; ++i) {
                if (data[at + i] != expected[in_word + i]) {
                    return Mismatch{at + i, expected[in_word + i], data[at + i]};
                }
            }
        }
        at += count;
    }
    return std::nullopt;
}

}  // namespace

uint64_t message_seed(uint64_t counter, size_t size) {
    return mix(mix(counter + 1) + size);
}

void fill_pattern(unsigned char *data, size_t size, uint64_t seed) {
    fill(data, size, seed, 0);
}

void fill_poison(unsigned char *data, size_t size, uint64_t seed) {
    fill(data, size, seed, ~uint64_t{0});
}

std::optional<Mismatch> find_pattern_mismatch(const unsigned char *data, size_t size, uint64_t seed,
                                              size_t first) {
    return compare(data, size, seed, first, 0);
}

std::optional<Mismatch> find_poison_mismatch(const unsigned char *data, size_t size, uint64_t seed,
                                             size_t first) {
    return compare(data, size, seed, first, ~uint64_t{0});
}

}  // namespace gpushm::mpi_test
