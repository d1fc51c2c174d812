//! Attention: grouped queries over caches of keys and values; with biases, norms and rotary embedding where
//! an architecture has them.

use hexflash_abi::Op;
use hexflash_abi::op::MAX_HEAD;
use hexflash_abi::op::params::{FlashAttn, Visibility};

use super::kv::KvCache;
use super::mix::Mix;
use super::rope::Rope;
use crate::model::cache_types::CacheTypes;
use crate::model::error::ModelError;
use crate::model::graph::Graph;
use crate::model::kept::KeptPlanner;
use crate::model::keys::{Keys, LIMIT};
use crate::model::scope::Scope;
use crate::model::tensors::WeightPlanner;
use crate::record::{RecordError, Tensor};
use crate::weights::Form;

/// Attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Width of what it reads.
    pub n_in: u32,
    /// Width of what it writes.
    pub n_embd: u32,
    /// Query heads.
    pub n_head: u32,
    /// Key and value heads.
    pub n_head_kv: u32,
    /// Width of a query or key head.
    pub key_dim: u32,
    /// Width of a value head.
    pub value_dim: u32,
    /// Rotary embedding, in layers that have it.
    pub rope: Option<Rope>,
    /// Norms of queries and keys, in architectures that have them: what is added to the mean of squares.
    pub norm: Option<f32>,
    /// A norm of values, without weights: what is added to the mean of squares.
    pub value_norm: Option<f32>,
    /// What is added to the products.
    pub bias: Biases,
    /// Whether each query head has a logit of its own that takes a share of the softmax, and gives no value.
    pub sinks: bool,
    /// Factor on q.k.
    pub scale: f32,
    /// Growth of queries with the logarithm of how often the training's context lies before them; 0 for none.
    pub temperature: f32,
    /// Bound of the logits q.k; 0 for none.
    pub softcap: f32,
    /// Tokens that a query sees, itself included; 0 for all.
    pub window: u32,
    /// First position that queries see.
    pub first: u32,
    /// What a query sees of its own step.
    pub visibility: Visibility,
    /// Whether the output passes a gate.
    pub gate: Gate,
    /// Which matrices are multiplied as one.
    pub queries: Queries,
}

/// The gate of an attention's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// There is none.
    None,
    /// Sigmoid, as wide as a query; `attn_q` has, head by head, the values of the query and then those of the
    /// gate.
    PerHead,
    /// Sigmoid, one value for each head: of a matrix of its own.
    OfHeads,
}

/// The matrix of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// It is multiplied together with those of keys and values.
    WithKeys,
    /// It is apart: some rows have keys and values only.
    Apart,
    /// There are no others: queries read the caches of this layer, which is before theirs.
    Alone(usize),
    /// There are no others: queries of a draft model read the caches of this layer of its target.
    OfTarget(usize),
}

/// The products that have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Queries.
    pub q: bool,
    /// Keys.
    pub k: bool,
    /// Values.
    pub v: bool,
    /// The output.
    pub output: bool,
}

impl Biases {
    /// All of them.
    pub(in crate::model) const ALL: Self = Self { q: true, k: true, v: true, output: true };

    /// Those that the file has for a layer.
    pub(in crate::model) fn of(keys: &Keys<'_>, layer: usize) -> Self {
        let has = |tensor: &str| keys.has_tensor(&Scope::TARGET.layer(layer).name(tensor));
        Self { q: has(Q_BIAS), k: has(K_BIAS), v: has(V_BIAS), output: has(OUTPUT_BIAS) }
    }
}

/// Queries, keys and values as one tensor, where a file has that.
const QKV: &str = "attn_qkv.weight";
const Q: &str = "attn_q.weight";
const K: &str = "attn_k.weight";
const V: &str = "attn_v.weight";
const Q_NORM: &str = "attn_q_norm.weight";
const K_NORM: &str = "attn_k_norm.weight";
const Q_BIAS: &str = "attn_q.bias";
const K_BIAS: &str = "attn_k.bias";
const V_BIAS: &str = "attn_v.bias";
const OUTPUT_BIAS: &str = "attn_output.bias";
const SINKS: &str = "attn_sinks.weight";
const GATE: &str = "attn_gate.weight";

