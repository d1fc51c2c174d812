//! A conversation, a line at a time: `cargo run --release -p hexflash --example chat -- model.gguf`.

use std::io::Write;

use hexflash::text::CHATML;
use hexflash::{Error, Limits, Model};

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "models/tiny-hybrid-q8_0.gguf".to_owned());
    let mut model = Model::open(path)?;
    // The small models that ship with hexflash come without a template.
    let template = model.text().chat_template.clone().unwrap_or_else(|| CHATML.to_owned());
    let mut chat = model.chat_with(template);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        for piece in chat.say(line, Limits::tokens(256))? {
            print!("{}", piece?);
            let _ = std::io::stdout().flush();
        }
        println!();
    }
    Ok(())
}
