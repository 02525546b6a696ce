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

int depth_of(const ExprPtr& expr) {
    return expr ? expr->depth : 0;
}

int depth_of(const CallArguments& arguments) {
    int depth = std::max(depth_of(arguments.spread), depth_of(arguments.spread_named));
    for (const auto& value : arguments.positional) depth = std::max(depth, depth_of(value));
    for (const auto& [name, value] : arguments.named) depth = std::max(depth, depth_of(value));
    return depth;
}

struct ChildDepth {
    int operator()(const LiteralExpr& /*expr*/) const { return 0; }
    int operator()(const NameExpr& /*expr*/) const { return 0; }
    int operator()(const SequenceExpr& expr) const {
        int depth = 0;
        for (const auto& item : expr.items) depth = std::max(depth, depth_of(item));
        return depth;
    }
    int operator()(const DictExpr& expr) const {
        int depth = 0;
        for (const auto& [key, value] : expr.items) depth = std::max({depth, depth_of(key), depth_of(value)});
        return depth;
    }
    int operator()(const UnaryExpr& expr) const { return depth_of(expr.operand); }
    int operator()(const ArithmeticExpr& expr) const { return std::max(depth_of(expr.left), depth_of(expr.right)); }
    int operator()(const LogicExpr& expr) const { return std::max(depth_of(expr.left), depth_of(expr.right)); }
    int operator()(const CompareExpr& expr) const {
        int depth = depth_of(expr.first);
        for (const auto& [op, value] : expr.rest) depth = std::max(depth, depth_of(value));
        return depth;
    }
    int operator()(const ConcatExpr& expr) const {
        int depth = 0;
        for (const auto& part : expr.parts) depth = std::max(depth, depth_of(part));
        return depth;
    }
    int operator()(const ConditionalExpr& expr) const {
        return std::max({depth_of(expr.test), depth_of(expr.yes), depth_of(expr.no)});
    }
    int operator()(const AttributeExpr& expr) const { return depth_of(expr.object); }
    int operator()(const ItemExpr& expr) const { return std::max(depth_of(expr.object), depth_of(expr.key)); }
    int operator()(const SliceExpr& expr) const {
        return std::max({depth_of(expr.object), depth_of(expr.start), depth_of(expr.stop), depth_of(expr.step)});
    }
    int operator()(const CallExpr& expr) const { return std::max(depth_of(expr.callee), depth_of(expr.arguments)); }
    int operator()(const FilterExpr& expr) const { return std::max(depth_of(expr.input), depth_of(expr.arguments)); }
    int operator()(const TestExpr& expr) const { return std::max(depth_of(expr.input), depth_of(expr.arguments)); }
};

}  // namespace

ExprPtr Parser::make(int line, Expr::Form form) {
    const int depth = 1 + std::visit(ChildDepth(), form);
    if (depth > kMaxTreeDepth) fail("an expression of more than {} levels", kMaxTreeDepth);
    auto expr = std::make_unique<Expr>();
    expr->line = line;
    expr->depth = depth;
    expr->form = std::move(form);
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
        yes = make(line, ConditionalExpr{std::move(test), std::move(yes), std::move(no)});
        line = current().line;
    }
    return yes;
}

ExprPtr Parser::or_expression() {
    const int line = current().line;
    ExprPtr left = and_expression();
    while (skip_name("or")) left = make(line, LogicExpr{LogicOp::Or, std::move(left), and_expression()});
    return left;
}

ExprPtr Parser::and_expression() {
    const int line = current().line;
    ExprPtr left = not_expression();
    while (skip_name("and")) left = make(line, LogicExpr{LogicOp::And, std::move(left), not_expression()});
    return left;
}

ExprPtr Parser::not_expression() {
    const int line = current().line;
    if (!skip_name("not")) return comparison();
    const Nested nested(*this);
    return make(line, UnaryExpr{UnaryOp::Not, not_expression()});
}

ExprPtr Parser::comparison() {
    static constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kSigns = {
        {{"==", CompareOp::Equal},
         {"!=", CompareOp::NotEqual},
         {"<", CompareOp::Less},
         {"<=", CompareOp::LessOrEqual},
         {">", CompareOp::Greater},
         {">=", CompareOp::GreaterOrEqual}}};
    const int line = current().line;
    CompareExpr compare{sum(), {}};
    while (true) {
        const auto sign =
            std::find_if(kSigns.begin(), kSigns.end(), [&](const auto& entry) { return is_operator(entry.first); });
        if (sign != kSigns.end()) {
            take();
            compare.rest.emplace_back(sign->second, sum());
        } else if (skip_name("in")) {
            compare.rest.emplace_back(CompareOp::In, sum());
        } else if (is_name("not") && ahead().type == TokenType::Name && ahead().text == "in") {
            take();
            take();
            compare.rest.emplace_back(CompareOp::NotIn, sum());
        } else {
            break;
        }
    }
    return compare.rest.empty() ? std::move(compare.first) : make(line, std::move(compare));
}

