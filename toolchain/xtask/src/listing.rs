//! The listing that a disassembler prints.

/// The functions of a listing: name and instructions.
pub fn functions(listing: &str) -> impl Iterator<Item = (&str, &str)> {
    listing.split("\n\n").filter_map(|text| {
        let (head, body) = text.trim_start().split_once('\n')?;
        let (_address, name) = head.split_once('<')?;
        Some((name.strip_suffix(">:")?, body))
    })
}
