#include "tools/engine/session.h"

#include <algorithm>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "offload/atomic_file.h"
#include "runtime/formats/model_fingerprint.h"
#include "runtime/loop/sequence.h"
#include "runtime/model/rope.h"
#include "runtime/ranks/model_split.h"
#include "runtime/text/printable.h"
#include "tools/base/amounts.h"
#include "tools/base/build_version.h"
#include "tools/base/kv_type_option.h"
#include "tools/base/text_parts.h"
#include "tools/engine/engine.h"

namespace slipstream::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kAllTokens = std::numeric_limits<std::int64_t>::max();
constexpr auto kTablesEvery = std::chrono::minutes(5);
constexpr std::size_t kShownBytes = 40;  // most bytes of a text that a message shows

// Returns the options as the session file keeps them: "system You are a poet.".
std::vector<std::string> kept_options(const std::vector<PromptOption>& options) {
    std::vector<std::string> kept;
    for (const PromptOption& option : options)
        for (const std::string& value : option.values) kept.push_back(fmt::format("{} {}", option.name, value));
    return kept;
}

std::string shown(std::string_view text) {
    return fmt::format("'{}'", printable(text, kShownBytes));
}
std::string shown(const std::vector<std::string>& texts) {
    std::string list;
    for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + shown(text);
    return list.empty() ? "none" : list;
}
template <typename T>
std::string shown(const T& value) {
    return fmt::format("{}", value);
}

// Returns the split of the model if it decides the bits: of matrices always, of layers over devices of several kinds.
std::optional<SessionSplit> deciding_split(const LoadedModel& model) {
    if (!model.shards_matrices() && model.device_forms().is_one) return std::nullopt;
    return SessionSplit{model.shards_matrices() ? SplitKind::Tensor : SplitKind::Layers,
                        parts_of(model.split(), model.shards())};
}

std::string split_text(const std::optional<SessionSplit>& split) {
    return split ? fmt::format("{} {}", split_name(split->kind), fmt::join(split->parts, ",")) : "layers, or none";
}

// Returns an excerpt of `text` in quotes, for a message: up to kShownBytes bytes around the byte `at`, where `text`
// begins to differ from another text. "..." marks where the excerpt is cut; bytes that cannot be printed are written as
// \xNN.
std::string shown_from(std::string_view text, std::size_t at) {
    const std::size_t begin = at > kShownBytes / 2 ? at - kShownBytes / 2 : 0;
    return begin == 0 ? shown(text) : fmt::format("'...{}'", printable(text.substr(begin), kShownBytes));
}

}  // namespace

std::string TextSession::devices_instead_of(const std::vector<DeviceChoice>& devices) const {
    const std::optional<SessionSplit>& held = begin().split;
    if (!held) return {};
    const std::string& kinds = begin().device_kind;
    if (devices.size() == held->parts.size() && device_forms(devices).kinds == kinds) return {};
    const std::vector<std::string_view> each = split_list(kinds);
    std::string names;
    int n_cards = 0;
    for (std::size_t i = 0; i < held->parts.size(); ++i) {
        const std::string_view kind = each[std::min(i, each.size() - 1)];
        if (i > 0) names += ',';
        names += kind == device_kind_name(DeviceKind::Cuda) ? fmt::format("{}:{}", kind, n_cards++) : std::string(kind);
    }
    return names;
}

// Sets the split and the shares of `compute` to those of the session, as far as the user did not give them as options.
void TextSession::take_split(ComputeOptions& compute) const {
    OffloadOptions& offload = compute.offload;
    const std::optional<SessionSplit>& held = begin().split;
    if (!request_.split) offload.split = held ? held->kind : SplitKind::Layers;
    if (!held || compute.devices.size() != held->parts.size()) return;
    if (!request_.shares && offload.split == held->kind) offload.shares.assign(held->parts.begin(), held->parts.end());
}

