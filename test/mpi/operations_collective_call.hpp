// SPDX-License-Identifier: BSD-3-Clause
// A collective operation in its forms: blocking, nonblocking and persistent.
#pragma once

#include "operations_mpi_version.hpp"
#include "operations_trial.hpp"

#include <mpi.h>

#include <string>
#include <vector>

namespace gpushm::mpi_test::operations {

enum class Form { blocking, nonblocking, persistent };

inline std::vector<Form> forms() {
#if GPUSHM_TEST_MPI4
    return {Form::blocking, Form::nonblocking, Form::persistent};
#else
    return {Form::blocking, Form::nonblocking};
#endif
}

// "Bcast", "Ibcast" or "Bcast_init".
inline std::string name_of(std::string operation, Form form) {
    switch (form) {
        case Form::blocking:
            return operation;
        case Form::nonblocking:
            operation[0] = static_cast<char>(operation[0] - 'A' + 'a');
            return "I" + operation;
        case Form::persistent:
            return operation + "_init";
    }
    return operation;
}

template <typename Type>
struct Identity {
    using type = Type;
};

// The functions of one operation; P are the parameters of the blocking one.
template <typename... P>
struct Collective {
    const char *name;
    int (*blocking)(P...);
    int (*nonblocking)(P..., MPI_Request *);
    int (*persistent)(P..., MPI_Info, MPI_Request *);  // null where MPI has none

    // Calls the operation in one of its forms and checks the buffers of the exchange.
    void run(Exchange &exchange, Form form, P... arguments) const {
        const std::string function = "MPI_" + name_of(name, form);
        MPI_Request request = MPI_REQUEST_NULL;
        if (form == Form::blocking) {
            exchange.run([&] { exchange.require(blocking(arguments...), function.c_str()); });
        } else if (form == Form::nonblocking) {
            exchange.run([&] {
                exchange.require(nonblocking(arguments..., &request), function.c_str());
                exchange.wait(request);
            });
        } else {
            exchange.require(persistent(arguments..., MPI_INFO_NULL, &request), function.c_str());
            for (int start = 0; start < 2; ++start) {
                exchange.run([&] {
                    exchange.require(MPI_Start(&request), "MPI_Start");
                    exchange.wait(request);
                });
            }
            MPI_Request_free(&request);
        }
    }
};

// The parameters are those of the first function.
template <typename... P>
Collective<P...> make_collective(
    const char *name, int (*blocking)(P...),
    typename Identity<int (*)(P..., MPI_Request *)>::type nonblocking,
    typename Identity<int (*)(P..., MPI_Info, MPI_Request *)>::type persistent) {
    return {name, blocking, nonblocking, persistent};
}

#if GPUSHM_TEST_MPI4
#define GPUSHM_TEST_COLLECTIVE(name, lower) \
    make_collective(#name, MPI_##name, MPI_I##lower, MPI_##name##_init)
#else
#define GPUSHM_TEST_COLLECTIVE(name, lower) \
    make_collective(#name, MPI_##name, MPI_I##lower, nullptr)
#endif

}  // namespace gpushm::mpi_test::operations
