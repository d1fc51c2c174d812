//! The table of `docs/models.md`: a row for each model that was compared, of the last time that it was.

use std::fs;
use std::path::Path;

use super::verdict::Outcome;

/// The lines around the rows.
const HEAD: &str = "| architecture | weights | model | NMSE of logits | perplexity | by rounding |";
const RULE: &str = "|---|---|---|---|---|---|";

/// A comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The first three cells, which say what was compared; rows are sorted by them.
    key: [String; 3],
    /// What came out.
    found: [String; 3],
}

impl Row {
    /// A row for a comparison that has passed.
    pub fn new(architecture: &str, weights: &str, model: &str, outcome: &Outcome) -> Self {
        let text = &outcome.text;
        let [llama, hexflash] = text.perplexity();
        let rounding = match &outcome.rounding {
            Some(Ok(rounding)) => {
                let [theirs, ours] = rounding.nmse();
                format!("{theirs:.1e}, {ours:.1e}")
            }
            Some(Err(_)) | None => "-".to_owned(),
        };
        Self {
            key: [format!("`{architecture}`"), weights.to_owned(), model.to_owned()],
            found: [
                format!("{:.1e}", text.nmse()),
                format!("{:+.3} %", (hexflash / llama - 1.0) * 100.0),
                rounding,
            ],
        }
    }

    fn line(&self) -> String {
        let cells: Vec<&str> = self.key.iter().chain(&self.found).map(String::as_str).collect();
        format!("| {} |", cells.join(" | "))
    }

    fn read(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [a, b, c, d, e, f] = <[&str; 6]>::try_from(cells).ok()?.map(str::to_owned);
        Some(Self { key: [a, b, c], found: [d, e, f] })
    }
}

/// The page with these rows in the place of older ones for the same models.
fn updated(page: &str, rows: &[Row]) -> Result<String, String> {
    let head = format!("{HEAD}\n{RULE}\n");
    let (before, rest) = page.split_once(&head).ok_or_else(|| format!("it lacks the lines\n{head}"))?;
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    let (old, after) = rest.split_at(end);
    let mut all = Vec::new();
    for line in old.lines() {
        all.push(Row::read(line).ok_or_else(|| format!("it has a row that is none: {line}"))?);
    }
    all.retain(|row| rows.iter().all(|new| new.key != row.key));
    all.extend_from_slice(rows);
    all.sort();
    let lines: String = all.iter().map(|row| row.line() + "\n").collect();
    Ok([before, &head, &lines, after].concat())
}

/// Updates the table of the page at `path`.
pub fn update(path: &Path, rows: &[Row]) -> Result<(), String> {
    let failed = |what: &str, why: &dyn std::fmt::Display| format!("cannot {what} {}: {why}", path.display());
    let page = fs::read_to_string(path).map_err(|e| failed("read", &e))?;
    let page = updated(&page, rows).map_err(|e| failed("update", &e))?;
    fs::write(path, page).map_err(|e| failed("write", &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: [&str; 3], found: &str) -> Row {
        Row { key: key.map(str::to_owned), found: [found, "0 %", "-"].map(str::to_owned) }
    }

    #[test]
    fn new_rows_replace_those_of_the_same_models_and_all_are_sorted() {
        let page = format!("# Title\n\n{HEAD}\n{RULE}\n| `b` | F16 | m | 1 | 0 % | - |\n\nEnd.\n");
        let found = updated(&page, &[row(["`b`", "F16", "m"], "2"), row(["`a`", "Q8_0", "m"], "3")]).unwrap();
        let rows = "| `a` | Q8_0 | m | 3 | 0 % | - |\n| `b` | F16 | m | 2 | 0 % | - |\n";
        assert_eq!(found, format!("# Title\n\n{HEAD}\n{RULE}\n{rows}\nEnd.\n"));
        assert_eq!(updated(&found, &[]).unwrap(), found);
    }

    #[test]
    fn a_page_without_the_table_is_refused() {
        assert!(updated("# Title\n", &[]).is_err());
        assert!(updated(&format!("{HEAD}\n{RULE}\nno row\n"), &[]).is_err());
    }
}
