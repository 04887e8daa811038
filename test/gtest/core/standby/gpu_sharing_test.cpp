// SPDX-License-Identifier: BSD-3-Clause
// What processes on one GPU know of each other, and which copies they make differently then.
#include "core/standby/gpu_sharing.hpp"
#include "core/copy/copy_any.hpp"
#include "core/copy/copy_engine.hpp"
#include "core/copy/host_rows.hpp"
#include "core/cuda/driver_watch.hpp"
#include "core/kernels/kernel_code.hpp"
#include "core/reclaim/kernel_preload.hpp"
#include "core/shm/segment.hpp"
#include "core/standby/gpu_claims.hpp"
#include "test/gtest/core/gpu_support.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <chrono>
#include <cstring>

namespace gpushm {
namespace {

using namespace test;

using Others = GpuSharing::Others;

Others others_now() {
    GpuSharing::instance().look_again();
    return GpuSharing::instance().others(0);
}

/** Looks until it is so, and calls `between` after each look that finds something else. */
template <typename Between>
bool becomes(Others expected, Between between) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (others_now() != expected) {
        if (!between() || std::chrono::steady_clock::now() > end) {
            return false;
        }
    }
    return true;
}

bool becomes(Others expected) {
    return becomes(expected, [] { return true; });
}

/** Another process on the first GPU. Made before this one initialises CUDA. */
class Neighbour {
public:
    enum class Deed { look, launch, claim, claim_unseen, leave, fork, start };

    bool does(Deed deed) const {
        child_.channel().send(deed);
        Deed answer = {};
        return child_.channel().receive(&answer) && answer == deed;
    }
    void kill() { child_.kill_hard(); }

private:
    static int serve(const Channel &channel) {
        if (enter_primary_context(0) == nullptr) {
            return 1;
        }
        Deed deed = {};
        while (channel.receive(&deed)) {
            if (deed == Deed::launch) {
                GpuSharing::instance().use(0);
                DriverWatch::instance().note_launch();
            }
            const bool claims = deed == Deed::claim || deed == Deed::claim_unseen;
            if (claims && !GpuClaims::instance().claim(0)) {
                return 2;
            }
            if (deed == Deed::fork && fork() == 0) {
                alarm(5);  // longer than the others look
                pause();
            }
            if (deed == Deed::start) {
                preload_kernels_everywhere();  // as the first worker does
            }
            if (deed == Deed::leave) {
                GpuClaims::instance().leave(0);
            }
            if (deed != Deed::start && deed != Deed::claim_unseen) {
                others_now();
            }
            channel.send(deed);
        }
        return 0;
    }

    Child child_{serve};
};

using Deed = Neighbour::Deed;

/** The neighbour looks again and again, as one that copies does. */
bool becomes_beside(const Neighbour &neighbour, Others expected) {
    return becomes(expected, [&neighbour] { return neighbour.does(Deed::look); });
}

FreshProcess others_are_seen("sharing-others-are-seen", [] {
    Neighbour neighbour;
    Neighbour second;
    CHECK(enter_primary_context(0) != nullptr);
    CHECK(becomes(Others::none));
    DriverWatch::instance().note_launch();  // of its own
    CHECK(becomes(Others::none));
    CHECK(neighbour.does(Deed::look));
    CHECK(becomes_beside(neighbour, Others::present));
    CHECK(neighbour.does(Deed::launch));
    CHECK(becomes_beside(neighbour, Others::kernels));
    CHECK(becomes_beside(neighbour, Others::present));  // it has launched nothing for a while
    CHECK(neighbour.does(Deed::claim));
    CHECK(becomes_beside(neighbour, Others::kernels));
    CHECK(second.does(Deed::look));
    neighbour.kill();
    CHECK(becomes_beside(second, Others::present));
    second.kill();
    CHECK(becomes(Others::none));
    return 0;
});

TEST(GpuSharing, SeesWhatOthersDoAndThatTheyAreGone) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(others_are_seen.run(), 0);
}

