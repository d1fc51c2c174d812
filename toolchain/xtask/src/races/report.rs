//! What the emulator's detector of races says (`HEXAGON_RACE`, `toolchain/qemu`), with names for addresses.

use object::read::{File as Elf, Object as _, ObjectSymbol as _};

/// Asks the emulator for its detector: 1 for lines on stderr, or a file.
pub const VARIABLE: &str = "HEXAGON_RACE";

/// Two instructions that access the same bytes, one of them to write, and that nothing orders.
#[derive(Debug, PartialEq, Eq)]
pub struct Race {
    /// Their addresses.
    pub pair: [u32; 2],
    /// The emulator's line.
    pub line: String,
}

/// What was said of one or more processes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Races, each once in each process.
    pub races: Vec<Race>,
    /// Processes that ended and said how much they have done.
    pub processes: usize,
    /// Accesses of all of them: scalar, vector, copy, matrix.
    pub accesses: [u64; 4],
}

impl Report {
    /// Reads the emulator's lines out of all that was printed.
    pub fn read(text: &str) -> Self {
        let mut report = Self::default();
        for line in text.lines() {
            let Some(content) = line.strip_prefix("race: ") else { continue };
            if content.starts_with("pairs ") {
                report.processes += 1;
                let words: Vec<_> = content.split([' ', ';']).collect();
                for (sum, kind) in report.accesses.iter_mut().zip(["scalar", "vector", "copy", "matrix"]) {
                    let at = words.iter().position(|word| *word == kind);
                    let number = at.and_then(|at| words.get(at + 1)).and_then(|word| word.parse().ok());
                    *sum += number.unwrap_or(0);
                }
                continue;
            }
            // A descriptor that was changed has one instruction: the one that handed it over.
            let mut addresses = content.split(' ').filter_map(instruction);
            let first = addresses.next().unwrap_or(0);
            let pair = [first, addresses.next().unwrap_or(first)];
            report.races.push(Race { pair, line: content.to_owned() });
        }
        report
    }
}

/// The address of an instruction, which has a colon after it.
fn instruction(word: &str) -> Option<u32> {
    u32::from_str_radix(word.strip_prefix("0x")?.strip_suffix(':')?, 16).ok()
}

/// Functions of a program by their addresses.
pub struct Symbols {
    /// Where each begins, in order, and its name.
    functions: Vec<(u32, String)>,
}

impl Symbols {
    /// Of an ELF file that was loaded at this address; none where the bytes are no such file.
    pub fn read(bytes: &[u8], base: u32) -> Option<Self> {
        let elf = Elf::parse(bytes).ok()?;
        let symbols = elf.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text);
        let mut functions: Vec<_> = symbols
            .filter_map(|symbol| Some((base + symbol.address() as u32, symbol.name().ok()?.to_owned())))
            .collect();
        functions.sort();
        Some(Self { functions })
    }

    /// The name of the function that an address is in, as the file has it.
    pub fn name(&self, address: u32) -> &str {
        let behind = self.functions.partition_point(|(begin, _)| *begin <= address);
        behind.checked_sub(1).map_or("?", |at| &self.functions[at].1)
    }

    /// A race in words: both functions, and the emulator's line.
    pub fn describe(&self, race: &Race) -> String {
        let [now, before] = race.pair.map(|address| self.name(address));
        format!("{now} and {before}: {}", race.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_emulator_are_read() {
        let report = Report::read(
            "guest: something else\n\
             race: 0x00020564: vector load of thread 0 at address 0x00033000, and nothing orders it after \
             0x00020560: matrix store of thread 0\n\
             race: 0x000202f8: the descriptor at 0x00038880 was changed before it was done\n\
             race: pairs 2; accesses: scalar 10 vector 20 copy 30 matrix 40\n\
             race: pairs 0; accesses: scalar 1 vector 2 copy 3 matrix 4\n",
        );
        let pairs: Vec<_> = report.races.iter().map(|race| race.pair).collect();
        assert_eq!(pairs, [[0x20564, 0x20560], [0x202f8, 0x202f8]]);
        assert_eq!((report.processes, report.accesses), (2, [11, 22, 33, 44]));
    }

    #[test]
    fn an_address_has_the_name_of_the_function_that_begins_before_it() {
        let functions = [(0x100, "one"), (0x200, "two")].map(|(at, name)| (at, name.to_owned()));
        let symbols = Symbols { functions: functions.into() };
        let names = [0xff, 0x100, 0x1ff, 0x200, 0x2000].map(|address| symbols.name(address));
        assert_eq!(names, ["?", "one", "one", "two", "two"]);
    }
}
