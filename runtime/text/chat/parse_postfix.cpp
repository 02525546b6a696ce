// The parser's expressions, continued: what follows a value (attributes, elements, slices, calls, filters, tests).
#include "runtime/text/chat/parser.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

constexpr std::size_t kMaxNamedArguments = 255;

}  // namespace

ExprPtr Parser::postfix(ExprPtr expr) {
    while (true) {
        if (is_operator(".") || is_operator("[")) {
            expr = subscript(std::move(expr));
        } else if (is_operator("(")) {
            expr = call(std::move(expr));
        } else {
            return expr;
        }
    }
}

ExprPtr Parser::filters_and_tests(ExprPtr expr) {
    while (true) {
        if (is_operator("|")) {
            take();
            expr = filter(std::move(expr));
        } else if (is_name("is")) {
            expr = test(std::move(expr));
        } else if (is_operator("(")) {
            expr = call(std::move(expr));
        } else {
            return expr;
        }
    }
}

std::string Parser::dotted_name() {
    std::string name = expect_any_name();
    while (skip_operator(".")) name.append(1, '.').append(expect_any_name());
    return name;
}

ExprPtr Parser::filter(ExprPtr input) {
    ExprPtr filter = make(ExprKind::Filter, current().line, std::move(input));
    const std::string name = dotted_name();
    filter->builtin = find_filter(name);
    filter->value = Value(name);
    if (is_operator("(")) call_arguments(*filter);
    return measured(std::move(filter));
}

ExprPtr Parser::test(ExprPtr input) {
    const int line = take().line;
    const bool is_negated = skip_name("not");
    ExprPtr test = make(ExprKind::Test, line, std::move(input));
    const std::string name = dotted_name();
    test->builtin = find_test(name);
    test->value = Value(name);
    const bool at_value = is(TokenType::Name) || is(TokenType::Text) || is(TokenType::Integer) ||
                          is(TokenType::Float) || is_operator("[") || is_operator("{");
    if (is_operator("(")) {
        call_arguments(*test);
    } else if (at_value && !is_name("else") && !is_name("or") && !is_name("and")) {
        if (is_name("is")) fail("You cannot chain multiple tests with is");
        const Nested nested(*this);
        test->parts.push_back(postfix(primary()));
    }
    test = measured(std::move(test));
    return is_negated ? make(ExprKind::Not, line, std::move(test)) : std::move(test);
}

ExprPtr Parser::subscript(ExprPtr object) {
    const Token opening = take();
    const int line = opening.line;
    if (opening.text == ".") {
        const Token name = take();
        if (name.type == TokenType::Integer)
            return make(ExprKind::Item, line, std::move(object), literal(line, Value(name.integer)));
        if (name.type != TokenType::Name) fail("expected name or number");
        ExprPtr attribute = make(ExprKind::Attribute, line, std::move(object));
        attribute->value = Value(name.text);
        return attribute;
    }
    ExprPtr keys = make(ExprKind::Tuple, line);
    while (!is_operator("]")) {
        if (!keys->parts.empty()) expect_operator(",");
        if (is_operator(":")) return slice(line, std::move(object), nullptr, keys->parts.empty());
        ExprPtr key = expression();
        if (is_operator(":")) return slice(line, std::move(object), std::move(key), keys->parts.empty());
        keys->parts.push_back(std::move(key));
    }
    expect_operator("]");
    if (keys->parts.size() == 1) return make(ExprKind::Item, line, std::move(object), std::move(keys->parts[0]));
    return make(ExprKind::Item, line, std::move(object), measured(std::move(keys)));
}

ExprPtr Parser::slice(int line, ExprPtr object, ExprPtr start, bool is_alone) {
    const auto ends = [this] { return is_operator("]") || is_operator(","); };
    ExprPtr stop;
    ExprPtr step;
    expect_operator(":");
    if (!is_operator(":") && !ends()) stop = expression();
    if (skip_operator(":") && !ends()) step = expression();
    if (!is_alone || is_operator(",")) fail("a slice stands alone between its brackets");
    expect_operator("]");
    return make(ExprKind::Slice, line, std::move(object), std::move(start), std::move(stop), std::move(step));
}

ExprPtr Parser::call(ExprPtr callee) {
    ExprPtr call = make(ExprKind::Call, current().line, std::move(callee));
    call_arguments(*call);
    return measured(std::move(call));
}

void Parser::call_arguments(Expr& expr) {
    const auto ensure = [](bool good) {
        if (!good) fail("invalid syntax for function call expression");
    };
    expect_operator("(");
    bool is_first = true;
    bool has_spread = false;
    bool has_named_spread = false;
    while (!is_operator(")")) {
        if (!std::exchange(is_first, false)) expect_operator(",");
        if (is_operator(")")) break;  // a comma may stand at the end
        ensure(!has_named_spread);
        const int line = current().line;
        if (skip_operator("*")) {
            ensure(!has_spread);
            has_spread = true;
            expr.parts.push_back(make(ExprKind::Spread, line, expression()));
        } else if (skip_operator("**")) {
            has_named_spread = true;
            expr.named.emplace_back(std::string(), expression());
        } else if (is(TokenType::Name) && is_operator(ahead(), "=")) {
            const std::string name = take().text;
            take();
            for (const auto& [other, value] : expr.named)
                if (other == name) fail("keyword argument repeated: {}", name);
            if (expr.named.size() == kMaxNamedArguments) fail("more than {} keyword arguments", kMaxNamedArguments);
            expr.named.emplace_back(name, expression());
        } else {
            ensure(!has_spread && expr.named.empty());
            expr.parts.push_back(expression());
        }
    }
    expect_operator(")");
}

}  // namespace slipstream::jinja
