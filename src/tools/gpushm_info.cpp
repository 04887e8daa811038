// SPDX-License-Identifier: BSD-3-Clause
// gpushm-info: prints what gpushm finds on this machine, what it will do with it, and problems.
#include "config.h"
#include "tools/report.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace gpushm::tools {
namespace {

constexpr int kCannotRun = 1;
constexpr int kUsageError = 2;

constexpr const char *kUsage =
    "Usage: gpushm-info [OPTION]...\n"
    "Prints what gpushm finds on this machine, and what it will do with it: UCX, Open MPI, the "
    "CUDA\n"
    "driver and the GPUs, and the limits of this node, with advice about problems.\n"
    "\n"
    "      --json            print one JSON object, for programs\n"
    "      --plugin-dir=DIR  the folder of gpushm's libraries, if not where it was installed\n"
    "  -h, --help            print this and exit\n"
    "      --version         print the version and exit\n"
    "\n"
    "Exit status: 0 if gpushm can run, 1 if not, 2 if the options are wrong.\n";

int run(int argc, char **argv) {
    constexpr const char *kPluginDirectory = "--plugin-dir=";
    bool json = false;
    std::string plugin_directory;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--json") {
            json = true;
        } else if (argument.compare(0, std::strlen(kPluginDirectory), kPluginDirectory) == 0) {
            plugin_directory = argument.substr(std::strlen(kPluginDirectory));
        } else if (argument == "--help" || argument == "-h") {
            std::fputs(kUsage, stdout);
            return 0;
        } else if (argument == "--version") {
            std::puts("gpushm-info (gpushm) " PACKAGE_VERSION);
            return 0;
        } else {
            std::fprintf(stderr, "gpushm-info: unknown argument %s: see gpushm-info --help\n",
                         argv[i]);
            return kUsageError;
        }
    }
    Findings findings;
    findings.files = find_gpushm_files(plugin_directory);
    findings.ucx = find_default_ucx();
    findings.open_mpi = find_open_mpi();
    findings.limits = look_at_node();
    findings.gpu_survey = survey_gpus();  // last: the driver may start threads, the others fork
    const Verdict verdict = judge(findings, Environment(environ));
    const std::string report =
        json ? json_report(findings, verdict) : text_report(findings, verdict);
    std::fputs(report.c_str(), stdout);
    return verdict.can_run ? 0 : kCannotRun;
}

}  // namespace
}  // namespace gpushm::tools

int main(int argc, char **argv) {
    return gpushm::tools::run(argc, argv);
}
