// The endpoints. A request passes: check_head() (access, path, method; the thread of the sockets), handle() (short
// answers at once; texts take their place in the queue), the parser's thread (JSON, template, token ids), and then the
// engine's, which takes jobs from texts().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/serve/access.h"
#include "tools/serve/http_server.h"
#include "tools/serve/line_queue.h"
#include "tools/serve/live_feed.h"
#include "tools/serve/prompt_maker.h"
#include "tools/serve/served_model.h"
#include "tools/serve/server_status.h"
#include "tools/serve/text_queue.h"
#include "tools/serve/worker.h"

namespace slipstream::tools {

struct ApiOptions {
    AccessRules access{};
    // Defaults for the fields that a request does not set: `sampling` and `text`.
    SamplingSettings sampling{};
    TextGenerationOptions text{};
    std::size_t most_waiting = 16;  // requests
    /// Options with which `generate` produces the texts of this server; the page shows them.
    std::vector<std::string> command_options{};
    /// Called with a line for the user, on any thread; may be empty.
    std::function<void(LineQueue::Level, std::string_view)> on_line{};
};

class Api final : public HttpHandler {
public:
    /// `prompts` and `status` must outlive this object.
    Api(ApiOptions options, ServedModel model, const PromptMaker& prompts, ServerStatus& status);

    [[nodiscard]] Verdict check_head(const HttpRequest& request) override;
    void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) override;
    [[nodiscard]] HttpAnswer error_answer(int status, const std::string& reason, std::string_view path) override;

    /// Answers all waiting requests with an error, and later requests too. Call while the HttpServer still runs, since
    /// it sends the answers. Throws nothing.
    void stop();
    /// Returns the queue from which the engine's thread takes its jobs.
    [[nodiscard]] TextQueue& texts() { return texts_; }
    [[nodiscard]] const ServedModel& model() const { return model_; }
    /// Returns the feed to which the engine's thread reports its texts and passes.
    [[nodiscard]] LiveFeed& live() { return live_; }

private:
    using Handle = void (Api::*)(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    struct Route {
        std::string_view method;
        std::string_view path;
        Handle handle;
    };
    [[nodiscard]] static const Route* find_route(std::string_view method, std::string_view path);

    // The endpoints. Each answers a request by `exchange`, at once or later; find_route() chooses it.

    void page(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void live_events(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void health(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void models(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void named_model(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void props(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void slots(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void metrics(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void chat_completions(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void completions(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void messages(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void responses(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void llama_completion(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void tokenize(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void detokenize(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void apply_template(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void input_tokens(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void responses_input_tokens(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void messages_input_tokens(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);

    void queue_text(Dialect dialect, HttpRequest&& request, const std::shared_ptr<Exchange>& exchange);
    void prepare_text(Dialect dialect, const std::string& body, TextJob& job);
    void answer_later(HttpRequest&& request, const std::shared_ptr<Exchange>& exchange,
                      std::function<std::string(const TemplateValue& body, const Exchange& exchange)> answer);
    /// Returns the number of tokens in the prompt of a request with this body. Called on the parser's thread.
    [[nodiscard]] std::size_t count_tokens(Dialect dialect, const TemplateValue& body, const Exchange& exchange);
    [[nodiscard]] ApiError refusal_of(Worker::Added added);
    [[nodiscard]] ApiError refuse_full(std::size_t n_waiting);
    [[nodiscard]] RequestContext request_context();
    void report_ignored(std::string_view field);
    void report(LineQueue::Level level, std::string_view line) const;

    ApiOptions options_;
    ServedModel model_;
    const PromptMaker& prompts_;
    ServerStatus& status_;
    TextQueue texts_;
    LiveFeed live_;
    std::int64_t n_jobs_ = 0;        // requests for texts so far, for their ids; used on the thread of the sockets only
    std::set<std::string> ignored_;  // names of fields reported so far; used on the parser's thread only
    Worker worker_;                  // the parser's thread; last member, since its tasks use the others
};

}  // namespace slipstream::tools
