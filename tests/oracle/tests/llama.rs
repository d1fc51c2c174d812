//! The llama.cpp wrapper on the tiny hybrid model: `HEXFLASH_ORACLE_MODEL`, or `models/tiny-hybrid-q8_0.gguf`
//! of the repository. Without either the tests say so and pass.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hexflash_oracle::llama::{
    self, Choice, Context, ContextOptions, DFlash, FlashAttn, KvType, LlamaError, Model,
};
use hexflash_oracle::nmse;

fn path(variable: &str, file: &str) -> Option<PathBuf> {
    let shipped = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models")).join(file);
    let path = std::env::var_os(variable).map_or_else(shipped, PathBuf::from);
    if !path.is_file() {
        eprintln!("skipped: no {} (set {variable})", path.display());
        return None;
    }
    Some(path)
}

/// The model, and the right to compute: pools of spinning threads side by side only hinder each other.
struct Alone(Model, #[allow(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Deref for Alone {
    type Target = Model;
    fn deref(&self) -> &Model {
        &self.0
    }
}

fn model() -> Option<Alone> {
    static TURN: Mutex<()> = Mutex::new(());
    let path = path("HEXFLASH_ORACLE_MODEL", "tiny-hybrid-q8_0.gguf")?;
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Some(Alone(Model::load(path).expect("the model loads"), turn))
}

const TEXT: &str = "def quicksort(";

fn options() -> ContextOptions {
    ContextOptions { threads: 2, ..ContextOptions::default() }
}

#[test]
fn tokens_make_the_text_again() {
    let Some(m) = model() else { return };
    let ids = m.tokenize(TEXT, true).unwrap();
    assert_eq!(m.detokenize(&ids), TEXT);
    assert_eq!(m.meta("general.architecture").as_deref(), Some("qwen35"));
    assert_eq!(m.meta("no.such.key"), None);
    assert!(ids.iter().all(|&i| (i as usize) < m.n_vocab() && !m.is_eog(i)));
}

#[test]
fn logits_do_not_depend_on_the_chunks() {
    let Some(m) = model() else { return };
    let ids = m.tokenize(&"fn main() { let x = 1; }\n".repeat(6), true).unwrap();
    let run = |o: ContextOptions| Context::new(&m, o).unwrap().decode(&ids).unwrap();
    let whole = run(options());
    assert_eq!(whole.values.len(), ids.len() * m.n_vocab());
    assert_eq!(whole.rows().count(), ids.len());
    for o in [
        ContextOptions { n_batch: 7, ..options() },
        ContextOptions { kv: KvType::F32, ..options() },
        ContextOptions { flash_attn: FlashAttn::Off, ..options() },
        ContextOptions { threads: 1, n_batch: 1, ..options() },
    ] {
        let e = nmse(&whole.values, &run(o).values);
        assert!(e < 1e-4, "{o:?}: NMSE {e:e}");
    }
    let last = Context::new(&m, options()).unwrap().decode_last(&ids).unwrap();
    assert!(nmse(whole.row(ids.len() - 1), &last) < 1e-6);
}

