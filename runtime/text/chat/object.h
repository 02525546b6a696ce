// What is called or has attributes of its own: functions and bound methods, macros, loops, namespaces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/chat/value.h"

namespace slipstream::jinja {

class Runtime;

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> named;  // names of the template, or keys of `spread`
    Value spread;
};

class Object : public Cell {
public:
    [[nodiscard]] virtual std::string_view type_name() const = 0;
    /// As Python shows it.
    [[nodiscard]] virtual std::string shown() const = 0;
    /// How deep containers nest in what can be shown of it.
    [[nodiscard]] virtual int depth() const { return 0; }
    [[nodiscard]] virtual bool is_callable() const { return false; }
    /// Nothing where there is no such attribute.
    [[nodiscard]] virtual std::optional<Value> attribute(Runtime& runtime, std::string_view name);
    [[nodiscard]] virtual Value call(Runtime& runtime, Arguments& arguments);
    /// Lets go of other values, when the rendering ends: objects may hold each other in circles.
    virtual void release() {}
};

/// namespace(...): the one thing a template can write to.
class Namespace final : public Object {
public:
    [[nodiscard]] std::string_view type_name() const override { return "namespace"; }
    [[nodiscard]] std::string shown() const override { return "<Namespace>"; }
    [[nodiscard]] std::optional<Value> attribute(Runtime& runtime, std::string_view name) override;
    void release() override { attributes_.clear(); }
    /// Throws TemplateError for names that begin with an underscore.
    void set(Runtime& runtime, std::string_view name, Value value);

private:
    std::vector<std::pair<std::string, Value>> attributes_;
};

}  // namespace slipstream::jinja
