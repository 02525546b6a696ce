// The sources that bench_draft times. What a model would have taught them is counted over the text instead: Recycling's
// matrix, bigrams and unigrams say what followed a token most often.
#pragma once

#include <memory>
#include <string_view>

#include "draft/sources/table_source.h"
#include "tools/dev/bench_draft_text.h"

namespace slipstream::tools {

/// A source by its name in --draft, for a target of that temperature. It has not heard the text yet. Throws
/// RequestError where there is none of that name, or it needs a model or a file.
[[nodiscard]] std::unique_ptr<draft::TableSource> make_bench_source(std::string_view name, const BenchText& text,
                                                                    double temperature);

}  // namespace slipstream::tools
