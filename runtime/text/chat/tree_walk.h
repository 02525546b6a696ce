// The parts of the nodes of a tree, for walks over all of it that care for few kinds of nodes.
#pragma once

#include <type_traits>
#include <utility>

#include "runtime/text/chat/ast.h"

namespace slipstream::jinja {

/// Calls visit(expr) for each expression among the arguments.
template <typename Arguments, typename Visit>
void for_each_argument(Arguments& arguments, Visit&& visit) {
    for (auto& value : arguments.positional) visit(*value);
    for (auto& named : arguments.named) visit(*named.second);
    if (arguments.spread) visit(*arguments.spread);
    if (arguments.spread_named) visit(*arguments.spread_named);
}

/// Calls visit(expr) for each direct part of an expression. E is Expr or const Expr.
template <typename E, typename Visit>
void for_each_part(E& expr, Visit&& visit) {
    const auto maybe = [&visit](auto& part) {
        if (part) visit(*part);
    };
    std::visit(
        [&](auto& form) {
            using Form = std::remove_cvref_t<decltype(form)>;
            if constexpr (std::is_same_v<Form, SequenceExpr>) {
                for (auto& item : form.items) visit(*item);
            } else if constexpr (std::is_same_v<Form, DictExpr>) {
                for (auto& item : form.items) {
                    visit(*item.first);
                    visit(*item.second);
                }
            } else if constexpr (std::is_same_v<Form, UnaryExpr>) {
                visit(*form.operand);
            } else if constexpr (std::is_same_v<Form, ArithmeticExpr> || std::is_same_v<Form, LogicExpr>) {
                visit(*form.left);
                visit(*form.right);
            } else if constexpr (std::is_same_v<Form, CompareExpr>) {
                visit(*form.first);
                for (auto& operand : form.rest) visit(*operand.second);
            } else if constexpr (std::is_same_v<Form, ConcatExpr>) {
                for (auto& part : form.parts) visit(*part);
            } else if constexpr (std::is_same_v<Form, ConditionalExpr>) {
                visit(*form.test);
                visit(*form.yes);
                maybe(form.no);
            } else if constexpr (std::is_same_v<Form, AttributeExpr>) {
                visit(*form.object);
            } else if constexpr (std::is_same_v<Form, ItemExpr>) {
                visit(*form.object);
                visit(*form.key);
            } else if constexpr (std::is_same_v<Form, SliceExpr>) {
                visit(*form.object);
                maybe(form.start);
                maybe(form.stop);
                maybe(form.step);
            } else if constexpr (std::is_same_v<Form, CallExpr>) {
                visit(*form.callee);
                for_each_argument(form.arguments, visit);
            } else if constexpr (std::is_same_v<Form, FilterExpr> || std::is_same_v<Form, TestExpr>) {
                maybe(form.input);
                for_each_argument(form.arguments, visit);
            } else {
                static_assert(std::is_same_v<Form, LiteralExpr> || std::is_same_v<Form, NameExpr>);
            }
        },
        expr.form);
}

}  // namespace slipstream::jinja
