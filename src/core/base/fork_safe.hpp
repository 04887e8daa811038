// SPDX-License-Identifier: BSD-3-Clause
// Objects of which a process has one, also a process that fork(2) has made.
#pragma once

#include <pthread.h>

#include <new>
#include <type_traits>
#include <utility>

namespace gpushm {

/** The object of type T of this process.
 *
 * It is never destroyed: at process exit destructors of others may still use it, and the CUDA
 * driver may be gone before it.
 *
 * A forked child has a new object in its place, whatever state the parent's was in: a thread that
 * held a mutex of it does not exist in the child, and resources of the parent (contexts,
 * page-locks, descriptors) are not the child's. The old object is overwritten, not destroyed, so
 * its destructor gives nothing back. A T with a function `void begin_in_child()` makes its new
 * state itself; that function allocates nothing, because another thread of the parent may have held
 * the heap's mutex.
 *
 * The object is made when the library is loaded: a child that is forked during the first call of
 * instance() would wait for ever for the end of that call. Any thread. */
template <typename T>
class ForkSafe {
public:
    static T &instance() {
        static_cast<void>(&made_at_load_);  // has the compiler define it
        static T *const object = make();
        return *object;
    }

private:
    template <typename Object, typename = void>
    struct BeginsItself : std::false_type {};
    template <typename Object>
    struct BeginsItself<Object, std::void_t<decltype(std::declval<Object &>().begin_in_child())>>
        : std::true_type {};

    static T *make() {
        static T *const made = new T;
        pthread_atfork(nullptr, nullptr, [] {
            if constexpr (BeginsItself<T>::value) {
                made->begin_in_child();
            } else {
                new (made) T;
            }
        });
        return made;
    }

    static inline const T *const made_at_load_ = &instance();
};

}  // namespace gpushm
