#include "runtime/text/chat/runtime.h"

#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

Runtime::~Runtime() {
    for (const auto& object : mutable_objects_) object->release();
}

Value Runtime::text(std::string content) {
    check_text(content);
    return Value(std::move(content));
}

Value Runtime::markup(std::string content) {
    check_text(content);
    return Value::markup(std::move(content));
}

Value Runtime::text(std::string content, const Text& like) {
    return like.is_markup ? markup(std::move(content)) : text(std::move(content));
}

Value Runtime::list(std::vector<Value> items) {
    allocate(sizeof(Sequence) + items.size() * sizeof(Value));
    return Value::list(std::move(items));
}

Value Runtime::tuple(std::vector<Value> items) {
    allocate(sizeof(Sequence) + items.size() * sizeof(Value));
    return Value::tuple(std::move(items));
}

Value Runtime::dict(Dict dict) {
    allocate(sizeof(Dict) + dict.size() * 2 * sizeof(Dict::Item));
    return Value::dict(std::move(dict));
}

void Runtime::check_text(const std::string& content) {
    if (content.size() > limits_.max_text_bytes) fail("a text grows beyond {} bytes", limits_.max_text_bytes);
    allocate(sizeof(Text) + content.size());
}

void Runtime::allocate(std::size_t bytes) {
    if (bytes > limits_.max_allocated_bytes - allocated_bytes_)
        fail("the template makes more than {} bytes of values", limits_.max_allocated_bytes);
    allocated_bytes_ += bytes;
}

void Runtime::forget(const std::shared_ptr<Object>& object) {
    // Two owners: the caller and the list.
    if (!mutable_objects_.empty() && mutable_objects_.back() == object && object.use_count() == 2)
        mutable_objects_.pop_back();
}

void Runtime::check_depth(int depth) {
    if (depth > kMaxValueDepth) fail("values nested deeper than {}", kMaxValueDepth);
}

void Runtime::out_of_steps() const {
    fail("the template does not end within {} steps (does it loop for ever?)", limits_.max_steps);
}

void Runtime::look_at_cancel() {
    if (limits_.cancel != nullptr && limits_.cancel->load(std::memory_order_relaxed)) fail("the rendering was stopped");
    look_at_ = steps_left_ - kStepsBetween;
}

void Runtime::too_deep() const {
    fail("the template calls itself too deeply: {} levels", kMaxDepth);
}

}  // namespace slipstream::jinja
