// SPDX-License-Identifier: BSD-3-Clause
// Copy engines for callers that come from any thread.
#pragma once

#include "core/copy/copy_engine.hpp"

#include <memory>

namespace gpushm {

/** An idle engine of a common pool, in which there are as many as threads have used at once. Thread
 * safe, but for the engine itself. */
class BorrowedEngine {
public:
    BorrowedEngine();
    BorrowedEngine(const BorrowedEngine &) = delete;
    BorrowedEngine &operator=(const BorrowedEngine &) = delete;
    ~BorrowedEngine();

    CopyEngine &operator*() const { return *engine_; }
    CopyEngine *operator->() const { return engine_.get(); }

    /** It failed and is not to be used again; not by the borrower either. */
    void discard() { engine_.reset(); }

private:
    std::unique_ptr<CopyEngine> engine_;
};

}  // namespace gpushm
