//! The forms of files that Android's loader takes.

/// A form of a file for Android's loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A program, which the loader starts.
    Program {
        /// Name of its file.
        name: &'static str,
    },
    /// A shared library, which a program or an app opens.
    Library {
        /// Name of its file, by which those that are linked with it look for it.
        file: &'static str,
        /// How each name that it shows begins.
        prefix: &'static str,
    },
}
