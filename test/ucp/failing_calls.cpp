// SPDX-License-Identifier: BSD-3-Clause
// Messages during which one call of the CUDA driver fails. The driver must have the controls of
// simcuda.h, as the simulated one has and the stand-in for the real one (failing_driver.cpp).
//
// Started by driver_failures: `--count` reports the calls that a message of each way makes,
// `--cases=FILE --first=N` makes them fail one after the other. Process 0 sends, 1 receives.
#include "../mpi/pattern.hpp"
#include "check.hpp"
#include "failing_calls.hpp"
#include "messenger.hpp"
#include "remote_memory.hpp"
#include "socket_names.hpp"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

namespace gpushm::ucp_test {

namespace {

constexpr double kGraceSeconds = 0.1;   // to hear of an error of the other side
constexpr double kPatienceSeconds = 8;  // for anything to end

// ---------------------------------------------------------------- the driver's controls

class Controls {
public:
    Controls()
        : set_(
              reinterpret_cast<int (*)(const char *, const char *)>(driver_control("simcuda_set"))),
          count_(reinterpret_cast<unsigned long (*)(const char *)>(
              driver_control("simcuda_call_count"))) {
        if (set_ == nullptr || count_ == nullptr) {
            skip("this driver cannot be told to fail");
        }
    }
    void fail_call(const std::string &function, unsigned long n, int error) const {
        set_("SIMCUDA_FAIL",
             (function + ":" + std::to_string(n) + ":" + std::to_string(error)).c_str());
    }
    void fail_nothing() const { set_("SIMCUDA_FAIL", ""); }
    unsigned long count(const std::string &function) const { return count_(function.c_str()); }

private:
    int (*set_)(const char *variable, const char *value);
    unsigned long (*count_)(const char *function);
};

/** What a process holds of the system and the driver. Calls that were made to fail neither made nor
 * released anything. */
class Holdings {
public:
    Holdings(const Controls &controls, const std::map<std::string, unsigned long> &failed)
        : controls_(controls), failed_(failed) {
        if (DIR *folder = opendir("/proc/self/fd")) {
            while (const dirent *entry = readdir(folder)) {
                const std::string what = what_is(dirfd(folder), entry->d_name);
                if (what != kSimulatorsOwn) {
                    ++descriptors_[what];
                }
            }
            closedir(folder);
        }
        for (const auto &[makes, releases] : kPairs) {
            objects_[makes] = done(makes) - done(releases);
            unreleased_[makes] = failed_count(releases);
        }
    }

    /** "" if nothing was kept since `before`, except what the driver refused to release and
     * `pools` pools of page-locked memory. */
    std::string kept_since(const Holdings &before, long pools) const {
        std::ostringstream text;
        for (const auto &[what, count] : descriptors_) {
            const auto found = before.descriptors_.find(what);
            const long had = found != before.descriptors_.end() ? found->second : 0;
            if (count > had && !may_stay(what)) {
                text << " " << count - had << " descriptors of " << what;
            }
        }
        for (const auto &[makes, count] : objects_) {
            const long refused = unreleased_.at(makes) - before.unreleased_.at(makes);
            const long kept = count - before.objects_.at(makes) - refused;
            if (kept > (makes == kLocks ? pools : 0)) {
                text << " " << kept << " of " << makes;
            }
        }
        return text.str();
    }

private:
    /** The staging ring, which a link makes once, perhaps when the first copy fails; what tells
     * other processes of a GPU; and what the driver has for itself, the simulated one as long as a
     * copy of freed memory may run: its objects are counted by calls. */
    static bool may_stay(const std::string &what) {
        for (const char *part : {"gpushm-ring", "simcuda", "userfaultfd", "/dev/nvidia"}) {
            if (what.find(part) != std::string::npos) {
                return true;
            }
        }
        return tells_of_gpu(what);
    }

    /** What a descriptor is open for, "socket:[4711]" as "socket:[]" and its name. */
    static std::string what_is(int folder, const char *name) {
        char target[256] = "";
        if (readlinkat(folder, name, target, sizeof(target) - 1) <= 0) {
            return "nothing";
        }
        std::string what = target + name_of_socket(atoi(name));
        what.erase(std::remove_if(what.begin(), what.end(), isdigit), what.end());
        return what;
    }

    /** The simulated driver opens it when it first page-locks memory, and keeps it. */
    static constexpr char kSimulatorsOwn[] = "anon_inode:[io_uring]";

    static constexpr char kLocks[] = "cuMemHostRegister";
    static constexpr std::pair<const char *, const char *> kPairs[] = {
        {"cuMemAlloc", "cuMemFree"},
        {kLocks, "cuMemHostUnregister"},
        {"cuIpcOpenMemHandle", "cuIpcCloseMemHandle"},
        {"cuMemMap", "cuMemUnmap"},
        {"cuMemImportFromShareableHandle", "cuMemRelease"},
        {"cuMemAddressReserve", "cuMemAddressFree"},
        {"cuStreamCreate", "cuStreamDestroy"},
        {"cuEventCreate", "cuEventDestroy"},
    };

