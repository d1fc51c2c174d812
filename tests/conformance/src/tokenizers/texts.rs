//! Texts for tokenizers: random ones of many kinds, and pieces of real files.

use std::path::Path;

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// What texts are made of, and random vocabularies learn from.
pub const PARTS: &[&str] = &[
    "the ",
    "token",
    "izer",
    " of",
    " a model",
    "I'll",
    "DON'T",
    "we've ",
    "it's",
    "'S",
    "'",
    "x'd",
    "Hello",
    "parseHTTPServer",
    "snake_case",
    "CamelCase",
    "{}",
    "();\n",
    "    ",
    "\t",
    "\t\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "  \n ",
    " ",
    "  ",
    "   ",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{85}",
    "\u{b}",
    "\u{c}",
    "0",
    "1",
    "42",
    "12345678",
    " 7",
    "3.14159",
    "٣٤",
    "Ⅷ",
    "½",
    "²",
    "ü",
    "é",
    "e\u{301}",
    "Größe",
    "naïve",
    "ŠĐ",
    "Привет",
    "мир",
    "ΑΒΓ",
    "αβγ",
    "你好",
    "世界",
    "こんにちは",
    "カタカナ",
    "안녕",
    "하세요",
    "مرحبا",
    "שלום",
    "हिन्दी",
    "ไทย",
    "😀",
    "👨‍👩‍👧",
    "🇩🇪",
    "✨",
    "—",
    "…",
    "“quoted”",
    "!",
    "?!",
    "...",
    "://",
    "/",
    "\\",
    "#",
    "@",
    "$100",
    "50%",
    "a+b=c",
    "<",
    ">",
    "<|",
    "|>",
    "<s>",
    "</s>",
    "<|im_end|>",
    "<user>",
    "<0x41>",
    "\u{2581}",
    "\u{2581}\u{2581}",
    "\0",
    "\u{7f}",
    "\u{fffd}",
    "[INST]",
    "  <user>  ",
    "fn main() {\n    println!(\"{}\", 1);\n}\n",
];

/// Where characters of the world's scripts are, and what has given tokenizers trouble. Not all of these code
/// points are assigned.
const BLOCKS: &[(u32, u32)] = &[
    (0x00, 0x7f),
    (0x80, 0xff),
    (0x100, 0x24f),
    (0x250, 0x2ff),
    // Combining marks.
    (0x300, 0x36f),
    // Greek, Cyrillic, Armenian, Hebrew, Arabic.
    (0x370, 0x3ff),
    (0x400, 0x52f),
    (0x530, 0x58f),
    (0x590, 0x5ff),
    (0x600, 0x6ff),
    // Devanagari, Bengali, Tamil, Telugu, Malayalam, Thai, Tibetan, Burmese, Georgian.
    (0x900, 0x97f),
    (0x980, 0x9ff),
    (0xb80, 0xbff),
    (0xc00, 0xc7f),
    (0xd00, 0xd7f),
    (0xe00, 0xe7f),
    (0xf00, 0xfff),
    (0x1000, 0x109f),
    (0x10a0, 0x10ff),
    // Hangul letters, Ethiopic, Cherokee, Khmer, Mongolian.
    (0x1100, 0x11ff),
    (0x1200, 0x137f),
    (0x13a0, 0x13ff),
    (0x1780, 0x17ff),
    (0x1800, 0x18af),
    (0x1e00, 0x1fff),
    // Punctuation with blanks and joiners, super- and subscripts, currencies, letterlike, numbers, arrows.
    (0x2000, 0x206f),
    (0x2070, 0x209f),
    (0x20a0, 0x20cf),
    (0x2100, 0x218f),
    (0x2190, 0x22ff),
    (0x2460, 0x24ff),
    (0x2500, 0x27bf),
    // CJK punctuation, kana, Han, Yi, Hangul.
    (0x3000, 0x303f),
    (0x3040, 0x30ff),
    (0x3400, 0x4dbf),
    (0x4e00, 0x9fff),
    (0xa000, 0xa4cf),
    (0xac00, 0xd7a3),
    // Private use, compatibility forms, variation selectors, full width, the end of the plane.
    (0xe000, 0xf8ff),
    (0xf900, 0xfaff),
    (0xfb00, 0xfdff),
    (0xfe00, 0xfe6f),
    (0xfe70, 0xffff),
    // Gothic, Deseret, mathematics, emoji, more Han, tags, the last plane.
    (0x10330, 0x1034f),
    (0x10400, 0x1044f),
    (0x1d400, 0x1d7ff),
    (0x1f1e6, 0x1f1ff),
    (0x1f300, 0x1faff),
    (0x20000, 0x2a6df),
    (0xe0000, 0xe007f),
    (0x10ff00, 0x10ffff),
];

