//! The unsafe half of `ops`: ggml graphs over tensors that Rust owns.

use std::ptr::NonNull;
use std::sync::Once;

use llama_cpp_sys_2 as sys;

use crate::tensor::{Error, GgmlType, Tensor, View};

/// A ggml context whose tensors all lie in memory that `buffers` owns.
pub(super) struct Graph {
    ctx: NonNull<sys::ggml_context>,
    buffers: Vec<Vec<Line>>,
}

/// A tensor of a `Graph`. Private to `ops`, which uses nodes only with the graph that made them.
#[derive(Clone, Copy)]
pub(super) struct Node(NonNull<sys::ggml_tensor>);

/// ggml wants buffers aligned for vector loads; a `Vec<u8>` is not.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

fn zeroed(bytes: usize) -> Vec<Line> {
    vec![Line([0; 64]); bytes.div_ceil(64)]
}

/// How an argument crosses into C.
trait Arg {
    type Raw;
    fn raw(self) -> Self::Raw;
}

impl Arg for Node {
    type Raw = *mut sys::ggml_tensor;
    fn raw(self) -> Self::Raw {
        self.0.as_ptr()
    }
}

impl Arg for Option<Node> {
    type Raw = *mut sys::ggml_tensor;
    fn raw(self) -> Self::Raw {
        self.map_or(std::ptr::null_mut(), |n| n.0.as_ptr())
    }
}

impl Arg for GgmlType {
    type Raw = sys::ggml_type;
    fn raw(self) -> Self::Raw {
        self as sys::ggml_type
    }
}

macro_rules! plain {
    ($($t:ty),*) => { $(impl Arg for $t { type Raw = $t; fn raw(self) -> $t { self } })* };
}
plain!(f32, i32, i64, u32, bool);

macro_rules! ops {
    ($($name:ident = $ggml:ident($($arg:ident: $ty:ty),*);)*) => {
        #[allow(clippy::too_many_arguments, reason = "ggml's")]
        impl Graph {
            $(pub(super) fn $name(&self, $($arg: $ty),*) -> Node {
                // SAFETY: `ctx` is live as long as `self`. Nodes point into it. ggml checks types and shapes
                // itself and aborts the process on a mismatch; it keeps no pointer to by-value arguments.
                Self::node(unsafe { sys::$ggml(self.ctx.as_ptr(), $(Arg::raw($arg)),*) })
            })*
        }
    };
}

ops! {
    mul_mat = ggml_mul_mat(a: Node, b: Node);
    mul_mat_id = ggml_mul_mat_id(experts: Node, b: Node, ids: Node);
    add_id = ggml_add_id(a: Node, b: Node, ids: Node);
    get_rows = ggml_get_rows(a: Node, rows: Node);
    set_rows = ggml_set_rows(a: Node, b: Node, rows: Node);
    add = ggml_add(a: Node, b: Node);
    sub = ggml_sub(a: Node, b: Node);
    mul = ggml_mul(a: Node, b: Node);
    div = ggml_div(a: Node, b: Node);
    scale = ggml_scale_bias(a: Node, s: f32, b: f32);
    silu = ggml_silu(a: Node);
    sigmoid = ggml_sigmoid(a: Node);
    softplus = ggml_softplus(a: Node);
    exp = ggml_exp(a: Node);
    neg = ggml_neg(a: Node);
    unary = ggml_unary(a: Node, op: u32);
    sqrt = ggml_sqrt(a: Node);
    log = ggml_log(a: Node);
    sin = ggml_sin(a: Node);
    cos = ggml_cos(a: Node);
    leaky_relu = ggml_leaky_relu(a: Node, slope: f32, in_place: bool);
    clamp = ggml_clamp(a: Node, low: f32, high: f32);
    norm = ggml_norm(a: Node, eps: f32);
    sum_rows = ggml_sum_rows(a: Node);
    argsort = ggml_argsort(a: Node, order: u32);
    swiglu = ggml_swiglu(a: Node);
    swiglu_swapped = ggml_swiglu_swapped(a: Node);
    swiglu_split = ggml_swiglu_split(a: Node, b: Node);
    geglu = ggml_geglu(a: Node);
    geglu_swapped = ggml_geglu_swapped(a: Node);
    geglu_split = ggml_geglu_split(a: Node, b: Node);
    swiglu_oai = ggml_swiglu_oai(a: Node, b: Node, alpha: f32, limit: f32);
    rms_norm = ggml_rms_norm(a: Node, eps: f32);
    l2_norm = ggml_l2_norm(a: Node, eps: f32);
    ssm_conv = ggml_ssm_conv(x: Node, w: Node);
    gated_delta_net = ggml_gated_delta_net(q: Node, k: Node, v: Node, g: Node, beta: Node, state: Node, n: i64);
    soft_max = ggml_soft_max_ext(a: Node, mask: Option<Node>, scale: f32, max_bias: f32);
    argmax = ggml_argmax(a: Node);
    cont = ggml_cont(a: Node);
    cast = ggml_cast(a: Node, ty: GgmlType);
    cpy = ggml_cpy(a: Node, b: Node);
    concat = ggml_concat(a: Node, b: Node, dim: i32);
    repeat = ggml_repeat(a: Node, like: Node);
    rope_ext = ggml_rope_ext(
        a: Node, pos: Node, factors: Option<Node>, n_dims: i32, mode: i32, n_ctx_orig: i32, freq_base: f32,
        freq_scale: f32, ext_factor: f32, attn_factor: f32, beta_fast: f32, beta_slow: f32
    );
    flash_attn_raw = ggml_flash_attn_ext(
        q: Node, k: Node, v: Node, mask: Option<Node>, scale: f32, max_bias: f32, softcap: f32
    );
}

