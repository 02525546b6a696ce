// slipstream tables: builds files for draft sources (frozen Cacheback tables and corpus stores from text files, n-grams
// from the model itself), and lists the contents of table files. A file is written as a whole or not at all.
#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "draft/tables/corpus_builder.h"
#include "draft/tables/frozen_table_builder.h"
#include "draft/tables/model_ngrams.h"
#include "draft/tables/table_store.h"
#include "kernels/base/error.h"
#include "kernels/device.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/amounts.h"
#include "tools/base/json_object.h"
#include "tools/base/usage_error.h"
#include "tools/cli/table_listing.h"
#include "tools/engine/engine.h"
#include "tools/machine/compute_device.h"
#include "tools/machine/host.h"
#include "tools/machine/model_lookup.h"
#include "tools/machine/tokenizer_files.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/draft_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/bounded_file.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"
#include "tools/terminal/signals.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

// Most bytes of text that are encoded at once. The cut is at the end of a line if there is one.
constexpr std::size_t kPieceBytes = 64 * 1024;
// Positions of the KV cache of the model that computes n-grams; it is fed single tokens.
constexpr std::int64_t kNgramContext = 256;

void refuse(const Settings& settings, std::string_view option, std::string_view why) {
    if (const Setting* given = settings.on_command_line(option))
        throw UsageError(fmt::format("{} {}; leave it out", given->where, why));
}

std::string built_line(const fs::path& path, std::string_view what, std::string_view use) {
    std::error_code unknown;
    const std::uintmax_t bytes = fs::file_size(path, unknown);
    return fmt::format("{}: {}, {}; {}", path.string(), what, size_text(unknown ? 0 : static_cast<std::size_t>(bytes)),
                       use);
}

// Removes the next part from the front of `text` and returns it: whole lines, unless a line is longer than kPieceBytes.
std::string_view take_piece(std::string_view& text) {
    std::size_t n = std::min(text.size(), kPieceBytes);
    if (n < text.size()) {
        const std::size_t line = text.rfind('\n', n - 1);
        if (line != std::string_view::npos) n = line + 1;
        // Do not cut a UTF-8 character.
        while (line == std::string_view::npos && n > 1 && (static_cast<unsigned char>(text[n]) & 0xC0U) == 0x80U) --n;
    }
    const std::string_view piece = text.substr(0, n);
    text.remove_prefix(n);
    return piece;
}

// Encodes each file as a document and calls add(ids) for each, in order.
template <typename Add>
void tokenize_files(const std::vector<std::string>& files, const Tokenizer& tokenizer, Console& console,
                    const Add& add) {
    ProgressBar bar(console, "tokenizing");
    for (std::size_t i = 0; i < files.size(); ++i) {
        const std::string text = read_text(files[i], "the text", kMostCorpusBytes);
        std::vector<TokenId> ids;
        for (std::string_view rest = text; !rest.empty();) {
            const auto more = tokenizer.encode(take_piece(rest), SpecialTokens::AsText, &cancel_flag());
            ids.insert(ids.end(), more.begin(), more.end());
            const double share = 1.0 - static_cast<double>(rest.size()) / static_cast<double>(text.size());
            bar.update(static_cast<double>(i) + share, static_cast<double>(files.size()), files[i]);
        }
        add(ids);
    }
}

// Returns the size of the vocabulary of the model at `path`, to which the tokenizer belongs; at least the tokenizer's.
// The model's embedding may have more rows than the tokenizer has pieces. Without a model, the tokenizer's size counts.
std::int64_t vocab_of(const fs::path& path, const Tokenizer& tokenizer) {
    try {
        return std::max(ModelFiles::open(path)->config().vocab, tokenizer.vocab_size());
    } catch (const Error&) {
        return tokenizer.vocab_size();  // a vocabulary without a model
    }
}

std::vector<std::string> text_files(const Settings& settings) {
    std::vector<std::string> files = settings.texts("files");
    if (files.empty()) throw UsageError("tables build: name the text files to build from");
    return files;
}

fs::path output_path(const Settings& settings, std::string_view kind) {
    return settings.path("output").value_or(fmt::format("{}.table", kind));
}

