// Prompts of a benchmark from a JSONL file. Each line is an object with "prompt" (a text), "turns" (a list of texts:
// the user's messages of one conversation) or "question" (a text), as in HumanEval, MT-bench and GSM8K. Other fields
// are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct BenchPrompt {
    std::int64_t line = 0;           // number of the line in the file, from 1
    std::vector<std::string> turns;  // never empty
};

/// Returns the first `max_prompts` prompts of `text`. Empty lines are skipped; lines after the last prompt taken are
/// not parsed. Throws FormatError with `name` and the line number if a line is no such object, RequestError if there
/// are no prompts.
[[nodiscard]] std::vector<BenchPrompt> parse_bench_prompts(std::string_view text, std::string_view name,
                                                           std::int64_t max_prompts);

}  // namespace slipstream::tools
