//! Nodes that are one op together, as they are in graphs of hexflash's own: found before a graph is
//! translated. What a node of such a group would leave in memory is left out; so all that reads it must be in
//! the group.

use std::collections::HashMap;

use hexflash::gguf::GgmlType;

use super::operand::type_of;
use super::{is_view, source_of};
use crate::abi::{SOURCES, Tensor};
use crate::graph::HostGraph;
use crate::op::{Op, UnaryOp};

/// What becomes of a node that is in a group.
#[derive(Clone, Copy)]
pub enum Role<'g> {
    /// Another node of the group computes it.
    Elsewhere,
    /// MUL, after this RMS_NORM: a norm with weights.
    Normed(&'g Tensor),
    /// MUL, after this SILU of one of its operands: a gate.
    Gated(&'g Tensor),
    /// SILU, after this SSM_CONV.
    Convolved(&'g Tensor),
    /// CONCAT of history and new columns, for SSM_CONV and for copies of some columns.
    Window,
    /// GATED_DELTA_NET with one state, which nobody reads but this CPY, the next node.
    Stateless(&'g Tensor),
    /// GET_ROWS of the only row that there is: those who read it find it where it lies.
    OnlyRow,
}

/// The groups of a graph.
pub struct Groups<'g>(HashMap<*const Tensor, Role<'g>>);

impl<'g> Groups<'g> {
    /// No groups: every node by itself.
    pub fn none() -> Self {
        Self(HashMap::new())
    }

    /// The groups of a graph, of which these are the nodes.
    pub fn find(graph: HostGraph<'_>, nodes: &[&'g Tensor]) -> Self {
        let readers = Readers::of(graph, nodes);
        let mut groups = HashMap::new();
        let real: Vec<&'g Tensor> = nodes.iter().copied().filter(|node| !is_view(node)).collect();
        for pair in real.windows(2) {
            let [first, second] = [pair[0], pair[1]];
            if is_stateless(first, second, &readers) {
                groups.insert(std::ptr::from_ref(first), Role::Stateless(second));
                groups.insert(std::ptr::from_ref(second), Role::Elsewhere);
            }
            if let Some(role) = pair_of(first, second)
                && matches!(readers.all(first), Some([only]) if std::ptr::eq(*only, second))
            {
                groups.insert(std::ptr::from_ref(first), Role::Elsewhere);
                groups.insert(std::ptr::from_ref(second), role);
            }
        }
        for (i, &node) in nodes.iter().enumerate() {
            let role = match Op::of(node.op) {
                Some(Op::Concat) if is_window(node, &readers) => Role::Window,
                Some(Op::GetRows) if is_only_row(node, &nodes[i + 1..], &readers) => Role::OnlyRow,
                _ => continue,
            };
            groups.insert(std::ptr::from_ref(node), role);
        }
        Self(groups)
    }

    /// The role of a node in its group.
    pub fn role(&self, node: &Tensor) -> Option<Role<'g>> {
        self.0.get(&std::ptr::from_ref(node)).copied()
    }
}

/// Who reads the results of a graph's nodes.
struct Readers<'g, 'a> {
    graph: HostGraph<'a>,
    readers: HashMap<*const Tensor, Vec<&'g Tensor>>,
}

impl<'g, 'a> Readers<'g, 'a> {
    fn of(graph: HostGraph<'a>, nodes: &[&'g Tensor]) -> Self {
        let mut readers: HashMap<_, Vec<_>> = HashMap::new();
        for node in nodes {
            for source in (0..SOURCES).filter_map(|i| source_of(node, i)) {
                readers.entry(std::ptr::from_ref(source)).or_default().push(*node);
            }
        }
        Self { graph, readers }
    }

    /// Those that read a tensor, if they all are in the graph. What no node reads is a result of the graph.
    fn all(&self, tensor: &Tensor) -> Option<&[&'g Tensor]> {
        let readers = self.readers.get(&std::ptr::from_ref(tensor))?;
        (self.graph.uses(tensor) == Some(readers.len())).then_some(readers)
    }

    /// The node that alone reads a view.
    fn only(&self, view: &Tensor) -> Option<&'g Tensor> {
        match self.all(view)? {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Whether two tensors have as many elements along each axis.
fn same_shape(a: &Tensor, b: &Tensor) -> bool {
    a.ne == b.ne
}

fn is_f32(tensor: &Tensor) -> bool {
    type_of(tensor) == Some(GgmlType::F32)
}

/// Whether the elements of a tensor of F32 are without gaps.
fn is_packed(tensor: &Tensor) -> bool {
    let mut next = 4;
    tensor.ne.iter().zip(tensor.nb).all(|(&n, nb)| {
        let fits = n == 1 || nb == next;
        next *= n as usize;
        fits
    })
}

/// The other operand of a node of two that reads `first`.
fn other<'g>(node: &'g Tensor, first: &Tensor) -> Option<&'g Tensor> {
    let [a, b] = [source_of(node, 0)?, source_of(node, 1)?];
    match [std::ptr::eq(a, first), std::ptr::eq(b, first)] {
        [true, false] => Some(b),
        [false, true] => Some(a),
        _ => None,
    }
}

