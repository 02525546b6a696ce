// slipstream tokenize: text to token ids and pieces, or back. Also works with files that have a vocabulary but no
// weights.
#include <unistd.h>

#include <string>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/usage_error.h"
#include "tools/cli/token_ids.h"
#include "tools/machine/tokenizer_files.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

std::string read_input(const Settings& settings) {
    const auto file = settings.path("file");
    const auto text = settings.text("prompt");
    if (file && text) throw UsageError("--file and --prompt were both given; the input is one of them");
    if (text) return *text;
    if (file) return read_text(*file, "--file", kMostCorpusBytes);
    if (isatty(STDIN_FILENO) == 1) throw UsageError("nothing to read; give a text, --file F, or text on stdin");
    return read_text({}, "the input on", kMostCorpusBytes);
}

void detokenize(const Tokenizer& tokenizer, const std::string& input, CommandContext& context) {
    TextOutput output(std::nullopt);
    output.write(tokenizer.decode(parse_token_ids(input, "the input", tokenizer.vocab_size())));
    if (context.console.stdout_is_terminal() && output.last_byte() != '\n') output.write("\n");
}

// Returns what stands for a token in a list: its spelling in the vocabulary, or its bytes if the vocabulary spells each
// byte as some letter ("Ġ" for a blank).
std::string_view shown_piece(const Tokenizer& tokenizer, TokenId id) {
    const std::string_view bytes = tokenizer.kind() == "byte-level BPE" ? tokenizer.token_bytes(id) : "";
    return bytes.empty() ? tokenizer.piece(id) : bytes;
}

std::string listed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
    std::string text;
    for (const TokenId id : ids) {
        throw_if_interrupted();
        text += fmt::format("{}\t{}\n", id, printable(shown_piece(tokenizer, id), 1024));
    }
    return text;
}

int run_tokenize(CommandContext& context) {
    const Settings& settings = context.settings;
    const bool back = settings.flag("detokenize");
    for (const std::string_view name : {"ids", "no-bos", "special"})
        if (settings.flag(name) && back && settings.on_command_line(name) != nullptr)
            throw UsageError(fmt::format("--{} has no meaning with --detokenize; leave it out", name));
    const std::string input = read_input(settings);
    const TokenizerSource source = find_tokenizer_source(choose_model(context));
    if (const auto note = pre_tokenizer_note(source)) context.console.note(*note);
    const auto tokenizer = make_tokenizer(source);
    if (back) {
        detokenize(*tokenizer, input, context);
        return 0;
    }
    std::vector<TokenId> ids = tokenizer->encode(
        input, settings.flag("special") ? SpecialTokens::Parse : SpecialTokens::AsText, &cancel_flag());
    // A text that begins with BOS, as one rendered by a template may, gets no second one.
    const auto bos = tokenizer->bos_id();
    const bool adds_bos = bos && tokenizer->adds_bos() && !settings.flag("no-bos");
    if (adds_bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
    TextOutput(std::nullopt)
        .write(settings.flag("ids") ? fmt::format("{}\n", fmt::join(ids, " ")) : listed(*tokenizer, ids));
    return signal_exit_code();
}

}  // namespace

CommandSpec tokenize_command() {
    return {
        .name = "tokenize",
        .summary = "Text to token ids and pieces, or back",
        .details =
            "The input's bytes are taken as they are: the text given, or that of --file or stdin. Without --ids: id "
            "and\npiece, one a line.",
        .example = "echo -n \"Once upon a time\" | slipstream tokenize --ids",
        .options = {{"prompt", "prompt,-p,--prompt", "TEXT", "Text to encode; the name may be left out"},
                    model_option(),
                    {"file", "-f,--file", "F", "Input file ('-': stdin)", OptionRole::InputFile},
                    {"ids", "--ids", "", "Print all ids on one line"},
                    {"no-bos", "--no-bos", "", "Leave the beginning-of-text token out"},
                    {"special", "--special", "", "Take spellings like </s> in the input for special tokens"},
                    {"detokenize", "--detokenize", "", "The input is ids; print their text"}},
        .run = run_tokenize};
}

}  // namespace slipstream::tools