    long failed_count(const std::string &function) const {
        const auto found = failed_.find(function);
        return found != failed_.end() ? static_cast<long>(found->second) : 0;
    }
    long done(const std::string &function) const {
        return static_cast<long>(controls_.count(function)) - failed_count(function);
    }

    const Controls &controls_;
    const std::map<std::string, unsigned long> &failed_;
    std::map<std::string, long> descriptors_;
    std::map<std::string, long> objects_;
    std::map<std::string, long> unreleased_;
};

// ---------------------------------------------------------------- one message

/** How one process fared; what it tells the other. */
struct Outcome {
    ucs_status_t status = UCS_OK;
    bool untold = false;  // ended only because the test cancelled it
};

std::string encode(const Outcome &outcome) {
    return std::to_string(outcome.status) + (outcome.untold ? " untold" : "");
}

Outcome decode(const std::string &text) {
    return {static_cast<ucs_status_t>(std::stoi(text)), text.find("untold") != std::string::npos};
}

[[noreturn]] void hang() {
    fail("hangs");
}

/** A session and buffers for messages of one way. */
class Setup {
public:
    Setup(Peer &peer, const Way &way, ucp_err_handling_mode_t mode)
        : peer_(peer),
          way_(way),
          sending_(peer.role == 0),
          session_(peer.channel, kAllFeatures, mode) {
        use_device(way.one_device ? 0 : peer.role % device_count());
        renew_buffer();
        for (unsigned i = 0; i < way.warm; ++i) {
            start_message();
            const auto [own, other] = finish_message();
            if (own.status != UCS_OK || other.status != UCS_OK || !data_is_right()) {
                fail("a message fails when no call does");
            }
        }
        peer_.channel.barrier(session_.worker().progress_function());  // both are connected
    }

    /** Prepares buffers and returns when both processes have. */
    void start_message() {
        if (way_.new_buffers) {
            remote_.reset();
            exposed_.reset();
            renew_buffer();
        }
        ++n_;
        place_ = {way_.size, 0, way_.size, mpi_test::message_seed(n_, way_.size)};
        sending_ ? buffer_->prepare_source(place_) : buffer_->prepare_destination(place_);
        peer_.channel.barrier([this] { progress(); });
        for (unsigned i = 0; i < 200; ++i) {
            session_.worker().progress();  // what the last message left behind
        }
        peer_.channel.barrier([this] { progress(); });
    }

    /** How it went here and in the other process. */
    std::pair<Outcome, Outcome> finish_message();

    /** To be asked in the receiver, when the operation was said to have succeeded. */
    bool data_is_right() const { return sending_ || buffer_->find_fault(place_).empty(); }

private:
    void renew_buffer() {
        buffer_ = std::make_unique<GuardedAllocation>(sending_ ? way_.from : way_.to, way_.size);
        if (way_.operation == Operation::tag) {
            return;
        }
        const Progress progress = session_.worker().progress_function();
        void *const memory = buffer_->address({way_.size, 0, way_.size, 0});
        exposed_ = std::make_unique<ExposedMemory>(session_, memory, way_.size);
        offer(peer_, memory, exposed_->key());
        remote_ = accept(peer_, session_, progress);
    }
    bool initiates() const {
        return way_.operation == Operation::tag || sending_ == (way_.operation == Operation::put);
    }
    void progress() const {
        if (session_.worker().progress() == 0) {
            sched_yield();  // there may be more processes than cores
        }
    }
    ucs_status_ptr_t post();
    /** Whether the own operation has ended; starts the flush of a put or get. */
    bool advance(Outcome &own);
    void end_by_force(Outcome &own);

