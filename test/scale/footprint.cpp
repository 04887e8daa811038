// SPDX-License-Identifier: BSD-3-Clause
#include "footprint.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace gpushm::scale_test {
namespace {

std::string proc_path(pid_t pid, const char *name) {
    return "/proc/" + std::to_string(pid) + "/" + name;
}

/** The number behind `key` in a file of "key: number" lines; 0 when there is none. */
size_t read_number(const std::string &path, const std::string &key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, key.size(), key) == 0) {
            return std::stoul(line.substr(key.size()));
        }
    }
    return 0;
}

size_t count_lines_with(const std::string &path, const char *text) {
    std::ifstream file(path);
    size_t count = 0;
    for (std::string line; std::getline(file, line);) {
        count += line.find(text) != std::string::npos ? 1 : 0;
    }
    return count;
}

// Segments are memory files with our name; only who made one keeps a descriptor of it.
constexpr const char *kSegmentName = "/memfd:gpushm-";

class Measurement {
public:
    void add(pid_t pid) {
        ++result_.processes;
        result_.memory_kib += read_number(proc_path(pid, "smaps_rollup"), "Pss:");
        const std::string maps = proc_path(pid, "maps");
        result_.most_mappings = std::max(result_.most_mappings, count_lines_with(maps, ""));
        result_.most_attached =
            std::max(result_.most_attached, count_lines_with(maps, kSegmentName));
        result_.largest_mib =
            std::max(result_.largest_mib, read_number(proc_path(pid, "status"), "VmSize:") / 1024);
        result_.most_descriptors = std::max(result_.most_descriptors, add_descriptors(pid));
    }
    const Footprint &result() const { return result_; }

private:
    size_t add_descriptors(pid_t pid) {
        const std::string folder = proc_path(pid, "fd");
        DIR *directory = opendir(folder.c_str());
        if (directory == nullptr) {
            return 0;
        }
        size_t count = 0;
        while (const dirent *entry = readdir(directory)) {
            if (entry->d_name[0] == '.') {
                continue;
            }
            ++count;
            const std::string path = folder + "/" + entry->d_name;
            char target[PATH_MAX];
            const ssize_t length = readlink(path.c_str(), target, sizeof(target));
            struct stat status = {};
            if (length > 0 &&
                std::string(target, static_cast<size_t>(length)).find(kSegmentName) == 0 &&
                stat(path.c_str(), &status) == 0 &&
                seen_.insert({status.st_dev, status.st_ino}).second) {
                ++result_.segments;
                result_.segment_kib += static_cast<size_t>(status.st_blocks) / 2;
            }
        }
        closedir(directory);
        return count;
    }

    Footprint result_;
    std::set<std::pair<dev_t, ino_t>> seen_;
};

template <typename Value>
void print_row(const char *name, const std::vector<Footprint> &columns, Value value) {
    printf("%-40s", name);
    for (const Footprint &column : columns) {
        printf("%14.1f", value(column));
    }
    printf("\n");
}

}  // namespace

Footprint measure(const std::vector<pid_t> &pids) {
    Measurement measurement;
    for (pid_t pid : pids) {
        measurement.add(pid);
    }
    return measurement.result();
}

void print_table(const std::vector<const char *> &titles, const std::vector<Footprint> &columns) {
    printf("%-40s", "");
    for (const char *title : titles) {
        printf("%14s", title);
    }
    printf("\n");
    const auto each = [](size_t kib, const Footprint &f) {
        return static_cast<double>(kib) / 1024 / static_cast<double>(f.processes);
    };
    const size_t before = columns.front().memory_kib;
    print_row("after seconds", columns, [](const Footprint &f) { return f.seconds; });
    print_row("memory per process, MiB", columns,
              [&](const Footprint &f) { return each(f.memory_kib, f); });
    print_row("segments reserved by a process, MiB", columns,
              [&](const Footprint &f) { return each(f.segment_kib, f); });
    print_row("memory per peer of a process, KiB", columns, [&](const Footprint &f) {
        return (static_cast<double>(f.memory_kib) - static_cast<double>(before)) /
               static_cast<double>(f.processes * std::max<size_t>(f.processes - 1, 1));
    });
    print_row("memory of all, MiB", columns,
              [](const Footprint &f) { return static_cast<double>(f.memory_kib) / 1024; });
    print_row("segments of a process", columns, [](const Footprint &f) {
        return static_cast<double>(f.segments) / static_cast<double>(f.processes);
    });
    print_row("descriptors of a process, at most", columns,
              [](const Footprint &f) { return static_cast<double>(f.most_descriptors); });
    print_row("segments that a process maps, at most", columns,
              [](const Footprint &f) { return static_cast<double>(f.most_attached); });
    print_row("mappings of a process, at most", columns,
              [](const Footprint &f) { return static_cast<double>(f.most_mappings); });
    print_row("address space of a process, MiB, at most", columns,
              [](const Footprint &f) { return static_cast<double>(f.largest_mib); });
}

}  // namespace gpushm::scale_test
