// The parser's expressions, read from left to right as jinja2/parser.py does. Binary operators have levels of
// precedence; "~" binds tighter than "+", and filters and tests bind tighter than any operator.
#include <algorithm>
#include <array>

#include "runtime/text/chat/parser.h"
#include "runtime/text/chat/spelling.h"
#include "runtime/text/chat/template_error.h"

namespace slipstream::jinja {

namespace {

// Limits the height of an expression's tree, in nodes, since trees are evaluated by recursion. Chains such as a + b + c
// + ... may reach it: they are parsed without recursion, but each operator adds a level to the left side of the tree.
constexpr int kMaxTreeDepth = 400;
constexpr std::size_t kMaxNamedArguments = 255;

struct BinaryOperator {
    int level;
    std::string_view sign;
    ExprKind kind;
    Arithmetic operation = Arithmetic::Add;
};
constexpr std::array<BinaryOperator, 9> kBinary = {{{0, "or", ExprKind::Or},
                                                    {1, "and", ExprKind::And},
                                                    {4, "+", ExprKind::Arithmetic, Arithmetic::Add},
                                                    {4, "-", ExprKind::Arithmetic, Arithmetic::Subtract},
                                                    {5, "~", ExprKind::Concat},
                                                    {6, "*", ExprKind::Arithmetic, Arithmetic::Multiply},
                                                    {6, "/", ExprKind::Arithmetic, Arithmetic::Divide},
                                                    {6, "//", ExprKind::Arithmetic, Arithmetic::FloorDivide},
                                                    {6, "%", ExprKind::Arithmetic, Arithmetic::Modulo}}};
constexpr int kNot = 2, kCompare = 3, kSum = 4, kOperand = 7;  // levels of precedence

constexpr std::array<std::pair<std::string_view, Comparison>, 7> kComparisons = {{{"==", Comparison::Equal},
                                                                                  {"!=", Comparison::NotEqual},
                                                                                  {"<", Comparison::Less},
                                                                                  {"<=", Comparison::LessOrEqual},
                                                                                  {">", Comparison::Greater},
                                                                                  {">=", Comparison::GreaterOrEqual},
                                                                                  {"in", Comparison::In}}};

int checked_depth(int depth) {
    if (depth > kMaxTreeDepth) fail("an expression of more than {} levels", kMaxTreeDepth);
    return depth;
}

// Returns whether Jinja may compute the expression when it compiles the template, judged by its own node only. Filters
// that read the context are never computed ahead (@pass_context in jinja2/filters.py).
bool may_be_constant(const Expr& expr) {
    constexpr std::array<std::string_view, 5> of_context = {"map", "select", "reject", "selectattr", "rejectattr"};
    if (expr.kind == ExprKind::Name || expr.kind == ExprKind::Call) return false;
    if (expr.kind != ExprKind::Filter && expr.kind != ExprKind::Test) return true;
    return expr.builtin != nullptr && expr.parts[0] &&
           std::ranges::find(of_context, expr.value.view()) == of_context.end();
}

// Sets the depth and the folding of a node whose parts are complete. Throws TemplateError if the tree is too deep.
ExprPtr measured(ExprPtr expr) {
    int deepest = 0;
    Folding folding = expr->kind == ExprKind::Slice ? Folding::ConstantSlice : Folding::Constant;
    if (!may_be_constant(*expr)) folding = Folding::None;
    const auto add = [&](const Expr& part) {
        deepest = std::max(deepest, part.depth);
        if (part.folding == Folding::None) folding = Folding::None;
        if (part.folding == Folding::ConstantSlice && folding == Folding::Constant) folding = Folding::ConstantSlice;
    };
    for (const ExprPtr& part : expr->parts)
        if (part) add(*part);
    for (const auto& [name, value] : expr->named) add(*value);
    if (expr->star) add(*expr->star);
    if (expr->star_star) add(*expr->star_star);
    expr->depth = checked_depth(deepest + 1);
    expr->folding = folding;
    return expr;
}

template <typename... Parts>
ExprPtr make(ExprKind kind, int line, Parts... parts) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    (expr->parts.push_back(std::move(parts)), ...);
    return measured(std::move(expr));
}

ExprPtr literal(int line, Value value) {
    ExprPtr expr = make(ExprKind::Literal, line);
    expr->value = std::move(value);
    return expr;
}

ExprPtr postfix(Parser& parser, ExprPtr expr);

// Parses "[a, b]" or "{a: b}" up to and including the closing bracket `end`.
ExprPtr bracketed(Parser& parser, ExprKind kind, std::string_view end) {
    ExprPtr made = make(kind, parser.take().line);
    while (!parser.is(end)) {
        if (!made->parts.empty()) parser.expect(",");
        if (parser.is(end)) break;
        made->parts.push_back(parse_expression(parser));
        if (kind != ExprKind::Dict) continue;
        parser.expect(":");
        made->parts.push_back(parse_expression(parser));
    }
    parser.expect(end);
    return measured(std::move(made));
}

// Parses "a, b" without brackets as a tuple, one expression as itself, and returns null for nothing.
ExprPtr items(Parser& parser, Conditional conditional, std::string_view end) {
    ExprPtr made = make(ExprKind::Tuple, parser.current().line);
    bool is_tuple = false;
    while (true) {
        if (!made->parts.empty()) parser.expect(",");
        if (at_tuple_end(parser, end)) break;
        made->parts.push_back(parse_expression(parser, conditional));
        if (!parser.is(",")) break;
        is_tuple = true;
    }
    if (made->parts.empty()) return nullptr;
    return is_tuple ? measured(std::move(made)) : std::move(made->parts[0]);
}

ExprPtr name_or_constant(Parser& parser, int line) {
    const std::string name = parser.take().text;
    if (name == "true" || name == "True") return literal(line, Value(true));
    if (name == "false" || name == "False") return literal(line, Value(false));
    if (name == "none" || name == "None") return literal(line, Value::none());
    ExprPtr expr = make(ExprKind::Name, line);
    expr->name = parser.id_of(name);
    parser.note_read(expr->name);
    return expr;
}

ExprPtr primary(Parser& parser) {
    const int line = parser.current().line;
    if (parser.skip("(")) {
        ExprPtr inside = items(parser, Conditional::Allowed, {});
        parser.expect(")");
        return inside ? std::move(inside) : make(ExprKind::Tuple, line);
    }
    if (parser.is("[")) return bracketed(parser, ExprKind::List, "]");
    if (parser.is("{")) return bracketed(parser, ExprKind::Dict, "}");
    if (parser.is(TokenType::Name)) return name_or_constant(parser, line);
    if (parser.is(TokenType::Integer)) return literal(line, Value(parser.take().integer));
    if (parser.is(TokenType::Float)) return literal(line, Value(parser.take().real));
    if (!parser.is(TokenType::Text)) parser.fail_expecting("an expression");
    std::string text;
    while (parser.is(TokenType::Text)) text += parser.take().text;  // "a" "b" is one text
    parser.note_word(text);
    return literal(line, Value(std::move(text)));
}

ExprPtr slice(Parser& parser, int line, ExprPtr object, ExprPtr start, bool is_alone) {
    const auto ends = [&] { return parser.is("]") || parser.is(","); };
    ExprPtr stop, step;
    parser.expect(":");
    if (!parser.is(":") && !ends()) stop = parse_expression(parser);
    if (parser.skip(":") && !ends()) step = parse_expression(parser);
    if (!is_alone || parser.is(",")) fail("a slice must be alone between its brackets");
    parser.expect("]");
    return make(ExprKind::Slice, line, std::move(object), std::move(start), std::move(stop), std::move(step));
}

ExprPtr subscript(Parser& parser, ExprPtr object) {
    const Token opening = parser.take();
    const int line = opening.line;
    if (opening.text == ".") {
        const Token name = parser.current();
        if (name.type != TokenType::Integer && name.type != TokenType::Name) parser.fail_expecting("a name or number");
        parser.take();
        if (name.type == TokenType::Integer)
            return make(ExprKind::Item, line, std::move(object), literal(line, Value(name.integer)));
        parser.note_word(name.text);
        ExprPtr attribute = make(ExprKind::Attribute, line, std::move(object));
        attribute->value = Value(name.text);
        return attribute;
    }
    ExprPtr keys = make(ExprKind::Tuple, line);
    while (!parser.is("]")) {
        if (!keys->parts.empty()) parser.expect(",");
        ExprPtr key;
        if (!parser.is(":")) key = parse_expression(parser);
        if (parser.is(":")) return slice(parser, line, std::move(object), std::move(key), keys->parts.empty());
        keys->parts.push_back(std::move(key));
    }
    parser.expect("]");
    ExprPtr key = keys->parts.size() == 1 ? std::move(keys->parts[0]) : measured(std::move(keys));
    return make(ExprKind::Item, line, std::move(object), std::move(key));
}

// Parses one argument of a call and appends it to `expr`, which holds the arguments before it.
void argument(Parser& parser, Expr& expr) {
    const auto require = [](bool fits) {
        if (!fits) fail("invalid syntax for function call expression");
    };
    if (parser.is("*")) {
        require(!expr.star && !expr.star_star);
        parser.take();
        expr.star = parse_expression(parser);
        return;
    }
    require(!expr.star_star);
    if (parser.skip("**")) {
        expr.star_star = parse_expression(parser);
        return;
    }
    if (!parser.is(TokenType::Name) || !Parser::is_word(parser.ahead(), "=")) {
        require(!expr.star && expr.named.empty());
        expr.parts.push_back(parse_expression(parser));
        return;
    }
    const std::string name = parser.take().text;
    parser.take();
    for (const auto& [other, value] : expr.named)
        if (other == name) fail("keyword argument repeated: {}", name);
    if (expr.named.size() == kMaxNamedArguments) fail("more than {} keyword arguments", kMaxNamedArguments);
    expr.named.emplace_back(name, parse_expression(parser));
}

// Parses the "(a, b, c=d)" of a call.
void call_arguments(Parser& parser, Expr& expr) {
    parser.expect("(");
    for (bool is_first = true; !parser.is(")"); is_first = false) {
        if (!is_first) parser.expect(",");
        if (parser.is(")")) break;  // a comma after the last argument is allowed
        argument(parser, expr);
    }
    parser.expect(")");
}

ExprPtr call(Parser& parser, ExprPtr callee) {
    ExprPtr call = make(ExprKind::Call, parser.current().line, std::move(callee));
    call_arguments(parser, *call);
    return measured(std::move(call));
}

ExprPtr postfix(Parser& parser, ExprPtr expr) {
    while (true) {
        if (parser.is(".") || parser.is("[")) {
            expr = subscript(parser, std::move(expr));
        } else if (parser.is("(")) {
            expr = call(parser, std::move(expr));
        } else {
            return expr;
        }
    }
}

ExprPtr test(Parser& parser, ExprPtr input) {
    const int line = parser.take().line;
    const bool is_negated = parser.skip("not");
    ExprPtr test = make(ExprKind::Test, line, std::move(input));
    const std::string name = parser.expect_name();
    test->builtin = find_test(name);
    test->value = Value(name);
    const TokenType next = parser.current().type;
    const bool at_value = (next >= TokenType::Name && next <= TokenType::Float) || parser.is("[") || parser.is("{");
    if (parser.is("(")) {
        call_arguments(parser, *test);
    } else if (at_value && !parser.is("else") && !parser.is("or") && !parser.is("and")) {
        if (parser.is("is")) fail("You cannot chain multiple tests with is");
        parser.enter();
        test->parts.push_back(postfix(parser, primary(parser)));
        parser.leave();
    }
    test = measured(std::move(test));
    return is_negated ? make(ExprKind::Not, line, std::move(test)) : std::move(test);
}

ExprPtr filters_and_tests(Parser& parser, ExprPtr expr) {
    while (true) {
        if (parser.skip("|")) {
            expr = parse_filter(parser, std::move(expr));
        } else if (parser.is("is")) {
            expr = test(parser, std::move(expr));
        } else if (parser.is("(")) {
            expr = call(parser, std::move(expr));
        } else {
            return expr;
        }
    }
}

// Parses a value after any number of signs, with the attributes, calls and filters that follow it. The operand of a
// sign does not include filters: they apply to the signed value.
ExprPtr signed_value(Parser& parser) {
    const int line = parser.current().line;
    const ExprKind kind = parser.is("-") ? ExprKind::Minus : ExprKind::Plus;
    if (!parser.skip("-") && !parser.skip("+")) return postfix(parser, primary(parser));
    parser.enter();
    ExprPtr expr = make(kind, line, signed_value(parser));
    parser.leave();
    return postfix(parser, std::move(expr));
}

ExprPtr binary(Parser& parser, int level);

ExprPtr comparison(Parser& parser) {
    const int line = parser.current().line;
    ExprPtr compare = make(ExprKind::Compare, line, binary(parser, kSum));
    while (true) {
        const auto* const sign =
            std::ranges::find_if(kComparisons, [&](const auto& entry) { return parser.is(entry.first); });
        if (sign != kComparisons.end()) {
            compare->comparisons.push_back(sign->second);
        } else if (parser.is("not") && Parser::is_word(parser.ahead(), "in")) {
            parser.take();
            compare->comparisons.push_back(Comparison::NotIn);
        } else {
            return compare->comparisons.empty() ? std::move(compare->parts[0]) : measured(std::move(compare));
        }
        parser.take();
        compare->parts.push_back(binary(parser, kSum));
    }
}

ExprPtr binary(Parser& parser, int level) {
    if (level == kOperand) return filters_and_tests(parser, signed_value(parser));
    if (level == kCompare) return comparison(parser);
    int line = parser.current().line;
    if (level == kNot) {
        if (!parser.skip("not")) return comparison(parser);
        parser.enter();
        ExprPtr made = make(ExprKind::Not, line, binary(parser, kNot));
        parser.leave();
        return made;
    }
    ExprPtr left = binary(parser, level + 1);
    while (true) {
        const auto* const found = std::ranges::find_if(
            kBinary, [&](const BinaryOperator& entry) { return entry.level == level && parser.is(entry.sign); });
        if (found == kBinary.end()) return left;
        parser.take();
        ExprPtr right = binary(parser, level + 1);
        // A chain of "~" becomes one node with all operands, so that the tree is wide instead of deep.
        if (found->kind == ExprKind::Concat && left->kind == ExprKind::Concat) {
            left->depth = checked_depth(std::max(left->depth, right->depth + 1));
            left->parts.push_back(std::move(right));
        } else {
            left = make(found->kind, line, std::move(left), std::move(right));
            left->operation = found->operation;
        }
        line = parser.current().line;
    }
}

}  // namespace

