#include "runtime/text/chat/arguments.h"

#include <algorithm>

#include "runtime/text/chat/operators.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

std::vector<Value> bind(std::string_view function, const Arguments& arguments,
                        std::initializer_list<std::string_view> names, std::size_t n_required) {
    std::vector<Value> bound(names.size());
    if (arguments.positional.size() > names.size())
        fail("{}() takes at most {} argument{} ({} given)", function, names.size(), names.size() == 1 ? "" : "s",
             arguments.positional.size());
    std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
    for (const auto& [name, value] : arguments.named) {
        const auto found = name.empty() ? names.end() : std::find(names.begin(), names.end(), name);
        if (found == names.end()) fail("{}() got an unexpected keyword argument {}", function, quoted(name));
        Value& place = bound[static_cast<std::size_t>(found - names.begin())];
        if (!place.is_missing()) fail("{}() got multiple values for argument {}", function, quoted(name));
        place = value;
    }
    for (std::size_t i = 0; i < n_required; ++i)
        if (bound[i].is_missing()) {
            const std::string_view name = names.begin()[i];
            fail("{}() misses its argument {}{}", function, i + 1, name.empty() ? "" : fmt::format(" ({})", name));
        }
    return bound;
}

std::string_view text_of(const Value& value, std::string_view what) {
    refuse_undefined(value);
    if (!value.is_text()) fail("{} must be str, not {}", what, type_name(value));
    return value.view();
}

std::int64_t int_of(const Value& value, std::string_view what) {
    refuse_undefined(value);
    if (!value.is_integral()) fail("{}: '{}' object cannot be interpreted as an integer", what, type_name(value));
    return value.integer();
}

std::int64_t int_or(const Value& value, std::int64_t otherwise, std::string_view what) {
    return value.is_missing() ? otherwise : int_of(value, what);
}

bool flag_or(const Value& value, bool otherwise, std::string_view what) {
    return value.is_missing() ? otherwise : int_of(value, what) != 0;
}

bool truth_or(const Value& value, bool otherwise) {
    return value.is_missing() ? otherwise : is_true(value);
}

}  // namespace slipstream::jinja