TextSession::TextSession(SessionRequest request, SessionUse use)
    : request_(std::move(request)), file_(SessionFile::open(request_.path, use)) {
    if (use == SessionUse::Read) return;
    remove_leftover_parts(request_.path);
    if (!file_) SessionFile::check_place(request_.path);
    if (!file_) StatesFile::remove(request_.path);                       // of a session that was removed
    if (!file_ || !tokens().empty()) PromptFile::remove(request_.path);  // a side file that a killed program left
}

void TextSession::contradict(std::string_view option, std::string_view demanded, std::string_view held) const {
    throw RequestError(
        fmt::format("--{} {}: the session {} was begun with {}; leave the option out to go on with it, or name another "
                    "session",
                    option, demanded, request_.path.string(), held));
}

template <typename T>
void TextSession::agree(std::string_view option, const std::optional<T>& demanded, const T& held) const {
    if (demanded && *demanded != held) contradict(option, shown(*demanded), shown(held));
}

void TextSession::decide(ComputeOptions& compute, TextGenerationOptions& text) const {
    const SessionBegin& held = begin();
    agree("ctx", request_.context_tokens, held.context_tokens);
    compute.context_tokens = held.context_tokens;
    if (request_.kv_dtype && *request_.kv_dtype != held.kv_dtype)
        contradict("kv-type", kv_type_option(*request_.kv_dtype), kv_type_option(held.kv_dtype));
    compute.kv_dtype = held.kv_dtype;
    take_split(compute);
    // The session's stop strings are those that the user requested, and after them those of the template.
    if (request_.stops) {
        const std::size_t n_stops = std::min(request_.stops->size(), held.stops.size());
        if (!std::ranges::equal(*request_.stops, std::span(held.stops).first(n_stops)))
            contradict("stop", shown(*request_.stops), shown(held.stops));
    }
    text.stops = held.stops;
    if (request_.echo && held.echo == PromptEcho::No) contradict("echo", "is given", "the text alone");
    const std::int64_t n_generated = std::ssize(tokens());
    text.max_tokens = request_.max_tokens.value_or(file_->max_tokens());
    if (text.max_tokens >= 0 && text.max_tokens < n_generated)
        throw RequestError(fmt::format(
            "--max-tokens {}: the session {} holds {} generated tokens already; ask for as many or more, or "
            "leave the option out",
            text.max_tokens, request_.path.string(), n_generated));
    text.n_resumed = n_generated;
}

SamplerOptions TextSession::sampling(const GenerationDefaults& model) const {
    const SamplerOptions& held = begin().sampling;
    const SamplingSettings& demanded = request_.sampling;
    agree("temperature", demanded.temperature, held.temperature);
    agree("top-k", demanded.top_k, held.top_k);
    agree("top-p", demanded.top_p, held.top_p);
    agree("min-p", demanded.min_p, held.min_p);
    agree("repeat-penalty", demanded.repeat_penalty, held.repeat_penalty);
    agree("repeat-last-n", demanded.repeat_window, held.repeat_window);
    agree("presence-penalty", demanded.presence_penalty, held.presence_penalty);
    agree("frequency-penalty", demanded.frequency_penalty, held.frequency_penalty);
    agree("seed", demanded.seed, held.seed);
    if (demanded.bias) {
        // The session's biases are those of the tokens that the model suppresses, and after them the user's.
        auto users_begin = held.bias.begin();
        for (const TokenId id : model.suppressed_tokens)
            if (users_begin != held.bias.end() && users_begin->id == id) ++users_begin;
        const std::vector<TokenBias> users(users_begin, held.bias.end());
        agree("logit-bias", std::optional(logit_bias_text(*demanded.bias)), logit_bias_text(users));
    }
    if (demanded.ignore_end) agree("ignore-eos", std::optional(true), begin().ignore_end);
    return held;
}

