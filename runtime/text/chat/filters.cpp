#include "runtime/text/chat/filters.h"

#include <algorithm>
#include <array>

#include "runtime/text/chat/filter_bodies.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

Value not_served(Runtime& /*runtime*/, const Value& /*input*/, const Arguments& /*arguments*/) {
    fail("this filter of Jinja (pprint, random, striptags, urlize or wordwrap) is not served in chat templates");
}

// Sorted by name.
constexpr std::array<Filter, 54> kFilters = {{
    {"abs", filters::absolute},
    {"attr", filters::attribute},
    {"batch", filters::batch},
    {"capitalize", filters::capitalized},
    {"center", filters::center},
    {"count", filters::length},
    {"d", filters::with_default},
    {"default", filters::with_default},
    {"dictsort", filters::dict_sort},
    {"e", filters::escaped},
    {"escape", filters::escaped},
    {"filesizeformat", filters::file_size},
    {"first", filters::first},
    {"float", filters::to_float},
    {"forceescape", filters::force_escaped},
    {"format", filters::format},
    {"groupby", filters::group_by},
    {"indent", filters::indent},
    {"int", filters::to_int},
    {"items", filters::items},
    {"join", filters::join},
    {"last", filters::last},
    {"length", filters::length},
    {"list", filters::list},
    {"lower", filters::lower},
    {"map", filters::map},
    {"max", filters::max},
    {"min", filters::min},
    {"pprint", not_served},
    {"random", not_served},
    {"reject", filters::reject},
    {"rejectattr", filters::reject_by},
    {"replace", filters::replace},
    {"reverse", filters::reverse},
    {"round", filters::rounded},
    {"safe", filters::safe},
    {"select", filters::select},
    {"selectattr", filters::select_by},
    {"slice", filters::slices},
    {"sort", filters::sort},
    {"string", filters::string},
    {"striptags", not_served},
    {"sum", filters::sum},
    {"title", filters::title},
    {"tojson", filters::to_json},
    {"trim", filters::trim},
    {"truncate", filters::truncate},
    {"unique", filters::unique},
    {"upper", filters::upper},
    {"urlencode", filters::url_encoded},
    {"urlize", not_served},
    {"wordcount", filters::word_count},
    {"wordwrap", not_served},
    {"xmlattr", filters::xml_attributes},
}};

}  // namespace

const Filter* find_filter(std::string_view name) {
    const auto found = std::lower_bound(kFilters.begin(), kFilters.end(), name,
                                        [](const Filter& filter, std::string_view key) { return filter.name < key; });
    return found != kFilters.end() && found->name == name ? &*found : nullptr;
}

}  // namespace slipstream::jinja
