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

/** What a rank has before it measures. */
struct Setup {
    std::optional<Plan> plan;
    std::optional<Gpus> gpus;
    std::unique_ptr<Results> results;  // of rank 0
    std::string note;
    int status = kWrongOptions;  // if it fails
};

/** All ranks call it. Throws std::runtime_error. */
void make(Setup *setup, int argc, char **argv, const MpiRanks &all) {
    setup->plan.emplace(Options(argc, argv, Plan::defaults()), true);
    require_ranks(*setup->plan, all.count());
    setup->status = kFailed;
    setup->gpus.emplace(&*setup->plan, place_on_node(), &setup->note);
    if (all.rank() == 0) {
        RunFacts facts = facts_of(kProgram, "MPI", *setup->gpus);
        facts.ucx = ucx_version();
        facts.mpi = mpi_version();
        facts.ranks = all.count();
        setup->results =
            std::make_unique<Results>(facts, setup->plan->json_file, setup->plan->row_count());
    }
}

int measure(int argc, char **argv, MpiRanks &all, MpiRanks *pair) {
    Setup setup;
    const std::string error = all.first_text(error_of([&] { make(&setup, argc, argv, all); }));
    const std::string &told = error.empty() ? setup.note : error;
    if (all.rank() == 0 && !told.empty()) {
        say(kProgram, told);
    }
    if (!error.empty()) {
        return setup.status;
    }
    const Driver *const driver = setup.gpus->driver.get();
    return measure_all({*setup.plan, all, pair, driver, setup.gpus->device,
                        setup.gpus->first_device, setup.results.get(),
                        [&](const Cell &cell) { return measure_collective(cell, all, driver); }});
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