impl Attention {
    /// Reads the hyper-parameters: causal, without bias, sinks, window or gate, scaled by 1 / sqrt(key_dim),
    /// with norms of queries and keys.
    ///
    /// # Errors
    /// A key is missing, or its value is one that no kernel supports.
    pub(in crate::model) fn read(
        keys: &Keys<'_>,
        n_embd: u32,
        n_ctx_train: u32,
        eps: f32,
    ) -> Result<Self, ModelError> {
        let n_head = keys.require("attention.head_count")?;
        let n_head_kv = keys.or("attention.head_count_kv", n_head)?;
        Self::with_heads(keys, [n_head, n_head_kv], n_embd, n_ctx_train, eps)
    }

    /// Reads a layer with this many heads of queries, and of keys and values: see [`read`](Self::read).
    ///
    /// # Errors
    /// As there.
    pub(in crate::model) fn with_heads(
        keys: &Keys<'_>,
        heads: [u32; 2],
        n_embd: u32,
        n_ctx_train: u32,
        eps: f32,
    ) -> Result<Self, ModelError> {
        Self::with_widths(keys, "", heads, n_embd, n_ctx_train, eps)
    }

    /// Reads a layer whose widths are under keys that end with `suffix`, where the file has those: see
    /// [`with_heads`](Self::with_heads).
    ///
    /// # Errors
    /// As there.
    pub(in crate::model) fn with_widths(
        keys: &Keys<'_>,
        suffix: &str,
        [n_head, n_head_kv]: [u32; 2],
        n_embd: u32,
        n_ctx_train: u32,
        eps: f32,
    ) -> Result<Self, ModelError> {
        if !n_head.is_multiple_of(n_head_kv) {
            return Err(keys.bad("attention.head_count_kv", n_head_kv, "a divisor of the head count"));
        }
        let most = MAX_HEAD.min(LIMIT / n_head);
        let width = |of: &str| {
            let [all, name] = ["", suffix].map(|suffix| format!("attention.{of}_length{suffix}"));
            let dim = keys.or(&name, keys.or(&all, n_embd / n_head)?)?;
            if dim > most {
                return Err(keys.bad(&name, dim, &format!("at most {most}, for {n_head} heads")));
            }
            Ok(dim)
        };
        let (key_dim, value_dim) = (width("key")?, width("value")?);
        Ok(Self {
            n_in: n_embd,
            n_embd,
            n_head,
            n_head_kv,
            key_dim,
            value_dim,
            rope: Some(Rope::read(keys, suffix, key_dim, n_ctx_train)?),
            norm: Some(eps),
            value_norm: None,
            bias: Biases::default(),
            sinks: false,
            scale: 1.0 / (key_dim as f32).sqrt(),
            temperature: 0.0,
            softcap: 0.0,
            window: 0,
            first: 0,
            visibility: Visibility::Causal,
            gate: Gate::None,
            queries: Queries::WithKeys,
        })
    }

    /// Refuses heads that are turned in part, or have values of another width than keys: llama.cpp runs no
    /// such model of most architectures.
    ///
    /// # Errors
    /// They are.
    pub(in crate::model) fn require_whole_heads(&self, keys: &Keys<'_>) -> Result<(), ModelError> {
        match &self.rope {
            Some(rope) if rope.n_dims != self.key_dim => {
                Err(keys.bad("rope.dimension_count", rope.n_dims, &self.width_of_a_head()))
            }
            _ => self.require_equal_widths(keys),
        }
    }

    /// Refuses values of another width than keys.
    ///
    /// # Errors
    /// Values have another width.
    pub(in crate::model) fn require_equal_widths(&self, keys: &Keys<'_>) -> Result<(), ModelError> {
        match self.value_dim == self.key_dim {
            true => Ok(()),
            false => Err(keys.bad("attention.value_length", self.value_dim, &self.width_of_a_head())),
        }
    }

    /// Words for a width that should be that of a head.
    fn width_of_a_head(&self) -> String {
        format!("{}, the width of a head", self.key_dim)
    }

