// The parser's expressions. Each function reads one level of binding, left to right, as jinja2/parser.py does; a tilde
// binds tighter than plus, filters and tests tighter than any operator.
#include <algorithm>
#include <array>

#include "runtime/text/chat/parser.h"
#include "runtime/text/chat/python_text.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

// Of left-leaning chains (a + b + c + ...), which need no recursion to be read, but to be evaluated.
constexpr int kMaxTreeDepth = 400;
constexpr std::size_t kMaxNamedArguments = 255;

}  // namespace

ExprPtr Parser::measured(ExprPtr expr) {
    int deepest = 0;
    for (const ExprPtr& part : expr->parts)
        if (part) deepest = std::max(deepest, part->depth);
    for (const auto& [name, value] : expr->named) deepest = std::max(deepest, value->depth);
    expr->depth = deepest + 1;
    if (expr->depth > kMaxTreeDepth) fail("an expression of more than {} levels", kMaxTreeDepth);
    return expr;
}

ExprPtr Parser::literal(int line, Value value) {
    ExprPtr expr = make(ExprKind::Literal, line);
    expr->value = std::move(value);
    return expr;
}

ExprPtr Parser::expression(Conditional conditional) {
    const Nested nested(*this);
    return conditional == Conditional::Allowed ? conditional_expression() : or_expression();
}

ExprPtr Parser::conditional_expression() {
    int line = current().line;
    ExprPtr yes = or_expression();
    while (skip_name("if")) {
        ExprPtr test = or_expression();
        ExprPtr no;
        if (skip_name("else")) no = expression();
        yes = make(ExprKind::Conditional, line, std::move(test), std::move(yes), std::move(no));
        line = current().line;
    }
    return yes;
}

ExprPtr Parser::logic(ExprKind kind, std::string_view word, ExprPtr (Parser::*tighter)()) {
    int line = current().line;
    ExprPtr left = (this->*tighter)();
    while (skip_name(word)) {
        left = make(kind, line, std::move(left), (this->*tighter)());
        line = current().line;
    }
    return left;
}

ExprPtr Parser::not_expression() {
    const int line = current().line;
    if (!skip_name("not")) return comparison();
    const Nested nested(*this);
    return make(ExprKind::Not, line, not_expression());
}

ExprPtr Parser::comparison() {
    static constexpr std::array<std::pair<std::string_view, Comparison>, 6> kSigns = {
        {{"==", Comparison::Equal},
         {"!=", Comparison::NotEqual},
         {"<", Comparison::Less},
         {"<=", Comparison::LessOrEqual},
         {">", Comparison::Greater},
         {">=", Comparison::GreaterOrEqual}}};
    const int line = current().line;
    ExprPtr compare = make(ExprKind::Compare, line, sum());
    const auto add = [&](Comparison comparison) {
        compare->comparisons.push_back(comparison);
        compare->parts.push_back(sum());
    };
    while (true) {
        const auto sign =
            std::find_if(kSigns.begin(), kSigns.end(), [&](const auto& entry) { return is_operator(entry.first); });
        if (sign != kSigns.end()) {
            take();
            add(sign->second);
        } else if (skip_name("in")) {
            add(Comparison::In);
        } else if (is_name("not") && ahead().type == TokenType::Name && ahead().text == "in") {
            take();
            take();
            add(Comparison::NotIn);
        } else {
            break;
        }
    }
    return compare->comparisons.empty() ? std::move(compare->parts[0]) : measured(std::move(compare));
}

ExprPtr Parser::arithmetic(Operators operators, ExprPtr (Parser::*tighter)()) {
    int line = current().line;
    ExprPtr left = (this->*tighter)();
    while (true) {
        const auto found = std::find_if(operators.begin(), operators.end(),
                                        [&](const auto& entry) { return is_operator(entry.first); });
        if (found == operators.end()) return left;
        take();
        left = make(ExprKind::Arithmetic, line, std::move(left), (this->*tighter)());
        left->operation = found->second;
        line = current().line;
    }
}

ExprPtr Parser::sum() {
    return arithmetic({{"+", Arithmetic::Add}, {"-", Arithmetic::Subtract}}, &Parser::concatenation);
}

