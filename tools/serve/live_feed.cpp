#include "tools/serve/live_feed.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/text/tokenizer/tokenizer.h"
#include "tools/serve/answer_json.h"

namespace slipstream::tools {

namespace {

constexpr std::string_view kSilence = "data: {\"type\":\"silence\"}\n\n";

double seconds_between(LiveFeed::Clock::time_point from, LiveFeed::Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
}

// Returns the first kMostTextBytes bytes of a token's text; json_text() makes U+FFFD of a character that is cut.
std::string short_text(const Tokenizer& tokenizer, TokenId id) {
    return std::string(token_text(tokenizer, id).substr(0, LiveFeed::kMostTextBytes));
}

Json tree_json(const PassTree& tree, const Tokenizer& tokenizer) {
    Json nodes = Json::array();
    for (const PassTree::Node& node : tree.nodes) {
        if (nodes.size() >= static_cast<std::size_t>(LiveFeed::kMostNodes)) break;
        nodes.push_back({{"text", short_text(tokenizer, node.token)},
                         {"parent", node.parent},
                         {"sources", node.sources},
                         {"accepted", node.accepted}});
    }
    return {{"size", tree.nodes.size()},
            {"sources", tree.sources},
            {"nodes", std::move(nodes)},
            {"sampled", short_text(tokenizer, tree.sampled)}};
}

}  // namespace

LiveFeed::LiveFeed(LiveHello hello, const Tokenizer& tokenizer, std::function<std::size_t()> n_waiting,
                   std::function<Clock::time_point()> clock)
    : tokenizer_(tokenizer), n_waiting_(std::move(n_waiting)), clock_(std::move(clock)), hello_(std::move(hello)) {}

LiveFeed::Added LiveFeed::add(const std::shared_ptr<Exchange>& exchange) {
    const std::lock_guard lock(mutex_);
    if (closed_) return Added::Closed;
    remove_left();
    if (listeners_.size() >= kMostListeners) return Added::Full;
    listeners_.push_back(exchange);
    exchange->begin_stream(std::string(kSilence));
    exchange->send_if_read(hello_event());
    is_asked_.store(true);
    has_listeners_.store(true);
    return Added::Yes;
}

void LiveFeed::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& exchange : listeners_) exchange->end();
    listeners_.clear();
    has_listeners_.store(false);
}

// Removes listeners whose exchanges are cancelled, and ends their streams. Requires that mutex_ is held.
void LiveFeed::remove_left() {
    std::erase_if(listeners_, [](const auto& exchange) {
        if (!exchange->cancelled().load()) return false;
        exchange->end();  // sent if the server stops; a client that has left gets nothing
        return true;
    });
}

// Returns the event that a listener gets first. Requires that mutex_ is held.
std::string LiveFeed::hello_event() const {
    return data_event({{"type", "hello"},
                       {"model", hello_.model},
                       {"system_fingerprint", hello_.fingerprint},
                       {"options", hello_.options},
                       {"n_ctx", hello_.context_tokens},
                       {"plan", hello_.plan.empty() ? Json() : Json::parse(hello_.plan)}});
}

void LiveFeed::set_plan(std::int64_t context_tokens, std::string plan) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        hello_.context_tokens = context_tokens;
        hello_.plan = std::move(plan);
        const std::string event = hello_event();
        for (const auto& exchange : listeners_) exchange->send_if_read(event);
    } catch (const std::exception&) {
        // Without memory, some listeners do not get the plan; texts go on.
    }
}

// Calls `change`, which updates the state that the next event describes, and sends the event if it is due.
template <typename Report>
void LiveFeed::report(Report change) noexcept {
    try {
        change();
        changed_ = true;
        send_due();
    } catch (const std::exception&) {
        // Without memory, the next event lacks this change; texts go on.
    }
}

void LiveFeed::begin_text(std::int64_t id, std::int64_t prompt_tokens) noexcept {
    report([&] { text_ = Text{.id = id, .prompt_tokens = prompt_tokens, .prompt_began = clock_()}; });
}

