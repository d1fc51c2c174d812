//! Puts guards into a parsed template.
//!
//! Operators and literals are the engine's own and cannot be replaced, so the syntax tree is copied with
//! filters around those that make values, or that read them whole without paying. What they find there is in
//! [`guard`](super::guard). Every kind of node is listed, so that a new one in the engine does not compile
//! here until someone has thought about it.

use minijinja::Value;
use minijinja::machinery::Span;
use minijinja::machinery::ast::{
    AutoEscape, BinOp, BinOpKind, Block, Break, Call, CallArg, CallBlock, Compare, CompareOp, Const,
    Continue, Do, EmitExpr, EmitRaw, Expr, Filter, FilterBlock, ForLoop, GetAttr, GetItem, IfCond, IfExpr,
    List, Macro, Map, Set, SetBlock, Slice, Spanned, Stmt, Template, Test, Tuple, UnaryOp, UnaryOpKind, Var,
    WithBlock,
};

use super::guard::{LOOP_OVER, PAY, STORE, TAME, TICK};

/// Longest constant that costs nothing to compare with, in bytes.
const SHORT: usize = 256;
/// Filters that always make strings or numbers.
const SCALAR_FILTERS: [&str; 18] = [
    "trim",
    "upper",
    "lower",
    "title",
    "capitalize",
    "string",
    "tojson",
    "join",
    "replace",
    "indent",
    "format",
    "safe",
    "escape",
    "length",
    "count",
    "int",
    "float",
    "round",
];
/// Those among them that make strings.
const TEXT_FILTERS: usize = 13;

/// What a template must not do, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) line: usize,
    pub(super) cause: &'static str,
}

/// A template with guards.
pub(super) fn guarded<'a>(template: &Stmt<'a>) -> Result<Stmt<'a>, Refused> {
    Ok(match template {
        Stmt::Template(t) => {
            Stmt::Template(Spanned::new(Template { children: body(&t.children)? }, t.span()))
        }
        Stmt::EmitExpr(s) => Stmt::EmitExpr(Spanned::new(EmitExpr { expr: expr(&s.expr) }, s.span())),
        Stmt::EmitRaw(s) => Stmt::EmitRaw(Spanned::new(EmitRaw { raw: s.raw }, s.span())),
        Stmt::ForLoop(s) => {
            let filter_expr = s.filter_expr.as_ref().map(|condition| wrap(TICK, expr(condition)));
            let node = ForLoop {
                target: target(&s.target),
                iter: wrap(LOOP_OVER, expr(&s.iter)),
                filter_expr,
                recursive: s.recursive,
                body: ticking(&s.body, s.span())?,
                else_body: body(&s.else_body)?,
            };
            Stmt::ForLoop(Spanned::new(node, s.span()))
        }
        Stmt::IfCond(s) => {
            let (true_body, false_body) = (body(&s.true_body)?, body(&s.false_body)?);
            Stmt::IfCond(Spanned::new(IfCond { expr: expr(&s.expr), true_body, false_body }, s.span()))
        }
        Stmt::WithBlock(s) => {
            let assignments = s.assignments.iter().map(|(t, e)| (target(t), assigned(t, e))).collect();
            Stmt::WithBlock(Spanned::new(WithBlock { assignments, body: body(&s.body)? }, s.span()))
        }
        Stmt::Set(s) => {
            let node = Set { target: target(&s.target), expr: assigned(&s.target, &s.expr) };
            Stmt::Set(Spanned::new(node, s.span()))
        }
        Stmt::SetBlock(s) => {
            let filter = s.filter.as_ref().map(expr);
            let node = SetBlock { target: target(&s.target), filter, body: body(&s.body)? };
            Stmt::SetBlock(Spanned::new(node, s.span()))
        }
        Stmt::AutoEscape(s) => {
            let node = AutoEscape { enabled: expr(&s.enabled), body: body(&s.body)? };
            Stmt::AutoEscape(Spanned::new(node, s.span()))
        }
        Stmt::FilterBlock(s) => {
            let (filter, filter_span) = (expr(&s.filter), s.filter_span);
            Stmt::FilterBlock(Spanned::new(
                FilterBlock { filter, filter_span, body: body(&s.body)? },
                s.span(),
            ))
        }
        Stmt::Block(s) => {
            let body = if s.required { body(&s.body)? } else { ticking(&s.body, s.span())? };
            Stmt::Block(Spanned::new(Block { name: s.name, required: s.required, body }, s.span()))
        }
        Stmt::Import(s) => return Err(other_templates(s.span())),
        Stmt::FromImport(s) => return Err(other_templates(s.span())),
        Stmt::Extends(s) => return Err(other_templates(s.span())),
        Stmt::Include(s) => return Err(other_templates(s.span())),
        Stmt::Macro(s) => Stmt::Macro(macro_(s)?),
        Stmt::CallBlock(s) => {
            let (call, macro_decl) = (call(&s.call), macro_(&s.macro_decl)?);
            let node = CallBlock { call, call_expr_span: s.call_expr_span, macro_decl };
            Stmt::CallBlock(Spanned::new(node, s.span()))
        }
        Stmt::Continue(s) => Stmt::Continue(Spanned::new(Continue, s.span())),
        Stmt::Break(s) => Stmt::Break(Spanned::new(Break, s.span())),
        Stmt::Do(s) => Stmt::Do(Spanned::new(Do { call: call(&s.call) }, s.span())),
    })
}

