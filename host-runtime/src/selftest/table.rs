//! The table of vectors, which `cargo xtask vectors` writes.

use std::ops::RangeInclusive;

use hexflash_abi::Op;
use hexflash_abi::forms::{Form, Operands, WORDS};

/// What the table is written to, with this build's words.
const BUILT_IN: &str = include_str!("vectors.txt");

/// What instructions and small kernels must give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Forms of float instructions.
    pub forms: Vec<FormVectors>,
    /// Kernels.
    pub ops: Vec<OpVectors>,
}

/// Lanes of a form on some versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormVectors {
    /// The form.
    pub form: Form,
    /// Versions that these results are of, as the vendor's library gives them: 0x68 and up.
    pub archs: RangeInclusive<u32>,
    /// What nobody outside has answered yet: another result is news, and no failure.
    pub question: Option<String>,
    /// At most as many as a vector has.
    pub lanes: Vec<Lane>,
}

/// A lane of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Words of the operands, and of what is added to.
    pub takes: Vec<u32>,
    /// Words of the result: two where a form gives a pair.
    pub gives: Vec<u32>,
}

/// An op on one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpVectors {
    /// The op.
    pub op: Op,
    /// Which of an op's ways; empty where there is one.
    pub way: String,
    /// How many units in the last place a result may be off.
    pub ulps: u32,
    /// Parameters, as words.
    pub params: Vec<u32>,
    /// Words of each source.
    pub takes: Vec<Vec<u32>>,
    /// Words of the result.
    pub gives: Vec<u32>,
}

impl FormVectors {
    /// What the form is executed on: all lanes at once, and zeros in those that are left.
    pub fn operands(&self) -> Operands {
        let mut operands =
            Operands { form: self.form.wire(), u: [0; WORDS], v: [0; WORDS], x: [[0; WORDS]; 2] };
        for (i, lane) in self.lanes.iter().enumerate().take(WORDS) {
            let word = |at: usize| lane.takes.get(at).copied().unwrap_or(0);
            (operands.u[i], operands.v[i]) = (word(0), word(1));
            (operands.x[0][i], operands.x[1][i]) = (word(2), word(3));
        }
        operands
    }
}

impl OpVectors {
    /// The op's name, with the way.
    pub fn name(&self) -> String {
        let Self { op, way, .. } = self;
        if way.is_empty() { op.to_string() } else { format!("{op} ({way})") }
    }
}

impl Table {
    /// The table of this build.
    ///
    /// # Errors
    /// It is none, which a test excludes.
    pub fn built_in() -> Result<Self, String> {
        Self::parse(BUILT_IN)
    }

    /// Reads a table.
    ///
    /// # Errors
    /// The line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        let mut last = Last::Nothing;
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            table.line(line, &mut last).ok_or_else(|| format!("line {}: {line}", i + 1))?;
        }
        Ok(table)
    }

    fn line(&mut self, line: &str, last: &mut Last) -> Option<()> {
        if let Some(rest) = line.strip_prefix("form ") {
            self.forms.push(form(rest)?);
            *last = Last::Form;
        } else if let Some(rest) = line.strip_prefix("op ") {
            self.ops.push(op(rest)?);
            *last = Last::Nothing;
        } else if let Last::Form = last {
            let (takes, gives) = line.split_once(':')?;
            let lane = Lane { takes: words(takes)?, gives: words(gives)? };
            let lanes = &mut self.forms.last_mut()?.lanes;
            let sound = lanes.len() < WORDS
                && (1..=4).contains(&lane.takes.len())
                && (1..=2).contains(&lane.gives.len());
            sound.then(|| lanes.push(lane))?;
        } else {
            let op = self.ops.last_mut()?;
            match line {
                "params" => *last = Last::Params,
                "takes" => {
                    op.takes.push(Vec::new());
                    *last = Last::Takes;
                }
                "gives" => *last = Last::Gives,
                _ => {
                    let list = match last {
                        Last::Params => &mut op.params,
                        Last::Takes => op.takes.last_mut()?,
                        Last::Gives => &mut op.gives,
                        Last::Nothing | Last::Form => return None,
                    };
                    list.extend(words(line)?);
                }
            }
        }
        Some(())
    }
}

/// What the lines belong to that are read.
enum Last {
    Nothing,
    Form,
    Params,
    Takes,
    Gives,
}

fn form(text: &str) -> Option<FormVectors> {
    let mut parts = text.splitn(3, ';').map(str::trim);
    let name = parts.next()?;
    let form = *Form::ALL.iter().find(|form| form.name() == name)?;
    let (first, last) = parts.next()?.split_once(' ')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let question = parts.next().filter(|question| !question.is_empty()).map(str::to_owned);
    Some(FormVectors { form, archs: number(first)?..=number(last)?, question, lanes: Vec::new() })
}

fn op(text: &str) -> Option<OpVectors> {
    let mut parts = text.splitn(3, ';').map(str::trim);
    let name = parts.next()?;
    let op = *Op::ALL.iter().find(|op| op.name() == name)?;
    let (way, ulps) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
    Some(OpVectors { op, way, ulps, params: Vec::new(), takes: Vec::new(), gives: Vec::new() })
}

fn words(text: &str) -> Option<Vec<u32>> {
    text.split_whitespace().map(|word| u32::from_str_radix(word, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_table_has_every_form_and_whole_ops() {
        let table = Table::built_in().unwrap();
        for form in Form::ALL {
            let of_form = |vectors: &&FormVectors| vectors.form == *form;
            assert!(table.forms.iter().filter(of_form).all(|vectors| !vectors.lanes.is_empty()), "{form}");
            assert!(table.forms.iter().any(|vectors| of_form(&vectors)), "{form}");
        }
        assert!(table.ops.len() > 10);
        for op in &table.ops {
            assert!(!op.takes.is_empty() && !op.gives.is_empty(), "{}", op.name());
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for text in
            ["00000000 : 0", "form vnone; 68 75;", "form sf=vadd(sf,sf); 68 75;\n1 2 3 4 5 : 6", "op ADD; x"]
        {
            let error = Table::parse(text).unwrap_err();
            assert!(error.starts_with("line ") && error.contains(text.lines().last().unwrap()), "{error}");
        }
    }
}
