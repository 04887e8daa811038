// SPDX-License-Identifier: BSD-3-Clause
// The members of Open MPI's request that gpushm reads and changes: ompi_request_t of
// ompi/request/request.h, equal in release builds of Open MPI 4.1, 5.0 and 6.0.
#pragma once

#include "openmpi/binding/foreign_struct.hpp"

#include <cstddef>

namespace gpushm::openmpi {

/** An ompi_request_t. Every MPI_Request handle of Open MPI points to one. */
class OmpiRequest : public ForeignStruct {
public:
    using ForeignStruct::ForeignStruct;

    /** The thread that completes the request calls it, before any thread can see that the request
     * is complete, and sets it to null before (ompi_request_complete()). 0: go on. */
    using Callback = int (*)(void *request);
    Callback callback() const { return get<Callback>(kCallback); }
    void *callback_data() const { return get<void *>(kCallbackData); }
    void set_callback(Callback callback, void *data) {
        set(kCallback, callback);
        set(kCallbackData, data);
    }

    /** What MPI_Start and MPI_Startall call, and MPI_Request_free. */
    using Start = int (*)(size_t count, void **requests);
    using Free = int (*)(void **request);
    Start start() const { return get<Start>(kStart); }
    void set_start(Start start) { set(kStart, start); }
    Free free() const { return get<Free>(kFree); }
    void set_free(Free free) { set(kFree, free); }

    /** MPI_ERROR of the status that MPI_Wait and its kin return. */
    int error() const { return get<int>(kError); }
    void set_error(int error) { set(kError, error); }

    /** Whether this looks like a request of MPI_Grequest_start() that is not complete
     * (ompi/request/grequest.c): nothing is known of what it will return. */
    bool is_new_generalized_request() const {
        constexpr int kAny = -1;    // MPI_ANY_SOURCE, MPI_ANY_TAG
        constexpr int kActive = 2;  // OMPI_REQUEST_ACTIVE
        return get<int>(kSource) == kAny && get<int>(kTag) == kAny && error() == 0 &&
               get<void *>(kComplete) == nullptr && get<int>(kState) == kActive &&
               free() != nullptr && get<void *>(kCancel) != nullptr && callback() == nullptr &&
               callback_data() == nullptr;
    }

private:
    static constexpr size_t kSource = 64;
    static constexpr size_t kTag = 68;
    static constexpr size_t kError = 72;
    static constexpr size_t kComplete = 88;
    static constexpr size_t kState = 96;
    static constexpr size_t kStart = 112;
    static constexpr size_t kFree = 120;
    static constexpr size_t kCancel = 128;
    static constexpr size_t kCallback = 136;
    static constexpr size_t kCallbackData = 144;
};

}  // namespace gpushm::openmpi
