//! Graphs as the host hands them over: their nodes, and what makes two of them equal.

use std::ffi::CStr;

use xxhash_rust::xxh3::Xxh3Default;

use crate::abi::{FLAG_COMPUTE, Graph, SOURCES, Tensor};

/// Equal for graphs that are equal in all but the data of their tensors: ops, parameters, types, shapes,
/// strides and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u128);

/// The nodes of a graph that are to be computed: hosts leave some out, flag by flag, whose sources were never
/// set.
///
/// # Safety
/// `graph` is a graph of the host's, which nobody changes as long as the nodes are used.
pub unsafe fn nodes<'g>(graph: *const Graph) -> Vec<&'g Tensor> {
    // SAFETY: the first fields of a graph are those of `Graph`, which was compared with ggml's headers.
    let (list, n) = unsafe { ((*graph).nodes, (*graph).n_nodes.max(0) as usize) };
    // SAFETY: the list has `n_nodes` tensors, which exist as long as the graph does.
    let nodes = (0..n).filter_map(|i| unsafe { (*list.add(i)).as_ref() });
    nodes.filter(|node| node.flags & FLAG_COMPUTE != 0).collect()
}

/// The key of a graph.
pub fn key(nodes: &[&Tensor]) -> Key {
    let mut hash = Xxh3Default::new();
    for node in nodes {
        add(&mut hash, node);
        hash.update(&node.op.to_le_bytes());
        node.op_params.iter().for_each(|word| hash.update(&word.to_le_bytes()));
        for i in 0..SOURCES {
            match crate::translate::source_of(node, i) {
                Some(source) => add(&mut hash, source),
                None => hash.update(&[0xff]),
            }
        }
    }
    Key(hash.digest128())
}

/// Adds what a program knows of a tensor.
fn add(hash: &mut Xxh3Default, tensor: &Tensor) {
    hash.update(&tensor.ty.to_le_bytes());
    hash.update(zerocopy::IntoBytes::as_bytes(&tensor.ne));
    hash.update(zerocopy::IntoBytes::as_bytes(&tensor.nb));
    hash.update(&(tensor.data as usize).to_le_bytes());
}

/// The name of a node, for messages.
pub fn name_of(node: &Tensor) -> String {
    let bytes: Vec<u8> = node.name.iter().map(|&c| c as u8).collect();
    let name = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    format!("{:?} (op {})", name.to_string_lossy(), node.op)
}
