// SPDX-License-Identifier: BSD-3-Clause
#include "perf_run.hpp"

#include "busy_gpu.hpp"
#include "page_faults.hpp"
#include "point_to_point.hpp"

#include <optional>

namespace gpushm::perf {
namespace {

constexpr size_t kCountedRepetitions = 10;

/** The measurement of one cell. */
class CellRun {
public:
    CellRun(const PerfRun &run, const Cell &cell, Ranks &ranks);

    /** False if there was no memory for the size; nobody needs to try larger ones. Throws
     * ToldEverywhere on wrong data. */
    bool measure(size_t size);

    /** Whether nothing of the cell can be measured. */
    bool failed() const { return failed_; }

private:
    int device() const {
        return cell_.situation == Situation::one_gpu ? run_.first_device : run_.device;
    }
    void make_measurement();
    std::vector<double> samples();
    void count_faults(Row *row);
    /** Whether `error` is empty on all ranks; the first that is not becomes one of the cell. */
    bool done(const std::string &error, const std::string &where = {});
    void require_done(const std::string &error, const std::string &where);

    const PerfRun &run_;
    const Cell cell_;
    Ranks &ranks_;
    bool failed_ = false;
    std::unique_ptr<Measurement> measurement_;
    std::optional<PageFaultCounter> faults_;
};

bool CellRun::done(const std::string &error, const std::string &where) {
    const std::string first = ranks_.first_text(error);
    if (!first.empty() && run_.results != nullptr) {
        run_.results->fail(cell_, where + first);
    }
    return first.empty();
}

CellRun::CellRun(const PerfRun &run, const Cell &cell, Ranks &ranks)
    : run_(run), cell_(cell), ranks_(ranks) {
    failed_ = !done(error_of([this] { make_measurement(); }));
    const std::string refusal = ranks_.first_text(faults_ ? faults_->refusal() : "");
    if (!failed_ && run_.results != nullptr) {
        run_.results->begin(cell_, refusal);
    }
}

void CellRun::make_measurement() {
    if (run_.driver != nullptr) {
        run_.driver->use_device(device());
    }
    if (cell_.is_collective()) {
        measurement_ = run_.measure_collective(cell_);
    } else if (cell_.test == Test::latency) {
        measurement_ = measure_latency(cell_, ranks_, run_.driver, run_.plan.piece_bytes);
    } else {
        measurement_ = measure_windows(cell_, ranks_, run_.driver, run_.plan.piece_bytes);
    }
    if (cell_.is_placed()) {
        faults_.emplace(*run_.driver);
    }
}

void CellRun::require_done(const std::string &error, const std::string &where) {
    if (!done(error, where)) {
        ranks_.barrier();  // the end of one rank ends the one that tells
        throw ToldEverywhere(error);
    }
}

std::vector<double> CellRun::samples() {
    std::optional<BusyGpu> busy;
    if (cell_.situation == Situation::busy) {
        busy.emplace(*run_.driver, device());
    }
    return take_samples(ranks_, *measurement_, run_.plan.effort);
}

bool CellRun::measure(size_t size) {
    if (run_.results != nullptr) {
        run_.results->announce(cell_, size);
    }
    const std::string where = std::to_string(size) + " bytes: ";
    if (!done(error_of([&] { measurement_->prepare(size); }), where)) {
        return false;
    }
    require_done(validate(ranks_, *measurement_), where);
    measurement_->renew_contents();
    std::vector<double> times = samples();
    require_done(error_of([&] { measurement_->check(); }), where);
    const int pairs = cell_.is_collective() ? 1 : ranks_.count() / 2;
    Row row = row_of(cell_, size, pairs, std::move(times));
    if (faults_) {
        count_faults(&row);
    }
    if (run_.results != nullptr) {
        run_.results->add(cell_, row);
    }
    return true;
}

/** In repetitions of their own: counting takes time. */
void CellRun::count_faults(Row *row) {
    faults_->start();
    for (size_t i = 0; i < kCountedRepetitions; ++i) {
        measurement_->once();
    }
    const PageFaults own = faults_->stop();
    std::vector<double> sums = {own.cpu, own.managed_cpu, own.gpu,
                                faults_->refusal().empty() ? 0.0 : 1.0};
    ranks_.add_up(&sums);
    row->has_faults = true;
    row->faults = {sums[0] / kCountedRepetitions, sums[1] / kCountedRepetitions,
                   sums[2] / kCountedRepetitions};
    row->cupti_counts = sums[3] == 0;
}

bool measure_cell(const PerfRun &run, const Cell &cell, Ranks &ranks) {
    CellRun cell_run(run, cell, ranks);
    if (cell_run.failed()) {
        return false;
    }
    for (const size_t size : run.plan.sizes_of(cell)) {
        if (!cell_run.measure(size)) {
            return false;
        }
    }
    return true;
}

}  // namespace

int measure_all(const PerfRun &run) {
    bool all_measured = true;
    for (const Cell &cell : run.plan.cells) {
        const bool of_all = cell.is_collective() || cell.test == Test::mbw_mr;
        Ranks *const ranks = of_all ? &run.all : run.pair;
        if (ranks != nullptr && !measure_cell(run, cell, *ranks)) {
            all_measured = false;
        }
        // Those who do not take part wait for the others.
        run.all.barrier();
    }
    if (run.results != nullptr) {
        run.results->finish();
    }
    return static_cast<int>(run.all.told_by(0, all_measured ? 0 : 1));
}

}  // namespace gpushm::perf