int build_cacheback(CommandContext& context) {
    const Settings& settings = context.settings;
    const auto files = text_files(settings);
    const auto list = settings.text("cacheback");
    const draft::CachebackOptions options =
        list ? parse_cacheback(*list, settings.find("cacheback")->where) : draft::CachebackOptions{};
    const fs::path model = choose_model(context);
    const auto tokenizer = make_tokenizer(find_tokenizer_source(model));
    draft::Documents documents(tokenizer->vocab_size());
    tokenize_files(files, *tokenizer, context.console, [&](const auto& ids) { documents.add(ids); });
    draft::BuiltFrozenTable table;
    {
        ProgressBar bar(context.console, "counting");
        table = draft::build_frozen_table(options, documents, tokenizer_fingerprint(*tokenizer),
                                          [&](double done, double total) {
                                              throw_if_interrupted();
                                              bar.update(done, total, "");
                                          });
    }
    const fs::path output = output_path(settings, "cacheback");
    draft::write_table_file(output, {&table.section, 1});
    context.console.note(built_line(output,
                                    fmt::format("{} leaders with {} followers out of {} tokens", table.n_leaders,
                                                table.n_followers, documents.tokens().size() - documents.n_documents()),
                                    fmt::format("used by --draft cacheback --frozen-table {}", output.string())));
    return 0;
}

int build_corpus(CommandContext& context) {
    const Settings& settings = context.settings;
    const auto files = text_files(settings);
    const fs::path model = choose_model(context);
    const auto tokenizer = make_tokenizer(find_tokenizer_source(model));
    draft::Documents documents(vocab_of(model, *tokenizer));
    tokenize_files(files, *tokenizer, context.console, [&](const auto& ids) { documents.add(ids); });
    const fs::path output = output_path(settings, "corpus");
    {
        ProgressBar bar(context.console, "sorting");
        draft::write_corpus(documents, tokenizer_fingerprint(*tokenizer), output, [&](double done, double total) {
            throw_if_interrupted();
            bar.update(done, total, "");
        });
    }
    context.console.note(
        built_line(output,
                   fmt::format("{} tokens of {}", documents.tokens().size(),
                               counted(static_cast<std::int64_t>(documents.n_documents()), "document")),
                   fmt::format("used by --draft corpus --corpus {}", output.string())));
    return 0;
}

std::vector<draft::TableSection> ngram_sections(const OpenedModel& opened, CommandContext& context) {
    const ModelFiles& files = opened.files();
    const ModelConfig& config = opened.config();
    opened.check_host_memory(kNgramContext);
    const DeviceRequest request{.n_threads = thread_setting(context.settings)};
    DeviceChoice choice = device_setting(context.settings);
    std::unique_ptr<Device> device = make_compute_device(choice, request);
    // Nothing streams here. A GPU that `auto` chose is used only if the model takes at most 3/4 of its memory; a GPU
    // that is named is always used.
    const bool named = context.settings.find("devices") != nullptr && context.settings.text("devices") != "auto";
    if (choice.card && !named && files.total_bytes() > device->budget().limit_bytes() / 4 * 3)
        device = make_compute_device({}, request);
    ProgressBar bar(context.console, "loading");
    const Model model(files, *device,
                      LoadOptions{.context_tokens = kNgramContext,
                                  .kv_dtype = config.kv_dtype,
                                  .on_progress = [&](std::size_t done, std::size_t total) {
                                      throw_if_interrupted();
                                      bar.update(static_cast<double>(done), static_cast<double>(total),
                                                 fmt::format("{} of {}", size_text(done), size_text(total)));
                                  }});
    bar.clear();
    ProgressBar computing(context.console, "computing");
    draft::ModelNgramsOptions options;
    options.on_progress = [&](double done, double total) {
        throw_if_interrupted();
        computing.update(done, total, "");
    };
    options.cancel = &cancel_flag();
    const auto ngrams = draft::build_model_ngrams(model, files, options);
    throw_if_interrupted();
    return draft::model_ngrams_sections(ngrams.value());
}

int build_bigram(CommandContext& context) {
    const Settings& settings = context.settings;
    if (!settings.texts("files").empty())
        throw UsageError("tables build --kind bigram: the model alone is its source; leave the text files out");
    refuse(settings, "cacheback", "has no meaning with --kind bigram");
    static_cast<void>(device_setting(settings));  // reports an error in the setting before the model is opened
    const auto output = settings.path("output");
    const auto folder = tables_folder(settings);
    if (!output && !folder)
        throw UsageError("tables build --kind bigram: there is no folder of tables to put it in; give --output F");
    const OpenedModel opened(choose_model(context));
    const auto sections = ngram_sections(opened, context);
    const draft::TableStore store(
        {.folder = folder.value_or(""), .on_note = [&](std::string_view note) { context.console.note(note); }});
    const std::uint64_t fingerprint = model_fingerprint(opened.files());
    const fs::path place = store.path(fingerprint, "bigram");
    if (output) {
        draft::write_table_file(*output, sections);
    } else {
        store.save(fingerprint, sections, "bigram");
    }
    context.console.note(built_line(
        output ? fs::path(*output) : place, fmt::format("n-grams of {} tokens", opened.config().vocab),
        output ? fmt::format("used by --draft bigram as {} in the folder of --tables", place.filename().string())
               : "used by --draft bigram and unigram with this model"));
    return 0;
}

