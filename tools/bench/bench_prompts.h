// Prompts of a bench out of a JSONL file: one object a line, with "prompt" (a text), "turns" (a list of texts that one
// conversation takes in turn) or "question" (a text). HumanEval, MT-bench and GSM8K come so; other fields are ignored.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slipstream::tools {

struct BenchPrompt {
    std::int64_t line = 0;           // in the file, from 1
    std::vector<std::string> turns;  // not empty
};

/// The first `max_prompts` of a file's `text`; empty lines are skipped, lines behind them are not looked at. Throws
/// FormatError naming `name` and the line where one is no such object, RequestError where there is none at all.
[[nodiscard]] std::vector<BenchPrompt> parse_bench_prompts(std::string_view text, std::string_view name,
                                                           std::int64_t max_prompts);

}  // namespace slipstream::tools
