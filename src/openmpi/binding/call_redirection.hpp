// SPDX-License-Identifier: BSD-3-Clause
// Makes calls from one library of the process into another go to functions of ours.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace gpushm::openmpi {

/** Changes what the loader has resolved: the entries of global offset tables (System V ABI, AMD64
 * supplement, "Global Offset Table") that hold the address of a function which other libraries
 * define, and pointers to it among initialised data. Calls within the defining library are not
 * reached. Nothing of it is undone: the replacements must stay for the life of the process. Not
 * thread safe. */
class CallRedirection {
public:
    /** Calls of `symbol` go to `replacement`; `only_in`, if not empty: those from libraries whose
     * file name begins with one of these. */
    void add(const char *symbol, void *replacement, const std::vector<std::string> &only_in = {});

    /** As add() from everywhere, and by pointers among initialised data, too, where they still are
     * `original`. */
    void add_function(const char *symbol, const void *original, void *replacement);

    /** Changes the objects that were loaded since the last time, our own excepted, or all of them
     * after add(); the number of entries written. Waits for what other threads are loading. */
    size_t apply();

private:
    struct Target {
        const void *original;  // null: pointers are left alone
        void *replacement;
        std::vector<std::string> only_in;
    };

    std::unordered_map<std::string, Target> targets_;
    std::vector<const void *> done_;  // dynamic sections of the objects that were changed
    unsigned long long unloads_ = 0;  // of which the loader had told then

    friend struct ObjectVisit;
};

}  // namespace gpushm::openmpi
