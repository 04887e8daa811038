// SPDX-License-Identifier: BSD-3-Clause
// Redirects calls between libraries of the process to gpushm's functions.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace gpushm::openmpi {

/** A function whose calls are redirected. */
struct ReplacedCall {
    const char *symbol;
    void *replacement;
    void **original;  // gets the address of the function
};

/** Changes addresses that the loader has resolved: entries of global offset tables (System V ABI,
 * AMD64 supplement, "Global Offset Table") for functions of other libraries, and pointers to such
 * functions in initialised data. It does not reach calls within the library that defines the
 * function. No change is undone: the replacements must exist until the process ends. Not thread
 * safe. */
class CallRedirection {
public:
    /** Redirects calls of `symbol` to `replacement`. `only_in`: in libraries whose file name begins
     * with one of these; empty: in all. */
    void add(const char *symbol, void *replacement, const std::vector<std::string> &only_in = {});

    /** add() for functions that exist all: `find` looks an original up by its name. False, and
     * nothing is redirected, if one is missing. */
    bool add_all(const std::vector<ReplacedCall> &calls,
                 const std::function<void *(const char *symbol)> &find,
                 const std::vector<std::string> &only_in);

    /** Redirects calls of `symbol` in all libraries, and calls by pointers in initialised data that
     * still are `original`. */
    void add_function(const char *symbol, const void *original, void *replacement);

    /** Changes the objects that were loaded since the last call, or all objects after add(), but
     * not the plugin itself. Waits for objects that other threads are loading. Returns the number
     * of entries written. */
    size_t apply();

private:
    struct Target {
        const void *original;  // null: pointers in data stay
        void *replacement;
        std::vector<std::string> only_in;
    };

    std::unordered_map<std::string, Target> targets_;
    std::vector<const void *> done_;  // dynamic sections of the objects that were changed
    unsigned long long unloads_ = 0;  // the loader's count at the last apply()

    friend struct ObjectVisit;
};

}  // namespace gpushm::openmpi
