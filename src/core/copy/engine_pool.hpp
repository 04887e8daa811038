// SPDX-License-Identifier: BSD-3-Clause
// Copy engines for callers that come from any thread.
#pragma once

#include "core/copy/copy_engine.hpp"

#include <memory>

namespace gpushm {

/** An idle engine of the pool of the process, until the destructor gives it back. The pool has as
 * many engines as threads have used at once. The pool is thread safe, an engine is not. */
class BorrowedEngine {
public:
    BorrowedEngine();
    BorrowedEngine(const BorrowedEngine &) = delete;
    BorrowedEngine &operator=(const BorrowedEngine &) = delete;
    ~BorrowedEngine();

    CopyEngine &operator*() const { return *engine_; }
    CopyEngine *operator->() const { return engine_.get(); }

    /** The engine has failed, and nobody uses it again, not even the borrower. */
    void discard() { engine_.reset(); }

private:
    std::unique_ptr<CopyEngine> engine_;
};

}  // namespace gpushm