#[test]
fn greedy_follows_the_best_logit_and_rolls_back() {
    let Some(m) = model() else { return };
    let prompt = m.tokenize(TEXT, true).unwrap();
    let mut ctx = Context::new(&m, ContextOptions { rollback: 4, ..options() }).unwrap();
    let steps = ctx.greedy(&prompt, 24, false).unwrap();
    let ids: Vec<i32> = steps.iter().map(|s| s.id).collect();
    assert_eq!(ids.len(), 24);
    assert!(steps.iter().all(|s| s.gap >= 0.0 && s.second != s.id));
    // Teacher-forced, the same choices.
    ctx.clear();
    let forced = ctx.decode(&[&prompt[..], &ids[..23]].concat()).unwrap();
    let choices: Vec<i32> = forced.rows().skip(prompt.len() - 1).map(|r| Choice::of(r).id).collect();
    assert_eq!(choices, ids);
    // Two tokens back in all layers, then on as if they had never been.
    ctx.clear();
    ctx.decode(&prompt).unwrap();
    let n = ctx.n_past();
    ctx.decode(&[ids[0], 7, 8]).unwrap();
    ctx.truncate(n + 1).unwrap();
    let row = ctx.decode_last(&ids[1..2]).unwrap();
    assert!(nmse(forced.row(n + 1), &row) < 1e-4);
    // The whole of a decode cannot be undone (llama.cpp would, wrongly), nor anything twice.
    assert!(matches!(ctx.truncate(n + 1), Err(LlamaError::Rollback(_))));
    ctx.decode(&ids[2..6]).unwrap();
    ctx.truncate(n + 5).unwrap();
    assert!(matches!(ctx.truncate(n + 4), Err(LlamaError::Rollback(_))));
}

#[test]
fn perplexity_is_that_of_the_second_halves() {
    let Some(m) = model() else { return };
    let ids = m.tokenize(&"import os\nimport sys\n\ndef main():\n    return 0\n".repeat(12), true).unwrap();
    let mut ctx = Context::new(&m, options()).unwrap();
    let p = ctx.perplexity(&ids, 64).unwrap();
    assert_eq!((p.scored, p.running.len()), (31, ids.len() / 64));
    assert_eq!(p.value, *p.running.last().unwrap());
    // By hand for the first chunk: tokens 33..64 under the logits after 32..63.
    ctx.clear();
    let logits = ctx.decode(&ids[..64]).unwrap();
    let nll: f64 = (32..63)
        .map(|i| {
            let row = logits.row(i);
            let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
            sum.ln() - f64::from(row[ids[i + 1] as usize])
        })
        .sum();
    assert!((p.running[0] / (nll / 31.0).exp() - 1.0).abs() < 1e-4);
    assert!(matches!(ctx.perplexity(&ids[..32], 64), Err(LlamaError::Input(_))));
}

#[test]
fn a_full_context_and_a_missing_file_are_errors() {
    assert!(matches!(Model::load("/no/such/model.gguf"), Err(LlamaError::Load(_))));
    let Some(m) = model() else { return };
    let mut ctx = Context::new(&m, ContextOptions { n_ctx: 16, ..options() }).unwrap();
    assert!(matches!(ctx.decode(&[1; 17]), Err(LlamaError::Full { needed: 17, n_ctx: 16 })));
}

#[test]
fn speed_is_measured() {
    let Some(m) = model() else { return };
    let s = llama::speed(&m, options(), 8, 4, 2).unwrap();
    assert_eq!((s.prompt.len(), s.generation.len()), (2, 2));
    assert!(s.prompt.iter().chain(&s.generation).all(|v| *v > 0.0));
}

#[test]
fn speculation_changes_nothing() {
    let (Some(m), Some(d)) = (model(), path("HEXFLASH_ORACLE_DRAFT", "tiny-hybrid-dflash-q8_0.gguf")) else {
        return;
    };
    let d = Model::load(d).expect("the draft loads");
    assert!(matches!(DFlash::new(&m, &m, options(), 7), Err(LlamaError::Input(_))));
    let prompt = m.tokenize("def __repr__(self):\n        return ", true).unwrap();
    let plain = Context::new(&m, options()).unwrap().greedy(&prompt, 64, false).unwrap();
    let mut spec = DFlash::new(&m, &d, options(), 7).unwrap();
    for _ in 0..2 {
        let s = spec.generate(&prompt, 64).unwrap();
        assert_eq!(s.ids, plain.iter().map(|c| c.id).collect::<Vec<_>>());
        assert!(
            s.accepted.iter().sum::<usize>() > s.accepted.len(),
            "the draft knows this text: {:?}",
            s.accepted
        );
        assert_eq!(s.drafted, 7 * s.accepted.len());
    }
}