ExprPtr Parser::concatenation() {
    const int line = current().line;
    ExprPtr concat = make(ExprKind::Concat, line, product());
    while (skip_operator("~")) concat->parts.push_back(product());
    return concat->parts.size() == 1 ? std::move(concat->parts[0]) : measured(std::move(concat));
}

ExprPtr Parser::product() {
    return arithmetic({{"*", Arithmetic::Multiply},
                       {"/", Arithmetic::Divide},
                       {"//", Arithmetic::FloorDivide},
                       {"%", Arithmetic::Modulo}},
                      &Parser::power);
}

ExprPtr Parser::power() {
    return arithmetic({{"**", Arithmetic::Power}}, &Parser::operand);
}

ExprPtr Parser::unary(Filters filters) {
    const int line = current().line;
    ExprPtr expr;
    if (is_operator("-") || is_operator("+")) {
        const Nested nested(*this);
        const ExprKind kind = is_operator("-") ? ExprKind::Minus : ExprKind::Plus;
        take();
        expr = make(kind, line, unary(Filters::Forbidden));
    } else {
        expr = primary();
    }
    expr = postfix(std::move(expr));
    return filters == Filters::Allowed ? filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::primary() {
    const int line = current().line;
    if (is_operator("(")) {
        take();
        ExprPtr inside = tuple(Conditional::Allowed, {}, Parentheses::Around);
        expect_operator(")");
        return inside;
    }
    if (is_operator("[")) return list_literal();
    if (is_operator("{")) return dict_literal();
    switch (current().type) {
        case TokenType::Name: {
            const std::string name = take().text;
            if (name == "true" || name == "True") return literal(line, Value(true));
            if (name == "false" || name == "False") return literal(line, Value(false));
            if (name == "none" || name == "None") return literal(line, Value::none());
            ExprPtr expr = make(ExprKind::Name, line);
            expr->name = id_of(name);
            note_read(expr->name);
            return expr;
        }
        case TokenType::Text: {
            std::string text = take().text;
            while (is(TokenType::Text)) text += take().text;  // "a" "b" is one text
            return literal(line, Value(std::move(text)));
        }
        case TokenType::Integer:
            return literal(line, Value(take().integer));
        case TokenType::Float:
            return literal(line, Value(take().real));
        default:
            fail("unexpected {}", quoted(describe(current())));
    }
}

bool Parser::at_tuple_end(std::string_view end) const {
    return is(TokenType::VariableEnd) || is(TokenType::BlockEnd) || is_operator(")") || (!end.empty() && is_name(end));
}

ExprPtr Parser::tuple(Conditional conditional, std::string_view end, Parentheses parentheses) {
    ExprPtr items = make(ExprKind::Tuple, current().line);
    bool is_tuple = false;
    while (true) {
        if (!items->parts.empty()) expect_operator(",");
        if (at_tuple_end(end)) break;
        items->parts.push_back(expression(conditional));
        if (!is_operator(",")) break;
        is_tuple = true;
    }
    if (!is_tuple && !items->parts.empty()) return std::move(items->parts[0]);
    if (!is_tuple && parentheses == Parentheses::None)
        fail("Expected an expression, got {}", quoted(describe(current())));
    return measured(std::move(items));
}

ExprPtr Parser::list_literal() {
    ExprPtr list = make(ExprKind::List, take().line);
    while (!is_operator("]")) {
        if (!list->parts.empty()) expect_operator(",");
        if (is_operator("]")) break;
        list->parts.push_back(expression());
    }
    expect_operator("]");
    return measured(std::move(list));
}

ExprPtr Parser::dict_literal() {
    ExprPtr dict = make(ExprKind::Dict, take().line);
    while (!is_operator("}")) {
        if (!dict->parts.empty()) expect_operator(",");
        if (is_operator("}")) break;
        dict->parts.push_back(expression());
        expect_operator(":");
        dict->parts.push_back(expression());
    }
    expect_operator("}");
    return measured(std::move(dict));
}

// ---- what follows a value: attributes, elements, slices, calls, filters, tests

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
