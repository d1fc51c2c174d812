//! Writes first inputs of the targets whose inputs are not found by chance, into `corpus/` of this crate.

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let seeds = [
        ("message", hexflash_fuzz::dsp::requests()),
        ("program", hexflash_fuzz::dsp::choices()),
        ("session", hexflash_fuzz::dsp::choices()),
        ("gguf", hexflash_fuzz::gguf::files()),
    ];
    for (target, inputs) in seeds {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (number, input) in inputs.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), input)?;
        }
    }
    Ok(())
}
