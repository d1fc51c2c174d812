//! Goes on with a text: `cargo run --release -p hexflash --example generate -- model.gguf "def main():"`.

use std::io::Write;

use hexflash::{Error, Limits, Model};

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "models/tiny-hybrid-q8_0.gguf".to_owned());
    let prompt = args.next().unwrap_or_else(|| "#### pub fn push(&mut self".to_owned());

    let mut model = Model::open(path)?;
    print!("{prompt}");
    for piece in model.complete(&prompt, Limits::tokens(64))? {
        print!("{}", piece?);
        // A closed output is noticed by the next line that is printed.
        let _ = std::io::stdout().flush();
    }
    println!();
    Ok(())
}