fs::path TextSession::model_path() const {
    std::error_code error;
    if (!fs::exists(begin().model_path, error))
        throw RequestError(
            fmt::format("the session {} was begun with the model {}, which is missing; give its path by -m",
                        request_.path.string(), begin().model_path));
    return begin().model_path;
}

void TextSession::check_prompt(std::string_view prompt_text, std::string_view option) const {
    const std::string_view held = begin().prompt_text;
    if (prompt_text != held) {
        const auto at = static_cast<std::size_t>(std::ranges::mismatch(prompt_text, held).in1 - prompt_text.begin());
        contradict(option, shown_from(prompt_text, at), shown_from(held, at));
    }
    for (const PromptOption& demanded : request_.prompt_options) {
        if (!demanded.demanded) continue;
        const std::string front = demanded.name + ' ';
        std::vector<std::string> held_values;
        for (const std::string& text : begin().prompt_options)
            if (text.starts_with(front)) held_values.push_back(text.substr(front.size()));
        if (demanded.values != held_values) contradict(demanded.name, shown(demanded.values), shown(held_values));
    }
}

void TextSession::check_model(const OpenedModel& model, const std::vector<DeviceChoice>& devices,
                              const EngineCallbacks& callbacks) const {
    const ModelFiles& files = model.files();
    const SessionBegin& held = begin();
    const ModelConfig& config = files.config();
    if (model_fingerprint(files) != held.model_fingerprint || config.vocab != held.vocab ||
        config.n_layers() != held.n_layers())
        throw RequestError(fmt::format(
            "the model {} is not the one that the session {} was begun with ({}), or was changed since; name "
            "that one by -m, or another session",
            model.path().string(), request_.path.string(), held.model_path));
    if (rope_fingerprint(rope_frequencies(config, held.context_tokens)) != held.rope_fingerprint ||
        session_kv_bytes(config.kv_layouts(held.kv_dtype), held.version) != held.kv_bytes)
        throw RequestError(
            fmt::format("the session {} was begun with other rope frequencies or another KV cache of this "
                        "model by version {}; begin another",
                        request_.path.string(), held.program_version));
    const DeviceForms here = device_forms(devices);
    if (held.device_kind != here.kinds || held.instruction_form != here.forms)
        throw RequestError(fmt::format(
            "the session {} was computed on {} ({}), here it would be {} ({}), whose results differ in their "
            "last bits; go on there, or begin another",
            request_.path.string(), held.device_kind, held.instruction_form, here.kinds, here.forms));
    if (held.program_version != build_version())
        callbacks.note(fmt::format("the session was begun by version {}, this is {}: its kernels may round differently",
                                   held.program_version, build_version()));
}

ReplayedText TextSession::replay(const Tokenizer& tokenizer, const TextGenerationOptions& text) const {
    try {
        return replay_text(tokenizer, begin().text_start, begin().end_tokens, text, tokens(),
                           begin().context_tokens - file_->text_tokens());
    } catch (const FormatError& error) {
        throw FormatError(
            fmt::format("{}: a damaged session ({}); begin another", request_.path.string(), error.what()));
    }
}

SessionBegin session_begin_of(const LoadedModel& model) {
    std::error_code error;
    const fs::path absolute = fs::absolute(model.path(), error);
    SessionBegin begin;
    begin.program_version = std::string(build_version());
    begin.model_path = (error ? model.path() : absolute).string();
    begin.model_fingerprint = model_fingerprint(model.files());
    begin.device_kind = model.device_forms().kinds;
    begin.instruction_form = model.device_forms().forms;
    begin.split = deciding_split(model);
    begin.context_tokens = model.context_tokens();
    begin.rope_fingerprint = rope_fingerprint(model.models().front()->ropes());
    begin.kv_dtype = model.kv_dtype();
    begin.kv_bytes = session_kv_bytes(model.kv_layouts());
    begin.vocab = model.config().vocab;
    return begin;
}

