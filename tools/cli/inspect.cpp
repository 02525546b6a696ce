// slipstream inspect: prints what the files of a model contain and what serving it requires. Reads no weights.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/attention.h"
#include "kernels/base/error.h"
#include "offload/mapped_file.h"
#include "runtime/formats/gguf_file.h"
#include "runtime/formats/head_files.h"
#include "runtime/formats/ignored_tensors.h"
#include "runtime/formats/model_files.h"
#include "runtime/model/model.h"
#include "runtime/model/rope.h"
#include "runtime/plan/expert_bytes.h"
#include "runtime/plan/pass_items.h"
#include "runtime/text/chat/chat_template.h"
#include "runtime/text/printable.h"
#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/base/amounts.h"
#include "tools/base/json_object.h"
#include "tools/base/kv_type_option.h"
#include "tools/base/usage_error.h"
#include "tools/cli/inspect_session.h"
#include "tools/cli/layer_pattern.h"
#include "tools/options/command.h"
#include "tools/options/compute_options.h"
#include "tools/options/settings.h"
#include "tools/terminal/console.h"
#include "tools/terminal/file_output.h"
#include "tools/terminal/folded_text.h"
#include "tools/terminal/labelled_lines.h"

namespace slipstream::tools {

namespace {

struct TypeShare {
    std::int64_t tensors = 0;
    std::int64_t parameters = 0;
    std::size_t bytes = 0;
};

// All that is printed, collected once for the text and the JSON layout.
struct Findings {
    const ModelFiles& files;
    std::string tokenizer;  // kind of the tokenizer, or why it is not supported
    std::string refusal;    // why no text can be generated; empty: it can
    std::string head;       // what serves the MTP head; why none does; empty: there is none
    std::string ignored;    // parts of the file that are not loaded; empty: everything is
    std::map<std::string, TypeShare> types;
    ExpertBytes experts{};  // for one token
    std::int64_t parameters = 0;
    std::int64_t context = 0;
    DType kv_dtype = DType::F16;
    std::size_t kv_bytes_per_token = 0;
    std::size_t kv_bytes_at_context = 0;
    std::int64_t n_delta_nets = 0;
    std::size_t state_bytes = 0;  // of all delta nets, for one text
    DeltaNetShape delta_net{};    // of the first layer that has one
};

std::int64_t n_elements(const FileTensor& tensor) {
    std::int64_t n = 1;
    for (const std::int64_t size : tensor.shape) n *= size;
    return n;
}

// Fills found.tokenizer and, if no text can be generated, found.refusal. A damaged tokenizer throws, as damaged weights
// do. With a tokenizer of an unsupported kind, or none, token ids can still be served: inspect prints its report first
// and then fails as generate would.
void describe_tokenizer(const TokenizerSource& source, Findings& found) {
    const bool any = source.gguf || !source.sentencepiece_model.empty() || !source.tokenizer_json.empty() ||
                     !source.tekken_json.empty() || !source.vocab_json.empty();
    if (!any) {
        found.tokenizer = "none (token ids are served, text is not)";
        found.refusal = "the model has no tokenizer: its ids are served (perplexity --tokens), text is not";
        return;
    }
    try {
        const auto tokenizer = make_tokenizer(source);
        found.tokenizer = fmt::format(
            "{}, {} tokens, {}", tokenizer->kind(), tokenizer->vocab_size(),
            tokenizer->adds_bos() ? fmt::format("BOS {} added", tokenizer->bos_id().value_or(-1)) : "no BOS added");
    } catch (const Unsupported& error) {
        found.tokenizer = fmt::format("not served: {}", error.what());
        found.refusal = error.what();
    }
}

Findings find(const ModelFiles& files, const Settings& settings) {
    const ModelConfig& config = files.config();
    Findings found{.files = files, .tokenizer = {}, .refusal = {}, .head = {}, .ignored = {}, .types = {}};
    describe_tokenizer(files.tokenizer_source(), found);
    for (const FileTensor& tensor : files.tensors()) {
        TypeShare& share = found.types[tensor.type_name];
        ++share.tensors;
        share.parameters += n_elements(tensor);
        share.bytes += tensor.bytes;
        found.parameters += n_elements(tensor);
    }
    found.context = context_setting(settings).value_or(config.context_tokens);
    // Errors that would keep the model from being loaded, or a prompt from being made, are found here, too.
    if (found.refusal.empty() && files.chat_template()) try {
            static_cast<void>(ChatTemplate::parse(*files.chat_template(), "the model's chat template"));
        } catch (const Error& error) {
            found.refusal = error.what();
        }
    found.ignored = describe_ignored_tensors(files);  // binds the weights, too, which finds errors in them
    if (has_head(files)) try {
            static_cast<void>(open_head(files));
            found.head = "proposes draft tokens (--draft mtp)";
        } catch (const Error& error) {
            found.head = fmt::format("not used: {}", error.what());
        }
    found.experts = expert_bytes(config, files.weights(), 1.0);
    static_cast<void>(rope_frequencies(config, found.context));
    found.kv_dtype = kv_type_setting(settings).value_or(config.kv_dtype);
    for (std::int64_t layer = 0; layer < config.n_layers(); ++layer)
        found.kv_bytes_per_token +=
            config.kv_layout(layer, found.kv_dtype).chunk_bytes() / static_cast<std::size_t>(kChunkTokens);
    found.kv_bytes_at_context = kv_bytes(config, found.kv_dtype, found.context);
    for (const LayerConfig& layer : config.layers) {
        if (layer.has_attention()) continue;
        const DeltaNetShape& shape = layer.delta_net().shape;
        if (found.n_delta_nets++ == 0) found.delta_net = shape;
        found.state_bytes += static_cast<std::size_t>(shape.state_floats() + shape.tap_floats()) * sizeof(float);
    }
    return found;
}

// Returns "none", "4096 tokens in all 32 layers", or "4096 tokens in 16 of 32 layers".
std::string describe_window(const ModelConfig& config) {
    std::int64_t window = 0;
    std::int64_t n = 0;
    for (const std::int64_t layer : layer_windows(config)) {
        if (layer == 0) continue;
        window = layer;
        ++n;
    }
    if (n == 0) return "none";
    return n == config.n_layers() ? fmt::format("{} tokens in all {} layers", window, n)
                                  : fmt::format("{} tokens in {} of {} layers", window, n, config.n_layers());
}

std::string count_text(std::int64_t n) {
    const auto value = static_cast<double>(n);
    if (n >= 1'000'000'000) return fmt::format("{:.2f} billion", value / 1e9);
    if (n >= 1'000'000) return fmt::format("{:.2f} million", value / 1e6);
    return fmt::format("{}", n);
}

// Returns whether a metadata key is printed without -v.
bool is_important(std::string_view key) {
    for (const std::string_view important :
         {"general.name", "general.size_label", "general.license", "general.quantized_by", "general.basename",
          "general.finetune", "_name_or_path", "torch_dtype", "dtype", "transformers_version"})
        if (key == important) return true;
    return false;
}

std::string text_report(const Findings& found, const Console& console) {
    const ModelFiles& files = found.files;
    const ModelConfig& config = files.config();
    const AttentionConfig& attention = config.first_attention();
    LabelledLines out(stdout_columns());
    out.add("model", config.name.empty() ? printable(files.paths().front().string(), std::string::npos)
                                         : printable(config.name));
    out.add("format", fmt::format("{}, {}, {}", files.format(), counted(std::ssize(files.paths()), "file"),
                                  size_text(files.total_bytes())));
    for (const auto& path : files.paths()) out.add("", printable(path.string(), std::string::npos));
    out.add("architecture", config.family);
    out.add("parameters", count_text(found.parameters));
    out.add("shape", fmt::format("{} layers, d_model {}, d_ff {}, vocab {}{}", config.n_layers(), config.d_model,
                                 config.max_d_ff(), config.vocab, config.tied_embeddings ? ", tied embeddings" : ""));
    if (const ExpertsConfig* experts = first_experts(config)) {
        out.add("experts", fmt::format("{} in {} of {} layers, {} chosen for each token, d_ff {}, {} in all",
                                       experts->n_experts, n_expert_layers(config), config.n_layers(),
                                       experts->n_chosen, experts->d_ff, size_text(found.experts.experts)));
        out.add("active", fmt::format("{} of weights for each token", size_text(found.experts.read)));
    }
    const bool heads_differ = std::ranges::any_of(config.layers, [&](const LayerConfig& layer) {
        return layer.has_attention() && (layer.attention().n_q_heads != attention.n_q_heads ||
                                         layer.attention().n_kv_heads != attention.n_kv_heads ||
                                         layer.attention().head_dim != attention.head_dim);
    });
    if (!heads_differ)
        out.add("attention", fmt::format("{} query heads, {} kv heads of {}", attention.n_q_heads, attention.n_kv_heads,
                                         attention.head_dim));
    if (found.n_delta_nets > 0)
        out.add("delta nets",
                fmt::format("{} of {} layers, {} key heads of {}, {} value heads of {}, convolution of {}",
                            found.n_delta_nets, config.n_layers(), found.delta_net.n_key_heads, found.delta_net.key_dim,
                            found.delta_net.n_value_heads, found.delta_net.value_dim, found.delta_net.conv_width));
    out.add("layers", layer_pattern(config));
    out.add("sliding window", describe_window(config));
    for (const auto& [type, share] : found.types)
        out.add(type == found.types.begin()->first ? "types" : "",
                fmt::format("{:<6} {:>5} tensors  {:>16} parameters  {:>10}", type, share.tensors,
                            count_text(share.parameters), size_text(share.bytes)));
    if (!found.head.empty()) out.add("MTP head", found.head);
    if (!found.ignored.empty()) out.add("not used", found.ignored);
    out.add("tokenizer", found.tokenizer);
    const auto& chat_template = files.chat_template();
    out.add("chat template",
            chat_template ? fmt::format("yes, {}", counted(std::ssize(*chat_template), "byte")) : "none");
    out.add("context", fmt::format("{}{}", counted(found.context, "token"),
                                   found.context == config.context_tokens
                                       ? ""
                                       : fmt::format(" (the model's own: {})", config.context_tokens)));
    for (std::size_t i = 0; i < config.ropes.size(); ++i) {
        const RopeConfig& rope = config.ropes[i];
        const auto user = std::ranges::find_if(config.layers, [&](const LayerConfig& layer) {
            return layer.has_attention() && layer.attention().rope == i;
        });
        if (user == config.layers.end()) continue;
        out.add("rope", fmt::format("theta {}, {} of {} rotate, scaling {}", rope.theta,
                                    rope.n_rotated - 2 * rope.n_fixed_pairs, user->attention().head_dim,
                                    describe_rope(rope, config.context_tokens, found.context)));
    }
    out.add("kv cache",
            fmt::format("{}, {} a token, {} at {} tokens", kv_type_option(found.kv_dtype),
                        size_text(found.kv_bytes_per_token), size_text(found.kv_bytes_at_context), found.context));
    if (found.n_delta_nets > 0)
        out.add("state", fmt::format("{} for any number of tokens", size_text(found.state_bytes)));
    out.add("memory", fmt::format("{} for weights{} and KV at {} tokens",
                                  size_text(files.total_bytes() + found.state_bytes + found.kv_bytes_at_context),
                                  found.n_delta_nets > 0 ? ", state" : "", found.context));
    for (const auto& [key, value] : files.metadata())
        if (console.verbose() || is_important(key)) out.raw(fmt::format("{} = {}", key, value));
    if (console.verbose())
        for (const FileTensor& tensor : files.tensors())
            out.raw(fmt::format("{:<40} {:<6} [{}] {}", tensor.name, tensor.type_name, fmt::join(tensor.shape, ", "),
                                size_text(tensor.bytes)));
    return out.text();
}

JsonObject json_of(const FileTensor& tensor) {
    JsonObject json;
    json.text("name", tensor.name)
        .text("type", tensor.type_name)
        .integers("shape", tensor.shape)
        .unsigned_integer("bytes", tensor.bytes);
    return json;
}

JsonObject shape_json(const ModelConfig& config) {
    const AttentionConfig& attention = config.first_attention();
    JsonObject json;
    json.integer("n_layers", config.n_layers())
        .integer("d_model", config.d_model)
        .integer("d_ff", config.max_d_ff())
        .integer("n_q_heads", attention.n_q_heads)
        .integer("n_kv_heads", attention.n_kv_heads)
        .integer("head_dim", attention.head_dim)
        .integer("vocab", config.vocab)
        .boolean("tied_embeddings", config.tied_embeddings)
        .integers("layer_window", layer_windows(config));
    return json;
}

// Adds the metadata: of a GGUF file, strings in full and unchanged; all other values as the text layout prints them.
void add_metadata(const ModelFiles& files, JsonObject& json) {
    if (!files.format().starts_with("GGUF")) {
        for (const auto& [key, value] : files.metadata()) json.text(key, value);
        return;
    }
    const MappedFile file(files.paths().front());
    const GgufFile parsed = GgufFile::parse(file.bytes(), files.paths().front().string());
    for (const auto& [key, value] : parsed.entries()) {
        const auto text = value.string();
        json.text(key, text ? std::string(*text) : value.to_text());
    }
}

std::string json_report(const Findings& found) {
    const ModelFiles& files = found.files;
    const ModelConfig& config = files.config();
    std::vector<std::string> paths;
    for (const auto& path : files.paths()) paths.push_back(path.string());
    JsonObject types;
    for (const auto& [type, share] : found.types)
        types.object(type, JsonObject()
                               .integer("tensors", share.tensors)
                               .integer("parameters", share.parameters)
                               .unsigned_integer("bytes", share.bytes));
    JsonObject metadata;
    add_metadata(files, metadata);
    std::vector<JsonObject> tensors;
    for (const FileTensor& tensor : files.tensors()) tensors.push_back(json_of(tensor));
    JsonObject json;
    json.text("name", config.name)
        .text("format", files.format())
        .texts("files", paths)
        .unsigned_integer("bytes", files.total_bytes())
        .text("architecture", config.family)
        .integer("parameters", found.parameters)
        .object("shape", shape_json(config));
    if (const ExpertsConfig* experts = first_experts(config)) {
        json.object("experts", JsonObject()
                                   .integer("layers", n_expert_layers(config))
                                   .integer("n_experts", experts->n_experts)
                                   .integer("n_chosen", experts->n_chosen)
                                   .integer("d_ff", experts->d_ff)
                                   .unsigned_integer("bytes", found.experts.experts));
    }
    if (found.n_delta_nets > 0)
        json.object("delta_nets", JsonObject()
                                      .integer("layers", found.n_delta_nets)
                                      .integer("n_key_heads", found.delta_net.n_key_heads)
                                      .integer("n_value_heads", found.delta_net.n_value_heads)
                                      .integer("key_dim", found.delta_net.key_dim)
                                      .integer("value_dim", found.delta_net.value_dim)
                                      .integer("conv_width", found.delta_net.conv_width)
                                      .unsigned_integer("state_bytes", found.state_bytes));
    json.unsigned_integer("active_bytes_per_token", found.experts.read)
        .text("layers", layer_pattern(config))
        .text("mtp_head", found.head)
        .text("unused_tensors", found.ignored)
        .object("types", types)
        .text("tokenizer", found.tokenizer);
    if (files.chat_template()) {
        json.unsigned_integer("chat_template_bytes", files.chat_template()->size());
    } else {
        json.null("chat_template_bytes");
    }
    const RopeConfig& rope = config.ropes.front();
    json.integer("context_tokens", found.context)
        .integer("model_context_tokens", config.context_tokens)
        .object("rope", JsonObject()
                            .real("theta", rope.theta)
                            .integer("n_rotated", rope.n_rotated - 2 * rope.n_fixed_pairs)
                            .text("scaling", describe_rope(rope, config.context_tokens, found.context)))
        .object("kv", JsonObject()
                          .text("type", kv_type_name(found.kv_dtype))
                          .unsigned_integer("bytes_per_token", found.kv_bytes_per_token)
                          .unsigned_integer("bytes", found.kv_bytes_at_context))
        .unsigned_integer("memory_bytes", files.total_bytes() + found.state_bytes + found.kv_bytes_at_context)
        .object("metadata", metadata)
        .objects("tensors", tensors);
    return json.to_text(JsonLayout::Indented);
}

int run_inspect(CommandContext& context) {
    const ReportLayout layout = context.settings.flag("json") ? ReportLayout::Json : ReportLayout::Text;
    if (const auto path = context.settings.path("model"))
        if (const auto report = session_report(*path, layout)) {
            TextOutput(std::nullopt).write(*report);
            return 0;
        }
    const auto files = ModelFiles::open(choose_model(context));
    const Findings found = find(*files, context.settings);
    TextOutput(std::nullopt)
        .write(layout == ReportLayout::Json ? json_report(found) : text_report(found, context.console));
    if (!found.refusal.empty()) throw Unsupported(found.refusal);
    return 0;
}

}  // namespace

CommandSpec inspect_command() {
    OptionSpec model = model_option();
    model.flags = "path,-m,--model";
    return {
        .name = "inspect",
        .summary = "What a model file or a session holds, and what a model needs",
        .details =
            "Of a model, reads headers only, and fails where the model could not be loaded. With -v all metadata "
            "and tensors.\n"
            "Of a session of generate, or of a chat: the prompt, the text, their KV, and what is kept beside it of a "
            "prompt\n"
            "that is not finished.",
        .example = "slipstream inspect --ctx 4096",
        .options = {model, context_option(), kv_type_option(), {"json", "--json", "", "Print JSON"}},
        .run = run_inspect};
}

}  // namespace slipstream::tools
