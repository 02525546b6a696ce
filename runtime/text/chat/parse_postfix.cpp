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
    const int line = current().line;
    FilterExpr filter{std::move(input), dotted_name(), {}};
    if (is_operator("(")) filter.arguments = call_arguments();
    return make(line, std::move(filter));
}

ExprPtr Parser::test(ExprPtr input) {
    const int line = take().line;
    const bool negated = skip_name("not");
    TestExpr test{std::move(input), dotted_name(), {}};
    const bool at_value = is(TokenType::Name) || is(TokenType::Text) || is(TokenType::Integer) ||
                          is(TokenType::Float) || is_operator("[") || is_operator("{");
    if (is_operator("(")) {
        test.arguments = call_arguments();
    } else if (at_value && !is_name("else") && !is_name("or") && !is_name("and")) {
        if (is_name("is")) fail("You cannot chain multiple tests with is");
        const Nested nested(*this);
        test.arguments.positional.push_back(postfix(primary()));
    }
    ExprPtr result = make(line, std::move(test));
    return negated ? make(line, UnaryExpr{UnaryOp::Not, std::move(result)}) : std::move(result);
}

ExprPtr Parser::subscript(ExprPtr object) {
    const Token opening = take();
    const int line = opening.line;
    if (opening.text == ".") {
        const Token name = take();
        if (name.type == TokenType::Name) return make(line, AttributeExpr{std::move(object), name.text});
        if (name.type != TokenType::Integer) fail("expected name or number");
        return make(line, ItemExpr{std::move(object), make(line, LiteralExpr{Value(name.integer)})});
    }
    SequenceExpr keys{Kind::Tuple, {}};
    while (!is_operator("]")) {
        if (!keys.items.empty()) expect_operator(",");
        if (is_operator(":")) return slice(line, std::move(object), nullptr, keys.items.empty());
        ExprPtr key = expression();
        if (is_operator(":")) return slice(line, std::move(object), std::move(key), keys.items.empty());
        keys.items.push_back(std::move(key));
    }
    expect_operator("]");
    if (keys.items.size() == 1) return make(line, ItemExpr{std::move(object), std::move(keys.items[0])});
    return make(line, ItemExpr{std::move(object), make(line, std::move(keys))});
}

ExprPtr Parser::slice(int line, ExprPtr object, ExprPtr start, bool is_alone) {
    SliceExpr slice{std::move(object), std::move(start), nullptr, nullptr};
    const auto ends = [this] { return is_operator("]") || is_operator(","); };
    expect_operator(":");
    if (!is_operator(":") && !ends()) slice.stop = expression();
    if (skip_operator(":") && !ends()) slice.step = expression();
    if (!is_alone || is_operator(",")) fail("a slice stands alone between its brackets");
    expect_operator("]");
    return make(line, std::move(slice));
}

ExprPtr Parser::call(ExprPtr callee) {
    const int line = current().line;
    return make(line, CallExpr{std::move(callee), call_arguments()});
}

CallArguments Parser::call_arguments() {
    CallArguments arguments;
    const auto ensure = [](bool good) {
        if (!good) fail("invalid syntax for function call expression");
    };
    expect_operator("(");
    bool first = true;
    while (!is_operator(")")) {
        if (!first) expect_operator(",");
        if (is_operator(")")) break;  // a comma may stand at the end
        first = false;
        if (skip_operator("*")) {
            ensure(!arguments.spread && !arguments.spread_named);
            arguments.spread = expression();
        } else if (skip_operator("**")) {
            ensure(!arguments.spread_named);
            arguments.spread_named = expression();
        } else if (is(TokenType::Name) && is_operator(ahead(), "=")) {
            ensure(!arguments.spread_named);
            const std::string name = take().text;
            take();
            for (const auto& [other, value] : arguments.named)
                if (other == name) fail("keyword argument repeated: {}", name);
            if (arguments.named.size() == kMaxNamedArguments)
                fail("more than {} keyword arguments", kMaxNamedArguments);
            arguments.named.emplace_back(name, expression());
        } else {
            ensure(!arguments.spread && !arguments.spread_named && arguments.named.empty());
            arguments.positional.push_back(expression());
        }
    }
    expect_operator(")");
    return arguments;
}

}  // namespace slipstream::jinja