int build(CommandContext& context) {
    const Settings& settings = context.settings;
    refuse(settings, "json", "has no meaning with tables build");
    const std::string kind = settings.text("kind").value_or("");
    if (kind == "cacheback") return build_cacheback(context);
    if (kind == "bigram") return build_bigram(context);
    if (kind == "corpus") {
        refuse(settings, "cacheback", "has no meaning with --kind corpus");
        return build_corpus(context);
    }
    const Setting* given = settings.find("kind");
    throw UsageError(fmt::format(
        "{}: give one of cacheback, corpus, bigram",
        given == nullptr ? "tables build requires --kind" : fmt::format("{}: unknown kind '{}'", given->where, kind)));
}

fs::path inspected_path(const Settings& settings) {
    const std::vector<std::string> paths = settings.texts("files");
    if (paths.size() > 1) throw UsageError("tables inspect: give one file or folder");
    if (!paths.empty()) return paths.front();
    const auto folder = tables_folder(settings);
    if (!folder) throw UsageError("tables inspect: there is no folder of tables; name a file or folder");
    return *folder;
}

int inspect(CommandContext& context) {
    const Settings& settings = context.settings;
    for (const std::string_view option : {"kind", "model", "output", "cacheback", "devices", "threads"})
        refuse(settings, option, "has no meaning with tables inspect");
    const fs::path path = inspected_path(settings);
    std::error_code error;
    const bool is_missing_default = settings.texts("files").empty() && !fs::exists(path, error);
    std::vector<TableFacts> tables;
    if (fs::is_directory(path, error)) {
        tables = inspect_tables(path);
    } else if (!is_missing_default) {
        tables.push_back(inspect_table(path));
    }
    if (tables.empty()) context.console.note(fmt::format("{}: no tables here yet", path.string()));
    name_models(tables, find_models(settings.environment(), bundled_model(program_folder())).models);
    TextOutput(std::nullopt)
        .write(settings.flag("json")
                   ? JsonObject().objects("tables", listing_json(tables)).to_text(JsonLayout::Indented)
                   : folded(listing_text(tables), stdout_columns(), 4));
    return 0;
}

int run_tables(CommandContext& context) {
    const std::string action = context.settings.text("action").value_or("");
    if (action == "build") return build(context);
    if (action == "inspect") return inspect(context);
    throw UsageError(action.empty() ? "tables: use build or inspect"
                                    : fmt::format("tables: unknown action '{}'; use build or inspect", action));
}

}  // namespace

CommandSpec tables_command() {
    std::vector<OptionSpec> options{
        {"action", "action", "build|inspect", "What to do", OptionRole::Value, "build, inspect"},
        {"files", "files", "FILE...",
         "build: text files, each a document; inspect: a table file or a folder [--tables]", OptionRole::InputFile},
        {"kind", "--kind", "cacheback|corpus|bigram", "build: what", OptionRole::Value, "cacheback, corpus, bigram"},
        model_option(),
        {"output", "-o,--output", "F", "build: the file to write [KIND.table; bigram: in the folder of --tables]",
         OptionRole::OutputFile},
        {"cacheback", "--cacheback", "LIST", "build --kind cacheback: its settings [ll=1,fl=3,lc=1048576,fc=128]"},
        {"tables", "--tables", "DIR|off", "The folder of learnt tables [the user's cache]"},
        {"json", "--json", "", "inspect: print JSON"}};
    for (const OptionSpec& option : device_options()) options.push_back(option);
    return {.name = "tables",
            .summary = "Build tables of draft tokens, or list what they hold",
            .details =
                "cacheback: the most frequent continuations in the texts (--frozen-table). corpus: the texts\n"
                "themselves, indexed (--corpus). bigram: the model's likeliest tokens after each token; also built\n"
                "by the first run that needs it.",
            .example = "slipstream tables inspect",
            .options = options,
            .run = run_tables};
}

}  // namespace slipstream::tools