/** A claimant whose marks could not be set, for want of descriptors. */
FreshProcess claimant_is_seen("sharing-claimant-is-seen", [] {
    const Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    CHECK(neighbour.does(Deed::claim_unseen));
    CHECK(becomes(Others::kernels));
    CHECK(!GpuSharing::instance().may_run_kernels(0));
    return 0;
});

TEST(GpuSharing, SeesAClaimantThatSaysNothingElse) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(claimant_is_seen.run(), 0);
}

/** What the program has launched before it used the GPU for messages does not count. */
FreshProcess launched_before("sharing-launched-before", [] {
    const Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    DriverWatch::instance().launches += 1000;
    GpuSharing::instance().use(0);
    CHECK(neighbour.does(Deed::look));
    // It would see a mark at once.
    CHECK(becomes_beside(neighbour, Others::present));
    return 0;
});

TEST(GpuSharing, AProgramThatHasComputedDoesNotCompute) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(launched_before.run(), 0);
}

/** Which of two may copy by kernels. */
FreshProcess claims_pass_on("sharing-claims-pass-on", [] {
    const Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    GpuSharing &sharing = GpuSharing::instance();
    CHECK(sharing.may_run_kernels(0) && !sharing.kernels_wait(0));
    CHECK(neighbour.does(Deed::look));
    CHECK(becomes_beside(neighbour, Others::present));
    CHECK(sharing.kernels_wait(0));
    CHECK(sharing.may_run_kernels(0));
    CHECK(GpuClaims::instance().has(0) && !sharing.kernels_wait(0));  // the kernels are its own
    GpuClaims::instance().leave(0);
    CHECK(!GpuClaims::instance().claim(0));
    CHECK(sharing.may_run_kernels(0) && sharing.kernels_wait(0));  // nobody has it
    CHECK(neighbour.does(Deed::claim));
    CHECK(becomes_beside(neighbour, Others::kernels));
    CHECK(!sharing.may_run_kernels(0) && sharing.kernels_wait(0));
    CHECK(neighbour.does(Deed::leave));
    CHECK(becomes_beside(neighbour, Others::present));
    CHECK(sharing.may_run_kernels(0));
    CHECK(neighbour.does(Deed::launch));
    CHECK(becomes_beside(neighbour, Others::kernels));
    CHECK(sharing.may_run_kernels(0) && sharing.kernels_wait(0));
    return 0;
});

TEST(GpuSharing, ClaimsPassOn) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(claims_pass_on.run(), 0);
}

FreshProcess seen_at_once("sharing-seen-at-once", [] {
    const Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    CHECK(neighbour.does(Deed::start));
    return GpuSharing::instance().others(0) == Others::present ? 0 : 2;  // at the first look
});

TEST(GpuSharing, SeesOthersBeforeTheirFirstCopy) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(seen_at_once.run(), 0);
}

FreshProcess with_mps("sharing-with-mps", [] {
    setenv("SIMCUDA_MPS", "1", 1);
    const Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    int has_mps = 0;
    const auto attribute = static_cast<CUdevice_attribute>(133);
    if (CudaDriver::get()->device_get_attribute(&has_mps, attribute, 0) != CUDA_SUCCESS) {
        return 0;  // built with an older cuda.h, which does not name it
    }
    CHECK(has_mps == 1);
    CHECK(neighbour.does(Deed::launch) && neighbour.does(Deed::claim));
    GpuSharing &sharing = GpuSharing::instance();
    sharing.use(0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    while (std::chrono::steady_clock::now() < end) {  // two looks, if there were any
        CHECK(others_now() == Others::none && neighbour.does(Deed::look));
    }
    return sharing.may_run_kernels(0) && !sharing.kernels_wait(0) ? 0 : 2;
});

/** Kernels of several processes run at once. */
TEST(GpuSharing, SeesNobodyWithMps) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(with_mps.run(), 0);
}

