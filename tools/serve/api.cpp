#include "tools/serve/api.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/interrupted.h"
#include "runtime/text/printable.h"
#include "tools/base/build_version.h"
#include "tools/serve/answer_json.h"
#include "tools/serve/api_error.h"
#include "tools/serve/page_files.h"
#include "tools/serve/request_fields.h"

namespace slipstream::tools {

namespace {

// Most requests that wait for the parser's thread. Each holds its body in memory until the thread takes it, also after
// its client has left. A connected client has one request, so only requests of clients that have left can reach this
// limit.
constexpr std::size_t kMostUnparsed = HttpLimits{}.n_connections;
constexpr std::string_view kModelsPrefix = "/v1/models/";

// Returns freed memory to the system after a body of at least kLarge bytes was parsed: its tree of values took up to a
// hundred times its bytes, in small allocations whose memory the allocator would keep.
void return_memory_of(const std::string& body) {
    constexpr std::size_t kLarge = 1 << 20;
    if (body.size() >= kLarge) ::malloc_trim(0);
}

bool is_open(std::string_view path) {
    return path == "/health" || path == "/v1/health" ||
           std::ranges::any_of(page_files(), [&](const PageFile& file) { return file.path == path; });
}

Json model_json(const ServedModel& model, std::int64_t context_tokens) {
    return {{"id", model.name},
            {"object", "model"},
            {"created", model.created},
            {"owned_by", "slipstream"},
            {"max_model_len", context_tokens},
            {"meta",
             {{"n_ctx", context_tokens},
              {"n_ctx_train", model.train_context_tokens},
              {"n_vocab", model.vocab},
              {"n_params", model.n_parameters},
              {"size", model.file_bytes}}}};
}

}  // namespace

Api::Api(ApiOptions options, ServedModel model, const PromptMaker& prompts, ServerStatus& status)
    : options_(std::move(options)),
      model_(std::move(model)),
      prompts_(prompts),
      status_(status),
      texts_(options_.most_waiting),
      live_({.model = model_.name,
             .fingerprint = model_.fingerprint,
             .options = options_.command_options,
             .context_tokens = status.snapshot().context_tokens},
            prompts.tokenizer(), [this] { return texts_.n_waiting(); }),
      worker_(kMostUnparsed) {}

const Api::Route* Api::find_route(std::string_view method, std::string_view path) {
    static constexpr std::array<Route, 28> kRoutes{{
        {"GET", "/", &Api::page},
        {"GET", "/page.css", &Api::page},
        {"GET", "/page.js", &Api::page},
        {"GET", "/slipstream/live", &Api::live_events},
        {"GET", "/health", &Api::health},
        {"GET", "/v1/health", &Api::health},
        {"GET", "/v1/models", &Api::models},
        {"GET", "/models", &Api::models},
        {"GET", "/props", &Api::props},
        {"GET", "/slots", &Api::slots},
        {"GET", "/metrics", &Api::metrics},
        {"POST", "/v1/chat/completions", &Api::chat_completions},
        {"POST", "/chat/completions", &Api::chat_completions},
        {"POST", "/v1/completions", &Api::completions},
        {"POST", "/completions", &Api::completions},
        {"POST", "/v1/messages", &Api::messages},
        {"POST", "/v1/messages/count_tokens", &Api::messages_input_tokens},
        {"POST", "/v1/responses", &Api::responses},
        {"POST", "/responses", &Api::responses},
        {"POST", "/v1/responses/input_tokens", &Api::responses_input_tokens},
        {"POST", "/responses/input_tokens", &Api::responses_input_tokens},
        {"POST", "/completion", &Api::llama_completion},
        {"POST", "/tokenize", &Api::tokenize},
        {"POST", "/detokenize", &Api::detokenize},
        {"POST", "/apply-template", &Api::apply_template},
        {"POST", "/v1/chat/completions/input_tokens", &Api::input_tokens},
        {"POST", "/chat/completions/input_tokens", &Api::input_tokens},
        {"GET", kModelsPrefix, &Api::named_model},  // a prefix: the name of a model follows, which may have slashes
    }};
    if (method == "HEAD") method = "GET";
    for (const Route& route : kRoutes) {
        const bool is_prefix = route.path == kModelsPrefix && path.starts_with(kModelsPrefix);
        if ((route.path == path || is_prefix) && (method.empty() || route.method == method)) return &route;
    }
    return nullptr;
}

HttpHandler::Verdict Api::check_head(const HttpRequest& request) {
    if (auto refusal = refuse_origin(request, options_.access)) return {std::move(refusal)};
    Verdict verdict{.refusal = refuse_access(request, options_.access, is_open(request.path)),
                    .fields = origin_fields(request)};
    if (verdict.refusal) return verdict;
    if (request.method == "OPTIONS" || find_route(request.method, request.path) != nullptr) return verdict;
    const ErrorShape shape = error_shape_of(request.path);
    if (const Route* other = find_route({}, request.path)) {
        verdict.refusal =
            ApiError(405, "invalid_request_error", fmt::format("use {} here", other->method)).answer(shape);
        verdict.refusal->fields.push_back({"Allow", std::string(other->method)});
    } else {
        verdict.refusal = ApiError(404, "invalid_request_error",
                                   "there is no such path here; the base URL for clients of the OpenAI API ends in /v1")
                              .answer(shape);
    }
    return verdict;
}

void Api::handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
    if (request.method == "OPTIONS") return exchange->answer(preflight_answer(request));
    const Route* const route = find_route(request.method, request.path);
    (this->*route->handle)(std::move(request), exchange);
}