    Peer &peer_;
    const Way &way_;
    const bool sending_;
    Session session_;
    std::unique_ptr<GuardedAllocation> buffer_;
    std::unique_ptr<ExposedMemory> exposed_;
    std::unique_ptr<RemoteMemory> remote_;
    Placement place_ = {};
    uint64_t n_ = 0;
    ucs_status_ptr_t request_ = nullptr;
    bool flushing_ = false;
};

ucs_status_ptr_t Setup::post() {
    const ucp_request_param_t parameters = plain_request();
    void *const memory = buffer_->address(place_);
    switch (way_.operation) {
        case Operation::put:
            return ucp_put_nbx(session_.ep(), memory, way_.size, remote_->address, remote_->key,
                               &parameters);
        case Operation::get:
            return ucp_get_nbx(session_.ep(), memory, way_.size, remote_->address, remote_->key,
                               &parameters);
        default:
            return sending_ ? ucp_tag_send_nbx(session_.ep(), memory, way_.size, n_, &parameters)
                            : ucp_tag_recv_nbx(session_.worker().get(), memory, way_.size, n_,
                                               ~ucp_tag_t{0}, &parameters);
    }
}

bool Setup::advance(Outcome &own) {
    progress();
    if (UCS_PTR_IS_PTR(request_)) {
        own.status = ucp_request_check_status(request_);
        if (own.status == UCS_INPROGRESS) {
            return false;
        }
        ucp_request_free(request_);
    } else {
        own.status = UCS_PTR_STATUS(request_);
    }
    request_ = nullptr;
    if (way_.operation == Operation::tag || own.status != UCS_OK || flushing_) {
        return true;
    }
    flushing_ = true;
    const ucp_request_param_t parameters = plain_request();
    request_ = ucp_ep_flush_nbx(session_.ep(), &parameters);
    return advance(own);
}

/** The other process's operation failed, and ours does not hear of it. */
void Setup::end_by_force(Outcome &own) {
    own.untold = true;
    if (!sending_ && way_.operation == Operation::tag) {
        ucp_request_cancel(session_.worker().get(), request_);
    } else {
        session_.endpoint()->close(UCP_EP_CLOSE_FLAG_FORCE);
        session_.disconnect();
    }
    const double deadline = now_seconds() + kPatienceSeconds;
    while (!advance(own)) {
        if (now_seconds() > deadline) {
            hang();
        }
    }
}

std::pair<Outcome, Outcome> Setup::finish_message() {
    Outcome own;
    flushing_ = false;
    request_ = initiates() ? post() : nullptr;
    bool ended = !initiates();
    if (ended) {
        peer_.channel.send(encode(own));
    }
    const double deadline = now_seconds() + kPatienceSeconds;
    const Outcome other = decode(peer_.channel.receive([&] {
        if (ended) {
            progress();
        } else if ((ended = advance(own))) {
            peer_.channel.send(encode(own));
        }
        if (now_seconds() > deadline) {
            hang();
        }
    }));
    const double told = now_seconds();
    while (!ended) {
        ended = advance(own);
        const double waited = now_seconds() - told;
        if (!ended && other.status != UCS_OK && waited > kGraceSeconds) {
            end_by_force(own);
            ended = true;
        } else if (waited > kPatienceSeconds) {
            hang();
        }
        if (ended) {
            peer_.channel.send(encode(own));
        }
    }
    return {own, other};
}

// ---------------------------------------------------------------- all messages

class FailingCalls {
public:
    explicit FailingCalls(Peer &peer)
        : peer_(peer),
          report_(fdopen(static_cast<int>(peer.options.number("report", STDOUT_FILENO)), "w")),
          mode_(peer.options.text("mode", "peer") == "peer" ? UCP_ERR_HANDLING_MODE_PEER
                                                            : UCP_ERR_HANDLING_MODE_NONE) {}

    void count(const std::vector<std::string> &functions);
    void run(const std::vector<FailingCall> &cases, size_t first);

private:
    const char *verdict(const FailingCall &failing, bool &usable);
    void report_leaks(const Holdings &before);
    bool is_usable(const Way &way) const;

