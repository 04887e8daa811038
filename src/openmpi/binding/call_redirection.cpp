// SPDX-License-Identifier: BSD-3-Clause
#include "openmpi/binding/call_redirection.hpp"

#include "core/base/log.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace gpushm::openmpi {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT;
constexpr uint32_t kTableEntry = R_X86_64_GLOB_DAT;
constexpr uint32_t kPointer = R_X86_64_64;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT;
constexpr uint32_t kTableEntry = R_AARCH64_GLOB_DAT;
constexpr uint32_t kPointer = R_AARCH64_ABS64;
#else
constexpr uint32_t kJumpSlot = UINT32_MAX;  // none is known
constexpr uint32_t kTableEntry = UINT32_MAX;
constexpr uint32_t kPointer = UINT32_MAX;
#endif

/** An address in a global offset table. */
bool is_in_table(const ElfW(Rela) & entry) {
    const uint32_t type = ELF64_R_TYPE(entry.r_info);
    return type == kJumpSlot || type == kTableEntry;
}

/** A pointer in initialised data. Pointers in packed structures may be unaligned: they are ignored.
 */
bool is_pointer(const ElfW(Rela) & entry) {
    return ELF64_R_TYPE(entry.r_info) == kPointer && entry.r_addend == 0 &&
           entry.r_offset % sizeof(void *) == 0;
}

/** The relocations of an object, from its dynamic section. */
struct Relocations {
    const ElfW(Sym) *symbols = nullptr;
    const char *names = nullptr;
    const ElfW(Rela) * tables[2] = {};  // of functions bound lazily, of everything else
    size_t bytes[2] = {};
};

/** glibc turns offsets in the dynamic section into addresses, except in the vDSO. */
template <typename T>
const T *pointer_in(const dl_phdr_info &object, ElfW(Addr) value) {
    return reinterpret_cast<const T *>(value < object.dlpi_addr ? object.dlpi_addr + value : value);
}

Relocations read_dynamic_section(const dl_phdr_info &object, const ElfW(Dyn) * dynamic) {
    Relocations found;
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
        const ElfW(Addr) value = dynamic->d_un.d_ptr;
        switch (dynamic->d_tag) {
            case DT_SYMTAB:
                found.symbols = pointer_in<ElfW(Sym)>(object, value);
                break;
            case DT_STRTAB:
                found.names = pointer_in<char>(object, value);
                break;
            case DT_JMPREL:
                found.tables[0] = pointer_in<ElfW(Rela)>(object, value);
                break;
            case DT_PLTRELSZ:
                found.bytes[0] = dynamic->d_un.d_val;
                break;
            case DT_RELA:
                found.tables[1] = pointer_in<ElfW(Rela)>(object, value);
                break;
            case DT_RELASZ:
                found.bytes[1] = dynamic->d_un.d_val;
                break;
            default:
                break;
        }
    }
    return found;
}

uintptr_t page_of(uintptr_t address) {
    return address & ~(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)) - 1);
}

/** Whether the loader has made the table read-only (PT_GNU_RELRO of a library that is bound at
 * once). It protects whole pages only (glibc, _dl_protect_relro). */
bool is_read_only(const dl_phdr_info &object, const void *place) {
    const auto address = reinterpret_cast<uintptr_t>(place);
    return std::any_of(object.dlpi_phdr, object.dlpi_phdr + object.dlpi_phnum,
                       [&](const ElfW(Phdr) & header) {
                           const uintptr_t begin = object.dlpi_addr + header.p_vaddr;
                           return header.p_type == PT_GNU_RELRO && address >= page_of(begin) &&
                                  address < page_of(begin + header.p_memsz);
                       });
}

/** Whether the address is in memory of the object that has these rights (PF_W), or any. */
bool contains(const dl_phdr_info &object, const void *address, uint32_t rights = 0) {
    const auto offset = reinterpret_cast<ElfW(Addr)>(address) - object.dlpi_addr;
    return std::any_of(object.dlpi_phdr, object.dlpi_phdr + object.dlpi_phnum,
                       [&](const ElfW(Phdr) & header) {
                           return header.p_type == PT_LOAD && (header.p_flags & rights) == rights &&
                                  offset - header.p_vaddr < header.p_memsz;
                       });
}

