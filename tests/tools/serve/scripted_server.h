// A whole server without a model: byte tokens, and an engine that does what the test says.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/tools/serve/manual_clock.h"
#include "tests/tools/serve/raw_client.h"
#include "tools/serve/api.h"
#include "tools/serve/http_server.h"
#include "tools/serve/text_runner.h"

namespace slipstream::tools {

/// A token for each byte.
class ByteTokenizer final : public Tokenizer {
public:
    ByteTokenizer() {
        for (int byte = 0; byte < 256; ++byte) bytes_.emplace_back(1, static_cast<char>(byte));
    }
    [[nodiscard]] std::string_view kind() const override { return "bytes"; }
    [[nodiscard]] std::int64_t vocab_size() const override { return 256; }
    [[nodiscard]] std::optional<TokenId> bos_id() const override { return std::nullopt; }
    [[nodiscard]] bool adds_bos() const override { return false; }
    [[nodiscard]] TokenKind token_kind(TokenId id) const override {
        return id == 0 ? TokenKind::Control : TokenKind::Normal;
    }
    [[nodiscard]] std::vector<TokenId> end_tokens() const override { return {0}; }
    [[nodiscard]] std::vector<TokenId> encode(std::string_view text, SpecialTokens,
                                              const std::atomic<bool>*) const override {
        std::vector<TokenId> ids;
        for (const unsigned char byte : text) ids.push_back(byte);
        return ids;
    }
    [[nodiscard]] std::string_view piece(TokenId id) const override {
        return id == 0 ? "<end>" : std::string_view(bytes_[id]);
    }
    [[nodiscard]] std::string_view token_bytes(TokenId id) const override { return id == 0 ? "" : piece(id); }
    [[nodiscard]] bool adds_space_prefix() const override { return false; }

protected:
    [[nodiscard]] std::vector<TokenId> encode_marked(std::string_view text, SaidBytes,
                                                     const std::atomic<bool>* cancel) const override {
        return encode(text, SpecialTokens::AsText, cancel);
    }

private:
    std::vector<std::string> bytes_;
};

/// Says the words of a script, a pass each. A word that is "|" waits until the test calls go_on(), or the task is
/// cancelled; "!" fails.
class ScriptedEngine final : public TextEngine {
public:
    explicit ScriptedEngine(std::int64_t context_tokens) : context_tokens_(context_tokens) {}

    [[nodiscard]] std::int64_t context_tokens() const override { return context_tokens_.load(); }
    [[nodiscard]] TextOutcome generate(const TextTask& task, const TextTaskCallbacks& callbacks) override {
        const auto n_prompt = static_cast<std::int64_t>(task.prompt.tokens.size());
        TextOutcome outcome;
        outcome.result.prompt_tokens = n_prompt;
        outcome.reused_tokens = 1;
        callbacks.on_start(outcome.reused_tokens);
        callbacks.on_prefill(n_prompt, n_prompt);
        {
            const std::lock_guard lock(mutex_);
            outcome.result.stop_reason = stop_reason_;
            outcome.result.stop = stop_;
            tasks_.push_back(task);
        }
        for (const std::string& word : script_of(task)) {
            if (word == "!") throw std::runtime_error("the script fails");
            if (word == "|" && !wait(callbacks.cancel)) {
                outcome.result.stop_reason = StopReason::Interrupt;
                return outcome;
            }
            if (word == "|") continue;
            if (task.text.max_tokens >= 0 && std::ssize(outcome.result.tokens) >= task.text.max_tokens) {
                outcome.result.stop_reason = StopReason::Length;
                return outcome;
            }
            std::vector<TokenLogprob> logprobs;
            if (task.n_logprobs) logprobs.push_back({'A', -0.5F, {{'A', -0.5F}, {'B', -1.5F}, {0, -2.5F}}});
            if (callbacks.on_pass)
                callbacks.on_pass({.n_nodes = 2,
                                   .tree =
                                       [] {
                                           return PassTree{.nodes = {{}, {.token = 'B', .parent = 0, .sources = 1}},
                                                           .sources = {"scripted"},
                                                           .sampled = 'A'};
                                       },
                                   .link_busy = [] { return std::vector<double>{}; }});
            callbacks.on_text(word);
            const TokenId token = 'A';
            callbacks.on_commit({&token, 1}, logprobs);
            outcome.result.tokens.push_back(token);
        }
        return outcome;
    }

