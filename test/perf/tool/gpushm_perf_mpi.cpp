// SPDX-License-Identifier: BSD-3-Clause
// gpushm-perf-mpi: how fast messages and collective operations of MPI are.
#include "collectives.hpp"
#include "mpi_ranks.hpp"
#include "perf_program.hpp"

#include "../mpi_version.hpp"
#include "config.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace gpushm::perf {
namespace {

constexpr const char *kProgram = "gpushm-perf-mpi";

/** That which MPI has opened; empty if none. */
std::string ucx_version() {
    void *library = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
    using VersionString = const char *(*)();
    const auto function =
        library != nullptr
            ? reinterpret_cast<VersionString>(dlsym(library, "ucp_get_version_string"))
            : nullptr;
    return function != nullptr ? function() : "";
}

/** Of the ranks of its node, which one this process is. */
int place_on_node() {
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    int place;
    MPI_Comm_rank(node, &place);
    MPI_Comm_free(&node);
    return place;
}

void require_ranks(const Plan &plan, int count) {
    for (const Cell &cell : plan.cells) {
        if (!cell.is_collective() && count < 2) {
            throw std::runtime_error(name_of(cell.test) +
                                     " needs two ranks, as by mpirun -n 2 gpushm-perf-mpi");
        }
        if (cell.test == Test::mbw_mr && count % 2 != 0) {
            throw std::runtime_error("mbw_mr needs an even number of ranks");
        }
    }
}

int measure(int argc, char **argv, MpiRanks &all, MpiRanks *pair) {
    std::optional<Plan> plan;
    std::optional<Gpus> gpus;
    std::string note;
    std::string error = error_of([&] {
        plan.emplace(Options(argc, argv, Plan::defaults()), true);
        require_ranks(*plan, all.count());
    });
    int status = kWrongOptions;
    if (error.empty()) {
        status = kFailed;
        error = error_of([&] { gpus.emplace(&*plan, place_on_node(), &note); });
    }
    std::unique_ptr<Results> results;
    if (error.empty() && all.rank() == 0) {
        error = error_of([&] {
            RunFacts facts = facts_of(kProgram, "MPI", *gpus);
            facts.ucx = ucx_version();
            facts.mpi = mpi_version();
            facts.ranks = all.count();
            results = std::make_unique<Results>(facts, plan->json_file, plan->row_count());
        });
    }
    error = all.first_text(error);
    if (all.rank() == 0 && !(error.empty() && note.empty())) {
        say(kProgram, error.empty() ? note : error);
    }
    if (!error.empty()) {
        return status;
    }
    const PerfRun run = {*plan,
                         all,
                         pair,
                         gpus->driver.get(),
                         gpus->device,
                         gpus->first_device,
                         results.get(),
                         [&](const Cell &cell) {
                             return measure_collective(cell, all, gpus->driver.get()); }};
    return measure_all(run);
}

int run(int argc, char **argv) {
    MpiRanks all(MPI_COMM_WORLD);
    MPI_Comm pair_communicator;
    MPI_Comm_split(MPI_COMM_WORLD, all.rank() < 2 ? 0 : MPI_UNDEFINED, all.rank(),
                   &pair_communicator);
    std::optional<MpiRanks> pair;
    if (pair_communicator != MPI_COMM_NULL) {
        pair.emplace(pair_communicator);
    }
    int status = kFailed;
    try {
        status = measure(argc, argv, all, pair ? &*pair : nullptr);
    } catch (const ToldEverywhere &) {
        // Those who take part in a pair's test know it, others wait for the pair.
        if (all.count() > 2) {
            MPI_Abort(MPI_COMM_WORLD, kFailed);
        }
    } catch (const std::exception &error) {
        say(kProgram, "rank " + std::to_string(all.rank()) + ": " + error.what());
        MPI_Abort(MPI_COMM_WORLD, kFailed);
    }
    if (pair) {
        MPI_Comm_free(&pair_communicator);
    }
    return status;
}

/** Whether MPI was not asked to start this process, or as the first one. */
bool is_first() {
    const char *rank = std::getenv("OMPI_COMM_WORLD_RANK");
    return rank == nullptr || std::strcmp(rank, "0") == 0;
}

/** What the user asks for instead of a measurement; empty if nothing. Wrong options are looked at
 * later: a rank that ends before MPI starts may end the one that says why. */
std::string information(int argc, char **argv) {
    if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
        return "gpushm-perf-mpi (gpushm) " PACKAGE_VERSION "\n";
    }
    std::string text;
    error_of([&] {
        const Options options(argc, argv, Plan::defaults());
        text = options.help() ? options.usage(kProgram, "man gpushm-perf-mpi") : "";
    });
    return text;
}

}  // namespace
}  // namespace gpushm::perf

int main(int argc, char **argv) {
    const std::string information = gpushm::perf::information(argc, argv);
    if (!information.empty()) {
        std::fputs(gpushm::perf::is_first() ? information.c_str() : "", stdout);
        return 0;
    }
    MPI_Init(&argc, &argv);
    const int status = gpushm::perf::run(argc, argv);
    MPI_Finalize();
    return status;
}