/** Two that compute see each other, whichever of the names each of them has. */
FreshProcess both_compute("sharing-both-compute", [] {
    const Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    for (int i = 0; i < 10; ++i) {
        DriverWatch::instance().note_launch();
        CHECK(neighbour.does(Deed::launch));
        CHECK(becomes_beside(neighbour, Others::kernels));
    }
    return 0;
});

TEST(GpuSharing, TwoThatComputeSeeEachOther) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(both_compute.run(), 0);
}

/** A child that lives on, such as one that loads data, is no user of the GPU. */
FreshProcess marks_and_child("sharing-marks-and-child", [] {
    Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    CHECK(neighbour.does(Deed::launch));
    CHECK(becomes_beside(neighbour, Others::kernels));
    CHECK(neighbour.does(Deed::fork));
    neighbour.kill();
    return becomes(Others::none) ? 0 : 2;
});

TEST(GpuSharing, AChildIsNotTakenForAUser) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(marks_and_child.run(), 0);
}

/** Copies a message in a slot to the GPU, as the driver is asked to: in rows or not. */
bool copies_in_rows(size_t length, bool expected) {
    auto slot = Segment::create("gpushm-test", 65536);
    Buffer device(MemoryKind::device, 65536);
    Buffer pattern(MemoryKind::host, 65536);
    pattern.fill(length);
    memcpy(slot->data(), pattern.data(), length);
    device.fill(1);
    reset_calls();
    CopyEngine engine;
    const MemoryInfo info = query_memory(device.data());
    CopyJob job = {device.data() + 8, slot->data(), length, info, CopyDirection::to_gpu};
    job.urgent = true;
    if (engine.copy(job) != Status::ok) {
        return false;
    }
    const bool in_rows = calls("cuMemcpy2DAsync") == 1 && calls("cuMemcpyAsync") == 0;
    const bool in_one = calls("cuMemcpy2DAsync") == 0 && calls("cuMemcpyAsync") == 1;
    return (expected ? in_rows : in_one) && device.check(8, length, length, 1).empty();
}

/** The program's own page-locked memory. */
bool pinned_copy_in_rows(size_t length) {
    Buffer source(MemoryKind::pinned, length);
    Buffer destination(MemoryKind::device, length);
    source.fill(length);
    destination.fill(1);
    reset_calls();
    const bool copied = copy_any(destination.data(), source.data(), length) == Status::ok;
    const unsigned long in_rows = calls("cuMemcpy2DAsync");
    return copied && in_rows == 1 && destination.check(0, length, length, 0).empty();
}

FreshProcess small_copies("sharing-small-copies", [] {
    const Neighbour neighbour;
    CHECK(enter_primary_context(0) != nullptr);
    CHECK(becomes(Others::none));
    CHECK(copies_in_rows(8, false));
    CHECK(neighbour.does(Deed::look));
    CHECK(becomes_beside(neighbour, Others::present));
    for (const size_t length : {2, 3, 8, 61, 64, 67 * 2, 4096, 17 * 241, 24 << 10}) {
        CHECK(copies_in_rows(length, true));
    }
    CHECK(pinned_copy_in_rows(4096));
    // Nothing divides them, or a copy engine copies them anyway.
    for (const size_t length : {1, 8191, (24 << 10) + 2}) {
        CHECK(copies_in_rows(length, false));
    }
    CHECK(GpuClaims::instance().claim(0));  // nobody else runs kernels
    CHECK(copies_in_rows(8, false));
    CHECK(neighbour.does(Deed::launch));
    CHECK(becomes_beside(neighbour, Others::kernels));
    CHECK(copies_in_rows(8, true));
    return 0;
});

/** In one row the driver copies them by the engine that runs kernels, of one process at a time. */
TEST(GpuSharing, SmallCopiesFromTheHostGoByCopyEngines) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(small_copies.run(), 0);
}

/** How a copy within the GPU was made. */
enum class Way { kernel, host, other };

