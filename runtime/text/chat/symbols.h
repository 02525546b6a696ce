// The names of one scope while it is analysed: which it has of its own, how each gets its first value, and which it
// sets. The counterpart of jinja2/idtracking.py's Symbols, whose rules these are.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/text/chat/ast.h"

namespace slipstream::jinja {

/// A function being laid out: its slots by scope depth and name.
struct FunctionSlots {
    FunctionSlots* parent = nullptr;
    std::map<std::pair<int, std::string>, int> slots;

    [[nodiscard]] int slot_of(int level, const std::string& name) {
        return slots.try_emplace({level, name}, static_cast<int>(slots.size())).first->second;
    }
};

class Symbols {
public:
    Symbols(const Symbols* parent, FunctionSlots& function)
        : parent_(parent), function_(&function), level_(parent == nullptr ? 0 : parent->level_ + 1) {}
    /// A branch of an `if` in this scope: sees what is known so far, and keeps to itself what it adds until the
    /// branches are joined. The scope outlives it.
    [[nodiscard]] Symbols branch() const;

    void declare_parameter(const std::string& name);
    void store(const std::string& name);
    void load(const std::string& name);
    /// What a branch sets and the scope before it did not is, in the other branches, the outer variable or what the
    /// caller handed in.
    void join(const std::vector<Symbols>& branches);

    /// Where the name lives, as seen from `user`; it must be known here or further out.
    [[nodiscard]] SlotRef find(const std::string& name, const FunctionSlots& user) const;
    [[nodiscard]] bool knows(const std::string& name) const { return owner_of(name) != nullptr; }
    [[nodiscard]] FunctionSlots& function() const { return *function_; }
    /// What to do when the scope is entered.
    [[nodiscard]] Scope scope() const;

private:
    [[nodiscard]] const Symbols* owner_of(const std::string& name) const;
    [[nodiscard]] bool owns(const std::string& name) const;
    [[nodiscard]] bool stores(const std::string& name) const;

    const Symbols* parent_;
    const Symbols* base_ = nullptr;  // of a branch: the scope, or branch, it is a part of
    FunctionSlots* function_;
    int level_;
    std::map<std::string, SlotLoad::From> own_;
    std::set<std::string> stores_;
};

}  // namespace slipstream::jinja