ExprPtr parse_expression(Parser& parser, Conditional conditional) {
    parser.enter();
    int line = parser.current().line;
    ExprPtr expr = binary(parser, 0);
    while (conditional == Conditional::Allowed && parser.skip("if")) {
        ExprPtr test = binary(parser, 0);
        ExprPtr otherwise;
        if (parser.skip("else")) otherwise = parse_expression(parser);
        expr = make(ExprKind::Conditional, line, std::move(test), std::move(expr), std::move(otherwise));
        line = parser.current().line;
    }
    parser.leave();
    return expr;
}

bool at_tuple_end(const Parser& parser, std::string_view end) {
    return parser.is(TokenType::VariableEnd) || parser.is(TokenType::BlockEnd) || parser.is(")") ||
           (!end.empty() && parser.is(end));
}

ExprPtr parse_tuple(Parser& parser, Conditional conditional, std::string_view end) {
    ExprPtr made = items(parser, conditional, end);
    if (!made) parser.fail_expecting("an expression");
    return made;
}

ExprPtr parse_filter(Parser& parser, ExprPtr input) {
    ExprPtr filter = make(ExprKind::Filter, parser.current().line, std::move(input));
    const std::string name = parser.expect_name();
    filter->builtin = find_filter(name);
    filter->value = Value(name);
    if (parser.is("(")) call_arguments(parser, *filter);
    return measured(std::move(filter));
}

}  // namespace slipstream::jinja
