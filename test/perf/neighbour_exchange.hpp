// SPDX-License-Identifier: BSD-3-Clause
// The communication of a step: messages to and from neighbours and a reduction, by device pointers
// or through page-locked host memory.
#pragma once

#include "driver.hpp"
#include "memory.hpp"
#include "step_cell.hpp"

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace gpushm::perf {

/** How GPU memory is communicated. `device`: MPI gets device pointers; `staged`: the program copies
 * to page-locked memory and back by cuMemcpyDtoH and cuMemcpyHtoD, and MPI gets that; `none`: not.
 */
enum class Mode { device, staged, none };

/** Throws std::runtime_error on what is none. */
Mode parse_mode(const std::string &text);

/** Both ranks make the same calls. Throws std::runtime_error when the driver fails; MPI ends the
 * job when it fails. */
class NeighbourExchange {
public:
    NeighbourExchange(const Driver &driver, Mode mode, const StepCell &cell, int peer);
    ~NeighbourExchange();
    NeighbourExchange(const NeighbourExchange &) = delete;
    NeighbourExchange &operator=(const NeighbourExchange &) = delete;

    /** Messages come from `send` and go to `receive` from now on, one behind the other, in device
     * memory. */
    void use(char *send, char *receive);

    /** Before and after MPI's part; nothing unless the mode is staged. */
    void copy_to_host();
    void copy_to_device();

    void exchange();

    /** Of one double in device memory, in place. */
    void reduce(char *value);

private:
    char *address(char *device, const std::unique_ptr<Memory> &host, unsigned neighbour) const;
    char *source(unsigned neighbour) const { return address(send_, host_send_, neighbour); }
    char *target(unsigned neighbour) const { return address(receive_, host_receive_, neighbour); }
    void make_persistent();
    void free_persistent();

    const Driver &driver_;
    const Mode mode_;
    const StepCell cell_;
    const int peer_;
    std::unique_ptr<Memory> host_send_;  // staged
    std::unique_ptr<Memory> host_receive_;
    char *send_ = nullptr;
    char *receive_ = nullptr;
    std::vector<MPI_Request> requests_;  // persistent ones, or room for others
};

}  // namespace gpushm::perf
