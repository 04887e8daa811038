// SPDX-License-Identifier: BSD-3-Clause
// MPI_File functions on a temporary file, of which the content is written and checked without MPI.
// GPU memory either works or ends in an error code, of which the test then tells; what must not
// happen is a success with wrong data.
#include "operations_counts.hpp"
#include "operations_file_access.hpp"
#include "operations_registry.hpp"
#include "operations_types.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace gpushm::mpi_test::operations {
namespace {

// A name for a file, the same on all ranks. The file is removed at the end.
class TemporaryName {
public:
    explicit TemporaryName(const Group &group) : group_(group) {
        static unsigned number = 0;
        const char *directory = std::getenv("TMPDIR");
        std::snprintf(path_.data(), path_.size(), "%s/gpushm-operations-%ld-%u",
                      directory != nullptr ? directory : "/tmp", static_cast<long>(getpid()),
                      ++number);
        MPI_Bcast(path_.data(), static_cast<int>(path_.size()), MPI_CHAR, 0, group.comm);
    }

    ~TemporaryName() {
        MPI_Barrier(group_.comm);
        if (group_.rank == 0) {
            unlink(path_.data());
        }
    }

    TemporaryName(const TemporaryName &) = delete;
    TemporaryName &operator=(const TemporaryName &) = delete;