SessionBegin TextSession::fresh_begin(const SessionStart& start, const LoadedModel& model) const {
    SessionBegin begin = session_begin_of(model);
    begin.sampling = *start.sampling;
    begin.ignore_end = start.ignore_end;
    begin.stops = start.text->stops;
    begin.end_tokens = {start.end_tokens.begin(), start.end_tokens.end()};
    begin.max_tokens = start.text->max_tokens;
    begin.text_start = start.text_start;
    begin.echo = start.echo;
    begin.prompt_text = std::string(start.prompt_text);
    begin.prompt_options = kept_options(request_.prompt_options);
    begin.prompt = {start.prompt.begin(), start.prompt.end()};
    return begin;
}

void TextSession::say_what_is_kept(std::int64_t longest_tokens, const EngineCallbacks& callbacks) const {
    if (kv_->max_tokens() >= longest_tokens / kChunkTokens * kChunkTokens) return;
    const std::string states =
        kv_->states_bytes() == 0
            ? ""
            : fmt::format(", of which the states of recurrent layers need {}", size_text(kv_->states_bytes()));
    callbacks.note(fmt::format(
        "the session keeps the KV of {} tokens at most (--session-limit {}{}); what follows them is kept as tokens, "
        "and computed again when the session is resumed",
        kv_->max_tokens(), size_text(request_.limit_bytes), states));
}

std::int64_t TextSession::restore(SessionKv& kv, std::int64_t max_tokens, const EngineCallbacks& callbacks) const {
    WorkProgress progress = callbacks.work("reading the session");
    const std::int64_t n_restored = kv.restore(
        [&](std::uint64_t done, std::uint64_t total) {
            progress(static_cast<double>(done), static_cast<double>(total), size_text(done));
        },
        max_tokens);
    if (!file_->damage().empty()) callbacks.note(fmt::format("{}: {}", request_.path.string(), file_->damage()));
    if (!kv.lost_states().empty()) callbacks.note(kv.lost_states());
    return n_restored;
}

void TextSession::check_split(const LoadedModel& model) const {
    const std::optional<SessionSplit> here = deciding_split(model);
    const std::optional<SessionSplit>& held = begin().split;
    if (held == here) return;
    std::string remedy = "leave --split tensor out";
    if (held)
        remedy = fmt::format("give {} devices of that kind, --split {} and --shares {}", held->parts.size(),
                             split_name(held->kind), fmt::join(held->parts, ","));
    throw RequestError(
        fmt::format("the session {} was computed with the model split as {}, here it would be {}, which decides the "
                    "text; {}, or begin another",
                    request_.path.string(), split_text(held), split_text(here), remedy));
}

std::int64_t TextSession::restore(Target& target, const LoadedModel& model, const EngineCallbacks& callbacks) {
    check_split(model);
    SessionKv kv(*file_, target, 0, SessionUse::Read);
    return restore(kv, kAllTokens, callbacks);
}

void TextSession::attach(const SessionStart& start, TextGenerator& generator, const EngineCallbacks& callbacks) {
    const LoadedModel& model = generator.model();
    const bool is_old = resumes();
    if (!is_old) file_ = SessionFile::create(request_.path, fresh_begin(start, model));
    check_split(model);
    Target& target = generator.sequence().target();
    const bool is_recurrent = model.config().is_recurrent();
    kv_.emplace(*file_, target, request_.limit_bytes);
    prompt_ = std::make_unique<SessionPrompt>(*file_, target,
                                              static_cast<std::size_t>(model.config().d_model) * sizeof(float),
                                              is_recurrent ? 0 : request_.limit_bytes);
    const std::int64_t n_prompt = std::ssize(begin().prompt);
    const std::int64_t room = begin().context_tokens - n_prompt;
    const std::int64_t asked = start.text->max_tokens;
    say_what_is_kept(n_prompt + (asked < 0 ? room : std::min(asked, room)), callbacks);
    if (is_old) go_on(asked, is_recurrent, callbacks);
    keep_prompt(generator, callbacks);
}