    /// Its caches.
    pub fn cache(&self) -> KvCache {
        let Self { key_dim, value_dim, n_head_kv, window, .. } = *self;
        KvCache { key_dim, value_dim, n_head_kv, window }
    }

    /// Queries, normed and turned, and their gate, of the rows that `attn_q` gives.
    fn split_queries(&self, g: &mut Graph<'_>, rows: Tensor) -> (Tensor, Option<Tensor>) {
        let (d, h) = (self.key_dim, self.n_head);
        match self.gate {
            Gate::None | Gate::OfHeads => (g.heads(rows, 0, d, h, 4 * d), None),
            Gate::PerHead => {
                let q = g.heads(rows, 0, d, h, 8 * d);
                (q, Some(g.heads(rows, 4 * u64::from(d), d, h, 8 * d)))
            }
        }
    }

    /// The rows of keys and values as heads.
    fn split_keys(&self, g: &mut Graph<'_>, [k, v]: [Tensor; 2]) -> [Tensor; 2] {
        [(k, self.key_dim), (v, self.value_dim)].map(|(x, d)| g.heads(x, 0, d, self.n_head_kv, 4 * d))
    }

    /// Queries or keys as attention takes them: normed and turned, where there is a norm or a rotary
    /// embedding.
    fn prepare(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor, norm: &str, temperature: f32) {
        if let Some(eps) = self.norm {
            g.rms_norm_into(x, &scope.label(norm), eps, x);
        }
        if let Some(rope) = &self.rope {
            rope.record(g, scope, x, temperature);
        }
    }

    /// Queries and their gate, of the rows that `attn_q` gives.
    fn finish_queries(&self, g: &mut Graph<'_>, scope: Scope, rows: Tensor) -> (Tensor, Option<Tensor>) {
        add_bias(g, scope, rows, self.bias.q, Q_BIAS);
        let (q, gate) = self.split_queries(g, rows);
        self.prepare(g, scope, q, Q_NORM, self.temperature);
        (q, gate)
    }

    /// Keys and values as the caches take them, of the rows that `attn_k` and `attn_v` give.
    fn finish_keys(&self, g: &mut Graph<'_>, scope: Scope, rows: [Tensor; 2]) -> [Tensor; 2] {
        add_bias(g, scope, rows[0], self.bias.k, K_BIAS);
        add_bias(g, scope, rows[1], self.bias.v, V_BIAS);
        let [k, v] = self.split_keys(g, rows);
        self.prepare(g, scope, k, K_NORM, 0.0);
        if let Some(eps) = self.value_norm {
            g.normalize(v, eps);
        }
        [k, v]
    }

    /// Keys and values of x{n_in,t}, where queries are [apart](Queries::Apart).
    fn keys_and_values(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor) -> [Tensor; 2] {
        let rows = g.project(x, &scope.label("kv"));
        self.finish_keys(g, scope, [rows[0], rows[1]])
    }

    /// The layer that has the caches.
    fn home(&self, scope: Scope) -> Scope {
        match self.queries {
            Queries::WithKeys | Queries::Apart => scope,
            Queries::Alone(layer) => scope.model().layer(layer),
            Queries::OfTarget(layer) => Scope::TARGET.layer(layer),
        }
    }

    /// Puts keys and values of x{n_in,t} into the caches, for queries of later steps. Queries must be
    /// [apart](Queries::Apart).
    pub(in crate::model) fn append(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor) {
        let [k, v] = self.keys_and_values(g, scope, x);
        let caches = KvCache::tensors(g, scope);
        g.rec.op_with(Op::KvAppend, &[Some(k), Some(v)], &caches, &[0u32; 0]);
    }
}

/// Adds a bias to rows {n,t}, if there is one.
fn add_bias(g: &mut Graph<'_>, scope: Scope, rows: Tensor, present: bool, name: &str) {
    if present {
        let bias = g.weight(&scope.label(name));
        g.update(Op::Add, rows, bias);
    }
}

