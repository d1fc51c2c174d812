//! What a report does not tell: whose device it is.

use std::path::Path;
use std::time::Duration;

use crate::deploy;

/// Shortest name that is looked for: shorter ones are in too many words.
const SHORTEST: usize = 3;
/// Names that tell nothing.
const COMMON: [&str; 8] = ["root", "shell", "home", "user", "data", "localhost", "android", "files"];
/// Folders with a folder for each user.
const HOMES: [&str; 2] = ["/home/", "/Users/"];

/// Texts that are hidden, with what stands in for each.
#[derive(Debug, Default)]
pub(crate) struct Private(Vec<(String, &'static str)>);

impl Private {
    /// The home, the user's name, the machine's name and the serial number of this device.
    pub(crate) fn here() -> Self {
        let mut private = Self::default();
        let home = std::env::home_dir().map(|home| home.to_string_lossy().into_owned());
        if let Some(home) = home {
            // The home over adb is `/`.
            let name = Path::new(&home).file_name().map(|name| name.to_string_lossy().into_owned());
            private.add(&home, "~");
            private.add(&name.unwrap_or_default(), "USER");
        }
        for name in ["USER", "LOGNAME"] {
            private.add(&std::env::var(name).unwrap_or_default(), "USER");
        }
        private.add(&std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(), "HOST");
        for name in ["ro.serialno", "ro.boot.serialno"] {
            private.add(&property(name), "SERIAL");
        }
        private
    }

    fn add(&mut self, text: &str, instead: &'static str) {
        let text = text.trim();
        if text.len() >= SHORTEST && !COMMON.contains(&text) {
            self.0.push((text.to_owned(), instead));
        }
    }

    /// The text without them.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (word, instead) in &self.0 {
            text = replace_word(&text, word, instead);
        }
        for homes in HOMES {
            text = without_users(&text, homes);
        }
        text
    }
}

/// A property of Android; empty where there is none.
pub(super) fn property(name: &str) -> String {
    let mut command = std::process::Command::new("getprop");
    command.arg(name);
    let said = deploy::said(&mut command, Duration::from_secs(2)).unwrap_or_default();
    said.trim().to_owned()
}

/// Replaces a text where it is no part of a longer word.
fn replace_word(text: &str, word: &str, instead: &str) -> String {
    let mut rest = text;
    let mut result = String::with_capacity(text.len());
    while let Some(at) = rest.find(word) {
        let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
        let joins = |next: Option<char>| next.is_some_and(char::is_alphanumeric);
        // What a path begins with may follow anything.
        let starts = word.starts_with('/') || !joins(before.chars().next_back());
        result.push_str(before);
        result.push_str(if starts && !joins(behind.chars().next()) { instead } else { word });
        rest = behind;
    }
    result + rest
}

/// Replaces the first folder below `homes`.
fn without_users(text: &str, homes: &str) -> String {
    let mut parts = text.split(homes);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(['/', ' ', ':', ';', ',', ')']).unwrap_or(part.len());
        result.push_str(homes);
        result.push_str(if end > 0 { "USER" } else { "" });
        result.push_str(&part[end..]);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_homes_are_hidden() {
        let mut private = Private::default();
        private.add("/data/data/com.termux/files/home", "~");
        private.add("alice", "USER");
        private.add("R58N123ABC\n", "SERIAL");
        private.add("/", "~");
        private.add("root", "USER");
        for (text, hidden) in [
            ("/data/data/com.termux/files/home/x.gguf is", "~/x.gguf is"),
            ("alice: malice, alice's", "USER: malice, USER's"),
            ("serial R58N123ABC; root", "serial SERIAL; root"),
            ("/home/bob/m.gguf, /Users/carol;/home/", "/home/USER/m.gguf, /Users/USER;/home/"),
            ("/data/local/tmp/hexflash", "/data/local/tmp/hexflash"),
        ] {
            assert_eq!(private.hide(text), hidden);
        }
    }

    #[test]
    fn words_are_replaced_as_words() {
        assert_eq!(replace_word("ab abc ab", "ab", "X"), "X abc X");
        assert_eq!(replace_word("", "ab", "X"), "");
        assert_eq!(replace_word("äab ab", "ab", "X"), "äab X");
    }
}
