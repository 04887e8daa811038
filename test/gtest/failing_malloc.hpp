// SPDX-License-Identifier: BSD-3-Clause
// Allocations of one loaded library that fail: the program's malloc stands before that of the C
// library.
#pragma once

namespace gpushm::test {

/** Whether the program's malloc can do so: a sanitizer brings its own. */
bool malloc_can_fail();

/** While it lives, one allocation that this thread makes in code of a library fails: the n-th, from
 * 0. */
class FailingMalloc {
public:
    /** `library`: part of its path. */
    FailingMalloc(const char *library, unsigned n);
    ~FailingMalloc();
    FailingMalloc(const FailingMalloc &) = delete;
    FailingMalloc &operator=(const FailingMalloc &) = delete;
    /** False when there were not so many. */
    bool has_failed() const;
};

}  // namespace gpushm::test