impl Mix for Attention {
    fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        let width = match self.gate {
            Gate::None | Gate::OfHeads => self.key_dim,
            Gate::PerHead => 2 * self.key_dim,
        };
        let q = (Q, self.n_head * width);
        let k = (K, self.n_head_kv * self.key_dim);
        let v = (V, self.n_head_kv * self.value_dim);
        match self.queries {
            Queries::WithKeys if plan.has(scope, QKV) => {
                plan.split(scope, "qkv", self.n_in, QKV, &[q.1, k.1, v.1])?;
            }
            Queries::WithKeys => plan.project(scope, "qkv", self.n_in, &[q, k, v])?,
            Queries::Apart => {
                plan.add(scope, q.0, &[self.n_in, q.1], Form::Tiled)?;
                plan.project(scope, "kv", self.n_in, &[k, v])?;
            }
            Queries::Alone(_) => {
                plan.add(scope, q.0, &[self.n_in, q.1], Form::Tiled)?;
                // What the layer had before it shared the caches of another.
                [K, V, K_NORM].into_iter().for_each(|name| plan.ignore(scope, name));
            }
            Queries::OfTarget(_) => plan.add(scope, q.0, &[self.n_in, q.1], Form::Tiled)?,
        }
        let Biases { q: on_q, k: on_k, v: on_v, output } = self.bias;
        let biases = [(on_q, Q_BIAS, q.1), (on_k, K_BIAS, k.1), (on_v, V_BIAS, v.1)];
        for (present, name, n) in biases.into_iter().chain([(output, OUTPUT_BIAS, self.n_embd)]) {
            if present {
                plan.add(scope, name, &[n], Form::Plain)?;
            }
        }
        if self.norm.is_some() {
            plan.add(scope, Q_NORM, &[self.key_dim], Form::Plain)?;
            if self.home(scope) == scope {
                plan.add(scope, K_NORM, &[self.key_dim], Form::Plain)?;
            }
        }
        if let Some(rope) = &self.rope {
            rope.weights(plan, scope)?;
        }
        if self.sinks {
            plan.add(scope, SINKS, &[self.n_head], Form::Plain)?;
        }
        if self.gate == Gate::OfHeads {
            plan.add(scope, GATE, &[self.n_in, self.n_head], Form::Tiled)?;
        }
        plan.add(scope, "attn_output.weight", &[self.n_head * self.value_dim, self.n_embd], Form::Tiled)
    }

    fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        if self.home(scope) == scope { self.cache().keep(plan, scope) } else { Ok(()) }
    }

    fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        let ((q, gate), new) = match self.queries {
            Queries::WithKeys => {
                let rows = g.project(a, &scope.label("qkv"));
                let queries = self.finish_queries(g, scope, rows[0]);
                (queries, Some(self.finish_keys(g, scope, [rows[1], rows[2]])))
            }
            Queries::Apart | Queries::Alone(_) | Queries::OfTarget(_) => {
                let rows = g.linear(a, &scope.label(Q));
                let queries = self.finish_queries(g, scope, rows);
                let apart = self.queries == Queries::Apart;
                (queries, apart.then(|| self.keys_and_values(g, scope, a)))
            }
        };
        let caches = KvCache::tensors(g, self.home(scope));
        let attn = FlashAttn {
            scale: self.scale,
            visibility: self.visibility.wire(),
            window: self.window,
            softcap: self.softcap,
            max_bias: 0.0,
            first: self.first,
        };
        let sinks = self.sinks.then(|| scope.label(SINKS));
        let y = g.attend(q, new, caches, sinks.as_deref(), attn);
        if let Some(gate) = gate {
            g.apply(Op::Sigmoid, gate);
            g.update(Op::Mul, y, gate);
        }
        if self.gate == Gate::OfHeads {
            let gates = g.linear(a, &scope.label(GATE));
            g.apply(Op::Sigmoid, gates);
            let gates = g.heads(gates, 0, 1, self.n_head, 4);
            g.update(Op::Mul, y, gates);
        }
        let y = g.joined(y);
        let y = g.linear(y, &scope.label("attn_output.weight"));
        add_bias(g, scope, y, self.bias.output, OUTPUT_BIAS);
        y
    }

    fn state_bytes(&self) -> u64 {
        0
    }

    fn longest_context(&self, caches: CacheTypes, n_slots: u32) -> u32 {
        self.cache().longest_context(caches, n_slots)
    }
}