    const char *get() const { return path_.data(); }

private:
    const Group &group_;
    std::array<char, 512> path_{};
};

struct Setting {
    TypePair types;
    FileAccess access;
    bool view;  // the parts of the ranks take turns in the file
    Largest largest;
};

constexpr size_t kTurn = 12;  // bytes

// Where byte `at` of the part of a rank is in the file.
size_t file_position(const Setting &setting, const Group &group, int rank, size_t part_size,
                     size_t at) {
    const auto index = static_cast<size_t>(rank);
    if (!setting.view) {
        return index * part_size + at;
    }
    const auto ranks = static_cast<size_t>(group.size);
    return (at / kTurn * ranks + index) * kTurn + at % kTurn;
}

// Calls visit(position in the file, position in the part, length) for the pieces of a part.
template <typename Visit>
void visit_pieces(const Setting &setting, const Group &group, int rank, size_t part_size,
                  Visit &&visit) {
    const size_t step = setting.view ? kTurn : part_size;
    for (size_t at = 0; at < part_size; at += step) {
        visit(file_position(setting, group, rank, part_size, at), at,
              std::min(step, part_size - at));
    }
}

void set_view(Exchange &exchange, const Setting &setting, const Group &group, MPI_File file) {
    if (!setting.view) {
        return;
    }
    MPI_Datatype turn;
    MPI_Datatype type;
    MPI_Type_contiguous(static_cast<int>(kTurn), MPI_BYTE, &turn);
    MPI_Type_create_resized(turn, 0, static_cast<MPI_Aint>(kTurn) * group.size, &type);
    MPI_Type_commit(&type);
    exchange.require(MPI_File_set_view(file, static_cast<MPI_Offset>(kTurn) * group.rank, MPI_BYTE,
                                       type, "native", MPI_INFO_NULL),
                     "MPI_File_set_view");
    MPI_Type_free(&turn);
    MPI_Type_free(&type);
}

// Opens the file, accesses it and closes it. Returns the code of the access.
int access_file(Exchange &exchange, const Setting &setting, const Group &group, const char *path,
                int mode, const Items &items, size_t part_size,
                const std::function<int(const FilePart &)> &access) {
    MPI_File file = MPI_FILE_NULL;
    if (!exchange.require(MPI_File_open(group.comm, path, mode, MPI_INFO_NULL, &file),
                          "MPI_File_open")) {
        return MPI_ERR_FILE;
    }
    MPI_File_set_errhandler(file, MPI_ERRORS_RETURN);
    set_view(exchange, setting, group, file);
    const auto offset = static_cast<MPI_Offset>(part_size) * group.rank;
    const int code = access({file, group.comm, offset, items});
    exchange.require(MPI_File_close(&file), "MPI_File_close");
    return code;
}

// Returns whether the data is to be checked: not after an error with memory of a GPU.
bool judge(Trial &trial, Exchange &exchange, Role role, int code, const char *function) {
    const MemoryKind kind = trial.kind(role);
    if (code == MPI_SUCCESS || kind == MemoryKind::host || kind == MemoryKind::pinned) {
        return exchange.require(code, function);
    }
    trial.remark("error: " + error_text(code));
    return false;
}

// Compares the part of this rank in the file with what was to be written.
void check_file(Exchange &exchange, const Setting &setting, const Group &group, const char *path,
                const Bytes &expected) {
    std::FILE *file = std::fopen(path, "rb");
    if (file == nullptr) {
        exchange.fail("the file is not there");
        return;
    }
    visit_pieces(
        setting, group, group.rank, expected.size(),
        [&](size_t position, size_t at, size_t length) {
            Bytes piece(length);
            std::fseek(file, static_cast<long>(position), SEEK_SET);
            const size_t got = std::fread(piece.data(), 1, length, file);
            const auto first = expected.begin() + static_cast<ptrdiff_t>(at);
            const auto wrong = std::mismatch(piece.begin(), piece.end(), first).first;
            if (got != length) {
                exchange.fail(text("the file has %zu B at %zu, not %zu", got, position, length));
            } else if (wrong != piece.end()) {
                exchange.fail(text("wrong byte at %td of the file",
                                   static_cast<ptrdiff_t>(position) + (wrong - piece.begin())));
            }
        });
    std::fclose(file);
}

void make_file(Exchange &exchange, const Setting &setting, const Group &group, const char *path,
               int count) {
    std::FILE *file = std::fopen(path, "wb");
    if (file == nullptr) {
        exchange.fail(std::string("cannot write ") + path);
        return;
    }
    for (int rank = 0; rank < group.size; ++rank) {
        const Bytes part = exchange.sent(rank, *setting.types.send, count);
        visit_pieces(setting, group, rank, part.size(),
                     [&](size_t position, size_t at, size_t length) {
                         std::fseek(file, static_cast<long>(position), SEEK_SET);
                         std::fwrite(part.data() + at, 1, length, file);
                     });
    }
    std::fclose(file);
}

void test_write(Trial &trial, const Setting &setting) {
    const Group &group = trial.group();
    for (int count : unit_counts(trial, setting.types, setting.largest)) {
        Exchange exchange(trial, text("count %d", count));
        const TemporaryName path(group);
        const Items items = exchange.source(*setting.types.send, count);
        const Bytes expected = items.pack(0, count);
        exchange.run([&] {
            const int code =
                access_file(exchange, setting, group, path.get(), MPI_MODE_CREATE | MPI_MODE_RDWR,
                            items, expected.size(), setting.access.write);
            if (judge(trial, exchange, Role::source, code, setting.access.write_name)) {
                check_file(exchange, setting, group, path.get(), expected);
            }
        });
    }
}

void test_read(Trial &trial, const Setting &setting) {
    const Group &group = trial.group();
    for (int count : unit_counts(trial, setting.types, setting.largest)) {
        Exchange exchange(trial, text("count %d", count));
        const TemporaryName path(group);
        const Items items = exchange.destination(*setting.types.send, count);
        const Bytes expected = exchange.sent(group.rank, *setting.types.send, count);
        items.expect(0, expected);
        if (group.rank == 0) {
            make_file(exchange, setting, group, path.get(), count);
        }
        MPI_Barrier(group.comm);
        exchange.run([&] {
            const int code = access_file(exchange, setting, group, path.get(), MPI_MODE_RDONLY,
                                         items, expected.size(), setting.access.read);
            if (!judge(trial, exchange, Role::destination, code, setting.access.read_name)) {
                items.ignore_items(0, count);
            }
        });
    }
}

// What is wrong with a datatype is MPI's to say: it is not committed, or there is none.
void test_refused_types(Trial &trial) {
    const Group &group = trial.group();
    Exchange exchange(trial, "a wrong datatype");
    const TemporaryName path(group);
    const Items items = exchange.source(*make_int(), 4);
    MPI_Datatype uncommitted;
    MPI_Type_vector(2, 1, 2, MPI_INT, &uncommitted);
    MPI_File file = MPI_FILE_NULL;
    exchange.require(MPI_File_open(group.comm, path.get(), MPI_MODE_CREATE | MPI_MODE_WRONLY,
                                   MPI_INFO_NULL, &file),
                     "MPI_File_open");
    for (MPI_Datatype type : {uncommitted, MPI_Datatype()}) {
        if (MPI_File_write(file, items.address(), 1, type, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
            exchange.fail("MPI_File_write of a wrong datatype succeeds");
        }
    }
    exchange.require(MPI_File_close(&file), "MPI_File_close");
    MPI_Type_free(&uncommitted);
}

void add_access(Registry &registry, const FileAccess &access, bool view) {
    for (const TypePair &types : {same_type(make_int()), same_type(make_vector())}) {
        const Largest largest = large_if_ints(types);
        const Setting setting{types, access, view, largest};
        registry.add(std::string(access.write_name) + ", " + types.name,
                     [setting](Trial &trial) { test_write(trial, setting); });
        registry.add(std::string(access.read_name) + ", " + types.name,
                     [setting](Trial &trial) { test_read(trial, setting); });
    }
}

}  // namespace

void add_files(Registry &registry) {
    for (const FileAccess &access : file_accesses()) {
        add_access(registry, access, false);
    }
    add_access(registry, collective_file_access(), true);
    registry.add("File_write that is refused", test_refused_types);
}

}  // namespace gpushm::mpi_test::operations