/// The role of the second of two nodes that follow each other, if they are a group.
fn pair_of<'g>(first: &'g Tensor, second: &'g Tensor) -> Option<Role<'g>> {
    if !first.view_src.is_null() || !same_shape(first, second) || !is_f32(first) || !is_f32(second) {
        return None;
    }
    match (Op::of(first.op)?, Op::of(second.op)?) {
        (Op::RmsNorm, Op::Mul) => {
            let weights = other(second, first)?;
            let [n, rest @ ..] = weights.ne;
            let is_row = n == first.ne[0] && rest == [1; 3] && weights.nb[0] == 4 && is_f32(weights);
            is_row.then_some(Role::Normed(first))
        }
        (Op::Unary, Op::Mul) if UnaryOp::of(first.op_params[0]) == Some(UnaryOp::Silu) => {
            let values = other(second, first)?;
            (same_shape(values, first) && is_f32(values)).then_some(Role::Gated(first))
        }
        (Op::SsmConv, Op::Unary) if UnaryOp::of(second.op_params[0]) == Some(UnaryOp::Silu) => {
            Some(Role::Convolved(first))
        }
        _ => None,
    }
}

/// Whether CONCAT{h + t,c,s} joins columns, for nobody but SSM_CONV and copies of some of the columns.
fn is_window(node: &Tensor, readers: &Readers<'_, '_>) -> bool {
    let (Some(before), Some(new)) = (source_of(node, 0), source_of(node, 1)) else { return false };
    let columns = node.op_params[0] == 0 && node.ne[3] == 1;
    columns
        && [node, before, new].into_iter().all(is_f32)
        && readers.all(node).is_some_and(|all| {
            all.iter().all(|reader| match Op::of(reader.op) {
                Some(Op::SsmConv) => source_of(reader, 0).is_some_and(|x| std::ptr::eq(x, node)),
                Some(Op::View) => readers.only(reader).is_some_and(|copy| copies_columns(copy, reader, node)),
                _ => false,
            })
        })
}

/// Whether `copy` copies `view`, which is some columns of `whole`, to elements without gaps, sequence by
/// sequence.
fn copies_columns(copy: &Tensor, view: &Tensor, whole: &Tensor) -> bool {
    let [n, channels, seqs, _] = view.ne;
    Op::of(copy.op) == Some(Op::Cpy)
        && source_of(copy, 0).is_some_and(|source| std::ptr::eq(source, view))
        && view.nb == whole.nb
        && [channels, seqs] == [whole.ne[1], whole.ne[2]]
        && view.view_offs < whole.nb[1]
        && is_f32(copy)
        && copy.ne == [n * channels, seqs, 1, 1]
        && copy.nb[0] == 4
}

/// Whether `node` is GATED_DELTA_NET that gives one state, which nobody reads but `copy`.
fn is_stateless(node: &Tensor, copy: &Tensor, readers: &Readers<'_, '_>) -> bool {
    if [node, copy].map(|node| Op::of(node.op)) != [Some(Op::GatedDeltaNet), Some(Op::Cpy)] || !is_f32(copy) {
        return false;
    }
    let (Some(v), Some(state)) = (source_of(node, 2), source_of(node, 5)) else { return false };
    let bytes = |tensor: &Tensor| tensor.ne.iter().product::<i64>() as usize * 4;
    let outputs = bytes(v);
    let is_output = |view: &Tensor| view.view_offs + bytes(view) <= outputs;
    let is_fetched = |view: &Tensor| {
        view.view_offs == outputs
            && bytes(view) == bytes(state)
            && is_packed(view)
            && readers.only(view).is_some_and(|reader| std::ptr::eq(reader, copy))
            && source_of(copy, 0).is_some_and(|source| std::ptr::eq(source, view))
    };
    node.op_params[0] == 1
        && readers.all(node).is_some_and(|all| {
            all.iter().all(|view| Op::of(view.op) == Some(Op::View) && (is_output(view) || is_fetched(view)))
                && all.iter().any(|view| is_fetched(view))
        })
}

/// Whether GET_ROWS gives the only row of a table, for nodes that read it before anything of the table is
/// written again. `after` are the nodes behind it.
fn is_only_row(node: &Tensor, after: &[&Tensor], readers: &Readers<'_, '_>) -> bool {
    let Some(table) = source_of(node, 0) else { return false };
    let row = [node.ne[0], 1, 1, 1];
    if node.ne != row || table.ne != row || ![node, table].into_iter().all(|t| is_f32(t) && is_packed(t)) {
        return false;
    }
    // Nodes that read it, and those that read a view of it.
    let mut open = vec![node];
    let mut left: Vec<&Tensor> = Vec::new();
    while let Some(tensor) = open.pop() {
        let Some(all) = readers.all(tensor) else { return false };
        let some = all.iter().copied().filter(|reader| !reader.ne.contains(&0));
        let (views, nodes): (Vec<_>, Vec<_>) = some.partition(|reader| is_view(reader));
        open.extend(views);
        left.extend(nodes);
    }
    let row = span(table);
    for other in after {
        if left.is_empty() {
            return true;
        }
        let is_written = !is_view(other) && !other.ne.contains(&0) && {
            let span = span(other);
            span.start < row.end && row.start < span.end
        };
        left.retain(|reader| !std::ptr::eq(*reader, *other));
        // A node may write what it reads, if nobody reads it afterwards.
        if is_written && !left.is_empty() {
            return false;
        }
    }
    left.is_empty()
}

/// The addresses from a tensor's first byte to one past its last, or somewhat more.
fn span(tensor: &Tensor) -> std::ops::Range<usize> {
    let reach = |axis: usize| (tensor.ne[axis].max(1) as usize - 1) * tensor.nb[axis];
    let row = (tensor.ne[0].max(0) as usize * tensor.nb[0]).max(tensor.nb[1]);
    let start = tensor.data as usize;
    start..start + (1..4).map(reach).sum::<usize>() + row
}