impl Graph {
    pub(super) fn new() -> Self {
        static INIT: Once = Once::new();
        // SAFETY: fills ggml's global tables; `Once` keeps it to one thread.
        INIT.call_once(|| unsafe { sys::ggml_cpu_init() });
        // Tensor and graph headers only: every operation here builds a handful of nodes.
        let params =
            sys::ggml_init_params { mem_size: 1 << 20, mem_buffer: std::ptr::null_mut(), no_alloc: true };
        // SAFETY: plain parameters; ggml allocates the context itself.
        let ctx = NonNull::new(unsafe { sys::ggml_init(params) }).expect("ggml_init failed");
        Self { ctx, buffers: Vec::new() }
    }

    fn node(t: *mut sys::ggml_tensor) -> Node {
        Node(NonNull::new(t).expect("ggml made no tensor"))
    }

    /// A leaf with a copy of the tensor's bytes, at its own strides.
    pub(super) fn input(&mut self, t: &Tensor) -> Result<Node, Error> {
        t.check()?;
        let mut buffer = zeroed(t.data.len());
        // SAFETY: `buffer` has at least `data.len()` bytes, any byte is a valid `u8`, and it is borrowed
        // alone.
        unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast::<u8>(), t.data.len()) }
            .copy_from_slice(&t.data);
        let [a, b, c, d] = t.ne;
        // SAFETY: live context; the type is one of ggml's and rows are whole blocks (`check`).
        let node = Self::node(unsafe { sys::ggml_new_tensor_4d(self.ctx.as_ptr(), t.ty as u32, a, b, c, d) });
        // SAFETY: the node was just made and nothing else refers to it. `check` holds every element that the
        // strides reach inside `data`, so inside `buffer`, which lives until `self` is dropped: moving a
        // `Vec` does not move its heap block.
        unsafe {
            let t2 = node.0.as_ptr();
            (*t2).nb = t.nb();
            (*t2).data = buffer.as_mut_ptr().cast::<u8>().add(t.offset()).cast();
        }
        self.buffers.push(buffer);
        Ok(node)
    }

    pub(super) fn rope_multi(&self, io: [Node; 2], factors: Option<Node>, p: &super::Rope) -> Node {
        let mut sections = p.sections;
        // SAFETY: `ctx` is live as long as `self`, and the nodes point into it. ggml checks types and shapes
        // itself and aborts the process on a mismatch; it copies the four sections into the node.
        Self::node(unsafe {
            sys::ggml_rope_multi(
                self.ctx.as_ptr(),
                io[0].raw(),
                io[1].raw(),
                factors.raw(),
                p.n_dims,
                sections.as_mut_ptr(),
                p.mode as i32,
                p.n_ctx_orig,
                p.freq_base,
                p.freq_scale,
                p.ext_factor,
                p.attn_factor,
                p.beta_fast,
                p.beta_slow,
            )
        })
    }

    pub(super) fn soft_max_sinks(&self, node: Node, sinks: Option<Node>) {
        // SAFETY: `node` is a SOFT_MAX of this graph; ggml checks the shape of the sinks.
        unsafe { sys::ggml_soft_max_add_sinks(node.raw(), sinks.raw()) }
    }

    pub(super) fn flash_attn(
        &self,
        qkv: [Node; 3],
        mask: Option<Node>,
        sinks: Option<Node>,
        p: &super::Attention,
    ) -> Node {
        let [q, k, v] = qkv;
        let node = self.flash_attn_raw(q, k, v, mask, p.scale, p.max_bias, p.softcap);
        // SAFETY: `node` is a FLASH_ATTN_EXT of this graph; ggml checks the shape of the sinks.
        unsafe {
            sys::ggml_flash_attn_ext_add_sinks(node.raw(), sinks.raw());
            assert!(sys::ggml_prec_set_acc(node.raw(), sys::GGML_PREC_F32), "ggml refused F32 accumulation");
        }
        node
    }

    /// Computes `out` and returns it with its own strides made contiguous. Elements that the operation does
    /// not write are zero.
    pub(super) fn compute(mut self, out: Node, threads: usize) -> Result<Tensor, Error> {
        // SAFETY: live context with room for a graph of 64 nodes; `out` belongs to it.
        let graph = unsafe {
            let graph = sys::ggml_new_graph_custom(self.ctx.as_ptr(), 64, false);
            sys::ggml_build_forward_expand(graph, out.raw());
            graph
        };
        // SAFETY: `graph` was just made; node indices below its count are valid, nodes are in order of
        // evaluation, so that a view's source has its memory before the view. Every node gets memory of
        // `ggml_nbytes` bytes that lives as long as `self`.
        unsafe {
            for i in 0..sys::ggml_graph_n_nodes(graph) {
                let t = sys::ggml_graph_node(graph, i);
                if !(*t).data.is_null() {
                    continue;
                }
                if (*t).view_src.is_null() {
                    let mut buffer = zeroed(sys::ggml_nbytes(t));
                    (*t).data = buffer.as_mut_ptr().cast();
                    self.buffers.push(buffer);
                } else {
                    (*t).data = (*(*t).view_src).data.cast::<u8>().add((*t).view_offs).cast();
                }
            }
        }
        // SAFETY: every node has memory now. The work buffer outlives the call. `use_ref` asks for the plain
        // kernels, as test-backend-ops does for its reference.
        let status = unsafe {
            let mut plan = sys::ggml_graph_plan(graph, threads.max(1) as i32, std::ptr::null_mut());
            let mut work = zeroed(plan.work_size);
            plan.work_data = work.as_mut_ptr().cast();
            plan.use_ref = true;
            sys::ggml_graph_compute(graph, &mut plan)
        };
        if status != sys::GGML_STATUS_SUCCESS {
            return Err(Error::Compute(status));
        }
        // SAFETY: `out` is computed; its data spans `ggml_nbytes` bytes, all initialised (buffers start as
        // zeros), and no one writes them any more.
        let (ty, ne, nb, data) = unsafe {
            let t = out.0.as_ref();
            let bytes = std::slice::from_raw_parts(t.data.cast::<u8>(), sys::ggml_nbytes(t));
            (t.type_, t.ne, t.nb, bytes.to_vec())
        };
        let ty = GgmlType::from_id(ty).expect("an output type that no operation here makes");
        Ok(Tensor { ty, ne, view: Some(View { nb, offset: 0 }), data }.contiguous())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `ggml_init`, freed once; no node outlives the operation that made it.
        unsafe { sys::ggml_free(self.ctx.as_ptr()) }
    }
}

