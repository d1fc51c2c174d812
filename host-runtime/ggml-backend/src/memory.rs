//! How much memory this machine has.

/// Bytes that are available, and all of them, as the kernel says; zeros where it does not.
pub fn of_machine() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    ["MemAvailable:", "MemTotal:"].map(|name| field(&text, name))
}

/// The value of a line such as `MemTotal:       24576000 kB`, in bytes.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn lines_are_found_by_name() {
        let text = "MemTotal:       24576000 kB\nMemFree: 1 kB\n";
        assert_eq!((field(text, "MemTotal:"), field(text, "MemAvailable:")), (24_576_000 * 1024, 0));
    }
}
