// SPDX-License-Identifier: BSD-3-Clause
// Runs every communication operation of MPI on buffers in all kinds of memory and checks every
// byte. Runs with any number of ranks, with any MPI library, and with the real CUDA driver, a
// simulated one or none.
#include "operations_options.hpp"
#include "operations_placement.hpp"
#include "operations_registry.hpp"
#include "operations_trial.hpp"
#include "watchdog.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

namespace gpushm::mpi_test::operations {
namespace {

struct Session {
    Options options;
    int rank;
    int size;
    MPI_Comm control;  // on which the ranks agree; its messages lie in host memory
    MemoryPool &pool;
    int passed = 0;
    int failed = 0;
};

std::vector<Placement> chosen_placements(const Options &options, const CudaDriver *driver) {
    if (!options.kinds.empty()) {
        return make_placements(options.kinds);
    }
    if (driver == nullptr) {
        return make_placements({"host"});
    }
    if (options.quick) {
        return make_placements({"device", "mixed"});
    }
    return make_placements({"host", "device", "managed", "pinned", "mixed"});
}

bool chosen(const Options &options, const std::string &name) {
    const auto within = [&](const std::string &part) {
        return name.find(part) != std::string::npos;
    };
    return options.only.empty() || std::any_of(options.only.begin(), options.only.end(), within);
}

// What the first rank with something to say says, on rank 0; "" if none.
std::string first_text(const Session &session, const std::string &own) {
    const int candidate = own.empty() ? session.size : session.rank;
    int speaker = 0;
    MPI_Allreduce(&candidate, &speaker, 1, MPI_INT, MPI_MIN, session.control);
    if (speaker == session.size) {
        return "";
    }
    std::array<char, 512> line{};
    if (session.rank == speaker) {
        std::snprintf(line.data(), line.size(), "rank %d: %s", speaker, own.c_str());
    }
    MPI_Bcast(line.data(), static_cast<int>(line.size()), MPI_CHAR, speaker, session.control);
    return line.data();
}

void say(const Session &session, const std::string &line) {
    if (session.rank == 0) {
        std::printf("%s\n", line.c_str());
        std::fflush(stdout);
    }
}

// Returns whether the test passed on all ranks.
bool run_case(Session &session, const Case &test, const std::string &name, uint64_t number,
              const Placement &placement) {
    Trial trial(name, number, *test.group, placement, session.pool, session.rank,
                session.options.quick);
    test.run(trial);

    note("%s: waits for the other ranks", name.c_str());
    const std::string failure = first_text(session, trial.failure());
    const std::string remark = first_text(session, trial.remark());
    if (!failure.empty()) {
        ++session.failed;
        say(session, "FAIL  " + name + ": " + failure);
        return false;
    }
    ++session.passed;
    if (session.options.verbose || !remark.empty()) {
        say(session, "PASS  " + name + (remark.empty() ? "" : ": " + remark));
    }
    return true;
}

// Says now and then that it goes on: the whole takes minutes.
class Progress {
public:
    explicit Progress(size_t tests) : tests_(tests) {}

    void before(const Session &session, const std::string &name) {
        constexpr std::chrono::seconds kInterval{10};
        const auto now = std::chrono::steady_clock::now();
        if (now - said_ >= kInterval) {
            said_ = now;
            say(session, text("... %zu of %zu, now %s", done_, tests_, name.c_str()));
        }
        ++done_;
    }

private:
    size_t tests_;
    size_t done_ = 0;
    std::chrono::steady_clock::time_point said_ = std::chrono::steady_clock::now();
};

size_t count_chosen(const Options &options, const Registry &registry,
                    const std::vector<Placement> &placements) {
    size_t count = 0;
    for (const Placement &placement : placements) {
        for (const Case &test : registry.cases()) {
            count += chosen(options, test.name + ", " + placement.name);
        }
    }
    return count;
}

void run_all(Session &session, const Registry &registry, const std::vector<Placement> &placements) {
    uint64_t number = 0;
    Progress progress(count_chosen(session.options, registry, placements));
    for (const Placement &placement : placements) {
        for (const Case &test : registry.cases()) {
            const std::string name = test.name + ", " + placement.name;
            ++number;
            if (!chosen(session.options, name)) {
                continue;
            }
            if (session.options.list) {
                say(session, name);
                continue;
            }
            progress.before(session, name);
            if (!run_case(session, test, name, number, placement) && !session.options.keep_going) {
                say(session, "stopped here; --keep-going goes on");
                return;
            }
        }
    }
}

std::string library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    MPI_Get_library_version(version.data(), &length);
    std::string name = version.data();
    // Open MPI: "Open MPI v4.1.4, package: ..."
    name = name.substr(0, name.find_first_of(",\n"));
    const size_t mark = name.find(" v");
    return mark == std::string::npos ? name : name.erase(mark + 1, 1);
}

void use_device(CudaDriver &driver, int rank) {
    driver.use_device(rank % driver.device_count());
}

int run(const Options &options) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    start_watchdog(rank, options.timeout_s);

    std::string reason;
    const std::unique_ptr<CudaDriver> driver = CudaDriver::open(&reason);
    if (driver) {
        use_device(*driver, rank);
    }
    const std::vector<Placement> placements = chosen_placements(options, driver.get());
    MemoryPool pool(driver.get());
    Session session{options, rank, 0, MPI_COMM_NULL, pool};
    MPI_Comm_dup(MPI_COMM_WORLD, &session.control);
    MPI_Comm_size(session.control, &session.size);
    if (!options.list) {
        say(session,
            driver ? driver->description() : "no CUDA driver, host memory only: " + reason);
    }
    {
        const Registry registry;
        for (const std::string &why : registry.left_out()) {
            say(session, "left out: " + why);
        }
        run_all(session, registry, placements);
    }
    if (!options.list) {
        say(session, text("operations: %d passed, %d failed (%d ranks, %s)", session.passed,
                          session.failed, session.size, library_version().c_str()));
    }
    MPI_Comm_free(&session.control);
    stop_watchdog();
    return session.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gpushm::mpi_test::operations

int main(int argc, char **argv) {
    using namespace gpushm::mpi_test::operations;
    Options options;
    try {
        options = parse_options(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "operations: %s\n", error.what());
        return 2;
    }
    if (options.help) {
        std::fputs(kUsage, stdout);
        return 0;
    }
    MPI_Init(&argc, &argv);
    int status = 2;
    try {
        status = run(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "operations: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Finalize();
    return status;
}
