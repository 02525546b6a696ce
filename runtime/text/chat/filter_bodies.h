// The filters by what they work on; filters.cpp names them.
#pragma once

#include "runtime/text/chat/objects.h"
#include "runtime/text/chat/value.h"

namespace slipstream::jinja::filters {

// Text (filters_text.cpp).
Value upper(Runtime& runtime, const Value& input, const Arguments& arguments);
Value lower(Runtime& runtime, const Value& input, const Arguments& arguments);
Value capitalized(Runtime& runtime, const Value& input, const Arguments& arguments);
Value title(Runtime& runtime, const Value& input, const Arguments& arguments);
Value trim(Runtime& runtime, const Value& input, const Arguments& arguments);
Value replace(Runtime& runtime, const Value& input, const Arguments& arguments);
Value indent(Runtime& runtime, const Value& input, const Arguments& arguments);
Value truncate(Runtime& runtime, const Value& input, const Arguments& arguments);
Value center(Runtime& runtime, const Value& input, const Arguments& arguments);
Value word_count(Runtime& runtime, const Value& input, const Arguments& arguments);
Value string(Runtime& runtime, const Value& input, const Arguments& arguments);
Value format(Runtime& runtime, const Value& input, const Arguments& arguments);

// Text for HTML, URLs and JSON (filters_markup.cpp).
Value safe(Runtime& runtime, const Value& input, const Arguments& arguments);
Value escaped(Runtime& runtime, const Value& input, const Arguments& arguments);
Value force_escaped(Runtime& runtime, const Value& input, const Arguments& arguments);
Value url_encoded(Runtime& runtime, const Value& input, const Arguments& arguments);
Value xml_attributes(Runtime& runtime, const Value& input, const Arguments& arguments);
Value to_json(Runtime& runtime, const Value& input, const Arguments& arguments);

// Numbers and single values (filters_number.cpp).
Value absolute(Runtime& runtime, const Value& input, const Arguments& arguments);
Value rounded(Runtime& runtime, const Value& input, const Arguments& arguments);
Value to_int(Runtime& runtime, const Value& input, const Arguments& arguments);
Value to_float(Runtime& runtime, const Value& input, const Arguments& arguments);
Value file_size(Runtime& runtime, const Value& input, const Arguments& arguments);
Value with_default(Runtime& runtime, const Value& input, const Arguments& arguments);
Value attribute(Runtime& runtime, const Value& input, const Arguments& arguments);

// Sequences, as wholes (filters_sequence.cpp).
Value length(Runtime& runtime, const Value& input, const Arguments& arguments);
Value first(Runtime& runtime, const Value& input, const Arguments& arguments);
Value last(Runtime& runtime, const Value& input, const Arguments& arguments);
Value list(Runtime& runtime, const Value& input, const Arguments& arguments);
Value join(Runtime& runtime, const Value& input, const Arguments& arguments);
Value reverse(Runtime& runtime, const Value& input, const Arguments& arguments);
Value sum(Runtime& runtime, const Value& input, const Arguments& arguments);

// In an order (filters_order.cpp).
Value sort(Runtime& runtime, const Value& input, const Arguments& arguments);
Value dict_sort(Runtime& runtime, const Value& input, const Arguments& arguments);
Value group_by(Runtime& runtime, const Value& input, const Arguments& arguments);
Value min(Runtime& runtime, const Value& input, const Arguments& arguments);
Value max(Runtime& runtime, const Value& input, const Arguments& arguments);

// Lazily, item by item (filters_lazy.cpp).
Value items(Runtime& runtime, const Value& input, const Arguments& arguments);
Value map(Runtime& runtime, const Value& input, const Arguments& arguments);
Value select(Runtime& runtime, const Value& input, const Arguments& arguments);
Value reject(Runtime& runtime, const Value& input, const Arguments& arguments);
Value select_by(Runtime& runtime, const Value& input, const Arguments& arguments);
Value reject_by(Runtime& runtime, const Value& input, const Arguments& arguments);
Value unique(Runtime& runtime, const Value& input, const Arguments& arguments);
Value batch(Runtime& runtime, const Value& input, const Arguments& arguments);
Value slices(Runtime& runtime, const Value& input, const Arguments& arguments);

}  // namespace slipstream::jinja::filters
