// SPDX-License-Identifier: BSD-3-Clause
// Writes JSON: see json_writer.hpp.
#include "tools/json_writer.hpp"

#include <cstdio>

namespace gpushm::tools {

void JsonWriter::begin_object(const std::string &key) {
    start_value(key);
    result_ += '{';
    ++depth_;
    first_ = true;
}

void JsonWriter::end_object() {
    end('}');
}

void JsonWriter::begin_array(const std::string &key) {
    start_value(key);
    result_ += '[';
    ++depth_;
    first_ = true;
}

void JsonWriter::end_array() {
    end(']');
}

void JsonWriter::text(const std::string &key, const std::string &value) {
    start_value(key);
    append_quoted(value);
}

void JsonWriter::number(const std::string &key, uint64_t value) {
    start_value(key);
    result_ += std::to_string(value);
}

void JsonWriter::boolean(const std::string &key, bool value) {
    start_value(key);
    result_ += value ? "true" : "false";
}

void JsonWriter::null(const std::string &key) {
    start_value(key);
    result_ += "null";
}

void JsonWriter::start_value(const std::string &key) {
    if (depth_ > 0) {
        result_ += first_ ? "\n" : ",\n";
        result_.append(2 * depth_, ' ');
    }
    first_ = false;
    if (!key.empty()) {
        append_quoted(key);
        result_ += ": ";
    }
}

void JsonWriter::end(char bracket) {
    --depth_;
    if (!first_) {
        result_ += '\n';
        result_.append(2 * depth_, ' ');
    }
    result_ += bracket;
    first_ = false;
}

void JsonWriter::append_quoted(const std::string &value) {
    result_ += '"';
    for (const char c : value) {
        if (c == '"' || c == '\\') {
            result_ += '\\';
            result_ += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[7];
            std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
            result_ += escape;
        } else {
            result_ += c;
        }
    }
    result_ += '"';
}

}  // namespace gpushm::tools
