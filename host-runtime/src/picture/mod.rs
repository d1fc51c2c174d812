//! Pictures: from the bytes of a file to what a model reads.
//!
//! A [`Picture`] is decoded, [cut](Layout::new) into tiles of the size that a model's encoder takes, and the
//! model [encodes](crate::engine::Engine::encode) these. In a prompt stand the rows of the tiles and, around
//! them, the texts that the model was trained with.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = hexflash::ModelOptions::default().encoder("mmproj.gguf");
//! let mut model = options.open("model.gguf")?;
//! let picture = model.picture(&std::fs::read("photo.jpg")?)?;
//! let mut chat = model.chat()?;
//! let answer = chat.show(&[picture], "What is in the picture?", hexflash::Limits::tokens(100))?;
//! println!("{}", answer.finish()?.text);
//! # Ok(())
//! # }
//! ```

mod decode;
mod error;
mod gemma3;
mod gemma4;
mod idefics3;
mod layout;
mod lfm2;
mod prompt;
mod resize;
mod size;
mod tile;

pub use decode::{MAX_PIXELS, Picture};
pub use error::PictureError;
pub use layout::Layout;
pub use prompt::{EncodedPicture, MARKER, PLACE, PicturePrompt, placed, prompt, text};
pub use size::Size;
pub use tile::{Part, Tile};
