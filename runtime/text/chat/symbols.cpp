#include "runtime/text/chat/symbols.h"

#include "kernels/base/check.h"

namespace slipstream::jinja {

using From = SlotLoad::From;

Symbols Symbols::branch() const {
    Symbols result(parent_, *function_);
    result.base_ = this;
    result.level_ = level_;
    return result;
}

const Symbols* Symbols::owner_of(const std::string& name) const {
    for (const Symbols* scope = this; scope != nullptr; scope = scope->base_ != nullptr ? scope->base_ : scope->parent_)
        if (scope->own_.contains(name)) return scope;
    return nullptr;
}

bool Symbols::owns(const std::string& name) const {
    for (const Symbols* part = this; part != nullptr; part = part->base_)
        if (part->own_.contains(name)) return true;
    return false;
}

bool Symbols::stores(const std::string& name) const {
    for (const Symbols* part = this; part != nullptr; part = part->base_)
        if (part->stores_.contains(name)) return true;
    return false;
}

void Symbols::declare_parameter(const std::string& name) {
    stores_.insert(name);
    own_[name] = From::Parameter;
}

void Symbols::store(const std::string& name) {
    stores_.insert(name);
    if (owns(name)) return;
    const bool is_outer = parent_ != nullptr && parent_->knows(name);
    own_[name] = is_outer ? From::Alias : From::Unset;
}

void Symbols::load(const std::string& name) {
    if (!knows(name)) own_[name] = From::Context;
}

void Symbols::join(const std::vector<Symbols>& branches) {
    std::set<std::string> newly;
    for (const Symbols& branch : branches) {
        for (const std::string& name : branch.stores_)
            if (!stores(name)) newly.insert(name);
        own_.insert(branch.own_.begin(), branch.own_.end());
    }
    stores_.insert(newly.begin(), newly.end());
    for (const std::string& name : newly)
        own_[name] = parent_ != nullptr && parent_->knows(name) ? From::Alias : From::Context;
}

SlotRef Symbols::find(const std::string& name, const FunctionSlots& user) const {
    const Symbols* owner = owner_of(name);
    CHECK(owner != nullptr, "the variable {} belongs to no scope", name);
    SlotRef ref{0, owner->function_->slot_of(owner->level_, name)};
    for (const FunctionSlots* function = &user; function != owner->function_; function = function->parent) {
        CHECK(function->parent != nullptr, "the variable {} lives in a function that is not around its use", name);
        ++ref.up;
    }
    return ref;
}

Scope Symbols::scope() const {
    Scope scope;
    for (const auto& [name, from] : own_) {
        SlotLoad load{from, function_->slot_of(level_, name), {}, name};
        if (from == From::Alias) load.source = parent_->find(name, *function_);
        scope.loads.push_back(std::move(load));
    }
    return scope;
}

}  // namespace slipstream::jinja
