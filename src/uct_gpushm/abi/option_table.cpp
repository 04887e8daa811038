// SPDX-License-Identifier: BSD-3-Clause
// The options of the interface for UCX's parser (ucs_config_field_t, src/ucs/config/parser.h). UCX
// reads UCX_GPUSHM_*, rejects bad values and prints the documentation.
#include "uct_gpushm/abi/component.hpp"

#include <utility>

namespace gpushm::abi {
namespace {

/** The functions of a ucs_config_parser_t, as in UCX's macros UCS_CONFIG_TYPE_*. */
struct Parser {
    const char *read;
    const char *write;  // null: none
    const char *clone;
    const char *release;
    const char *help;
    const void *argument;
};

Parser scalar_parser(const char *read, const char *write, const char *clone, const char *values) {
    return {read, write, clone, "ucs_config_release_nop", "ucs_config_help_generic", values};
}

Parser parser_of(OptionType type) {
    switch (type) {
        case OptionType::boolean:
            return scalar_parser("ucs_config_sscanf_bool", "ucs_config_sprintf_bool",
                                 "ucs_config_clone_int", "<y|n>");
        case OptionType::memory_size:
            return scalar_parser("ucs_config_sscanf_memunits", "ucs_config_sprintf_memunits",
                                 "ucs_config_clone_ulong",
                                 "memory units: <number>[b|kb|mb|gb], \"inf\", or \"auto\"");
        case OptionType::unsigned_integer:
            return scalar_parser("ucs_config_sscanf_uint", "ucs_config_sprintf_uint",
                                 "ucs_config_clone_uint", "unsigned integer");
        case OptionType::time:
            return scalar_parser("ucs_config_sscanf_time", "ucs_config_sprintf_time",
                                 "ucs_config_clone_double", "time value: <number>[s|us|ms|ns]");
        case OptionType::ternary_auto:
            break;
    }
    return scalar_parser("ucs_config_sscanf_ternary_auto", "ucs_config_sprintf_ternary_auto",
                         "ucs_config_clone_int", "<yes|no|try|auto>");
}

class TableBuilder {
public:
    TableBuilder(const UcxLibrary &ucx, const StructLayout<ConfigOptionField> &layout,
                 size_t entries)
        : ucx_(ucx),
          layout_(layout),
          bytes_((entries + 1) * layout.size()) {}  // with an empty one at the end

    void add(const char *name, const char *value, const char *documentation, size_t offset,
             const Parser &parser) {
        using F = ConfigOptionField;
        void *entry = bytes_.data() + count_++ * layout_.size();
        const auto set = [&](F field, const auto &value) { store(entry, layout_, field, value); };
        set(F::name, name);
        set(F::dfl_value, value);
        set(F::doc, documentation);
        set(F::offset, offset);
        set(F::parser_read, function(parser.read));
        set(F::parser_write, parser.write != nullptr ? function(parser.write) : nullptr);
        set(F::parser_clone, function(parser.clone));
        set(F::parser_release, function(parser.release));
        set(F::parser_help, function(parser.help));
        if (layout_.has(F::parser_doc)) {
            set(F::parser_doc, function("ucs_config_doc_nop"));
        }
        set(F::parser_arg, parser.argument);
    }

    std::vector<unsigned char> take() { return std::move(bytes_); }
    const std::string &missing() const { return missing_; }

private:
    void *function(const char *name) {
        void *address = ucx_.symbol(name);
        if (address == nullptr && missing_.empty()) {
            missing_ = name;
        }
        return address;
    }

    const UcxLibrary &ucx_;
    const StructLayout<ConfigOptionField> &layout_;
    std::vector<unsigned char> bytes_;
    size_t count_ = 0;
    std::string missing_;
};

}  // namespace

std::vector<unsigned char> build_option_table(const UcxLibrary &ucx, const Running &target,
                                              std::string &missing) {
    const std::vector<Option> &options = target.description->options;
    TableBuilder table{ucx, target.layout->config_option, options.size() + 1};
    // The first entry is a table in the table: the options that every interface has.
    table.add(
        "", "", nullptr, 0,
        {"ucs_config_sscanf_table", nullptr, "ucs_config_clone_table", "ucs_config_release_table",
         "ucs_config_help_table", target.functions.iface_config_table});
    for (const Option &option : options) {
        table.add(option.name, option.default_value, option.documentation, option.offset,
                  parser_of(option.type));
    }
    missing = table.missing();
    return table.take();
}

}  // namespace gpushm::abi
