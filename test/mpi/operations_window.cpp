// SPDX-License-Identifier: BSD-3-Clause
// The window is made after the buffers have been written and freed before they are checked, so that
// nothing but MPI touches the memory while it is a window.
#include "operations_window.hpp"

#include <cstring>

namespace gpushm::mpi_test::operations {
namespace {

// The address of the right neighbour's memory; windows of the flavor "dynamic" have no other base.
MPI_Aint neighbors_address(Exchange &exchange, const Trial &trial, const void *memory) {
    MPI_Aint own = 0;
    MPI_Aint neighbors = 0;
    exchange.require(MPI_Get_address(memory, &own), "MPI_Get_address");
    exchange.require(MPI_Sendrecv(&own, 1, MPI_AINT, trial.left(), 0, &neighbors, 1, MPI_AINT,
                                  trial.right(), 0, trial.group().comm, MPI_STATUS_IGNORE),
                     "MPI_Sendrecv of the address");
    return neighbors;
}

// A window of `size` bytes; those of Flavor::allocate are returned, those of the others given.
int make_window(MPI_Comm comm, Flavor flavor, MPI_Aint size, void **memory, MPI_Win *window) {
    switch (flavor) {
        case Flavor::create:
            return MPI_Win_create(*memory, size, 1, MPI_INFO_NULL, comm, window);
        case Flavor::allocate:
            return MPI_Win_allocate(size, 1, MPI_INFO_NULL, comm, memory, window);
        case Flavor::dynamic:
            return MPI_Win_create_dynamic(MPI_INFO_NULL, comm, window);
    }
    return MPI_ERR_WIN;
}

class Window {
public:
    Window(Exchange &exchange, const Trial &trial, Flavor flavor, const Items &memory)
        : exchange_(exchange), flavor_(flavor), memory_(memory) {
        const MPI_Aint size = memory.count();
        void *address = memory.address();
        if (!exchange.require(make_window(trial.group().comm, flavor, size, &address, &window_),
                              "creation of the window")) {
            return;
        }
        MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN);
        if (flavor == Flavor::allocate) {
            allocated_ = address;
            std::memcpy(allocated_, memory.address(), static_cast<size_t>(size));
        } else if (flavor == Flavor::dynamic) {
            exchange.require(MPI_Win_attach(window_, memory.address(), size), "MPI_Win_attach");
            base_ = neighbors_address(exchange, trial, memory.address());
        }
    }

    ~Window() {
        if (window_ == MPI_WIN_NULL) {
            return;
        }
        if (flavor_ == Flavor::allocate) {
            std::memcpy(memory_.address(), allocated_, static_cast<size_t>(memory_.count()));
        } else if (flavor_ == Flavor::dynamic) {
            exchange_.require(MPI_Win_detach(window_, memory_.address()), "MPI_Win_detach");
        }
        exchange_.require(MPI_Win_free(&window_), "MPI_Win_free");
    }

    Window(const Window &) = delete;
    Window &operator=(const Window &) = delete;

    MPI_Win get() const { return window_; }
    MPI_Aint base() const { return base_; }

private:
    Exchange &exchange_;
    Flavor flavor_;
    Items memory_;
    MPI_Win window_ = MPI_WIN_NULL;
    void *allocated_ = nullptr;
    MPI_Aint base_ = 0;
};

// What others have done to this rank's window is there for its own loads only after that.
void finish_passive(Exchange &exchange, const Trial &trial, MPI_Win window) {
    MPI_Barrier(trial.group().comm);
    const int own = trial.group().rank;
    exchange.require(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, own, 0, window), "MPI_Win_lock");
    exchange.require(MPI_Win_unlock(own, window), "MPI_Win_unlock");
}

void access_by_fence(Exchange &exchange, MPI_Win window, const std::function<void()> &access) {
    exchange.require(MPI_Win_fence(MPI_MODE_NOPRECEDE, window), "MPI_Win_fence");
    access();
    exchange.require(MPI_Win_fence(MPI_MODE_NOSUCCEED, window), "MPI_Win_fence");
}

