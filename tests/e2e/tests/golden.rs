//! The engine computes what llama.cpp and transformers compute from the same files.

use hexflash::engine::{Engine, EngineOptions};
use hexflash::generate::{Finish, Limits};
use hexflash::model::MAX_VERIFY;
use hexflash::sampler::{Sampler, SamplerParams};
use hexflash::speculation::Speculation;
use hexflash::testing;
use hexflash::text::TextModel;
use hexflash_e2e::near_tie::Walk;
use hexflash_e2e::reference::{self, GreedyCase};
use hexflash_e2e::{Model, generate, inproc, nmse, report, settings};

/// Normalised squared error that rounding explains: we keep K and V in half precision, transformers in
/// single.
const MAX_NMSE: f64 = 1e-6;

/// Generation through the same function as `hexflash run`. Whether it gave what llama.cpp gave.
fn generates_the_same(engine: &mut Engine, text: &TextModel, case: &GreedyCase) -> bool {
    let params = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let mut sampler = Sampler::new(params).unwrap();
    let limits = Limits { max_tokens: Some(case.ids.len()), ..Limits::default() };
    let tokenizer = &text.tokenizer;
    engine.reset();
    let parties = (&mut sampler, &mut Speculation::off());
    let generated = generate(engine, tokenizer, parties, &case.prompt_ids, &limits, |_| true).unwrap();
    if generated.tokens != case.ids {
        return false;
    }
    assert_eq!(generated.text, case.text, "{:?}", case.prompt);
    let finish = if case.eog { Finish::Eog } else { Finish::Length };
    assert_eq!(generated.finish_reason, finish, "{:?}", case.prompt);
    true
}

/// Free generation equals the reference token by token, but where it leaves the reference's path at a
/// near-tie. Along that path the engine chooses the reference's token at every place, or has it within the
/// bound of its own choice; and no more of these are another than noise explains.
fn greedy_equals_llama_cpp(model: Model) {
    let mut engine = model.engine(inproc(settings()), &EngineOptions::default());
    let text = TextModel::read(&model.gguf()).unwrap();
    let cases = reference::greedy(model).cases;
    assert_eq!(cases.len(), 10, "all cases of the reference are there");
    let mut walk = Walk::new(model);
    for case in &cases {
        assert!(case.eog || case.ids.len() == 128);
        let what = format!("{model:?}, {:?}", case.prompt);
        let differ = walk.follow(&mut engine, &case.prompt_ids, &case.ids, &what);
        let same = generates_the_same(&mut engine, &text, case);
        assert_eq!(same, differ == 0, "{what}: generate() and single steps disagree");
    }
    report(&walk);
    walk.assert_explained();
}

#[test]
fn greedy_generation_equals_llama_cpp_f16() {
    greedy_equals_llama_cpp(Model::F16);
}

#[test]
fn greedy_generation_equals_llama_cpp_q8_0() {
    greedy_equals_llama_cpp(Model::Q8_0);
}

#[test]
fn greedy_generation_equals_llama_cpp_q4_0() {
    greedy_equals_llama_cpp(Model::Q4_0);
}

#[test]
fn texts_have_the_ids_that_llama_cpp_gives_them() {
    let tokenizer = TextModel::read(&Model::Q8_0.gguf()).unwrap().tokenizer;
    for case in reference::tokenizer_cases() {
        assert_eq!(tokenizer.encode(&case.text, true, true).unwrap(), case.ids, "{:?}", case.text);
        assert_eq!(tokenizer.decode(&case.ids, false).unwrap(), case.text);
    }
    // Prompts with a leading @ stand for ids without a text.
    for case in reference::greedy(Model::Q8_0).cases.iter().filter(|c| !c.prompt.starts_with('@')) {
        assert_eq!(tokenizer.encode(&case.prompt, true, true).unwrap(), case.prompt_ids, "{:?}", case.prompt);
    }
}

#[test]
fn logits_and_hidden_states_equal_transformers() {
    let ids = reference::logits_prompt();
    let expected = reference::logits();
    assert_eq!(expected.shape, [ids.len(), 4096]);
    // The input of every layer, and the output of the last.
    let options = EngineOptions { probes: (0..=8).collect(), ..EngineOptions::default() };
    let mut engine = Model::F16.engine(inproc(settings()), &options);

    let mut worst: f64 = 0.0;
    for (chunk, first) in ids.chunks(MAX_VERIFY as usize).zip((0..).step_by(MAX_VERIFY as usize)) {
        engine.decode_many(chunk).unwrap();
        for row in 0..chunk.len() {
            let error = nmse(engine.logits(row), expected.at(first + row));
            assert!(error <= MAX_NMSE, "logits at position {}: NMSE {error:.2e}", first + row);
            worst = worst.max(error);
        }
    }
    report(format!("logits: NMSE at most {worst:.2e} over {} positions", ids.len()));

    engine.reset();
    engine.prefill(&ids, |_| {}).unwrap();
    let hidden = reference::hidden_states();
    assert_eq!(hidden.shape, [9, ids.len(), 256]);
    for i in 0..9 {
        let mut found = testing::tap(&engine, i, ids.len());
        let name = match i {
            0 => "embedding".to_owned(),
            // transformers returns the last layer's output only after the final norm.
            8 => {
                final_norm(&mut found, engine.config().rms_eps);
                "final norm".to_owned()
            }
            _ => format!("output of layer {}", i - 1),
        };
        let error = nmse(&found, hidden.at(i));
        report(format!("{name}: NMSE {error:.2e}"));
        assert!(error <= MAX_NMSE, "{name}: NMSE {error:.2e}");
    }
}

/// The RMS norm before the LM head, row by row.
fn final_norm(rows: &mut [f32], eps: f32) {
    let gguf = Model::F16.gguf();
    let weight = gguf.data(gguf.tensor("output_norm.weight").expect("a final norm")).expect("the file");
    let weight: Vec<f32> = weight.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    for row in rows.chunks_exact_mut(weight.len()) {
        let mean = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / weight.len() as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        for (x, w) in row.iter_mut().zip(&weight) {
            *x = (f64::from(*x) * scale) as f32 * w;
        }
    }
}