fn other_templates(span: Span) -> Refused {
    Refused { line: usize::from(span.start_line), cause: "a chat template cannot use other templates" }
}

fn body<'a>(statements: &[Stmt<'a>]) -> Result<Vec<Stmt<'a>>, Refused> {
    statements.iter().map(guarded).collect()
}

/// A body that may run again and again: it looks at the clock first, and writes nothing for it.
fn ticking<'a>(statements: &[Stmt<'a>], span: Span) -> Result<Vec<Stmt<'a>>, Refused> {
    let nothing = Expr::Const(Spanned::new(Const { value: Value::from("") }, span));
    let tick = Stmt::EmitExpr(Spanned::new(EmitExpr { expr: wrap(TICK, nothing) }, span));
    let mut all = vec![tick];
    all.append(&mut body(statements)?);
    Ok(all)
}

fn macro_<'a>(node: &Spanned<Macro<'a>>) -> Result<Spanned<Macro<'a>>, Refused> {
    let args = node.args.iter().map(target).collect();
    let defaults = node.defaults.iter().map(expr).collect();
    let body = ticking(&node.body, node.span())?;
    Ok(Spanned::new(Macro { name: node.name, args, defaults, body }, node.span()))
}

/// What is assigned: attributes of namespaces must not hold namespaces, and unpacking reads the whole value.
fn assigned<'a>(to: &Expr<'a>, value: &Expr<'a>) -> Expr<'a> {
    let guarded = expr(value);
    match to {
        Expr::GetAttr(_) => wrap(STORE, guarded),
        Expr::Var(_) => guarded,
        _ => wrap(PAY, guarded),
    }
}

/// The left side of an assignment is copied as it is.
fn target<'a>(node: &Expr<'a>) -> Expr<'a> {
    match node {
        Expr::List(l) => {
            let items = l.items.iter().map(target).collect();
            Expr::List(Spanned::new(List { items }, l.span()))
        }
        Expr::GetAttr(g) => {
            Expr::GetAttr(Spanned::new(GetAttr { expr: target(&g.expr), name: g.name }, g.span()))
        }
        other => expr(other),
    }
}