void access_by_lock(Exchange &exchange, const Trial &trial, MPI_Win window,
                    const std::function<void()> &access) {
    MPI_Barrier(trial.group().comm);
    exchange.require(MPI_Win_lock(MPI_LOCK_SHARED, trial.right(), 0, window), "MPI_Win_lock");
    access();
    exchange.require(MPI_Win_unlock(trial.right(), window), "MPI_Win_unlock");
    finish_passive(exchange, trial, window);
}

void access_by_lock_all(Exchange &exchange, const Trial &trial, MPI_Win window,
                        const std::function<void()> &access) {
    MPI_Barrier(trial.group().comm);
    exchange.require(MPI_Win_lock_all(0, window), "MPI_Win_lock_all");
    access();
    exchange.require(MPI_Win_flush(trial.right(), window), "MPI_Win_flush");
    exchange.require(MPI_Win_unlock_all(window), "MPI_Win_unlock_all");
    finish_passive(exchange, trial, window);
}

class Members {
public:
    Members(MPI_Win window, int rank) {
        MPI_Group all;
        MPI_Win_get_group(window, &all);
        MPI_Group_incl(all, 1, &rank, &group_);
        MPI_Group_free(&all);
    }
    ~Members() { MPI_Group_free(&group_); }
    Members(const Members &) = delete;
    Members &operator=(const Members &) = delete;

    MPI_Group get() const { return group_; }

private:
    MPI_Group group_;
};

void access_by_post_start(Exchange &exchange, const Trial &trial, MPI_Win window,
                          const std::function<void()> &access) {
    const Members origins(window, trial.left());
    const Members targets(window, trial.right());
    exchange.require(MPI_Win_post(origins.get(), 0, window), "MPI_Win_post");
    exchange.require(MPI_Win_start(targets.get(), 0, window), "MPI_Win_start");
    access();
    exchange.require(MPI_Win_complete(window), "MPI_Win_complete");
    exchange.require(MPI_Win_wait(window), "MPI_Win_wait");
}

}  // namespace

const char *to_string(Epoch epoch) {
    switch (epoch) {
        case Epoch::fence:
            return "fence";
        case Epoch::lock:
            return "lock";
        case Epoch::lock_all:
            return "lock_all and flush";
        case Epoch::post_start:
            return "post and start";
    }
    return "";
}

const char *to_string(Flavor flavor) {
    switch (flavor) {
        case Flavor::create:
            return "Win_create";
        case Flavor::allocate:
            return "Win_allocate";
        case Flavor::dynamic:
            return "Win_create_dynamic";
    }
    return "";
}

bool can_make_windows(const Group &group, Flavor flavor) {
    char memory[64];
    void *address = memory;
    MPI_Win window = MPI_WIN_NULL;
    const bool made =
        make_window(group.comm, flavor, sizeof(memory), &address, &window) == MPI_SUCCESS;
    if (made) {
        MPI_Win_free(&window);
    }
    return made;
}

void run_epoch(Exchange &exchange, const Trial &trial, Flavor flavor, Epoch epoch,
               const Items &memory, const std::function<void(const Target &)> &access) {
    exchange.run([&] {
        const Window window(exchange, trial, flavor, memory);
        if (window.get() == MPI_WIN_NULL) {
            return;
        }
        const Target target{window.get(), trial.right(), window.base()};
        const auto access_target = [&] { access(target); };
        switch (epoch) {
            case Epoch::fence:
                access_by_fence(exchange, target.window, access_target);
                break;
            case Epoch::lock:
                access_by_lock(exchange, trial, target.window, access_target);
                break;
            case Epoch::lock_all:
                access_by_lock_all(exchange, trial, target.window, access_target);
                break;
            case Epoch::post_start:
                access_by_post_start(exchange, trial, target.window, access_target);
                break;
        }
    });
}

}  // namespace gpushm::mpi_test::operations