bool write_entry(const dl_phdr_info &object, void **place, void *value) {
    const bool protect = is_read_only(object, place);
    const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    auto *const page = reinterpret_cast<void *>(page_of(reinterpret_cast<uintptr_t>(place)));
    if (protect && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) {
        GPUSHM_LOG(debug, "cannot write to the offset table of %s: %s", object.dlpi_name,
                   strerror(errno));
        return false;
    }
    __atomic_store_n(place, value, __ATOMIC_RELEASE);  // another thread may be calling
    if (protect) {
        mprotect(page, page_bytes, PROT_READ);
    }
    return true;
}

const ElfW(Dyn) * dynamic_section(const dl_phdr_info &object) {
    for (const ElfW(Phdr) *header = object.dlpi_phdr;
         header != object.dlpi_phdr + object.dlpi_phnum; ++header) {
        if (header->p_type == PT_DYNAMIC) {
            return reinterpret_cast<const ElfW(Dyn) *>(object.dlpi_addr + header->p_vaddr);
        }
    }
    return nullptr;
}

const char *file_name(const dl_phdr_info &object) {
    const char *slash = strrchr(object.dlpi_name, '/');
    return slash != nullptr ? slash + 1 : object.dlpi_name;
}

/** Keeps an object of the process loaded. The constructor waits if another thread is loading the
 * object: it may be listed before the loader has resolved its addresses. */
class HeldObject {
public:
    /** A name from dl_iterate_phdr(); empty: the program. */
    explicit HeldObject(const std::string &name)
        : handle_(dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
        const link_map *object = nullptr;
        if (handle_ != nullptr && dlinfo(handle_, RTLD_DI_LINKMAP, &object) == 0) {
            dynamic_ = object->l_ld;
        }
    }
    ~HeldObject() {
        if (handle_ != nullptr) {
            dlclose(handle_);
        }
    }
    HeldObject(HeldObject &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), dynamic_(other.dynamic_) {}
    HeldObject &operator=(HeldObject &&) = delete;

    /** Null: the object was unloaded. */
    const ElfW(Dyn) * dynamic() const { return dynamic_; }

private:
    void *handle_;
    const ElfW(Dyn) *dynamic_ = nullptr;
};

}  // namespace

/** Walks over the objects of the process twice: the first walk finds the objects to change, the
 * second changes them while they are held. The loader's lock during a walk does not prevent
 * relocations. */
struct ObjectVisit {
    CallRedirection &redirection;
    std::vector<std::string> found = {};
    std::vector<HeldObject> held = {};
    size_t changed = 0;

    static int find(dl_phdr_info *object, size_t, void *argument) {
        auto &self = *static_cast<ObjectVisit *>(argument);
        self.forget_unloaded(*object);
        const ElfW(Dyn) *dynamic = dynamic_section(*object);
        if (self.is_of_interest(*object, dynamic)) {
            bool has_target = false;
            self.for_each_target(*object, dynamic, [&](auto &&...) { has_target = true; });
            if (has_target) {
                self.found.emplace_back(object->dlpi_name);
            } else {
                self.redirection.done_.push_back(dynamic);
            }
        }
        return 0;
    }

    void hold_found() {
        held.reserve(found.size());
        for (const std::string &name : found) {
            held.emplace_back(name);
        }
    }

    static int change(dl_phdr_info *object, size_t, void *argument) {
        auto &self = *static_cast<ObjectVisit *>(argument);
        self.forget_unloaded(*object);
        const ElfW(Dyn) *dynamic = dynamic_section(*object);
        if (self.is_of_interest(*object, dynamic) && self.is_held(dynamic)) {
            self.redirection.done_.push_back(dynamic);
            self.for_each_target(*object, dynamic,
                                 [&](const ElfW(Rela) & entry, const auto &target) {
                                     self.change_entry(*object, entry, target);
                                 });
        }
        return 0;
    }

private:
    using Target = CallRedirection::Target;

    /** After an unload, a new object may have the address of the old one. */
    void forget_unloaded(const dl_phdr_info &object) {
        if (object.dlpi_subs != redirection.unloads_) {
            redirection.unloads_ = object.dlpi_subs;
            redirection.done_.clear();
        }
    }