void LiveFeed::start_prompt(std::int64_t reused_tokens) noexcept {
    if (!text_) return;
    text_->reused = text_->prompt_done = reused_tokens;
    text_->prompt_began = clock_();
}

void LiveFeed::prompt(std::int64_t done, const std::function<std::vector<double>()>& link_busy) noexcept {
    if (!text_) return;
    text_->prompt_done = done;
    if (!has_listeners_.load()) return;
    report([&] {
        // The remaining time follows from the time so far: all layers, and all prefill chunks, take about the same
        // time.
        const auto n_done = static_cast<double>(done - text_->reused);
        const auto n_left = static_cast<double>(text_->prompt_tokens - done);
        if (n_done > 0.0) text_->seconds_left = seconds_between(text_->prompt_began, clock_()) / n_done * n_left;
        if (is_due()) link_busy_ = link_busy();
    });
}

void LiveFeed::pass(const PassReport& report_of_pass) noexcept {
    if (!text_) return;
    text_->prompt_done = text_->prompt_tokens;
    text_->seconds_left.reset();
    if (text_->passes == 0) text_->first_token = clock_();
    text_->generated += report_of_pass.n_tokens;
    ++text_->passes;
    if (!has_listeners_.load()) return;
    report([&] {
        ++passes_.n;
        passes_.tokens += report_of_pass.n_tokens;
        passes_.draft_tokens += report_of_pass.n_nodes - 1;
        passes_.accepted += report_of_pass.n_tokens - 1;
        passes_.seconds += report_of_pass.seconds;
        if (passes_.tree && !is_due()) return;  // the first tree is kept: there may be no later one
        passes_.tree = report_of_pass.tree();
        link_busy_ = report_of_pass.link_busy();
    });
}

void LiveFeed::end_text(std::string_view reason, std::int64_t generated) noexcept {
    if (!text_) return;
    report([&] {
        text_->reason = reason;
        text_->generated = generated;
        std::ranges::fill(link_busy_, 0.0);
    });
}

void LiveFeed::flush() noexcept {
    try {
        send_due();
    } catch (const std::exception&) {
        // There was no memory to make the event; a later call of send_due() sends it.
    }
}

void LiveFeed::send_due() {
    if (!has_listeners_.load()) {
        passes_ = {};
        return;
    }
    if (is_asked_.exchange(false)) changed_ = true;
    if (!is_due()) return;
    const std::lock_guard lock(mutex_);
    remove_left();
    has_listeners_.store(!listeners_.empty());
    if (!changed_ || listeners_.empty()) return;
    const Clock::time_point now = clock_();
    const std::string text = event(now);
    for (const auto& exchange : listeners_) exchange->send_if_read(text);
    last_ = now;
    changed_ = false;
    passes_ = {};
}

std::string LiveFeed::event(Clock::time_point now) const {
    Json json{{"type", "state"}, {"waiting", n_waiting_()}};
    if (text_) {
        const bool decodes = text_->passes > 0;
        json["text"] = {{"id", text_->id},
                        {"phase", !text_->reason.empty() ? "ended"
                                  : decodes              ? "answer"
                                                         : "prompt"},
                        {"prompt_tokens", text_->prompt_tokens},
                        {"prompt_done", text_->prompt_done},
                        {"reused_tokens", text_->reused},
                        {"seconds_left", text_->seconds_left ? Json(*text_->seconds_left) : Json()},
                        {"generated", text_->generated},
                        {"passes", text_->passes},
                        {"decode_seconds", decodes ? seconds_between(text_->first_token, now) : 0.0},
                        {"reason", text_->reason.empty() ? Json() : Json(text_->reason)}};
    }
    if (passes_.n > 0) {
        json["passes"] = {{"n", passes_.n},
                          {"tokens", passes_.tokens},
                          {"draft_tokens", passes_.draft_tokens},
                          {"accepted", passes_.accepted},
                          {"seconds", passes_.seconds}};
    }
    if (passes_.tree) json["tree"] = tree_json(*passes_.tree, tokenizer_);
    json["link_busy"] = link_busy_;
    return data_event(json);
}

}  // namespace slipstream::tools