/// Encodes rows of `n` elements.
pub(super) fn quantize(ty: GgmlType, rows: &[f32], n: usize) -> Vec<u8> {
    let count = rows.len() / n;
    let mut out = vec![0u8; count * ty.row_bytes(n)];
    // SAFETY: `rows` holds `count` rows of `n` whole blocks (checked by the caller), and `out` has room for
    // them. None of these types needs an importance matrix.
    let written = unsafe {
        sys::ggml_quantize_chunk(
            ty as u32,
            rows.as_ptr(),
            out.as_mut_ptr().cast(),
            0,
            count as i64,
            n as i64,
            std::ptr::null(),
        )
    };
    assert_eq!(written, out.len(), "ggml wrote another number of bytes");
    out
}

/// Decodes whole blocks.
pub(super) fn dequantize(ty: GgmlType, data: &[u8]) -> Vec<f32> {
    let n = data.len() / ty.block_bytes() * ty.block_len();
    let mut out = vec![0f32; n];
    let mut src = zeroed(data.len());
    // SAFETY: `src` has at least `data.len()` bytes and is borrowed alone. The trait table covers every type
    // of `GgmlType`; `to_float` reads `n` elements' worth of whole blocks and writes `n` floats.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(src.as_mut_ptr().cast::<u8>(), data.len());
        bytes.copy_from_slice(data);
        let to_float = (*sys::ggml_get_type_traits(ty as u32)).to_float.expect("type without a decoder");
        to_float(src.as_ptr().cast(), out.as_mut_ptr(), n as i64);
    }
    out
}

/// ggml's (elements in a block, bytes in a block) of a type.
#[cfg(test)]
pub(super) fn block_of(ty: GgmlType) -> (usize, usize) {
    // SAFETY: the table covers every type number of `GgmlType` and is constant.
    let traits = unsafe { &*sys::ggml_get_type_traits(ty as u32) };
    (traits.blck_size as usize, traits.type_size)
}
