//! Graphs as hosts hand them over.

use ggml_hexflash::abi::{FLAG_COMPUTE, Graph, Tensor, TensorSet};
use ggml_hexflash::graph::HostGraph;
use hexflash::gguf::GgmlType;

/// Slots of a graph's set of tensors: a prime number.
const SLOTS: usize = 257;

/// A graph with what ggml counts of it.
pub struct Hosts {
    nodes: Vec<*mut Tensor>,
    used: Vec<u32>,
    keys: Vec<*const Tensor>,
    counts: Vec<i32>,
    graph: Graph,
}

impl Hosts {
    /// A graph of these nodes, in this order, that the host has given this number; 0 for none. Somebody else
    /// reads `shared`, too.
    pub fn new(nodes: &[&Tensor], shared: &[&Tensor], uid: u64) -> Box<Self> {
        let visited = TensorSet { size: SLOTS, used: std::ptr::null(), keys: std::ptr::null() };
        let graph = Graph {
            size: nodes.len() as i32,
            n_nodes: nodes.len() as i32,
            n_leafs: 0,
            nodes: std::ptr::null_mut(),
            others: [std::ptr::null_mut(); 3],
            use_counts: std::ptr::null(),
            visited,
            order: 0,
            uid,
        };
        let mut hosts = Box::new(Self {
            nodes: nodes.iter().map(|&node| std::ptr::from_ref(node).cast_mut()).collect(),
            used: vec![0; SLOTS.div_ceil(32)],
            keys: vec![std::ptr::null(); SLOTS],
            counts: vec![0; SLOTS],
            graph,
        });
        for &node in nodes {
            hosts.slot(node);
        }
        let sources = nodes.iter().flat_map(|node| node.src).filter(|source| !source.is_null());
        for source in
            sources.map(<*mut Tensor>::cast_const).chain(shared.iter().map(|&node| std::ptr::from_ref(node)))
        {
            let slot = hosts.slot(source);
            hosts.counts[slot] += 1;
        }
        hosts.graph.nodes = hosts.nodes.as_mut_ptr();
        hosts.graph.use_counts = hosts.counts.as_ptr();
        hosts.graph.visited.used = hosts.used.as_ptr();
        hosts.graph.visited.keys = hosts.keys.as_ptr();
        hosts
    }

    /// The slot of a tensor, which gets one if it has none.
    fn slot(&mut self, tensor: *const Tensor) -> usize {
        let mut slot = (tensor as usize >> 4) % SLOTS;
        while self.used[slot / 32] >> (slot % 32) & 1 == 1 && self.keys[slot] != tensor {
            slot = (slot + 1) % SLOTS;
        }
        self.used[slot / 32] |= 1 << (slot % 32);
        self.keys[slot] = tensor;
        slot
    }

    /// Where the graph is.
    #[allow(dead_code, reason = "not every test hands it over")]
    pub fn as_ptr(&self) -> *const Graph {
        &raw const self.graph
    }

    /// The graph.
    #[allow(dead_code, reason = "not every test looks at it")]
    pub fn graph(&self) -> HostGraph<'_> {
        // SAFETY: the nodes are tensors of the test that made this, which lives longer than they are used;
        // lists and counts are this value's.
        unsafe { HostGraph::new(&self.graph) }
    }
}

/// A tensor of F32 without gaps, at an address.
pub fn tensor(ne: [usize; 4], address: usize) -> Tensor {
    let [a, b, c, _] = ne;
    Tensor {
        ty: GgmlType::F32.id() as i32,
        buffer: std::ptr::null_mut(),
        ne: ne.map(|n| n as i64),
        nb: [4, 4 * a, 4 * a * b, 4 * a * b * c],
        op: 0,
        op_params: [0; 16],
        flags: FLAG_COMPUTE,
        src: [std::ptr::null_mut(); 10],
        view_src: std::ptr::null_mut(),
        view_offs: 0,
        data: std::ptr::without_provenance_mut(address),
        name: [0; 64],
        extra: std::ptr::null_mut(),
        padding: [0; 8],
    }
}

/// A node that computes `like` of these sources.
pub fn node(op: i32, sources: &[&Tensor], like: Tensor) -> Tensor {
    let mut node = like;
    node.op = op;
    for (place, source) in node.src.iter_mut().zip(sources) {
        *place = std::ptr::from_ref(*source).cast_mut();
    }
    node
}