    void set_context(std::int64_t n_tokens) { context_tokens_.store(n_tokens); }
    void set_script(std::vector<std::string> words) {
        const std::lock_guard lock(mutex_);
        script_ = std::move(words);
    }
    /// Why texts end that come to the end of the script.
    void set_stop(StopReason reason, std::string stop) {
        const std::lock_guard lock(mutex_);
        stop_reason_ = reason;
        stop_ = std::move(stop);
    }
    void go_on() {
        const std::lock_guard lock(mutex_);
        ++n_allowed_;
        changed_.notify_all();
    }
    [[nodiscard]] std::vector<TextTask> tasks() const {
        const std::lock_guard lock(mutex_);
        return tasks_;
    }

private:
    std::vector<std::string> script_of(const TextTask& /*task*/) const {
        const std::lock_guard lock(mutex_);
        return script_;
    }
    bool wait(const std::atomic<bool>* cancel) {
        std::unique_lock lock(mutex_);
        while (n_allowed_ == 0) {
            if (cancel->load()) return false;
            changed_.wait_for(lock, std::chrono::milliseconds(5));
        }
        --n_allowed_;
        return true;
    }

    std::atomic<std::int64_t> context_tokens_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> script_{"Hello", " world"};
    StopReason stop_reason_ = StopReason::EndToken;
    std::string stop_;
    int n_allowed_ = 0;
    std::vector<TextTask> tasks_;
};

class ScriptedServer {
public:
    static constexpr std::int64_t kContext = 300;

    /// `chat_template` is Jinja; empty: conversations are plain text in turns.
    explicit ScriptedServer(AccessRules access = {}, const std::string& chat_template = {})
        : prompts_(tokenizer_, template_of(chat_template, tokenizer_), GenerationDefaults{}),
          api_({.access = std::move(access),
                .most_waiting = 3,
                .on_line = [this](LineQueue::Level /*level*/, std::string_view line) { add_line(line); }},
               {.name = "org/scripted", .created = 5, .vocab = 256, .fingerprint = "f"}, prompts_, status_) {
        status_.update([](StatusSnapshot& state) { state.is_ready = true; });
        sockets_ = std::thread([this] { server_.run(); });
        runner_ = std::thread([this] {
            while (!ends_.load()) {
                if (const auto job = api_.texts().take(std::chrono::milliseconds(5)))
                    run_text(*job, engine, status_, api_.live(), [this](std::string_view line) { add_line(line); });
                api_.live().flush();
            }
        });
    }
    ~ScriptedServer() {
        server_.cancel_all();
        ends_.store(true);
        runner_.join();
        api_.stop();
        server_.stop();
        sockets_.join();
    }
    ScriptedServer(const ScriptedServer&) = delete;
    ScriptedServer& operator=(const ScriptedServer&) = delete;

    [[nodiscard]] RawClient connect() const { return RawClient(server_.port()); }
    [[nodiscard]] RawAnswer get(std::string_view path) const {
        RawClient client = connect();
        client.send(get_request(path));
        return read_answer(client);
    }
    [[nodiscard]] RawAnswer post(std::string_view path, std::string_view body) const {
        RawClient client = connect();
        client.send(post_request(path, body));
        return read_answer(client);
    }
    [[nodiscard]] StatusSnapshot status() const { return status_.snapshot(); }
    void set_loading() {
        status_.update([](StatusSnapshot& state) {
            state.is_ready = false;
            state.work = "reading weights";
            state.work_done = 0.25;
        });
    }
    [[nodiscard]] std::string lines() const {
        const std::lock_guard lock(mutex_);
        return lines_;
    }
    /// Waits until `is_so`, at most 20 s.
    template <typename Condition>
    static bool becomes(Condition is_so) {
        for (int i = 0; i < 2000 && !is_so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return is_so();
    }

    ScriptedEngine engine{kContext};
    ManualClock clock;

private:
    static std::optional<PromptTemplate> template_of(const std::string& source, const Tokenizer& tokenizer) {
        if (source.empty()) return std::nullopt;
        return PromptTemplate(ChatTemplate::parse(source, "the template"), {}, tokenizer);
    }
    void add_line(std::string_view line) {
        const std::lock_guard lock(mutex_);
        lines_ += std::string(line) + "\n";
    }

    mutable std::mutex mutex_;
    std::string lines_;
    ByteTokenizer tokenizer_;
    PromptMaker prompts_;
    ServerStatus status_{kContext};
    Api api_;
    HttpServer server_{{.port = 0, .clock = clock.reader(), .tick = std::chrono::milliseconds(5)}, api_};
    std::atomic<bool> ends_{false};
    std::thread sockets_;
    std::thread runner_;
};

}  // namespace slipstream::tools
