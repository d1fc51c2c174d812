//! Graphs as the host hands them over: their nodes, who uses them, and what makes two graphs equal.

use std::ffi::CStr;

use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::IntoBytes;

use crate::abi::{FLAG_COMPUTE, FLAG_OUTPUT, Graph, SOURCES, Tensor, TensorSet};
use crate::translate::source_of;

/// Equal for graphs that are equal in all but the data of their tensors: ops, parameters, types, shapes,
/// strides and addresses, and how often results are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u128);

/// The host's own name for a graph: of two graphs with the same one, the keys are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    uid: u64,
    n_nodes: i32,
    /// Where the list of nodes begins: parts of a graph may have its number.
    nodes: usize,
}

/// A graph of the host's.
#[derive(Clone, Copy)]
pub struct HostGraph<'g>(&'g Graph);

impl<'g> HostGraph<'g> {
    /// A graph that the host hands over.
    ///
    /// # Safety
    /// It is one of ggml's, with its nodes and their sources, and nobody changes it as long as this is used.
    pub unsafe fn new(graph: &'g Graph) -> Self {
        Self(graph)
    }

    /// The host's name for it; `None` if it gives none.
    pub fn name(self) -> Option<Name> {
        let Graph { uid, n_nodes, nodes, .. } = *self.0;
        (uid != 0).then_some(Name { uid, n_nodes, nodes: nodes as usize })
    }

    /// The nodes that are to be computed: hosts leave some out, flag by flag, whose sources were never set.
    pub fn nodes(self) -> Vec<&'g Tensor> {
        let (list, n) = (self.0.nodes, self.0.n_nodes.max(0) as usize);
        // SAFETY: the list has `n_nodes` tensors, which exist as long as the graph does (`new`).
        let nodes = (0..n).filter_map(|i| unsafe { (*list.add(i)).as_ref() });
        nodes.filter(|node| node.flags & FLAG_COMPUTE != 0).collect()
    }

    /// How often a tensor is a source, in this graph and in that which it is part of; `None` if that is not
    /// known, or somebody reads it besides.
    pub fn uses(self, tensor: &Tensor) -> Option<usize> {
        let TensorSet { size, used, keys } = self.0.visited;
        if tensor.flags & FLAG_OUTPUT != 0 || size == 0 || used.is_null() || keys.is_null() {
            return None;
        }
        let address = std::ptr::from_ref(tensor);
        // Where ggml puts a tensor: at its address's slot, or after it.
        let first = (address as usize >> 4) % size;
        for slot in (first..size).chain(0..first) {
            // SAFETY: the set has `size` slots, and a bit for each (`new`).
            if unsafe { *used.add(slot / 32) } >> (slot % 32) & 1 == 0 {
                return None;
            }
            // SAFETY: the set has `size` slots (`new`), and this one has a tensor.
            if unsafe { *keys.add(slot) } == address {
                // SAFETY: a graph with counts has one for each slot of its set (`new`).
                let count = unsafe { self.0.use_counts.add(slot).as_ref() };
                return count.and_then(|&count| usize::try_from(count).ok());
            }
        }
        None
    }

    /// The key of the graph, of which these are the [`nodes`](Self::nodes).
    pub fn key(self, nodes: &[&Tensor]) -> Key {
        let mut hash = Xxh3Default::new();
        for node in nodes {
            add(&mut hash, node);
            hash.update(node.op_params.as_bytes());
            hash.update([i64::from(node.op), self.uses(node).map_or(-1, |n| n as i64)].as_bytes());
            for i in 0..SOURCES {
                if let Some(source) = source_of(node, i) {
                    hash.update(&[i as u8]);
                    add(&mut hash, source);
                }
            }
        }
        Key(hash.digest128())
    }
}

/// Adds what a program knows of a tensor.
fn add(hash: &mut Xxh3Default, tensor: &Tensor) {
    let [a, b, c, d] = tensor.ne;
    let [e, f, g, h] = tensor.nb.map(|nb| nb as i64);
    hash.update([a, b, c, d, e, f, g, h, i64::from(tensor.ty), tensor.data as i64].as_bytes());
}

/// The name of a node, for messages.
pub fn name_of(node: &Tensor) -> String {
    let bytes: Vec<u8> = node.name.iter().map(|&c| c as u8).collect();
    let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    format!("{:?} (op {})", name.to_string_lossy(), node.op)
}