HttpAnswer Api::error_answer(int status, const std::string& reason, std::string_view path) {
    const ErrorShape shape = error_shape_of(path);
    if (status == 503) return ApiError::overloaded(reason).answer(shape);
    return ApiError(status, status >= 500 ? "server_error" : "invalid_request_error", reason).answer(shape);
}

void Api::stop() {
    worker_.stop();
    live_.close();
    for (const auto& job : texts_.close()) job->writer->fail(ApiError::stopping());
}

// The page.

void Api::page(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    const auto file = std::ranges::find(page_files(), std::string_view(request.path), &PageFile::path);
    exchange->answer({.content_type = std::string(file->content_type),
                      .fields = {{"Content-Security-Policy",
                                  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                                  "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                                  "require-trusted-types-for 'script'; trusted-types 'none'"},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"X-Frame-Options", "DENY"},
                                 {"Referrer-Policy", "no-referrer"},
                                 {"Cross-Origin-Resource-Policy", "same-origin"},
                                 {"Cache-Control", "no-cache"}},
                      .body = std::string(file->text)});
}

void Api::live_events(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    if (request.method == "HEAD") return exchange->answer({.content_type = "text/event-stream"});
    switch (live_.add(exchange)) {
        case LiveFeed::Added::Yes:
            return;
        case LiveFeed::Added::Full:
            return exchange->answer(
                error_answer(503, fmt::format("all {} listeners are in use", LiveFeed::kMostListeners), request.path));
        case LiveFeed::Added::Closed:
            return exchange->answer(ApiError::stopping().answer());
    }
}

// Short answers.

void Api::health(HttpRequest&& /*request*/, const std::shared_ptr<Exchange>& exchange) {
    const StatusSnapshot state = status_.snapshot();
    if (state.is_ready) return exchange->answer({.body = json_text({{"status", "ok"}})});
    exchange->answer({.status = 503,
                      .body = json_text({{"error",
                                          {{"code", 503},
                                           {"message", "Loading model"},
                                           {"type", "unavailable_error"},
                                           {"work", state.work},
                                           {"progress", state.work_done}}}})});
}

void Api::models(HttpRequest&& /*request*/, const std::shared_ptr<Exchange>& exchange) {
    Json list = Json::array();
    list.push_back(model_json(model_, status_.snapshot().context_tokens));
    exchange->answer({.body = json_text({{"object", "list"}, {"data", std::move(list)}})});
}

void Api::named_model(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    if (std::string_view(request.path).substr(kModelsPrefix.size()) != model_.name)
        return exchange->answer(
            ApiError(404, "invalid_request_error", fmt::format("the model that is served is {}", model_.name))
                .answer());
    exchange->answer({.body = json_text(model_json(model_, status_.snapshot().context_tokens))});
}

void Api::props(HttpRequest&& /*request*/, const std::shared_ptr<Exchange>& exchange) {
    const StatusSnapshot state = status_.snapshot();
    exchange->answer(
        {.body = json_text(
             {{"default_generation_settings", {{"n_ctx", state.context_tokens}}},
              {"total_slots", 1},
              {"model_alias", model_.name},
              {"chat_template", prompts_.template_source()},
              {"bos_token", model_.bos},
              {"eos_token", model_.eos},
              {"modalities", {{"vision", false}, {"audio", false}}},
              {"build_info", fmt::format("slipstream {} {}", build_version(), build_commit())},
              {"is_sleeping", false},
              {"loading", state.is_ready ? Json() : Json{{"work", state.work}, {"progress", state.work_done}}},
              {"slipstream", {{"kept_memory_bytes", state.kept.limit_bytes}}}})});
}

void Api::slots(HttpRequest&& /*request*/, const std::shared_ptr<Exchange>& exchange) {
    const StatusSnapshot state = status_.snapshot();
    const RunningText running = state.running.value_or(RunningText{});
    Json slot{{"id", 0},
              {"id_task", state.running ? Json(running.job) : Json(-1)},
              {"n_ctx", state.context_tokens},
              {"speculative", true},
              {"is_processing", state.running.has_value()},
              {"n_prompt_tokens", running.prompt_tokens},
              {"n_prompt_tokens_processed", running.prompt_done},
              {"n_decoded", running.generated}};
    exchange->answer({.body = json_text(Json::array({std::move(slot)}))});
}

void Api::metrics(HttpRequest&& /*request*/, const std::shared_ptr<Exchange>& exchange) {
    const StatusSnapshot state = status_.snapshot();
    std::string text;
    const auto add = [&](std::string_view name, std::string_view type, std::string_view help, auto value) {
        text += fmt::format("# HELP slipstream:{0} {2}\n# TYPE slipstream:{0} {1}\nslipstream:{0} {3}\n", name, type,
                            help, value);
    };
    const ServerTotals& totals = state.totals;
    add("prompt_tokens_total", "counter", "Tokens of prompts", totals.prompt_tokens);
    add("prompt_tokens_reused_total", "counter", "Tokens of prompts that were not computed again",
        totals.reused_tokens);
    add("prompt_seconds_total", "counter", "Time until first tokens", totals.prefill_seconds);
    add("tokens_predicted_total", "counter", "Generated tokens", totals.generated_tokens);
    add("tokens_predicted_seconds_total", "counter", "Time of generating after first tokens", totals.decode_seconds);
    add("passes_total", "counter", "Passes of the model that yielded tokens", totals.passes);
    add("draft_tokens_total", "counter", "Draft tokens offered", totals.draft_tokens);
    add("draft_tokens_accepted_total", "counter", "Draft tokens accepted", totals.draft_accepted);
    add("requests_finished_total", "counter", "Texts that finished", totals.finished);
    add("requests_failed_total", "counter", "Texts that ended with an error", totals.failed);
    add("requests_cancelled_total", "counter", "Texts whose clients left", totals.cancelled);
    add("requests_refused_total", "counter", "Texts refused because the queue was full", totals.refused);
    add("requests_processing", "gauge", "Texts that run", state.running ? 1 : 0);
    add("requests_deferred", "gauge", "Texts that wait", texts_.n_waiting());
    const KeptFigures& kept = state.kept;
    add("kept_bytes", "gauge", "Host memory that KV and states of earlier texts take", kept.bytes);
    add("kept_limit_bytes", "gauge", "Most that it may take (--kept-memory)", kept.limit_bytes);
    add("kept_hits_total", "counter", "Prompts that got KV of an earlier text back", kept.restored_texts);
    add("kept_restored_tokens_total", "counter", "Tokens whose KV these got back", kept.restored_tokens);
    add("kept_evictions_total", "counter", "KV chunks of 256 tokens that were dropped to make room",
        kept.dropped_chunks);
    add("kept_states", "gauge", "Positions of earlier texts after which states of recurrent layers are kept",
        kept.n_states);
    add("kept_states_evictions_total", "counter", "Of these, those whose states were dropped to make room",
        kept.dropped_states);
    exchange->answer({.content_type = "text/plain; version=0.0.4", .body = std::move(text)});
}

// Answers of the parser's thread.

ApiError Api::refusal_of(Worker::Added added) {
    return added == Worker::Added::Full ? refuse_full(worker_.most_waiting()) : ApiError::stopping();
}

ApiError Api::refuse_full(std::size_t n_waiting) {
    status_.update([](StatusSnapshot& state) { ++state.totals.refused; });
    return ApiError::queue_full(n_waiting);
}

void Api::answer_later(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange,
                       std::function<std::string(const TemplateValue&, const Exchange&)> answer) {
    const ErrorShape shape = error_shape_of(request.path);
    const Worker::Added added =
        worker_.add([exchange, shape, body = std::move(request.body), answer = std::move(answer)] {
            try {
                throw_if_cancelled(&exchange->cancelled());
                exchange->answer({.body = answer(parse_request_body(body), *exchange)});
            } catch (const std::exception& failure) {
                exchange->answer(ApiError::of(failure).answer(shape));
            }
            return_memory_of(body);
        });
    if (added != Worker::Added::Yes) exchange->answer(refusal_of(added).answer(shape));
}

void Api::tokenize(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    answer_later(std::move(request), exchange, [this](const TemplateValue& body, const Exchange& asked) {
        const RequestFields fields(body);
        const auto content = fields.text("content");
        if (!content) fields.refuse("content", "a text is expected");
        const bool parses = fields.boolean("parse_special").value_or(true);
        const std::vector<TokenId> ids = prompts_.tokenized(
            *content, fields.boolean("add_special").value_or(false) ? PromptMaker::Bos::Added : PromptMaker::Bos::Left,
            parses ? SpecialTokens::Parse : SpecialTokens::AsText, &asked.cancelled());
        Json tokens = Json::array();
        const bool with_pieces = fields.boolean("with_pieces").value_or(false);
        for (const TokenId id : ids)
            tokens.push_back(with_pieces ? Json{{"id", id}, {"piece", token_text(prompts_.tokenizer(), id)}}
                                         : Json(id));
        return json_text({{"tokens", std::move(tokens)}});
    });
}

void Api::detokenize(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    answer_later(std::move(request), exchange, [this](const TemplateValue& body, const Exchange& /*asked*/) {
        const RequestFields fields(body);
        const std::vector<TemplateValue>* tokens = fields.list("tokens");
        if (tokens == nullptr) fields.refuse("tokens", "a list of token ids is expected");
        return json_text({{"content", prompts_.tokenizer().decode(token_ids(*tokens, model_.vocab, "tokens"))}});
    });
}

void Api::apply_template(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    answer_later(std::move(request), exchange, [this](const TemplateValue& body, const Exchange& asked) {
        return json_text({{"prompt", prompts_.rendered(parse_conversation(body), &asked.cancelled())}});
    });
}

void Api::input_tokens(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    answer_later(std::move(request), exchange, [this](const TemplateValue& body, const Exchange& asked) {
        return json_text(
            {{"object", "response.input_tokens"}, {"input_tokens", count_tokens(Dialect::Chat, body, asked)}});
    });
}

void Api::responses_input_tokens(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    answer_later(std::move(request), exchange, [this](const TemplateValue& body, const Exchange& asked) {
        return json_text(
            {{"object", "response.input_tokens"}, {"input_tokens", count_tokens(Dialect::Responses, body, asked)}});
    });
}

void Api::messages_input_tokens(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    answer_later(std::move(request), exchange, [this](const TemplateValue& body, const Exchange& asked) {
        return json_text({{"input_tokens", count_tokens(Dialect::Messages, body, asked)}});
    });
}

std::size_t Api::count_tokens(Dialect dialect, const TemplateValue& body, const Exchange& exchange) {
    const TextRequest parsed = parse_text_request(dialect, body, request_context());
    return prompts_.prepared(parsed, &exchange.cancelled()).task.prompt.tokens.size();
}

// Texts.

void Api::chat_completions(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    queue_text(Dialect::Chat, std::move(request), exchange);
}

void Api::completions(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    queue_text(Dialect::Completions, std::move(request), exchange);
}

void Api::messages(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    queue_text(Dialect::Messages, std::move(request), exchange);
}

void Api::responses(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    queue_text(Dialect::Responses, std::move(request), exchange);
}

void Api::llama_completion(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    queue_text(Dialect::Llama, std::move(request), exchange);
}

void Api::queue_text(Dialect dialect, HttpRequest&& request, const std::shared_ptr<Exchange>& exchange) {
    const ErrorShape shape = error_shape_of(request.path);
    auto job = std::make_shared<TextJob>();
    job->id = ++n_jobs_;
    job->path = request.path;
    job->exchange = exchange;
    for (const auto& left : texts_.take_left()) {
        left->writer->fail(ApiError::stopping());  // sent if the server stops; a client that has left gets nothing
        status_.update([](StatusSnapshot& state) { ++state.totals.cancelled; });
    }
    if (!texts_.add(job)) return exchange->answer(refuse_full(texts_.most_waiting()).answer(shape));
    const Worker::Added added = worker_.add([this, dialect, shape, job, body = std::move(request.body)] {
        try {
            throw_if_cancelled(&job->exchange->cancelled());
            prepare_text(dialect, body, *job);
            texts_.make_ready(*job);
        } catch (const std::exception& failure) {
            const ApiError error = ApiError::of(failure);
            // A note, since agents may not show the message that they get: the remedy is an option of the server.
            if (error.prompt_tokens() > 0)
                report(LineQueue::Level::Note,
                       fmt::format("request {} {} refused: {} prompt tokens do not fit into --ctx {}", job->id,
                                   job->path, error.prompt_tokens(), error.context_tokens()));
            else
                report(LineQueue::Level::Detail,
                       fmt::format("request {} {} refused: {} {}", job->id, job->path, error.status(),
                                   error.param().empty() ? error.code() : error.param()));
            texts_.remove(*job);  // before the answer, after which the client may look at the queue
            if (job->writer)
                job->writer->fail(error);
            else
                job->exchange->answer(error.answer(shape));
        }
        return_memory_of(body);
    });
    if (added == Worker::Added::Yes) return;
    texts_.remove(*job);
    exchange->answer(refusal_of(added).answer(shape));
}

void Api::prepare_text(Dialect dialect, const std::string& body, TextJob& job) {
    const TextRequest request = parse_text_request(dialect, parse_request_body(body), request_context());
    PreparedText prepared = prompts_.prepared(request, &job.exchange->cancelled());
    job.task = std::move(prepared.task);
    const std::int64_t n_prompt = std::ssize(job.task.prompt.tokens);
    const std::int64_t n_context = status_.snapshot().context_tokens;
    const bool is_too_long = n_prompt >= n_context;
    // Codex shortens its conversation after an event that says that the prompt is too long, but not after an answer
    // with status 400. So a stream of Responses begins below and then fails.
    if (is_too_long && !(dialect == Dialect::Responses && request.stream))
        throw ApiError::too_long(n_prompt, n_context);
    const auto* conversation = std::get_if<RequestedConversation>(&request.prompt);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    job.writer = std::make_unique<AnswerWriter>(
        job.exchange,
        make_answer_shape(dialect,
                          {.id = fmt::format("{:08x}{:08x}", random_seed(), random_seed()),
                           .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
                           .model = model_.name,
                           .fingerprint = model_.fingerprint,
                           .seed = job.task.sampling.seed,
                           .prompt_tokens = n_prompt,
                           .stops = request.text.stops,
                           .tool_choice = conversation != nullptr ? conversation->tool_choice : TemplateValue::none(),
                           .one_call = request.one_call},
                          prompts_.tokenizer()),
        std::move(prepared.reader), request);
    job.writer->begin();
    if (is_too_long) throw ApiError::too_long(n_prompt, n_context);
}

RequestContext Api::request_context() {
    return {.vocab = model_.vocab,
            .sampling = options_.sampling,
            .text = options_.text,
            .on_ignored = [this](std::string_view field) { report_ignored(field); }};
}

// Reports, once for each name, that the field `field` of requests has no effect. Called on the parser's thread only.
void Api::report_ignored(std::string_view field) {
    constexpr std::size_t kMostNames = 100;
    constexpr std::size_t kLongestName = 64;  // bytes; a longer name may be a text, and no text gets into the log
    if (field.size() > kLongestName || ignored_.size() >= kMostNames || !ignored_.insert(std::string(field)).second)
        return;
    report(LineQueue::Level::Detail,
           fmt::format("requests have the field {}, which has no effect here", printable(field)));
}

void Api::report(LineQueue::Level level, std::string_view line) const {
    if (options_.on_line) options_.on_line(level, line);
}

}  // namespace slipstream::tools