fn expr<'a>(node: &Expr<'a>) -> Expr<'a> {
    match node {
        Expr::Var(v) => Expr::Var(Spanned::new(Var { id: v.id }, v.span())),
        Expr::Const(c) => Expr::Const(Spanned::new(Const { value: c.value.clone() }, c.span())),
        Expr::Slice(s) => {
            let part = |part: &Option<Expr<'a>>| part.as_ref().map(expr);
            let (start, stop, step) = (part(&s.start), part(&s.stop), part(&s.step));
            let node = Slice { expr: expr(&s.expr), start, stop, step };
            wrap(TAME, Expr::Slice(Spanned::new(node, s.span())))
        }
        Expr::UnaryOp(u) => {
            #[expect(clippy::needless_match, reason = "the engine's type cannot be copied")]
            let op = match u.op {
                UnaryOpKind::Not => UnaryOpKind::Not,
                UnaryOpKind::Neg => UnaryOpKind::Neg,
            };
            Expr::UnaryOp(Spanned::new(UnaryOp { op, expr: expr(&u.expr) }, u.span()))
        }
        Expr::BinOp(b) => binary(b),
        Expr::Compare(c) => {
            let read = |side| wrap(PAY, expr(side));
            let ops = c.ops.iter().map(|op| CompareOp { op: op.op, expr: read(&op.expr) }).collect();
            Expr::Compare(Spanned::new(Compare { expr: read(&c.expr), ops }, c.span()))
        }
        Expr::IfExpr(i) => {
            let node = IfExpr {
                test_expr: expr(&i.test_expr),
                true_expr: expr(&i.true_expr),
                false_expr: i.false_expr.as_ref().map(expr),
            };
            Expr::IfExpr(Spanned::new(node, i.span()))
        }
        // Filters, tests, functions and methods are wrapped where they are registered.
        Expr::Filter(f) => {
            let (inner, args) = (f.expr.as_ref().map(expr), args(&f.args));
            Expr::Filter(Spanned::new(Filter { name: f.name, expr: inner, args }, f.span()))
        }
        Expr::Test(t) => Expr::Test(Spanned::new(
            Test { name: t.name, expr: expr(&t.expr), args: args(&t.args) },
            t.span(),
        )),
        Expr::GetAttr(g) => {
            Expr::GetAttr(Spanned::new(GetAttr { expr: expr(&g.expr), name: g.name }, g.span()))
        }
        Expr::GetItem(g) => {
            // The characters of a string are found by counting from its beginning; other keys are hashed.
            let key = expr(&g.subscript_expr);
            let subscript_expr = match &g.subscript_expr {
                Expr::Const(c) if c.value.as_str().is_some() => key,
                known if is_scalar(known) && !is_text(known) => wrap(TICK, key),
                _ => wrap(PAY, key),
            };
            Expr::GetItem(Spanned::new(GetItem { expr: expr(&g.expr), subscript_expr }, g.span()))
        }
        Expr::Call(c) => Expr::Call(call(c)),
        Expr::List(l) => {
            let items = l.items.iter().map(expr).collect();
            literal(&l.items, Expr::List(Spanned::new(List { items }, l.span())))
        }
        Expr::Tuple(t) => {
            let items = t.items.iter().map(expr).collect();
            literal(&t.items, Expr::Tuple(Spanned::new(Tuple { items }, t.span())))
        }
        Expr::Map(m) => {
            // Keys are hashed.
            let key = |key| if matches!(key, &Expr::Const(_)) { expr(key) } else { wrap(PAY, expr(key)) };
            let node =
                Map { keys: m.keys.iter().map(key).collect(), values: m.values.iter().map(expr).collect() };
            literal(&m.values, Expr::Map(Spanned::new(node, m.span())))
        }
    }
}

/// A list or dictionary of constants is as large as its source.
fn literal<'a>(items: &[Expr<'a>], node: Expr<'a>) -> Expr<'a> {
    if items.iter().all(is_scalar) { node } else { wrap(TAME, node) }
}