/// What runs are made of.
const RUNS: &[&str] = &[
    " ", "\n", "\t", "\r\n", "\u{a0}", "\u{3000}", "-", "=", ".", "a", "Z", "0", "7", "!", "é", "中", "😀",
    "e\u{301}", " \n", "ab", "'",
];

/// What may be between words.
const BETWEEN: &[&str] = &[" ", "  ", "\n", ", ", "-", ""];

/// Longest run, in repetitions: longer than any token.
const LONGEST_RUN: usize = 150;
/// Longest word without a break, in letters.
const LONGEST_WORD: usize = 400;
/// Longest piece of a file, in characters.
const LONGEST_PIECE: usize = 300;

/// Texts drawn from a seed.
pub struct Random(Pcg64Mcg);

impl Random {
    /// The texts of a seed.
    pub fn new(seed: u128) -> Self {
        Self(Pcg64Mcg::new(seed << 64 | 0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n as u64) as usize
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    /// Up to `parts` of [`PARTS`].
    pub fn text(&mut self, parts: usize) -> String {
        let n = self.below(parts + 1);
        (0..n).map(|_| *self.pick(PARTS)).collect()
    }

    /// Characters of one block, up to `most`.
    fn of_a_block(&mut self, most: usize) -> String {
        let &(first, last) = self.pick(BLOCKS);
        let n = 1 + self.below(most);
        (0..n)
            .filter_map(|_| char::from_u32(first + self.below((last - first) as usize + 1) as u32))
            .collect()
    }

    /// A text of the kind with this number, of any: each kind as often as another.
    pub fn any(&mut self, number: usize, specials: &[String], files: &[String]) -> String {
        match number % 8 {
            0 => self.text(12),
            1 => (0..1 + self.below(6)).map(|_| self.of_a_block(8)).collect(),
            // As people mix scripts: words between blanks.
            2 => {
                let words: Vec<String> = (0..1 + self.below(8)).map(|_| self.of_a_block(6)).collect();
                words.join(*self.pick(BETWEEN))
            }
            3 => {
                let runs = 1 + self.below(5);
                let run = |random: &mut Self| random.pick(RUNS).repeat(1 + random.below(LONGEST_RUN));
                (0..runs).map(|_| run(self) + &self.text(2)).collect()
            }
            // Numbers and what is in them.
            4 => (0..1 + self.below(40)).map(|_| *self.pick(b"0123456789 .,:-+eE%x_\n") as char).collect(),
            5 => {
                let special = |random: &mut Self| random.pick(specials).clone();
                let mut text: String =
                    (0..1 + self.below(4)).map(|_| self.text(3) + &special(self)).collect();
                // Some of them are cut off.
                let cut = text.chars().count() - self.below(3).min(text.chars().count());
                text = text.chars().take(cut).collect();
                text + &self.text(3)
            }
            6 => {
                let letters: Vec<char> = match self.below(3) {
                    0 => ('a'..='z').collect(),
                    1 => ('A'..='Z').chain('a'..='z').collect(),
                    _ => "абвгдежзийклмнопрстуфхцчшщъыьэюя".chars().collect(),
                };
                (0..1 + self.below(LONGEST_WORD)).map(|_| *self.pick(&letters)).collect()
            }
            _ => {
                let text = self.pick(files);
                let start = text.floor_char_boundary(self.below(text.len()));
                text[start..].chars().take(1 + self.below(LONGEST_PIECE)).collect()
            }
        }
    }
}

/// Pages and sources of this repository, and texts in several languages: none is empty.
pub fn files(root: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for dir in ["docs", "host-runtime/src", "tests/data", "toolchain/xtask/src"] {
        let dir = root.join(dir);
        let failed = |e: std::io::Error| format!("cannot read {}: {e}", dir.display());
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(failed)? {
            paths.push(entry.map_err(failed)?.path());
        }
        // The order of a folder is no order.
        paths.sort();
        let is_text = |path: &Path| path.extension().is_some_and(|e| e == "md" || e == "rs" || e == "txt");
        for path in paths.iter().filter(|path| is_text(path)) {
            let text = std::fs::read_to_string(path);
            found.push(text.map_err(|e| format!("cannot read {}: {e}", path.display()))?);
        }
    }
    found.retain(|text| !text.is_empty());
    Ok(found)
}
