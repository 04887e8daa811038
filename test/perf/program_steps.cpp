// SPDX-License-Identifier: BSD-3-Clause
// Measures the steps and passes of a program that computes on a GPU and exchanges halos by MPI, two
// ranks. See README in this folder.
#include "mpi_version.hpp"
#include "options.hpp"
#include "step_program.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>

namespace gpushm::perf {
namespace {

void measure(const Options &options, int rank) {
    const std::vector<StepCell> cells = step_cells_named(options.list("cells"));
    const Mode mode = parse_mode(options.text("mode"));
    const std::vector<int> devices = options.integers("devices");
    const std::vector<int> cpus = options.integers("cpus");
    if (devices.size() != 2 || cpus.size() == 1) {
        throw std::runtime_error("--devices=A,B and --cpus=A,B: one for each rank");
    }
    bind_to_cpu(cpus.empty() ? -1 : cpus[static_cast<size_t>(rank)]);
    std::string reason;
    const std::unique_ptr<Driver> driver = Driver::open(&reason);
    if (!driver) {
        throw std::runtime_error(reason);
    }
    driver->use_device(devices[static_cast<size_t>(rank)]);
    StepProgram program(*driver, mode, rank);
    if (rank == 0) {
        print_facts(driver->description(), driver->simulated(), driver->device_count(),
                    ", \"mpi\": " + json_string(mpi_version()));
        if (!program.note().empty()) {
            print_note(program.note());
        }
    }
    for (const StepCell &cell : cells) {
        program.measure(cell, {options.number("seconds")},
                        static_cast<unsigned>(std::max(1.0, options.number("passes"))));
    }
}

void tell(const Options &options) {
    if (options.help()) {
        std::fputs(options.usage("program_steps").c_str(), stdout);
        return;
    }
    for (const StepCell &cell : step_cells()) {
        std::puts(cell.name.c_str());
    }
}

void run(int argc, char **argv, int rank, int size) {
    const Options options(argc, argv,
                          {{"cells", ""},
                           {"mode", "device"},
                           {"devices", "0,1"},
                           {"cpus", ""},
                           {"seconds", "0.1"},
                           {"passes", "8"},
                           {"list", "n"}});
    if (options.help() || options.text("list") == "y") {
        if (rank == 0) {
            tell(options);
        }
        return;
    }
    if (size != 2) {
        throw std::runtime_error("two ranks are needed, as by mpirun -n 2");
    }
    measure(options, rank);
}

}  // namespace
}  // namespace gpushm::perf

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    try {
        gpushm::perf::run(argc, argv, rank, size);
    } catch (const std::exception &error) {
        gpushm::perf::print_error("rank " + std::to_string(rank) + ": " + error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