    Peer &peer_;
    std::FILE *report_;
    const ucp_err_handling_mode_t mode_;
    const Controls controls_;
    std::map<std::string, unsigned long> failed_;  // calls that were made to fail
    std::unique_ptr<Setup> setup_;
    /** A process page-locks core/pinning/pinned_buffer_pool.hpp once, for the first copy that it
     * takes back. When one is taken back depends on time. */
    bool may_make_pool_ = true;
};

bool FailingCalls::is_usable(const Way &way) const {
    const std::vector<Allocator> all = all_allocators();
    const auto has = [&](Allocator one) {
        return std::find(all.begin(), all.end(), one) != all.end();
    };
    const bool one_sided = way.operation != Operation::tag;
    return (!way.only_full || peer_.options.has("full")) && has(way.from) && has(way.to) &&
           std::string(way.name).find(peer_.options.text("way", "")) != std::string::npos &&
           (!one_sided || peer_.options.text("rma", "y") == "y");
}

void FailingCalls::count(const std::vector<std::string> &functions) {
    for (size_t i = 0; i < ways().size(); ++i) {
        const Way &way = ways()[i];
        if (!is_usable(way)) {
            continue;
        }
        set_activity(way.name);
        if (peer_.role == 0) {
            fprintf(report_, "way %zu %s\n", i, way.name);
        }
        Setup setup(peer_, way, mode_);
        for (unsigned message = 0; message < way.burst; ++message) {
            setup.start_message();
            std::map<std::string, unsigned long> before;
            for (const std::string &function : functions) {
                before[function] = controls_.count(function);
            }
            setup.finish_message();
            for (const std::string &function : functions) {
                const unsigned long calls = controls_.count(function) - before[function];
                if (calls != 0) {
                    fprintf(report_, "count %zu %u %d %s %lu\n", i, message, peer_.role,
                            function.c_str(), calls);
                }
            }
        }
        fflush(report_);
        peer_.channel.barrier([] {});
    }
}

/** `usable`: whether the session can be used on. */
const char *FailingCalls::verdict(const FailingCall &failing, bool &usable) {
    const Way &way = ways()[failing.way];
    std::pair<Outcome, Outcome> outcome;
    bool right = true;
    unsigned long before = 0;
    const bool here = peer_.role == failing.role;
    for (unsigned message = 0; message < way.burst; ++message) {
        setup_->start_message();
        if (message == failing.message && here) {
            before = controls_.count(failing.function);
            controls_.fail_call(failing.function, failing.n, failing.error);
        }
        outcome = setup_->finish_message();
        if (message == failing.message && here) {
            controls_.fail_nothing();
            if (controls_.count(failing.function) - before >= failing.n) {
                ++failed_[failing.function];
            }
        }
        const ucs_status_t decisive =
            way.operation == Operation::put ? outcome.second.status : outcome.first.status;
        right = decisive != UCS_OK || setup_->data_is_right();
        if (!right || outcome.first.status != UCS_OK || outcome.second.status != UCS_OK) {
            break;
        }
    }
    const std::string theirs = peer_.channel.exchange(right ? "right" : "wrong", [] {});
    const bool all_right = theirs == "right" && right;
    usable = outcome.first.status == UCS_OK && outcome.second.status == UCS_OK && way.burst == 1;
    if (!all_right) {
        return "wrong";
    }
    if (outcome.first.status == UCS_OK && outcome.second.status == UCS_OK) {
        return "data";
    }
    return outcome.first.untold || outcome.second.untold ? "untold" : "error";
}

void FailingCalls::report_leaks(const Holdings &before) {
    setup_.reset();
    // A thread in the background closes mappings of peers' memory (core/reclaim/deferred_free.hpp).
    constexpr double kPatienceSeconds = 5;
    const double end = now_seconds() + kPatienceSeconds;
    std::string kept = Holdings(controls_, failed_).kept_since(before, 0);
    while (!kept.empty() && now_seconds() < end) {
        sched_yield();
        kept = Holdings(controls_, failed_).kept_since(before, 0);
    }
    if (!kept.empty() && may_make_pool_) {
        kept = Holdings(controls_, failed_).kept_since(before, 1);
        may_make_pool_ = false;
    }
    if (!kept.empty()) {
        fprintf(report_, "leak process %d:%s\n", peer_.role, kept.c_str());
    }
    fflush(report_);
    peer_.channel.barrier([] {});
}

void FailingCalls::run(const std::vector<FailingCall> &cases, size_t first) {
    size_t way = ways().size();
    std::unique_ptr<Holdings> before;
    for (size_t i = first; i < cases.size(); ++i) {
        const FailingCall &failing = cases[i];
        if (failing.way != way) {
            if (before) {
                report_leaks(*before);
            }
            way = failing.way;
            for (int round = 0; round < 2; ++round) {  // what is kept for the next time, is now
                setup_ = std::make_unique<Setup>(peer_, ways()[way], mode_);
                setup_.reset();
                peer_.channel.barrier([] {});
            }
            before = std::make_unique<Holdings>(controls_, failed_);
        }
        set_activity(std::string(ways()[way].name) + ", " + failing.function + " fails");
        if (!setup_) {
            setup_ = std::make_unique<Setup>(peer_, ways()[way], mode_);
        }
        bool usable = false;
        const char *result = verdict(failing, usable);
        if (peer_.role == 0) {
            fprintf(report_, "case %zu %s\n", i, result);
            fflush(report_);
        }
        if (!usable) {
            setup_.reset();
            peer_.channel.barrier([] {});
        }
    }
    if (before) {
        report_leaks(*before);
    }
}

}  // namespace

std::vector<FailingCall> read_cases(const std::string &path) {
    std::vector<FailingCall> cases;
    std::ifstream file(path);
    FailingCall one;
    while (file >> one.way >> one.message >> one.role >> one.function >> one.n >> one.error) {
        cases.push_back(one);
    }
    return cases;
}

void failing_calls(Peer &peer) {
    use_device(peer.role % device_count());
    FailingCalls failing(peer);
    if (peer.options.has("count")) {
        failing.count(peer.options.list("functions", ""));
    } else {
        failing.run(read_cases(peer.options.text("cases", "")), peer.options.number("first", 0));
    }
}

}  // namespace gpushm::ucp_test