// Lets the prompt be saved while it is computed layer by layer.
void TextSession::keep_prompt(TextGenerator& generator, const EngineCallbacks& callbacks) {
    Target& target = generator.sequence().target();
    const std::int64_t border = Sequence::prefill_border(std::ssize(begin().prompt));
    if (!generator.model().config().is_recurrent()) {
        if (const auto reason = prompt_->prepare())
            callbacks.note(fmt::format("if the prompt is interrupted, it begins anew: {}", *reason));
        generator.save_prompts(&prompt_->checkpoints());
    } else if (tokens().empty() && border > target.n_committed() && target.takes_prompt(border)) {
        callbacks.note(
            "if the prompt is interrupted, it begins anew: it goes layer by layer, and the states of recurrent layers "
            "are saved after it");
    }
}

// Fills the KV cache with what the session saved, and reports how far the session is. `asked`: most tokens to generate,
// counted from the beginning of the session; it is recorded if it has changed.
void TextSession::go_on(std::int64_t asked, bool is_recurrent, const EngineCallbacks& callbacks) {
    const std::int64_t n_prompt = std::ssize(begin().prompt);
    const std::optional<PromptState> saved = is_recurrent ? std::nullopt : prompt_->saved();
    n_resumed_prompt_ = saved ? prompt_->n_kept() : 0;
    const std::int64_t n_restored = restore(*kv_, saved ? saved->begin : kAllTokens, callbacks);
    if (!saved) n_resumed_prompt_ = std::min(n_restored, n_prompt);
    if (!prompt_->lost().empty()) callbacks.note(prompt_->lost());
    if (asked != file_->max_tokens()) file_->append_max_tokens(asked);
    if (saved) {
        callbacks.note(fmt::format("going on with {} within its prompt: {} of {} are read", request_.path.string(),
                                   n_resumed_prompt_, counted(n_prompt, "prompt token")));
        return;
    }
    callbacks.note(fmt::format("going on with {}: {} and {} generated; KV of {} is read, of {} computed again",
                               request_.path.string(), counted(n_prompt, "prompt token"), std::ssize(tokens()),
                               counted(n_restored, "token"), n_prompt + std::ssize(tokens()) - n_restored));
}

// Adds to a refusal of states what it means.
std::optional<std::string> TextSession::without_states(std::optional<std::string> refused) const {
    if (refused)
        *refused += kv_->n_in_states() > 0
                        ? fmt::format(
                              "; until then the session goes on after {} when it is resumed, and what follows "
                              "them is computed again",
                              counted(kv_->n_in_states(), "token"))
                        : "; until then the text is computed again from its beginning when the session is resumed";
    return refused;
}

std::optional<std::string> TextSession::save(const TextGenerator& generator) {
    std::optional<std::string> refused = kv_->save();
    prompt_->finish();
    if (auto no_more = prompt_->take_refusal())
        return *no_more + "; if the prompt is interrupted, it begins anew after the KV chunks that are whole";
    if (refused) {
        *refused += "; until then the session keeps tokens alone, and KV is computed again when it is resumed";
    } else {
        refused = without_states(kv_->save_states());
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - tables_kept_ < kTablesEvery) return refused;
    generator.keep_tables();
    tables_kept_ = std::chrono::steady_clock::now();
    return refused;
}

std::int64_t TextSession::n_kept_prompt() const {
    const bool is_recurrent = std::ranges::find(begin().kv_bytes, 0U) != begin().kv_bytes.end();
    return is_recurrent ? std::min(kv_->n_in_states(), std::ssize(begin().prompt)) : prompt_->n_kept();
}

std::optional<std::string> TextSession::complete() {
    prompt_->settle();
    file_->sync();  // first, since states are of no use without the KV before them
    return without_states(kv_->save_last_states());
}

}  // namespace slipstream::tools