    bool is_of_interest(const dl_phdr_info &object, const ElfW(Dyn) * dynamic) const {
        static const char here = 0;
        const auto &done = redirection.done_;
        return dynamic != nullptr && !contains(object, &here) &&
               std::find(done.begin(), done.end(), dynamic) == done.end();
    }

    bool is_held(const ElfW(Dyn) * dynamic) const {
        return std::any_of(held.begin(), held.end(), [dynamic](const HeldObject &object) {
            return object.dynamic() == dynamic;
        });
    }

    template <typename Function>  // of an entry and its Target
    void for_each_target(const dl_phdr_info &object, const ElfW(Dyn) * dynamic,
                         Function function) const {
        const Relocations relocations = read_dynamic_section(object, dynamic);
        if (relocations.symbols == nullptr || relocations.names == nullptr) {
            return;
        }
        for (size_t table = 0; table < std::size(relocations.tables); ++table) {
            const ElfW(Rela) *entries = relocations.tables[table];
            const size_t count =
                entries != nullptr ? relocations.bytes[table] / sizeof(ElfW(Rela)) : 0;
            for (size_t i = 0; i < count; ++i) {
                if (const Target *const target = find_target(object, relocations, entries[i])) {
                    function(entries[i], *target);
                }
            }
        }
    }

    /** Null: `entry` stays. */
    const Target *find_target(const dl_phdr_info &object, const Relocations &relocations,
                              const ElfW(Rela) & entry) const {
        if (!is_in_table(entry) && !is_pointer(entry)) {
            return nullptr;
        }
        const ElfW(Sym) &symbol = relocations.symbols[ELF64_R_SYM(entry.r_info)];
        const auto target = redirection.targets_.find(relocations.names + symbol.st_name);
        if (target == redirection.targets_.end()) {
            return nullptr;
        }
        const std::vector<std::string> &only_in = target->second.only_in;
        const auto names_object = [&](const std::string &beginning) {
            return strncmp(file_name(object), beginning.c_str(), beginning.size()) == 0;
        };
        return only_in.empty() || std::any_of(only_in.begin(), only_in.end(), names_object)
                   ? &target->second
                   : nullptr;
    }

    void change_entry(const dl_phdr_info &object, const ElfW(Rela) & entry, const Target &target) {
        auto *place = reinterpret_cast<void **>(object.dlpi_addr + entry.r_offset);
        if (is_in_table(entry) || points_to(target.original, object, place)) {
            changed += write_entry(object, place, target.replacement) ? 1 : 0;
        }
    }

    /** False: the program has changed the pointer, which then stays. */
    static bool points_to(const void *original, const dl_phdr_info &object, void *const *place) {
        // A place outside of writable data is in code that the loader has changed (DT_TEXTREL).
        return original != nullptr && contains(object, place, PF_W) &&
               __atomic_load_n(place, __ATOMIC_RELAXED) == original;
    }
};

void CallRedirection::add(const char *symbol, void *replacement,
                          const std::vector<std::string> &only_in) {
    targets_[symbol] = {nullptr, replacement, only_in};
    done_.clear();  // not for this one
}

bool CallRedirection::add_all(const std::vector<ReplacedCall> &calls,
                              const std::function<void *(const char *symbol)> &find,
                              const std::vector<std::string> &only_in) {
    for (const ReplacedCall &call : calls) {
        *call.original = find(call.symbol);
        if (*call.original == nullptr) {
            return false;
        }
    }
    for (const ReplacedCall &call : calls) {
        add(call.symbol, call.replacement, only_in);
    }
    return true;
}

void CallRedirection::add_function(const char *symbol, const void *original, void *replacement) {
    targets_[symbol] = {original, replacement, {}};
    done_.clear();
}

size_t CallRedirection::apply() {
    ObjectVisit visit{*this};
    dl_iterate_phdr(ObjectVisit::find, &visit);
    visit.hold_found();
    dl_iterate_phdr(ObjectVisit::change, &visit);
    return visit.changed;
}

}  // namespace gpushm::openmpi
