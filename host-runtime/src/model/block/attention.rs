//! Attention: grouped queries, normed and turned, over caches of keys and values.

use hexflash_abi::Op;
use hexflash_abi::op::MAX_HEAD;
use hexflash_abi::op::params::{FlashAttn, Visibility};

use super::kv::{KvCache, KvFormat};
use super::mix::Mix;
use super::rope::Rope;
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
    /// Width of what it reads and writes.
    pub n_embd: u32,
    /// Query heads.
    pub n_head: u32,
    /// Key and value heads.
    pub n_head_kv: u32,
    /// Width of a query or key head.
    pub key_dim: u32,
    /// Width of a value head.
    pub value_dim: u32,
    /// Rotary embedding.
    pub rope: Rope,
    /// Added to the mean of squares in the norms of queries and keys.
    pub eps: f32,
    /// Factor on q.k.
    pub scale: f32,
    /// Tokens that a query sees, itself included; 0 for all.
    pub window: u32,
    /// What a query sees of its own step.
    pub visibility: Visibility,
    /// Whether the output passes a gate.
    pub gate: Gate,
    /// Which matrices are multiplied as one.
    pub queries: Queries,
    /// Number format of the caches.
    pub kv: KvFormat,
}

/// The gate of an attention's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// There is none.
    None,
    /// Sigmoid, as wide as a query; `attn_q` has, head by head, the values of the query and then those of the
    /// gate.
    PerHead,
}

/// The matrix of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// It is multiplied together with those of keys and values.
    WithKeys,
    /// It is apart: some rows have keys and values only.
    Apart,
}

impl Attention {
    /// Reads the hyper-parameters: causal, without window or gate, scaled by 1 / sqrt(key_dim).
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
        if !n_head.is_multiple_of(n_head_kv) {
            return Err(keys.bad("attention.head_count_kv", n_head_kv, "a divisor of the head count"));
        }
        let key_dim = keys.or("attention.key_length", n_embd / n_head)?;
        let value_dim = keys.or("attention.value_length", n_embd / n_head)?;
        for (name, dim) in [("attention.key_length", key_dim), ("attention.value_length", value_dim)] {
            let most = MAX_HEAD.min(LIMIT / n_head);
            if dim > most {
                return Err(keys.bad(name, dim, &format!("at most {most}, for {n_head} heads")));
            }
        }
        Ok(Self {
            n_embd,
            n_head,
            n_head_kv,
            key_dim,
            value_dim,
            rope: Rope::read(keys, key_dim, n_ctx_train)?,
            eps,
            scale: 1.0 / (key_dim as f32).sqrt(),
            window: 0,
            visibility: Visibility::Causal,
            gate: Gate::None,
            queries: Queries::WithKeys,
            kv: KvFormat::F16,
        })
    }

    /// Its caches.
    pub fn cache(&self) -> KvCache {
        let Self { key_dim, value_dim, n_head_kv, kv, .. } = *self;
        KvCache { format: kv, key_dim, value_dim, n_head_kv }
    }

    /// Queries, normed and turned, and their gate, of the rows that `attn_q` gives.
    fn split_queries(&self, g: &mut Graph<'_>, rows: Tensor) -> (Tensor, Option<Tensor>) {
        let (d, h) = (self.key_dim, self.n_head);
        match self.gate {
            Gate::None => (g.heads(rows, 0, d, h, 4 * d), None),
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

    fn norm(&self, g: &mut Graph<'_>, x: Tensor, weight: &str) {
        g.rms_norm_into(x, weight, self.eps, x);
    }

    /// Keys, normed and turned, and values of x{n_embd,t}, where queries are [apart](Queries::Apart).
    fn keys_and_values(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor) -> [Tensor; 2] {
        let rows = g.project(x, &scope.label("kv"));
        let [k, v] = self.split_keys(g, [rows[0], rows[1]]);
        self.norm(g, k, &scope.label("attn_k_norm.weight"));
        self.rope.record(g, k);
        [k, v]
    }

    /// Puts keys and values of x{n_embd,t} into the caches, for queries of later steps. Queries must be
    /// [apart](Queries::Apart).
    pub(in crate::model) fn append(&self, g: &mut Graph<'_>, scope: Scope, x: Tensor) {
        let [k, v] = self.keys_and_values(g, scope, x);
        let caches = KvCache::tensors(g, scope);
        g.rec.op_with(Op::KvAppend, &[Some(k), Some(v)], &caches, &[0u32; 0]);
    }
}

impl Mix for Attention {
    fn weights(&self, plan: &mut WeightPlanner<'_>, scope: Scope) -> Result<(), ModelError> {
        let width = match self.gate {
            Gate::None => self.key_dim,
            Gate::PerHead => 2 * self.key_dim,
        };
        let q = ("attn_q.weight", self.n_head * width);
        let k = ("attn_k.weight", self.n_head_kv * self.key_dim);
        let v = ("attn_v.weight", self.n_head_kv * self.value_dim);
        match self.queries {
            Queries::WithKeys => plan.project(scope, "qkv", self.n_embd, &[q, k, v])?,
            Queries::Apart => {
                plan.add(scope, q.0, &[self.n_embd, q.1], Form::Tiled)?;
                plan.project(scope, "kv", self.n_embd, &[k, v])?;
            }
        }
        plan.add(scope, "attn_q_norm.weight", &[self.key_dim], Form::Plain)?;
        plan.add(scope, "attn_k_norm.weight", &[self.key_dim], Form::Plain)?;
        plan.add(scope, "attn_output.weight", &[self.n_head * self.value_dim, self.n_embd], Form::Tiled)
    }

    fn keep(&self, plan: &mut KeptPlanner, scope: Scope) -> Result<(), RecordError> {
        self.cache().keep(plan, scope)
    }

    fn record(&self, g: &mut Graph<'_>, scope: Scope, a: Tensor) -> Tensor {
        let (q_norm, k_norm) = (scope.label("attn_q_norm.weight"), scope.label("attn_k_norm.weight"));
        let (q, gate, [k, v]) = match self.queries {
            Queries::WithKeys => {
                let rows = g.project(a, &scope.label("qkv"));
                let (q, gate) = self.split_queries(g, rows[0]);
                let [k, v] = self.split_keys(g, [rows[1], rows[2]]);
                self.norm(g, q, &q_norm);
                self.norm(g, k, &k_norm);
                self.rope.record(g, q);
                self.rope.record(g, k);
                (q, gate, [k, v])
            }
            Queries::Apart => {
                let rows = g.linear(a, &scope.label("attn_q.weight"));
                let (q, gate) = self.split_queries(g, rows);
                self.norm(g, q, &q_norm);
                self.rope.record(g, q);
                (q, gate, self.keys_and_values(g, scope, a))
            }
        };
        let caches = KvCache::tensors(g, scope);
        let attn = FlashAttn {
            scale: self.scale,
            visibility: self.visibility.wire(),
            window: self.window,
            softcap: 0.0,
            max_bias: 0.0,
        };
        let y = g.attend([q, k, v], caches, attn);
        if let Some(gate) = gate {
            g.apply(Op::Sigmoid, gate);
            g.update(Op::Mul, y, gate);
        }
        let y = g.joined(y);
        g.linear(y, &scope.label("attn_output.weight"))
    }

    fn state_bytes(&self) -> u64 {
        0
    }

    fn longest_context(&self, n_slots: u32) -> u32 {
        self.cache().longest_context(n_slots)
    }
}
