//! The same text with and without a draft model, and what drafts were worth:
//! `cargo run --release -p hexflash --example speculative -- target.gguf draft.gguf "prompt"`.

use hexflash::{Error, Generated, Limits, Model, ModelOptions};

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let target = next("models/tiny-hybrid-q8_0.gguf");
    let draft = next("models/tiny-hybrid-dflash-q8_0.gguf");
    let prompt = next("def __repr__(self):\n        return ");

    let greedy = ModelOptions::default().temperature(0.0);
    let generate = |mut model: Model| -> Result<Generated, Error> {
        // The first text warms up; it also teaches the choice of lengths what steps and rounds cost.
        model.complete(&prompt, Limits::tokens(128))?.finish()?;
        model.complete(&prompt, Limits::tokens(128))?.finish()
    };
    let plain = generate(greedy.clone().open(&target)?)?;
    let drafted = generate(greedy.draft(draft).open(&target)?)?;
    assert_eq!(plain.tokens, drafted.tokens, "drafts never change a text");

    println!("{}", drafted.text);
    println!("plain:   {:.0} tokens/s", plain.stats.generated_per_second);
    println!("drafted: {:.0} tokens/s", drafted.stats.generated_per_second);
    if let Some(stats) = drafted.stats.speculation {
        println!(
            "{} of {} drafts accepted in {} rounds, {} plain steps between them",
            stats.accepted, stats.drafted, stats.rounds, stats.steps
        );
    }
    Ok(())
}