ExprPtr Parser::sum() {
    const int line = current().line;
    ExprPtr left = concatenation();
    while (is_operator("+") || is_operator("-")) {
        const Arithmetic op = is_operator("+") ? Arithmetic::Add : Arithmetic::Subtract;
        take();
        left = make(line, ArithmeticExpr{op, std::move(left), concatenation()});
    }
    return left;
}

ExprPtr Parser::concatenation() {
    const int line = current().line;
    ConcatExpr concat;
    concat.parts.push_back(product());
    while (skip_operator("~")) concat.parts.push_back(product());
    return concat.parts.size() == 1 ? std::move(concat.parts[0]) : make(line, std::move(concat));
}

ExprPtr Parser::product() {
    const int line = current().line;
    ExprPtr left = power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
        const Arithmetic op = is_operator("*")    ? Arithmetic::Multiply
                              : is_operator("/")  ? Arithmetic::Divide
                              : is_operator("//") ? Arithmetic::FloorDivide
                                                  : Arithmetic::Modulo;
        take();
        left = make(line, ArithmeticExpr{op, std::move(left), power()});
    }
    return left;
}

ExprPtr Parser::power() {
    const int line = current().line;
    ExprPtr left = unary(Filters::Allowed);
    while (skip_operator("**"))
        left = make(line, ArithmeticExpr{Arithmetic::Power, std::move(left), unary(Filters::Allowed)});
    return left;
}

ExprPtr Parser::unary(Filters filters) {
    const int line = current().line;
    ExprPtr expr;
    if (is_operator("-") || is_operator("+")) {
        const Nested nested(*this);
        const UnaryOp op = is_operator("-") ? UnaryOp::Minus : UnaryOp::Plus;
        take();
        expr = make(line, UnaryExpr{op, unary(Filters::Forbidden)});
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
            if (name == "true" || name == "True") return make(line, LiteralExpr{Value(true)});
            if (name == "false" || name == "False") return make(line, LiteralExpr{Value(false)});
            if (name == "none" || name == "None") return make(line, LiteralExpr{Value::none()});
            return make(line, NameExpr{name, {}});
        }
        case TokenType::Text: {
            std::string text = take().text;
            while (is(TokenType::Text)) text += take().text;  // "a" "b" is one text
            return make(line, LiteralExpr{Value(std::move(text))});
        }
        case TokenType::Integer:
            return make(line, LiteralExpr{Value(take().integer)});
        case TokenType::Float:
            return make(line, LiteralExpr{Value(take().real)});
        default:
            fail("unexpected {}", quoted(describe(current())));
    }
}

bool Parser::at_tuple_end(std::string_view end) const {
    return is(TokenType::VariableEnd) || is(TokenType::BlockEnd) || is_operator(")") || (!end.empty() && is_name(end));
}

ExprPtr Parser::tuple(Conditional conditional, std::string_view end, Parentheses parentheses) {
    const int line = current().line;
    SequenceExpr items{Kind::Tuple, {}};
    bool is_tuple = false;
    while (true) {
        if (!items.items.empty()) expect_operator(",");
        if (at_tuple_end(end)) break;
        items.items.push_back(expression(conditional));
        if (!is_operator(",")) break;
        is_tuple = true;
    }
    if (!is_tuple && !items.items.empty()) return std::move(items.items[0]);
    if (!is_tuple && parentheses == Parentheses::None)
        fail("Expected an expression, got {}", quoted(describe(current())));
    return make(line, std::move(items));
}

ExprPtr Parser::list_literal() {
    const int line = take().line;
    SequenceExpr list{Kind::List, {}};
    while (!is_operator("]")) {
        if (!list.items.empty()) expect_operator(",");
        if (is_operator("]")) break;
        list.items.push_back(expression());
    }
    expect_operator("]");
    return make(line, std::move(list));
}

ExprPtr Parser::dict_literal() {
    const int line = take().line;
    DictExpr dict;
    while (!is_operator("}")) {
        if (!dict.items.empty()) expect_operator(",");
        if (is_operator("}")) break;
        ExprPtr key = expression();
        expect_operator(":");
        dict.items.emplace_back(std::move(key), expression());
    }
    expect_operator("}");
    return make(line, std::move(dict));
}

}  // namespace slipstream::jinja
