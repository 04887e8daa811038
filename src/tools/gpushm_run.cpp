// SPDX-License-Identifier: BSD-3-Clause
// gpushm-run: starts a program with the environment in which its UCX and its Open MPI use gpushm.
#include "config.h"
#include "tools/launch_plan.hpp"
#include "tools/openmpi_installation.hpp"
#include "tools/subprocess.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gpushm::tools {
namespace {

// The exit statuses of env(1) and nohup(1).
constexpr int kOwnError = 125;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

constexpr const char *kUsage =
    "Usage: gpushm-run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
    "Runs PROGRAM with the environment in which its UCX and Open MPI use gpushm, so that it can\n"
    "send GPU memory between processes of one node. Variables that are set and mpirun's options "
    "stay\nas they are (lists get one entry more), Open MPI's parameter files are overridden.\n"
    "\n"
    "  -v, --verbose         print on standard error which variables are set, and why\n"
    "      --print           print the variables as export lines for a shell and run nothing;\n"
    "                        PROGRAM may be left out\n"
    "      --plugin-dir=DIR  the folder of gpushm's libraries, if not where it was installed\n"
    "  -h, --help            print this and exit\n"
    "      --version         print the version and exit\n"
    "\n"
    "Exit status: PROGRAM's; 127 if it is not found, 126 if it cannot be run, 125 if gpushm-run\n"
    "itself fails. gpushm-info prints what gpushm finds on this machine.\n";

struct Options {
    bool verbose = false;
    bool print = false;
    std::string plugin_directory;
    std::vector<std::string> command;
};

void say(const std::string &line) {
    std::fprintf(stderr, "gpushm-run: %s\n", line.c_str());
}

/** The exit status if there is nothing more to do, otherwise -1. */
int parse(int argc, char **argv, Options &options) {
    constexpr const char *kPluginDirectory = "--plugin-dir=";
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; ++i) {
        const std::string argument = argv[i];
        if (argument == "--") {
            ++i;
            break;
        } else if (argument == "--verbose" || argument == "-v") {
            options.verbose = true;
        } else if (argument == "--print") {
            options.print = true;
        } else if (argument.compare(0, std::strlen(kPluginDirectory), kPluginDirectory) == 0) {
            options.plugin_directory = argument.substr(std::strlen(kPluginDirectory));
        } else if (argument == "--help" || argument == "-h") {
            std::fputs(kUsage, stdout);
            return 0;
        } else if (argument == "--version") {
            std::puts("gpushm-run (gpushm) " PACKAGE_VERSION);
            return 0;
        } else {
            say("unknown option " + argument + ": see gpushm-run --help");
            return kOwnError;
        }
    }
    options.command.assign(argv + i, argv + argc);
    if (options.command.empty() && !options.print) {
        say("no program is given: see gpushm-run --help");
        return kOwnError;
    }
    return -1;
}

LaunchFacts look_at(const std::vector<std::string> &command, const std::string &path) {
    LaunchFacts facts;
    facts.command = command;
    facts.is_there = holds_gpushm;
    if (!path.empty()) {
        const ProgramFile program = inspect_program(path);
        facts.ucx = find_linked_ucx(program);
        facts.links_ucx = facts.ucx.has_value();
        facts.links_mpi = program.find_library("libmpi.so") != nullptr;
        facts.other_mpi = other_mpi_of(program);
        if (program.is_elf && !program.same_machine) {
            facts.preload_obstacle = "it is a program for another machine";
        } else if (program.is_elf && program.interpreter.empty()) {
            facts.preload_obstacle = "it is statically linked";
        } else if (program.changes_rights) {
            facts.preload_obstacle = "it runs with the rights of another user (set-user-ID)";
        }
    }
    if (!facts.links_ucx) {
        facts.ucx = find_default_ucx();
    }
    return facts;
}

void explain(const LaunchPlan &plan, bool verbose) {
    for (const std::string &warning : plan.warnings) {
        say(warning);
    }
    if (!verbose) {
        return;
    }
    for (const Change &change : plan.changes) {
        const char *verb = change.kind == Change::Kind::set        ? "set"
                           : change.kind == Change::Kind::extended ? "extended"
                                                                   : "kept";
        say(change.name + "=" + change.value + " (" + verb + ": " + change.reason + ")");
    }
    for (const std::string &note : plan.notes) {
        say(note);
    }
}

void print_exports(const LaunchPlan &plan) {
    for (const Change &change : plan.changes) {
        if (change.kind != Change::Kind::kept) {
            std::printf("export %s=%s\n", change.name.c_str(), shell_quote(change.value).c_str());
        }
    }
}

/** Returns only when the program cannot be run: the exit status. */
int execute(const std::vector<std::string> &command, const Environment &environment) {
    const std::vector<char *> arguments = pointers_to(command);
    const std::vector<char *> entries = pointers_to(environment.entries());
    execvpe(arguments[0], arguments.data(), entries.data());
    const int error = errno;
    say("cannot run " + command[0] + ": " + std::strerror(error));
    return error == ENOENT ? kNotFound : kNotExecutable;
}

int run(int argc, char **argv) {
    Options options;
    const int status = parse(argc, argv, options);
    if (status >= 0) {
        return status;
    }
    const GpushmFiles files = find_gpushm_files(options.plugin_directory);
    if (files.directory.empty()) {
        say(missing_files_message(files));
        return kOwnError;
    }
    Environment environment(environ);
    std::string path;
    if (!options.command.empty()) {
        path = find_program(options.command[0], environment.find("PATH")).value_or("");
        if (path.empty() && !options.print) {
            return execute(options.command, environment);  // says why it cannot be run
        }
    }
    const LaunchPlan plan = plan_launch(look_at(options.command, path), files, environment);
    explain(plan, options.verbose);
    if (options.print) {
        print_exports(plan);
        return 0;
    }
    return execute(options.command, environment);
}

}  // namespace
}  // namespace gpushm::tools

int main(int argc, char **argv) {
    return gpushm::tools::run(argc, argv);
}
