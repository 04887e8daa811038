// SPDX-License-Identifier: BSD-3-Clause
// Writes JSON (RFC 8259), indented, in the order of the calls.
#pragma once

#include <cstdint>
#include <string>

namespace gpushm::tools {

/** Inside an object every value has a key; inside an array and at the top the key is empty. */
class JsonWriter {
public:
    void begin_object(const std::string &key = {});
    void end_object();
    void begin_array(const std::string &key = {});
    void end_array();
    void text(const std::string &key, const std::string &value);
    void number(const std::string &key, uint64_t value);
    void boolean(const std::string &key, bool value);
    void null(const std::string &key);

    /** Complete when every begin has its end. */
    const std::string &result() const { return result_; }

private:
    void start_value(const std::string &key);
    void end(char bracket);
    void append_quoted(const std::string &value);

    std::string result_;
    unsigned depth_ = 0;
    bool first_ = true;  // no value yet in the innermost object or array
};

}  // namespace gpushm::tools