Way way_of_copy(size_t length) {
    Buffer source(MemoryKind::device, length);
    Buffer destination(MemoryKind::device, length);
    source.fill(length);
    destination.fill(1);
    reset_calls();
    const bool copied = copy_any(destination.data(), source.data(), length) == Status::ok;
    const unsigned long launches = calls("cuLaunchKernel");
    const unsigned long copies = calls("cuMemcpyAsync");
    const unsigned long in_rows = calls("cuMemcpy2DAsync");
    if (!copied || !destination.check(0, length, length, 0).empty()) {
        return Way::other;
    }
    if (launches == 1) {
        return Way::kernel;  // on a slow machine it is cancelled, and copied by the host
    }
    const bool is_small = rows_for_copy_engine(length) > 1;
    return launches == 0 && copies > 0 && (in_rows > 0) == is_small ? Way::host : Way::other;
}

FreshProcess own_copies("sharing-own-copies", [] {
    const Neighbour neighbour;
    const CUcontext context = enter_primary_context(0);
    CHECK(context != nullptr && load_kernels(context));
    CHECK(way_of_copy(4096) == Way::kernel);
    CHECK(neighbour.does(Deed::launch));
    CHECK(becomes_beside(neighbour, Others::kernels));
    CHECK(way_of_copy(4096) == Way::kernel);  // takes the claim
    CHECK(!neighbour.does(Deed::claim));
    return 0;
});

FreshProcess own_copies_of_others("sharing-own-copies-of-others", [] {
    const Neighbour neighbour;
    const CUcontext context = enter_primary_context(0);
    CHECK(context != nullptr && load_kernels(context));
    CHECK(neighbour.does(Deed::claim));
    CHECK(becomes_beside(neighbour, Others::kernels));
    for (const size_t length : {1, 4096, 8191, 248 << 10}) {
        CHECK(way_of_copy(length) == Way::host);
    }
    CHECK(way_of_copy(1 << 20) == Way::kernel);  // it takes longer through the host
    return 0;
});

TEST(GpuSharing, CopiesWithinAGpuThatAnotherHasGoThroughTheHost) {
    SKIP_UNLESS_SIMULATED();
    if (!KernelCodes::possible()) {
        GTEST_SKIP() << "no kernels";
    }
    EXPECT_EQ(own_copies.run(), 0);
    EXPECT_EQ(own_copies_of_others.run(), 0);
}

/** 0: it was launched beside a neighbour that does this. */
int launch_beside(Deed deed, StandbyConfig::Mode mode) {
    const Neighbour neighbour;
    const std::shared_ptr<StandbyKernel> kernel = fresh_kernel(200'000, 1'000'000, mode);
    CHECK(kernel != nullptr);
    CHECK(neighbour.does(deed));
    CHECK(becomes_beside(neighbour, deed == Deed::look ? Others::present : Others::kernels));
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < end) {
        CHECK(neighbour.does(deed));
        kernel->note_copy();
        StandbyKernels::instance().tend(StandbyKernel::Moment::idle);
        if (kernel->alive()) {
            return 0;
        }
    }
    return 42;
}

FreshProcess beside_a_user("sharing-standby-beside-a-user", [] {
    return launch_beside(Deed::look, StandbyConfig::Mode::when_it_pays);
});
FreshProcess beside_kernels("sharing-standby-beside-kernels", [] {
    return launch_beside(Deed::launch, StandbyConfig::Mode::when_it_pays);
});
FreshProcess in_any_case("sharing-standby-in-any-case", [] {
    return launch_beside(Deed::launch, StandbyConfig::Mode::whenever_possible);
});

/** A kernel of the other program would wait until the standby kernel has left. */
TEST(GpuSharing, StandbyKernelStaysAwayFromKernelsOfOtherPrograms) {
    SKIP_UNLESS_SIMULATED();
    EXPECT_EQ(beside_a_user.run(), 0);
    EXPECT_EQ(beside_kernels.run(), 42);
    EXPECT_EQ(in_any_case.run(), 0);
}

}  // namespace
}  // namespace gpushm
