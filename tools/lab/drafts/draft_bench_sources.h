// The draft sources that `slipstream-lab drafts` times. There is no model; the predictions that a source would learn
// from one are counted over the text instead: Recycling's matrix, bigrams and unigrams hold the most frequent followers
// of each token.
#pragma once

#include <memory>
#include <string_view>

#include "draft/paper_tree.h"
#include "draft/sources/table_source.h"
#include "tools/lab/drafts/draft_bench_text.h"

namespace slipstream::tools {

struct BenchSource {
    std::unique_ptr<draft::TableSource> source;
    draft::PaperTree* tree = nullptr;  // the same source, for the tree of its paper; not owned
};
/// Returns a source by its name in --draft, for a target with that temperature. The source has not observed the text
/// yet. Throws RequestError if the name is unknown or if the source needs a model or a file.
[[nodiscard]] BenchSource make_bench_source(std::string_view name, const BenchText& text, double temperature);

}  // namespace slipstream::tools
