//! `info --program`: what a model's programs do, for people who look for a byte or a packet.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::support::{hexflash, model, text};

fn listing(arguments: &[&str]) -> Json {
    let target = model("tiny-hybrid-q8_0.gguf");
    hexflash(&[&["info", "-m", text(&target), "--json", "--program"], arguments].concat()).succeeded().json()
}

/// The operands of all ops: names of the operand, of the tensor and of its buffer.
fn operands(listing: &Json) -> HashSet<[&str; 3]> {
    let ops = listing["ops"].as_array().unwrap();
    let operands = ops.iter().flat_map(|op| op["operands"].as_array().unwrap());
    operands.map(|o| ["operand", "tensor", "buffer"].map(|key| o[key].as_str().unwrap())).collect()
}

#[test]
fn a_step_is_listed_op_by_op_with_the_names_of_its_tensors() {
    let decode = listing(&["decode"]);
    assert_eq!(
        (&decode["name"], &decode["max_tokens"], &decode["numerics"]),
        (&"decode".into(), &1.into(), &"exact".into())
    );
    let ops = decode["ops"].as_array().unwrap();
    assert_eq!((&ops[0]["op"], &ops[ops.len() - 1]["op"]), (&"GET_ROWS".into(), &"ARGMAX".into()));
    let found = operands(&decode);
    for expected in [
        ["table", "token_embd.weight", "weights"],
        ["ids", "tokens", "io"],
        ["w", "blk.3.ffn_down.weight", "weights"],
        ["k_cache", "blk.3.cache_k", "state"],
        ["state", "blk.0.state", "state"],
        ["y", "logits", "io"],
    ] {
        assert!(found.contains(&expected), "{expected:?} in {found:#?}");
    }
    let sum = |key: &str| ops.iter().map(|op| op[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(decode["totals"]["weight_bytes"], sum("weight_bytes"));
    assert_eq!(decode["totals"]["data_bytes"], sum("data_bytes"));
    assert_eq!(decode["totals"]["ops"], ops.len());
}

/// The classes of decode, verify and prefill, and whether the matrix unit multiplies in each.
#[test]
fn numerics_say_what_the_matrix_unit_multiplies() {
    for (arguments, classes) in [
        (&[][..], ["exact", "exact", "exact"]),
        (&["--hmx"], ["exact", "exact", "fast"]),
        (&["--numerics", "fast"], ["exact", "exact", "fast"]),
        (&["--numerics", "hmx"], ["hmx", "hmx", "hmx"]),
        (&["--hmx", "--numerics", "hmx"], ["hmx", "hmx", "hmx"]),
        (&["--numerics", "hmx", "--no-hmx"], ["exact", "exact", "exact"]),
        (&["--no-hmx", "--numerics", "hmx"], ["hmx", "hmx", "hmx"]),
    ] {
        for (program, class) in ["decode", "verify", "prefill"].into_iter().zip(classes) {
            let listing = listing(&[&[program], arguments].concat());
            assert_eq!(listing["numerics"], class, "{program} {arguments:?}");
            let by_unit =
                listing["ops"].as_array().unwrap().iter().filter(|op| op["kernel"] == "mul_mat q8_0 hmx");
            assert_eq!(by_unit.count() > 0, class != "exact", "{program} {arguments:?}");
        }
    }
    let refused = hexflash(&["run", "--numerics", "double", "x"]);
    refused.failed(2, "invalid value 'double'", "possible values: exact, fast, hmx");
}

#[test]
fn a_round_has_the_drafts_tensors_too() {
    let draft = model("tiny-hybrid-dflash-q8_0.gguf");
    let round = listing(&["round", "-md", text(&draft)]);
    assert!(
        operands(&round)
            .iter()
            .any(|[_, tensor, buffer]| { tensor.starts_with("draft.") && *buffer == "draft weights" })
    );
    let parts: HashSet<_> = round["ops"].as_array().unwrap().iter().map(|op| op["part"].as_u64()).collect();
    assert_eq!(parts.len(), 6, "verify, LM head, accept, taps, draft, draft head: {parts:?}");
}

#[test]
fn people_get_a_line_per_operand_and_a_total() {
    let target = model("tiny-hybrid-q8_0.gguf");
    let outcome = hexflash(&["info", "-m", text(&target), "--program", "decode"]).succeeded();
    assert!(outcome.stdout.starts_with("program decode: 1 token, 512 positions, exact\n"), "{outcome:?}");
    assert!(outcome.stdout.lines().last().unwrap().starts_with("total 177 ops"), "{outcome:?}");
}

#[test]
fn programs_that_there_are_not_are_refused_with_those_that_there_are() {
    let target = model("tiny-hybrid-q8_0.gguf");
    let info = |name: &str| hexflash(&["info", "-m", text(&target), "--program", name]);
    info("round").failed(2, "there is no program \"round\"", "draft model");
    info("nonsense").failed(2, "invalid value 'nonsense'", "decode, verify, prefill");
}