fn binary<'a>(node: &Spanned<BinOp<'a>>) -> Expr<'a> {
    let (left, right) = (&node.left, &node.right);
    let with = |left, right| Expr::BinOp(Spanned::new(BinOp { op: node.op, left, right }, node.span()));
    let read = |side| if is_short(side) { expr(side) } else { wrap(PAY, expr(side)) };
    match node.op {
        // Anything compared with a short text or a number is done at once.
        BinOpKind::Eq | BinOpKind::Ne | BinOpKind::Lt | BinOpKind::Lte | BinOpKind::Gt | BinOpKind::Gte
            if is_short(left) || is_short(right) =>
        {
            with(expr(left), expr(right))
        }
        // The engine charges for the items and bytes that it searches.
        BinOpKind::In if is_short(left) => with(expr(left), expr(right)),
        BinOpKind::Eq
        | BinOpKind::Ne
        | BinOpKind::Lt
        | BinOpKind::Lte
        | BinOpKind::Gt
        | BinOpKind::Gte
        | BinOpKind::In => with(read(left), read(right)),
        // Texts are paid for byte by byte; what else is joined to one is printed whole.
        BinOpKind::Concat => {
            let print = |side| if is_text(side) { expr(side) } else { wrap(PAY, expr(side)) };
            with(print(left), print(right))
        }
        BinOpKind::Add if is_text(left) || is_text(right) => with(expr(left), expr(right)),
        BinOpKind::Mul if is_scalar(left) && is_scalar(right) => with(expr(left), expr(right)),
        BinOpKind::Add | BinOpKind::Mul => wrap(TAME, with(expr(left), expr(right))),
        BinOpKind::ScAnd
        | BinOpKind::ScOr
        | BinOpKind::Sub
        | BinOpKind::Div
        | BinOpKind::FloorDiv
        | BinOpKind::Rem
        | BinOpKind::Pow => with(expr(left), expr(right)),
    }
}

fn call<'a>(node: &Spanned<Call<'a>>) -> Spanned<Call<'a>> {
    // `loop.changed(x)` compares x with the one before.
    let compares = matches!(&node.expr, Expr::GetAttr(method) if method.name == "changed");
    let args = node.args.iter().map(|argument| match argument {
        CallArg::Pos(value) if compares => CallArg::Pos(wrap(PAY, expr(value))),
        other => arg(other),
    });
    Spanned::new(Call { expr: expr(&node.expr), args: args.collect() }, node.span())
}

fn args<'a>(all: &[CallArg<'a>]) -> Vec<CallArg<'a>> {
    all.iter().map(arg).collect()
}

fn arg<'a>(node: &CallArg<'a>) -> CallArg<'a> {
    match node {
        CallArg::Pos(value) => CallArg::Pos(expr(value)),
        CallArg::Kwarg(name, value) => CallArg::Kwarg(name, expr(value)),
        // These copy all items.
        CallArg::PosSplat(value) => CallArg::PosSplat(wrap(PAY, expr(value))),
        CallArg::KwargSplat(value) => CallArg::KwargSplat(wrap(PAY, expr(value))),
    }
}

/// The value through one of the filters of [`guard`](super::guard).
fn wrap<'a>(name: &'static str, value: Expr<'a>) -> Expr<'a> {
    let span = value.span();
    Expr::Filter(Spanned::new(Filter { name, expr: Some(value), args: Vec::new() }, span))
}

/// Whether this is a number, or a text that is short.
fn is_short(node: &Expr<'_>) -> bool {
    matches!(node, Expr::Const(c) if c.value.as_str().is_none_or(|text| text.len() <= SHORT))
}

/// Whether this makes a text if it makes anything.
fn is_text(node: &Expr<'_>) -> bool {
    match node {
        Expr::Const(c) => c.value.as_str().is_some(),
        Expr::BinOp(b) => match b.op {
            BinOpKind::Concat => true,
            BinOpKind::Add => is_text(&b.left) || is_text(&b.right),
            _ => false,
        },
        Expr::Filter(f) => SCALAR_FILTERS[..TEXT_FILTERS].contains(&f.name),
        _ => false,
    }
}

/// Whether this makes a text, a number or a truth value if it makes anything.
fn is_scalar(node: &Expr<'_>) -> bool {
    match node {
        Expr::Const(_) | Expr::Compare(_) | Expr::Test(_) | Expr::UnaryOp(_) => true,
        Expr::Filter(f) => SCALAR_FILTERS.contains(&f.name),
        Expr::BinOp(b) => {
            !matches!(b.op, BinOpKind::ScAnd | BinOpKind::ScOr | BinOpKind::Add | BinOpKind::Mul)
                || is_text(node)
        }
        _ => false,
    }
}
