// SPDX-License-Identifier: BSD-3-Clause
// What a test of an operation works with: buffers whose content every rank can compute, and a place
// for what went wrong.
#pragma once

#include "operations_buffer.hpp"
#include "operations_layout.hpp"
#include "operations_placement.hpp"

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

// printf into a string.
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The processes that run an operation together.
struct Group {
    MPI_Comm comm;
    int rank;
    int size;
};

// One operation in one placement. All ranks go through the same trials and exchanges, whatever
// fails, so that no rank waits for another in vain.
class Trial {
public:
    Trial(std::string name, uint64_t number, const Group &group, const Placement &placement,
          MemoryPool &pool, int world_rank, bool quick);

    const Group &group() const { return group_; }
    bool quick() const { return quick_; }
    int left() const { return (group_.rank + group_.size - 1) % group_.size; }
    int right() const { return (group_.rank + 1) % group_.size; }
    std::vector<int> roots() const;  // the first and the last rank

    // In which memory this rank has its buffers.
    MemoryKind kind(Role role) const { return placement_.kind(role, world_rank_); }

    // Notes the first failure of this rank.
    void fail(const std::string &what);
    const std::string &failure() const { return failure_; }  // "" if none

    // Something that is to be said of a trial which passed.
    void remark(const std::string &what) { remark_ = what; }
    const std::string &remark() const { return remark_; }

private:
    friend class Exchange;

    std::string name_;
    uint64_t number_;
    const Group &group_;
    const Placement &placement_;
    MemoryPool &pool_;
    int world_rank_;
    bool quick_;
    uint64_t exchanges_ = 0;
    std::string failure_;
    std::string remark_;
};

// One call of an operation, or several that belong together, with the buffers of this rank.
class Exchange {
public:
    // `what` tells this exchange from the others of the trial, e.g. "count 7, root 0".
    Exchange(Trial &trial, const std::string &what);

    // Items that the operation reads: the content of the rank's source `index`.
    Items source(const Layout &layout, int count, int index = 0);

    // Items that the operation writes; what is in them stays unless the caller expects something.
    Items destination(const Layout &layout, int count);

    // Items that it reads and writes: the content is that of source(), the memory that of
    // destination().
    Items in_out(const Layout &layout, int count, int index = 0);

    // Items for content that the caller fills in.
    Items blank(Role role, const Layout &layout, int count);

    // The same in host memory, whatever the placement.
    Items on_host(const Layout &layout, int count);

    // The packed content of source `index` of any rank of the group.
    Bytes sent(int rank, const Layout &layout, int count, int index = 0) const;

    // Writes the buffers, runs the operation and checks the buffers.
    void run(const std::function<void()> &operation);

    // Notes a failure unless `code` is MPI_SUCCESS. Returns whether it is.
    bool require(int code, const char *call);
    void fail(const std::string &what);

    void wait(MPI_Request &request);
    void wait_all(std::vector<MPI_Request> &requests);

    // Checks the status of a message that was received.
    void check_status(const MPI_Status &status, int source, int tag, MPI_Datatype type, int count);

private:
    uint64_t seed(int rank, int index) const;
    uint64_t blank_seed() const;
    Items add(MemoryKind kind, const char *label, const Layout &layout, int count, uint64_t seed);

    Trial &trial_;
    std::string what_;
    uint64_t number_;
    std::list<Buffer> buffers_;
};

std::string error_text(int code);

}  // namespace gpushm::mpi_test::operations
