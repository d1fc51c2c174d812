//! The bits that the shipped models compute, checked in: a change of the code that should change no result
//! changes none.
//!
//! Hashed are the logits after every token, and caches, rings and recurrent states after the last one. All
//! back ends give the same bits (`invariance.rs`), so the hashes hold on every machine.

use hexflash::device::inproc::Settings;
use hexflash::engine::{Engine, EngineOptions};
use hexflash::testing::state_bytes;
use hexflash_dsp::hvx::Isa;
use hexflash_e2e::{Model, inproc, reference, settings};
use xxhash_rust::xxh3::Xxh3Default;

/// Tokens of a run: no multiple of 3 or 16, and across a tile of 32 positions.
const TOKENS: usize = 37;

/// Tokens per step.
const WIDTHS: [usize; 3] = [1, 3, 16];

/// Positions of the caches: their unused rows are hashed too, and are zero.
const CONTEXT: u32 = 64;

/// Hashes of logits and of states, which are the same for every width.
fn expected(model: Model) -> [u64; 2] {
    match model {
        Model::F16 => [0x7656_824e_ff61_9a71, 0xba71_84fd_3fcf_2b4a],
        Model::Q8_0 => [0x3f50_3061_8ead_ddd9, 0x57f9_37cd_8526_8a9d],
        Model::Q4_0 => [0x1a9c_59bc_865c_3780, 0x5078_f1ad_f0e4_f173],
    }
}

/// The first tokens of a prompt and of what llama.cpp wrote after it.
fn tokens() -> Vec<u32> {
    let cases = reference::greedy(Model::F16).cases;
    let case = cases.iter().rfind(|case| case.prompt.starts_with('@')).expect("a prompt of ids");
    case.prompt_ids.iter().chain(&case.ids).copied().take(TOKENS).collect()
}

/// Logits and states of a new engine that takes `tokens` in steps of `width`.
fn hashes(engine: &mut Engine, tokens: &[u32], width: usize) -> [u64; 2] {
    let mut logits = Xxh3Default::new();
    for step in tokens.chunks(width) {
        match *step {
            [token] => engine.decode(token).unwrap(),
            _ => engine.decode_many(step).unwrap(),
        }
        for row in 0..step.len() {
            engine.logits(row).iter().for_each(|logit| logits.update(&logit.to_le_bytes()));
        }
    }
    let mut states = Xxh3Default::new();
    states.update(&state_bytes(engine));
    [logits.digest(), states.digest()]
}

#[test]
fn logits_and_states_have_the_bits_that_are_checked_in() {
    let ids = tokens();
    assert_eq!(ids.len(), TOKENS);
    for model in Model::ALL {
        for width in WIDTHS {
            let device = inproc(Settings { isa: Isa::Portable, ..settings() });
            let options = EngineOptions { n_ctx: Some(CONTEXT), ..EngineOptions::default() };
            let found = hashes(&mut model.engine(device, &options), &ids, width);
            assert_eq!(found, expected(model), "{model:?}, width {width}: {found:x?}");
        }
    }
}
